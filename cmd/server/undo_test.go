package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
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

// A discard brings back what the action destroyed at once, though it came just before from elsewhere.
func TestDiscardAtOnce(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	_, _, address := serveForTest(t, "--state-dir", filepath.Join(t.TempDir(), "state"), "--working-dir", work, "--changes", "undo")
	c := callerOf(t, address)
	c.sh("true")
	const files = 3000
	for i := range files {
		write(t, filepath.Join(work, fmt.Sprint("f", i)), fmt.Append(nil, "content ", i))
	}
	status, _, answer := c.send("POST", "/v1/attempts", nil, `{"id": "try", "action": {"action": "run", "args": {"command": "rm f*"}}}`)
	if status != http.StatusOK || len(entries(t, work)) != 0 {
		t.Fatalf("got status %d, %s", status, answer)
	}
	status, _, answer = c.send("POST", "/v1/attempts/try/discard", nil, "")
	if got := len(entries(t, work)); status != http.StatusOK || got != files {
		t.Errorf("got status %d, %s, %d files", status, answer[:min(len(answer), 1000)], got)
	}
}

// A server that is killed while it restores has ended that before the next one is ready, and leaves nothing beside the tree.
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
