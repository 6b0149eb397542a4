package executor_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
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

// TestClient: the process of a connection is found, and the actions that it belongs to.
func TestClient(t *testing.T) {
	t.Parallel()
	configs := map[string]executor.Config{"own user": {}}
	if os.Geteuid() == 0 {
		u := other(t)
		u.Home = testhelp.PublicDir(t)
		configs["another user"] = executor.Config{User: u, WorkingDir: u.Home, AllowRoot: true}
	}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := start(t, cfg)
			l := testhelp.Listen(t)
			defer l.Close()
			at := l.Addr().(*net.TCPAddr)
			connect := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -u 3 -r line", at.Port)
			cases := []struct {
				name string
				do   api.Request
				want api.Origin
			}{
				{"a shell itself", api.Request{Session: "a", Action: api.RunAction{Command: connect}}, api.Origin{Process: "bash", Kind: "run", Session: "a"}},
				{"its child", api.Request{Session: "b", Action: api.RunAction{Command: "bash -c '" + connect + "'; true"}}, api.Origin{Process: "bash", Kind: "run", Session: "b"}},
				{"the default session", api.Request{Action: api.RunAction{Command: "(" + connect + ")"}}, api.Origin{Process: "bash", Kind: "run", Session: "default"}},
				{"an orphan", api.Request{Session: "c", Action: api.RunAction{Command: "bash -c '(" + connect + ") & exec true'; sleep 0"}}, api.Origin{Process: "bash", Kind: "run", Session: "c"}},
				{"a static command", api.Request{Action: api.RunAction{Command: connect, IsStatic: true}}, api.Origin{Process: "bash", Kind: "run"}},
				{"a program", api.Request{Action: api.ExecAction{Argv: []string{"bash", "-c", connect}}}, api.Origin{Process: "bash", Kind: "exec", PID: -1}},
				{"its child", api.Request{Action: api.ExecAction{Argv: []string{"sh", "-c", "bash -c '" + connect + "'; true"}}}, api.Origin{Process: "bash", Kind: "exec", PID: -1}},
			}
			if cfg.AllowRoot {
				cases = append(cases, struct {
					name string
					do   api.Request
					want api.Origin
				}{"a program of root", api.Request{Action: api.ExecAction{Argv: []string{"bash", "-c", connect}, User: api.UserRoot}}, api.Origin{Process: "bash", Kind: "exec", PID: -1}})
			}
			for _, tc := range cases {
				ended := make(chan api.Observation, 1)
				go func() {
					o, _ := e.Watch(t.Context(), tc.do, api.Watch{Operator: true})
					ended <- o
				}()
				c, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				got := e.Client(c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort())
				_, _ = c.Write([]byte("\n"))
				o := <-ended
				if program, ok := o.(api.ExecObservation); ok && program.PID != nil && got.PID == *program.PID {
					got.PID = -1
				}
				got.Age = 0 // an orphan may be in the foreground for a moment
				if got != tc.want {
					t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
				}
				c.Close()
			}
		})
	}
}

// TestClientMCP: MCP servers work for the calls of their tools.
func TestClientMCP(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	l := testhelp.Listen(t)
	defer l.Close()
	connect := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -u 3 -r line; exit 3", l.Addr().(*net.TCPAddr).Port)
	if problems, err := e.UpdateMCP([]api.MCPServer{{Name: "s", Command: "bash", Args: []string{"-c", connect}}}); err != nil || problems != nil {
		t.Fatalf("got %q, %v", problems, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := callMCP(t, e, "x")
		ended <- err
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := e.Client(c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort())
	if want := (api.Origin{Process: "bash", Kind: "call_tool_mcp"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, _ = c.Write([]byte("\n"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestClientUnknown: connections of this process, and what is none, have no process.
func TestClientUnknown(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	l := testhelp.Listen(t)
	defer l.Close()
	c := testhelp.Dial(t, "tcp", l.Addr().String())
	defer c.Close()
	local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	for _, o := range []api.Origin{e.Client(local, remote), e.Client(remote, remote), e.Client(netip.AddrPort{}, netip.AddrPort{})} {
		if o != (api.Origin{}) {
			t.Errorf("got %+v", o)
		}
	}
}

// TestFetchByProxy: a page that is fetched without a browser comes by the proxy that programs have.
func TestFetchByProxy(t *testing.T) {
	t.Setenv("PATH", "/bin-without-a-browser")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "evil.example" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprintf(w, "%s by the proxy", r.URL)
	}))
	t.Cleanup(proxy.Close)
	e, _ := start(t, executor.Config{Browser: true, Shell: "/bin/sh"})
	network := map[string]string{"http_proxy": proxy.URL, "https_proxy": proxy.URL, "no_proxy": "localhost"}
	if err := e.Export(t.Context(), map[string]string{"HTTPS_PROXY": ""}, network); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"http://a.example/x":  "http://a.example/x by the proxy",
		"http://evil.example": "403 Forbidden",
	} {
		o, err := e.Do(t.Context(), api.Request{Action: api.BrowseAction{URL: address}})
		if err != nil || !strings.Contains(api.Content(o), want) {
			t.Errorf("%s: got %+v, %v", address, o, err)
		}
	}
}
