package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

func TestViewer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"a<b>.png": "png", "a.pdf": "%PDF", "a.txt": "text"} {
		testhelp.WriteFile(t, filepath.Join(dir, name), content, 0o600)
	}
	if err := os.Mkdir(filepath.Join(dir, "d.png"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Viewer(func(work func() error) error { return work() }).Handler)
	t.Cleanup(s.Close)
	for _, c := range []struct {
		name, path, host, site string
		status                 int
		want                   string
	}{
		{"root", "/", "", "", 200, `{"status":"File viewer server is running"}`},
		{"image", "/view?path=" + dir + "/a<b>.png", "localhost", "none", 200, `<title>File Viewer - a&lt;b&gt;.png</title>`},
		{"image data", "/view?path=" + dir + "/a<b>.png", "", "", 200, `src="data:image/png;base64,cG5n"`},
		{"pdf", "/view?path=" + dir + "/a.pdf", "", "same-origin", 200, `<canvas`},
		{"relative", "/view?path=a.png", "", "", 400, "must be absolute"},
		{"directory", "/view?path=" + dir + "/d.png", "", "", 400, "is a directory"},
		{"missing file", "/view?path=" + dir + "/b.png", "", "", 404, "There is no file"},
		{"other kind", "/view?path=" + dir + "/a.txt", "", "", 500, "not supported"},
		{"no path", "/view", "", "", 422, "parameter path is missing"},
		{"path of another case", "/view?Path=" + dir + "/a.pdf", "", "", 422, "parameter path is missing"},
		{"empty path", "/view?path=", "", "", 400, "must be absolute"},
		{"the last of two", "/view?path=a.png&path=" + dir + "/a.pdf", "", "", 200, "<canvas"},
		{"by another name", "/view?path=" + dir + "/a.pdf", "evil.example", "", 403, "only a browser on this machine"},
		{"from another site", "/view?path=" + dir + "/a.pdf", "", "cross-site", 403, "only a browser on this machine"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+strings.NewReplacer("<", "%3C", ">", "%3E").Replace(c.path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.host != "" {
			request.Host = c.host
		}
		if c.site != "" {
			request.Header.Set("Sec-Fetch-Site", c.site)
		}
		response, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: got %d, %v and %s, want %d and %q", c.name, response.StatusCode, err, body, c.status, c.want)
		}
	}
}

// A page takes the same memory whatever the size of its file: the agent reaches the
// viewer, and may read many pages slowly.
func TestViewerStreams(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "large.png")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 32<<20))
	v := server.Viewer(func(work func() error) error { return work() })
	w := &pieces{header: http.Header{}}
	r := httptest.NewRequest(http.MethodGet, "/view?path="+file, nil)
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	v.Handler.ServeHTTP(w, r)
	if w.largest > 1<<20 {
		t.Errorf("the page was written in a piece of %d bytes", w.largest)
	}
	if want := int64(32<<20) * 4 / 3; w.bytes < want {
		t.Errorf("the page has %d bytes, want more than %d", w.bytes, want)
	}
}

// pieces measures what is written of an answer.
type pieces struct {
	header  http.Header
	largest int
	bytes   int64
}

func (p *pieces) Header() http.Header { return p.header }

func (*pieces) WriteHeader(int) {}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	p.bytes += int64(len(b))
	return len(b), nil
}
