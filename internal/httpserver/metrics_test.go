package httpserver_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/httpserver"
)

// Requests are counted by what was sent, however a handler sends it.
func TestObserve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		handler func(w http.ResponseWriter)
		status  int
		body    string
		series  string
	}{
		{"no header", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "text") }, 200, "text", "2xx"},
		{"a second header", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			w.WriteHeader(http.StatusInternalServerError)
		}, 404, "", "4xx"},
		{"an informational header", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusInternalServerError)
		}, 500, "", "5xx"},
		{"a reader", func(w http.ResponseWriter) { _, _ = io.Copy(w, io.LimitReader(strings.NewReader("text"), 3)) }, 200, "tex", "2xx"},
		{"a flush", func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); err != nil || !httpserver.Begun(w) {
				t.Errorf("a flush: got %v", err)
			}
		}, 200, "", "2xx"},
	} {
		m := httpserver.NewMetrics("test", "v1")
		server := httptest.NewServer(m.Observe(slog.New(slog.DiscardHandler))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if httpserver.Begun(w) {
				t.Errorf("%s: begun at once", tt.name)
			}
			tt.handler(w)
		})))
		answer, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		server.Close()
		if err != nil || answer.StatusCode != tt.status || string(body) != tt.body {
			t.Errorf("%s: got %d %q, %v", tt.name, answer.StatusCode, body, err)
		}
		scraped := httptest.NewRecorder()
		if err := m.Serve(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil)); err != nil {
			t.Fatal(err)
		}
		if want := `test_http_requests_total{code="` + tt.series + `",method="",route=""} 1`; !bytes.Contains(scraped.Body.Bytes(), []byte(want)) {
			t.Errorf("%s: no %s in\n%s", tt.name, want, scraped.Body)
		}
	}
}

// An error of a flush reaches the handler, and a connection can be taken over.
func TestObserveController(t *testing.T) {
	t.Parallel()
	m := httpserver.NewMetrics("test", "v1")
	server := httptest.NewServer(m.Observe(slog.New(slog.DiscardHandler))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		conn, _, err := control.Hijack()
		if err != nil {
			t.Errorf("taking the connection over: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		if err := control.Flush(); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("a flush of a connection that is taken over: got %v", err)
		}
	})))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err == nil {
		_ = answer.Body.Close()
		t.Errorf("got %s", answer.Status)
	}
}
