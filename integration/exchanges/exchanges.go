// Package exchanges replays the recorded exchanges of the reference server against the server
// of a sandbox.
package exchanges

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Dir is where the exchanges and the program that replays them are. It skips the test if
// they are not beside this checkout, whose directory root is.
func Dir(t *testing.T, root string) string {
	t.Helper()
	shared, err := filepath.Abs(filepath.Join(root, "..", "shared"))
	if err == nil {
		_, err = os.Stat(file(shared))
	}
	if err != nil {
		t.Skipf("needs the recorded exchanges, which are not beside this checkout: %v", err)
	}
	return shared
}

func file(shared string) string { return filepath.Join(shared, "vectors", "exchanges.json") }

// Replay sends all exchanges of [Dir] to the server at base, which transport reaches and
// key opens. Each answer must be the recorded one.
func Replay(t *testing.T, shared, base, key string, transport http.RoundTripper) {
	t.Helper()
	data, err := os.ReadFile(file(shared))
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []struct{ ID string }
	if err := json.Unmarshal(data, &scenarios); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport})
	defer proxy.Close()
	args := []string{filepath.Join(shared, "tools", "replay.py"), proxy.URL, file(shared)}
	for _, s := range scenarios {
		kind, _, _ := strings.Cut(s.ID, "/")
		if !slices.Contains(args, kind+"/") {
			args = append(args, "--only", kind+"/")
		}
	}
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "SESSION_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	if last := fmt.Sprintf("%d passed, 0 failed\n", len(scenarios)); err != nil || len(scenarios) == 0 || !strings.HasSuffix(string(out), last) {
		t.Errorf("got %v, want %q at the end of\n%s", err, last, out)
	}
}
