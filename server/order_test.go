package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/server"
)

// slowShells returns a server whose shells, but those that run already, do not start before ready is
// called, and the directory where they start.
func slowShells(t *testing.T) (s *server.Server, dir string, ready func()) {
	t.Helper()
	dir = t.TempDir()
	e, err := executor.New(t.Context(), executor.Config{
		WorkingDir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, Plugins: []string{}, SoftTimeout: 1 << 40,
	})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	must(t, e.Start(t.Context()))
	gate := filepath.Join(dir, "gate")
	must(t, os.WriteFile(filepath.Join(dir, ".bashrc"), []byte("until [ -e '"+gate+"' ]; do sleep 0.01; done\n"), 0o600))
	return newServer(t, func(c *server.Config) { c.Executor = e }), dir, func() { must(t, os.WriteFile(gate, nil, 0o600)) }
}

// started sends an action that is not waited for.
func started(t *testing.T, s *server.Server, path, id, body string) {
	t.Helper()
	q := withID(post(path, body), id)
	q.header["Prefer"] = "respond-async, wait=0"
	if w := q.send(s); w.Code != 202 {
		t.Fatalf("%s: got %d %s", id, w.Code, w.Body)
	}
}

// in is a command in a session.
func in(session, command string) string {
	return fmt.Sprintf(`{"action":{"action":"run","session":%q,"args":{"command":%q,"blocking":true}}}`, session, command)
}

// The actions of a session run in the order in which they were accepted, by whatever route, also while
// its shell is being started. One that was cancelled before its turn does not run.
func TestOrderOfSessions(t *testing.T) {
	t.Parallel()
	s, dir, ready := slowShells(t)
	if w := remove("/v1/sessions/default").send(s); w.Code != 204 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	sessions := []string{"default"}
	for i := range 24 {
		sessions = append(sessions, fmt.Sprint("s", i))
	}
	var last sync.WaitGroup
	for _, name := range sessions {
		started(t, s, "/v1/actions", name+"-1", in(name, "echo 1 >>"+name))
		started(t, s, "/v1/tools/call", name+"-2", fmt.Sprintf(`{"session":%q,"name":"execute_bash","arguments":{"command":"echo 2 >>%s"}}`, name, name))
		started(t, s, "/v1/actions", name+"-3", in(name, "echo 3 >>"+name))
		started(t, s, "/v1/actions", name+"-4", in(name, "echo 4 >>"+name))
		if w := remove("/v1/actions/" + name + "-3").send(s); w.Code != 200 || field(t, w.Body.Bytes(), "state") != "cancelled" {
			t.Errorf("%s: the cancelled one: got %d %s", name, w.Code, w.Body)
		}
		last.Go(func() {
			q := rpc("/mcp?session="+name, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_bash","arguments":{"command":"echo 5 >>%s"}}}`, name))
			if name == "default" {
				q = post("/execute_action", in("", "echo 5 >>default"))
			}
			if w := q.send(s); w.Code != 200 {
				t.Errorf("%s: the last one: got %d %s", name, w.Code, w.Body)
			}
		})
	}
	ready()
	last.Wait()
	for _, name := range sessions {
		got, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		words := strings.Fields(string(got))
		if want := []string{"1", "2", "4", "5"}; !slices.Equal(words, want) {
			t.Errorf("%s: ran %v, want %v", name, words, want)
		}
	}
}

// Input that was accepted behind a command reaches that command, also where its shell is being started.
func TestInputAwaitsItsCommand(t *testing.T) {
	t.Parallel()
	s, dir, ready := slowShells(t)
	const sessions = 8
	for i := range sessions {
		name := fmt.Sprint("s", i)
		started(t, s, "/v1/actions", name+"-reads", in(name, "read x; echo got $x >>"+name))
		started(t, s, "/v1/actions", name+"-input", strings.Replace(in(name, "it"), `"blocking"`, `"is_input":true,"blocking"`, 1))
	}
	ready()
	for i := range sessions {
		name := fmt.Sprint("s", i)
		get("/v1/actions/" + name + "-reads?wait=600").send(s)
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != "got it\n" {
			t.Errorf("%s: got %q, %s", name, got, get("/v1/actions/"+name+"-input?wait=600").send(s).Body)
		}
	}
}
