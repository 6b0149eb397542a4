package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
)

// restore sends a restore, and returns its answer.
func (c *caller) restore(body string) *api.Restored {
	c.t.Helper()
	status, _, answer := c.send("POST", "/v1/restore", nil, body)
	var r api.Restored
	if err := json.Unmarshal([]byte(answer), &r); status != http.StatusOK || err != nil {
		c.t.Fatalf("%s: got status %d, %s, %v", body, status, answer, err)
	}
	return &r
}

// A destroyed project comes back, and an undo can be undone.
func TestUndo(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	_, _, address := serveForTest(t, "--state-dir", filepath.Join(t.TempDir(), "state"), "--working-dir", work, "--changes", "undo")
	c := callerOf(t, address)
	c.sh("mkdir -p src/.git && for i in 1 2 3 4 5 6 7 8 9; do echo $i > src/$i.go; done; echo ref > src/.git/HEAD; chmod 750 src")
	c.send("POST", "/v1/checkpoints", nil, `{"name": "good"}`)
	gone := c.sh("rm -rf src; echo > new")
	if gone.Counts.Deleted == 0 {
		t.Fatalf("got %s", said(gone))
	}
	undone := c.restore(`{"last": true}`)
	if undone.RefusedCount > 0 || undone.Before == "" {
		t.Errorf("got %+v", undone)
	}
	if _, err := os.Stat(filepath.Join(work, "new")); err == nil {
		t.Error("what the command made is left")
	}
	for name, want := range map[string]string{"src/9.go": "9\n", "src/.git/HEAD": "ref\n"} {
		if data, err := os.ReadFile(filepath.Join(work, name)); err != nil || string(data) != want {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(work, "src")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("got %v, %v", info, err)
	}
	c.restore(`{"last": true}`)
	if _, err := os.Stat(filepath.Join(work, "src")); err == nil {
		t.Error("the undo was not undone")
	}
	c.restore(`{"to": "good"}`)
	if _, err := os.Stat(filepath.Join(work, "src/1.go")); err != nil {
		t.Error(err)
	}
	c.restore(fmt.Sprintf(`{"to": %d}`, gone.Action))
	if _, err := os.Stat(filepath.Join(work, "src")); err == nil {
		t.Error("the state after the action is not back")
	}
	var log api.ChangeLog
	c.get("/v1/changes/log?limit=2", &log)
	if len(log.Entries) != 2 || log.Entries[0].Cause != api.CauseRestore || log.Entries[0].N != nil {
		t.Errorf("got %+v", log)
	}
}

// The first command of a sandbox comes back, also that of a server that was started again. The check of the driver waits for nothing, and
// the state after it is the first one.
func TestUndoAtOnce(t *testing.T) { //nolint:tparallel // one after the other
	t.Parallel()
	state, work := t.TempDir(), t.TempDir()
	const dirs, each = 20, 100
	for i := range dirs * each {
		testhelp.WriteFile(t, filepath.Join(work, fmt.Sprint("d", i%dirs), fmt.Sprint("f", i)), fmt.Sprint(i), 0o644)
	}
	for _, tt := range []struct{ name, since string }{{"first", "1"}, {"again", "4"}} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, address := serveForTest(t, "--state-dir", state, "--working-dir", work, "--changes", "undo")
			c := callerOf(t, address)
			c.send("POST", "/execute_action", nil, `{"action": {"action": "run", "args": {"command": "true", "blocking": true, "hidden": true}}}`)
			if status, _, body := c.send("POST", "/v1/actions", nil, `{"action": {"action": "run", "args": {"command": "rm -rf d*", "blocking": true}}}`); status != http.StatusOK {
				t.Fatalf("got status %d, %s", status, body)
			}
			var since api.Changes
			if c.get("/v1/changes?since="+tt.since, &since); since.Counts.Deleted != dirs*(each+1) || !since.Exact {
				t.Errorf("since the check: got %+v", since.Counts)
			}
			if r := c.restore(`{"last": true}`); r.RefusedCount > 0 || r.Counts.Created != dirs*(each+1) {
				t.Errorf("got %+v, %d refused", r.Counts, r.RefusedCount)
			}
			c.sh("true")
			since = api.Changes{}
			if c.get("/v1/changes?since="+tt.since, &since); said(&since) != "" && said(&since) != "during" {
				t.Errorf("got %q", said(&since))
			}
		})
	}
}

// A discard brings back what the action destroyed at once, though it came just before from elsewhere.
func TestDiscardAtOnce(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	c, _, _ := serveForTest(t, "--state-dir", filepath.Join(t.TempDir(), "state"), "--working-dir", work, "--changes", "undo")
	if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err != nil {
		t.Fatal(err)
	}
	const files = 3000
	for i := range files {
		write(t, filepath.Join(work, fmt.Sprint("f", i)), fmt.Append(nil, "content ", i))
	}
	id, o, err := c.Attempt(t.Context(), api.Request{Action: api.RunAction{Command: "rm f*"}}, nil)
	if err != nil || len(entries(t, work)) != 0 {
		t.Fatalf("got %+v, %v", o, err)
	}
	restored, err := c.DiscardAttempt(t.Context(), id, false)
	if got := len(entries(t, work)); err != nil || got != files {
		t.Errorf("got %d refused, %v, %d files", restored.RefusedCount, err, got)
	}
}

