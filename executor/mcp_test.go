package executor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// callMCP calls a tool of an MCP server.
func callMCP(t *testing.T, e *executor.Executor, name string) (api.Observation, error) {
	t.Helper()
	timeout := 60.0
	return e.Do(t.Context(), api.Request{Timeout: &timeout, Action: api.MCPAction{Name: name}})
}

// A server runs as the user, and what it leaves in a session of its own ends with
// it, which takes the user's rights to find.
func TestMCPServerOfTheUser(t *testing.T) {
	t.Parallel()
	user, dir := other(t), testhelp.PublicDir(t)
	e, dir := start(t, executor.Config{User: user, WorkingDir: dir})
	if err := e.CheckMCP(); err == nil {
		t.Error("before any server: no refusal")
	}
	problems, err := e.UpdateMCP([]api.MCPServer{{
		Name: "s", Command: "sh",
		Args: []string{"-c", `id -u > id; setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! > daemon'; echo "no $TOKEN" >&2; exit 3`},
		Env:  map[string]string{"TOKEN": "hunter2secret"},
	}})
	if err != nil || problems != nil || e.CheckMCP() != nil {
		t.Fatalf("got %q, %v", problems, err)
	}
	o, err := callMCP(t, e, "x")
	if failed, ok := o.(api.ErrorObservation); err != nil || !ok || !strings.Contains(failed.Content, "exit status 3") ||
		!strings.Contains(failed.Content, "no [TOKEN]") {
		t.Errorf("got %+v, %v", o, err)
	}
	if id, err := os.ReadFile(filepath.Join(dir, "id")); err != nil || strings.TrimSpace(string(id)) == "0" {
		t.Errorf("the server ran as %q, %v", id, err)
	}
	daemon := testhelp.ReadFile(t, filepath.Join(dir, "daemon"))
	deadline := time.After(time.Minute)
	for lives(strings.TrimSpace(string(daemon))) {
		select {
		case <-deadline:
			t.Fatalf("process %s lives on", daemon)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func lives(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) && !strings.Contains(string(stat), ") Z ")
}
