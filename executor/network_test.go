package executor_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestExportNetwork: all programs have the variables of the network, under those of the owner,
// which may be in the other case.
func TestExportNetwork(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Env: []string{"http_proxy=http://image:1", "PATH=/usr/bin:/bin"}})
	network := map[string]string{"http_proxy": "http://127.0.0.1:3128", "HTTP_PROXY": "http://127.0.0.1:3128", "no_proxy": "localhost", "all_proxy": "x"}
	if err := e.Export(t.Context(), map[string]string{"NO_PROXY": "mine", "all_proxy": ""}, network); err != nil {
		t.Fatal(err)
	}
	const show = "echo $http_proxy $HTTP_PROXY ${no_proxy-none} $NO_PROXY ${all_proxy-none}"
	const want = "http://127.0.0.1:3128 http://127.0.0.1:3128 none mine"
	if o := execute(t, e, api.ExecAction{Command: show}); strings.TrimSpace(o.Stdout) != want {
		t.Errorf("exec: got %q", o.Content)
	}
	if o := run(t, e, "", show); strings.TrimSpace(o.Content) != want {
		t.Errorf("run: got %q", o.Content)
	}
}

// TestExportNetworkRoot: programs of root have them, and nothing else that the owner set.
func TestExportNetworkRoot(t *testing.T) {
	t.Parallel()
	u := other(t)
	u.Home = testhelp.PublicDir(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: u.Home, AllowRoot: true})
	if err := e.Export(t.Context(), map[string]string{"OWNER": "me", "HTTPS_PROXY": "mine"}, map[string]string{"http_proxy": "here", "https_proxy": "here"}); err != nil {
		t.Fatal(err)
	}
	const show = "echo $http_proxy ${https_proxy-none} ${OWNER-none}"
	if o := asRoot(t, e, api.ExecAction{Command: show}); o.Stdout != "here none none\n" {
		t.Errorf("got %q", o.Content)
	}
	if o := asRoot(t, e, api.ExecAction{Command: show, Env: api.Variables{"http_proxy": "this"}}); o.Stdout != "this none none\n" {
		t.Errorf("got %q", o.Content)
	}
	if o := asRoot(t, e, api.ExecAction{Command: show, ClearEnv: true}); o.Stdout != "none none\n" {
		t.Errorf("got %q", o.Content)
	}
}
