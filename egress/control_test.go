package egress_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestControl: the proxy reads the files of the controller when it is told to, and all at its start.
func TestControl(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	if err := f.Delete(id); err != nil {
		t.Fatal(err)
	}
	conf := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		testhelp.WriteFile(t, filepath.Join(conf, name), text, 0o600)
	}
	handler := egress.NewControl(f.Server, conf, "v0").Handler()
	ask := func(method, path string, want int, parts ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s %s: got %d %s, want %d", method, path, w.Code, w.Body, want)
		}
		for _, part := range parts {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s %s: got %s, want %s", method, path, w.Body, part)
			}
		}
	}
	ask("POST", "/apply/"+id, http.StatusNotFound)
	write("host.json", `{"addresses":["192.0.2.1"]}`)
	ask("POST", "/apply/"+id, http.StatusNotFound)
	ask("POST", "/apply/..%2fhost", http.StatusBadRequest)
	ask("POST", "/apply/host", http.StatusBadRequest)
	write(id+".json", `{"generation":2,"policy":{"mode":"allowlist","allow":["echo.example"]}}`)
	ask("POST", "/apply/"+id, http.StatusOK, `"generation":2`)
	if got := f.status(t, "echo.example:7"); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	write(id+".json", `{"generation":1,"policy":{"mode":"public"}}`)
	ask("POST", "/apply/"+id, http.StatusConflict)
	write(id+".json", `{"generation":3,"policy":{"mode":"public","alow":[]}}`)
	ask("POST", "/apply/"+id, http.StatusInternalServerError, "alow")
	f.status(t, "evil.example:443")
	ask("GET", "/"+id, http.StatusOK, `"generation":2`, `"denied":1`)
	ask("GET", "/"+id+"/denied?after=0&wait=60", http.StatusOK, `"reason":"not in the allow list"`)
	ask("GET", "/"+id+"/denied?after=1", http.StatusOK, `{"denied":[]}`)
	ask("GET", "/metrics", http.StatusOK, `actiond_network_connections_total{outcome="denied"} 1`, `actiond_network_denied_total{reason="not in the allow list"} 1`, "actiond_network_open_limit 1024")
	ask("GET", "/"+otherID, http.StatusNotFound)

	write("host.json", `{"addresses":["8.8.8.8"]}`)
	ask("POST", "/host", http.StatusOK)
	if got := f.status(t, "echo.example:7"); got != http.StatusForbidden {
		t.Errorf("the host itself: got %d", got)
	}
	ask("DELETE", "/"+id, http.StatusOK)
	ask("DELETE", "/"+id, http.StatusNotFound)

	write("host.json", `{"addresses":[]}`)
	write(otherID+".json", `{"generation":1,"policy":{"mode":"public"}}`)
	err := egress.NewControl(f.Server, conf, "v0").Load()
	if err == nil || !strings.Contains(err.Error(), id) || strings.Contains(err.Error(), otherID) {
		t.Errorf("got %v, want an error about the broken file alone", err)
	}
	ask("GET", "/"+otherID, http.StatusOK)
	ask("GET", "/"+id, http.StatusNotFound)

	write(id+".json", string(bytes.Repeat([]byte(" "), 1<<20)))
	ask("POST", "/apply/"+id, http.StatusInternalServerError, "larger than")
}

// TestControlRoots: the hosts with secrets of a sandbox are verified by the roots in its own file, from its
// next change on; a file that is wrong leaves them as they are.
func TestControlRoots(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") })
	conf := t.TempDir()
	handler := egress.NewControl(f.Server, conf, "v0").Handler()
	testhelp.WriteFile(t, filepath.Join(conf, "host.json"), `{"addresses":[]}`, 0o600)
	file := egress.Conf{Generation: 1, Policy: parse(t, secret("")), CA: sandboxCA()}
	apply := func(id, roots string, want int) {
		t.Helper()
		file.Generation++
		data, err := file.Encode()
		if err != nil {
			t.Fatal(err)
		}
		testhelp.WriteFile(t, filepath.Join(conf, id+".json"), data, 0o600)
		if roots != "" {
			testhelp.WriteFile(t, filepath.Join(conf, id+".pem"), roots, 0o600)
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apply/"+id, http.NoBody)); w.Code != want {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	ask := func(want int) {
		t.Helper()
		if got, body := get(t, f.client(t, false), request(t, http.MethodGet, "https://api.example/", nil)); got.StatusCode != want {
			t.Errorf("got %d %s, want %d", got.StatusCode, body, want)
		}
	}
	ask(http.StatusOK)
	apply(id, "", http.StatusNotFound)
	apply(id, sandboxCA().Certificate, http.StatusOK)
	ask(http.StatusBadGateway)
	apply(otherID, worldCA().Certificate, http.StatusOK)
	ask(http.StatusBadGateway)
	apply(id, worldCA().Certificate, http.StatusOK)
	ask(http.StatusOK)
	apply(otherID, sandboxCA().Certificate, http.StatusOK)
	ask(http.StatusOK)
	apply(id, "none", http.StatusInternalServerError)
	apply(id, strings.Repeat(sandboxCA().Certificate, egress.MaxRoots/100), http.StatusInternalServerError)
	ask(http.StatusOK)
}

// TestDisconnect: all connections of a sandbox end, and it may open others.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	c, answer, _ := f.connect(t, "echo.example:7")
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("got %v", answer)
	}
	handler := egress.NewControl(f.Server, t.TempDir(), "v0").Handler()
	for path, want := range map[string]int{"/disconnect/" + id: http.StatusOK, "/disconnect/" + otherID: http.StatusNotFound} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	if s, err := f.Status(id); err != nil || s.Open != 0 || s.Denied != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection is open: %d, %v", n, err)
	}
	if got := f.status(t, "echo.example:7"); got != http.StatusOK {
		t.Errorf("another connection: got %d", got)
	}
}
