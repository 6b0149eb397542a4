package server_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

func benchServer(b *testing.B) *server.Server {
	b.Helper()
	text := "hello"
	return newServer(b, withKey, withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) {
		return api.RunObservation{Content: text, Command: "true", Metadata: api.RunMetadata{WorkingDir: &text}}, nil
	}}))
}

// sink discards an answer.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// BenchmarkAction is what the server adds to an action: key, routes, decoding,
// encoding, metrics.
func BenchmarkAction(b *testing.B) {
	s := benchServer(b)
	body := strings.NewReader(runTrue)
	r := httptest.NewRequest(http.MethodPost, "/execute_action", body)
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("X-Session-API-Key", "s3cret")
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(runTrue)
		r.Body = io.NopCloser(body)
		s.ServeHTTP(w, r)
	}
	if w.status != 200 {
		b.Fatalf("got %d, want 200", w.status)
	}
}

// BenchmarkActionOverTCP is the same over a connection that is kept.
func BenchmarkActionOverTCP(b *testing.B) {
	srv := httptest.NewServer(benchServer(b))
	b.Cleanup(srv.Close)
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/execute_action", strings.NewReader(runTrue))
		must(b, err)
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set("X-Session-API-Key", "s3cret")
		resp, err := srv.Client().Do(r)
		must(b, err)
		readAll(b, resp)
		if resp.StatusCode != http.StatusOK {
			b.Fatalf("got %d, want 200", resp.StatusCode)
		}
	}
}

// BenchmarkUpload sends a megabyte.
func BenchmarkUpload(b *testing.B) {
	s := newServer(b)
	dir := b.TempDir()
	body, contentType := form(b, "f", bytes.Repeat([]byte("x"), 1<<20))
	b.SetBytes(1 << 20)
	for b.Loop() {
		w := request{method: "POST", path: "/upload_file?destination=" + dir, contentType: contentType, body: body}.send(s)
		if w.Code != 200 {
			b.Fatalf("got %d %s, want 200", w.Code, w.Body)
		}
	}
}
