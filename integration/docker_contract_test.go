//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
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

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/sandbox"
)

// transport dials the sandbox's server.
func transport(s *sandbox.Sandbox) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) }}
}

// TestDockerContract is the suite at its third depth: what the executor keeps,
// and the server over HTTP, a container keeps too.
func TestDockerContract(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage)})
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport(s)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	contract.Suite(t, c.Do, "/workspace")
}

// TestDockerReplay replays what was recorded of the reference against a
// container of our image.
func TestDockerReplay(t *testing.T) {
	t.Parallel()
	shared, err := filepath.Abs("../../shared")
	if err != nil {
		t.Fatal(err)
	}
	exchanges := filepath.Join(shared, "vectors", "exchanges.json")
	data, err := os.ReadFile(exchanges)
	if err != nil {
		t.Skipf("needs the recorded exchanges, which are not beside this checkout: %v", err)
	}
	var scenarios []struct{ ID string }
	if err := json.Unmarshal(data, &scenarios); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join(shared, "tools", "replay.py"), "", exchanges}
	want := 0
	for _, s := range scenarios {
		kind, _, _ := strings.Cut(s.ID, "/")
		want++
		if !slices.Contains(args, kind+"/") {
			args = append(args, "--only", kind+"/")
		}
	}
	s := create(t, testHost(t), sandbox.Spec{Image: image(t, fullImage)})
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "sandbox"}) },
		Transport: transport(s),
	})
	defer proxy.Close()
	args[1] = proxy.URL
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "SESSION_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	if last := fmt.Sprintf("%d passed, 0 failed\n", want); err != nil || want == 0 || !strings.HasSuffix(string(out), last) {
		t.Errorf("got %v, want %q at the end of\n%s", err, last, out)
	}
}