// A server that is killed while it restores has ended that before the next one is ready, and leaves nothing beside
// the tree.
func TestKilledDuringRestore(t *testing.T) {
	t.Parallel()
	binary := buildServer(t)
	state, work := t.TempDir(), t.TempDir()
	const files = 3000
	args := []string{"--working-dir", work, "--changes", "undo"}
	s := startKillable(t, binary, state, args...)
	whole := func() string {
		names := entries(t, filepath.Join(work, "tree"))
		return fmt.Sprintf("%d files, the last is %s, and %v", len(names), readFile(t, filepath.Join(work, "tree", "f0999")), entries(t, work))
	}
	if err := os.Mkdir(filepath.Join(work, "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		write(t, filepath.Join(work, "tree", fmt.Sprintf("f%04d", i)), fmt.Append(nil, "content ", i))
	}
	s.ask("POST", "/v1/checkpoints", `{"name": "whole"}`)
	want := whole()
	broken := 0
	for attempt := 0; broken < 3 && attempt < 40; attempt++ {
		if err := os.RemoveAll(filepath.Join(work, "tree")); err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() { // it fails when the server dies
			defer close(sent)
			s.ask("POST", "/v1/restore", `{"to": "whole"}`)
		}()
		for begun := false; !begun; {
			begun = slices.ContainsFunc(entries(t, work), func(name string) bool { return strings.HasPrefix(name, ".actiond-restore-") })
			select {
			case <-sent:
				begun = true
			default:
			}
		}
		time.Sleep(time.Duration(attempt) * time.Millisecond) // at another point each time
		s.kill()
		<-sent
		begun := slices.ContainsFunc(entries(t, work), func(name string) bool { return strings.HasPrefix(name, ".actiond-restore-") })
		s = startKillable(t, binary, state, args...)
		testhelp.Eventually(t, func() bool { return s.ask("GET", "/readyz", "") == http.StatusOK }, "the server is ready")
		if !begun {
			continue
		}
		broken++
		if got := whole(); got != want {
			t.Fatalf("attempt %d: got %s, want %s\n%s", attempt, got, want, s.cmd.Stderr)
		}
	}
	if broken == 0 {
		t.Error("no attempt broke a restore off")
	}
}

// An attempt and a bisect whose clients were killed leave a checkpoint: the next one names it, a hundred expired ones make room, and
// the state before is there although what came later fills the store.
func TestLoopsOfKilledClients(t *testing.T) {
	t.Parallel()
	c, dir, _ := serveForTest(t, "--changes", "undo", "--changes-bytes", "4194304")
	sh := func(line string) {
		t.Helper()
		if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: line, Blocking: true}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 101 { // killed before the action, and a day later
		if _, err := c.Checkpoint(t.Context(), api.CheckpointRequest{Name: fmt.Sprint("attempt/", i), Wait: new(0.0), Expires: 1e-9}); err != nil {
			t.Fatal(err)
		}
	}
	tried, _, err := c.Attempt(t.Context(), api.Request{Action: api.ExecAction{Command: "touch tried"}}, func(api.Output) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.DiscardAttempt(t.Context(), tried, false); err != nil || r.Counts.Deleted != 1 {
		t.Errorf("discard: got %+v, %v", r.Counts, err)
	}
	sh("seq 1000 > n; echo 1 > step")
	if _, err := c.Checkpoint(t.Context(), api.CheckpointRequest{Name: "good"}); err != nil {
		t.Fatal(err)
	}
	sh("echo 2 > step")
	sh("echo 3 > step")
	if _, err := c.Checkpoint(t.Context(), api.CheckpointRequest{Name: "bad"}); err != nil {
		t.Fatal(err)
	}
	request := client.BisectRequest{Good: "good", Bad: "bad", Command: "rm n; echo junk > junk"}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		_, _ = c.Bisect(t.Context(), request, func(e client.BisectEvent) error {
			if e.Event == client.BisectTested {
				runtime.Goexit()
			}
			return nil
		})
	}()
	<-killed
	var left *client.LeftError
	if _, err := c.Bisect(t.Context(), request, nil); !errors.As(err, &left) {
		t.Fatalf("the next bisect: got %v", err)
	}
	for i := range 8 { // the store has less than their bytes
		sh(fmt.Sprintf("head -c 1000000 /dev/urandom > f%d; echo %d > step", i, i))
	}
	if r, err := c.Restore(t.Context(), api.RestoreRequest{To: api.StateRef(left.Checkpoint)}); err != nil || r.RefusedCount > 0 || len(r.Lost) == 0 {
		t.Errorf("got %+v, %v; lost %v", r.Refused, err, r.Lost)
	}
	if got := readFile(t, filepath.Join(dir, "n")); len(got) != 3893 || string(readFile(t, filepath.Join(dir, "step"))) != "3\n" || len(entries(t, dir)) != 2 {
		t.Errorf("got %d bytes, %v", len(got), entries(t, dir))
	}
	if err := c.RemoveCheckpoint(t.Context(), left.Checkpoint); err != nil {
		t.Error(err)
	}
}
