package executor_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/proc"
)

// A run that waits for its turn over two upgrades has the deadline that it began with, and the
// state that was handed over takes no memory once all goes on.
func TestInherit(t *testing.T) {
	t.Parallel()
	if os.Getenv("ACTIOND_TEST_INHERIT") == "" { // the executor ends children that it does not know
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInherit$", "-test.v")
		cmd.Env = append(os.Environ(), "ACTIOND_TEST_INHERIT=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	until := proc.Uptime() + time.Hour
	old := &bash.Frozen{Program: "/bin/bash", FirstDir: "/", Dir: "/"}
	kept := weak.Make(old)
	e, _ := start(t, executor.Config{Inherited: &executor.Frozen{
		Mark: "ACTIOND_TEST=1", Sessions: map[string]*bash.Frozen{"old": old},
		Actions: map[string]executor.FrozenAction{"k": {Until: until, Session: "default", Queued: true}},
	}})
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the state of a session is kept")
	}

	timeout := 600.0
	var runs sync.WaitGroup
	watch := func(command string, w api.Watch) {
		runs.Go(func() {
			request := api.Request{Timeout: &timeout, Action: api.RunAction{Command: command, Blocking: true}}
			if _, err := e.Watch(t.Context(), request, w); err != nil {
				t.Error(err)
			}
		})
	}
	begun, queued := make(chan struct{}), make(chan struct{})
	watch("read x", api.Watch{Begin: func() error { close(begun); return nil }})
	<-begun
	watch("true", api.Watch{ID: "k", Queue: sync.OnceFunc(func() { close(queued) }), Begin: func() error { return nil }})
	<-queued
	f, ended, _, resume := e.Freeze(t.Context(), func(*os.File) (int, error) { return 0, nil })
	resume()
	if got := f.Actions["k"]; (got.Until-until).Abs() > time.Minute || !got.Queued || len(ended) > 0 {
		t.Errorf("got %+v, %q ends; want the end %v", got, ended, until)
	}
	if _, err := e.Do(t.Context(), api.Request{Timeout: &timeout, Action: api.RunAction{Command: "go", IsInput: true}}); err != nil {
		t.Error(err)
	}
	runs.Wait()
}
