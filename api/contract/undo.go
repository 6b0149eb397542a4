package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// Undo tests restores, checkpoints, attempts and bisects in the workspace dir, as [Changes] tests the changes that
// are reported. It uses the sessions "undo" and "other".
func Undo(t *testing.T, c *client.Client, dir string) {
	t.Helper()
	s := &undoSuite{Client: c, changesSuite: changesSuite{do: c.DoWithChanges, dir: dir}}
	s.sh(t, "cd "+dir)
	t.Run("a destroyed project", s.destroyed)
	t.Run("attempts", s.attempts)
	t.Run("bisect", s.bisect)
	t.Run("another client", s.foreign)
	t.Run("streams", s.streams)
}

type undoSuite struct {
	*client.Client
	changesSuite
}

func (s *undoSuite) sh(t *testing.T, command string) *api.Changes {
	t.Helper()
	return s.act(t, "undo", api.RunAction{Command: command, Blocking: true})
}

// prints fails unless a command prints a text.
func (s *undoSuite) prints(t *testing.T, command, want string) {
	t.Helper()
	o, _, err := s.do(t.Context(), api.Request{Action: api.ExecAction{Command: command, Cwd: api.Directory(s.dir)}, Timeout: new(60.0)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(api.Content(o)); got != want {
		t.Errorf("%s: got %q, want %q", command, got, want)
	}
}

func (s *undoSuite) restore(t *testing.T, r api.RestoreRequest) api.Restored {
	t.Helper()
	done, err := s.Restore(t.Context(), r)
	if err != nil || done.RefusedCount > 0 {
		t.Fatalf("%+v: got %+v, %v", r, done, err)
	}
	return done
}

func (s *undoSuite) destroyed(t *testing.T) {
	made := s.sh(t, "mkdir -p undo/d && cd undo && printf 'one\\ntwo\\n' > a && echo b > d/b && chmod 750 d && ln -s a l && ln a hard && cd ..")
	if point, err := s.Checkpoint(t.Context(), api.CheckpointRequest{Name: "undo-test", Verify: true}); err != nil || point.Missing > 0 {
		t.Fatalf("got %+v, %v", point, err)
	}
	const look = "ls -l undo undo/d | sed 's/^total.*//' | awk '{print $1, $2, $NF}' | sort | tr '\\n' ';'; cat undo/a undo/d/b"
	o, _, err := s.do(t.Context(), api.Request{Action: api.ExecAction{Command: look, Cwd: api.Directory(s.dir)}})
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.TrimSpace(api.Content(o))
	gone := s.sh(t, "rm -rf undo; echo > other")
	dry := s.restore(t, api.RestoreRequest{Last: true, DryRun: true, Diff: true})
	if !dry.DryRun || dry.Counts.Deleted != 1 || dry.Counts.Created == 0 {
		t.Errorf("dry: got %+v", dry)
	}
	s.prints(t, "ls undo other 2>/dev/null", "other")
	s.restore(t, api.RestoreRequest{Last: true})
	s.prints(t, look, whole)
	s.prints(t, "ls other 2>/dev/null", "")
	s.restore(t, api.RestoreRequest{Last: true}) // the undo is undone
	s.prints(t, "ls undo other 2>/dev/null", "other")
	s.restore(t, api.RestoreRequest{Before: gone.Action})
	s.prints(t, look, whole)
	s.sh(t, "echo 3 >> undo/a")
	last := s.sh(t, "echo c >> undo/d/b")
	s.restore(t, api.RestoreRequest{Only: last.Action})
	s.prints(t, "cat undo/a undo/d/b", "one\ntwo\n3\nb")
	s.restore(t, api.RestoreRequest{To: "undo-test", Paths: []api.FilePath{"undo/a"}})
	s.restore(t, api.RestoreRequest{To: "undo-test"})
	s.prints(t, look, whole)
	s.restore(t, api.RestoreRequest{To: api.StateRef(made.Before)})
	s.prints(t, "ls -d undo 2>/dev/null", "")
	if err := s.RemoveCheckpoint(t.Context(), "undo-test"); err != nil {
		t.Error(err)
	}
}

func (s *undoSuite) attempts(t *testing.T) {
	for _, keep := range []bool{false, true} {
		id, _, err := s.Attempt(t.Context(), api.Request{Action: api.RunAction{Command: "echo x > attempt", Blocking: true}, Session: "undo"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if keep {
			_, err = s.KeepAttempt(t.Context(), id)
		} else {
			_, err = s.DiscardAttempt(t.Context(), id, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.prints(t, "cat attempt 2>/dev/null", map[bool]string{false: "", true: "x"}[keep])
	}
}

func (s *undoSuite) bisect(t *testing.T) {
	var ends []*api.Changes
	for i := range 8 {
		ends = append(ends, s.sh(t, fmt.Sprintf("echo %d > step; [ %d != 5 ] || echo > broken", i, i)))
	}
	s.sh(t, "echo last > step")
	found, err := s.Bisect(t.Context(), client.BisectRequest{
		Good: api.StateRef(ends[0].After), Bad: api.StateRef(ends[7].After), Command: "echo > junk; test ! -e broken", Timeout: time.Minute,
	}, func(client.BisectEvent) error { return nil })
	if err != nil || found.N != ends[5].Action || found.Tests > 4 {
		t.Errorf("got %+v, %v; the action is %d", found, err, ends[5].Action)
	}
	s.prints(t, "cat step; ls junk 2>/dev/null", "last")
}

// foreign tests that loops take back nothing that another client changed in the middle, and leave a checkpoint.
func (s *undoSuite) foreign(t *testing.T) {
	good := s.sh(t, "rm -f theirs mine; echo 1 > step")
	s.sh(t, "echo 2 > step")
	bad := s.sh(t, "echo 3 > step")
	request := client.BisectRequest{Good: api.StateRef(good.After), Bad: api.StateRef(bad.After), Command: "exit 125", Timeout: time.Minute}
	_, err := s.Bisect(t.Context(), request, func(e client.BisectEvent) error {
		if e.Event == client.BisectTested {
			s.act(t, "other", api.RunAction{Command: "echo > " + s.dir + "/theirs", Blocking: true})
		}
		return nil
	})
	left, ok := errors.AsType[*client.LeftError](err)
	if !ok || !errors.Is(err, client.ErrForeign) {
		t.Fatalf("got %v", err)
	}
	s.prints(t, "cat step; ls theirs", "2\ntheirs")
	if _, err := s.Bisect(t.Context(), request, nil); !errors.As(err, &left) || !strings.Contains(err.Error(), left.Checkpoint) {
		t.Errorf("the next one: got %v", err)
	}
	s.restore(t, api.RestoreRequest{To: api.StateRef(left.Checkpoint)})
	s.prints(t, "cat step; ls theirs 2>/dev/null", "3")
	if err := s.RemoveCheckpoint(t.Context(), left.Checkpoint); err != nil {
		t.Error(err)
	}

	id, _, err := s.Attempt(t.Context(), api.Request{Action: api.ExecAction{Command: "echo > mine", Cwd: api.Directory(s.dir)}}, func(api.Output) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Attempt(t.Context(), api.Request{Action: api.ExecAction{Command: "true"}}, nil); !errors.As(err, &left) || left.Checkpoint != "attempt/"+id {
		t.Errorf("another attempt: got %v", err)
	}
	s.act(t, "other", api.RunAction{Command: "echo > " + s.dir + "/theirs", Blocking: true})
	if _, err := s.DiscardAttempt(t.Context(), id, false); !errors.Is(err, client.ErrForeign) {
		t.Errorf("discard: got %v", err)
	}
	s.prints(t, "ls mine theirs", "mine\ntheirs")
	if _, err := s.DiscardAttempt(t.Context(), id, true); err != nil {
		t.Error(err)
	}
	s.prints(t, "ls mine theirs 2>/dev/null", "")
}

// streams tests that streams are not held back: none of these ends before the client answers an event of it.
func (s *undoSuite) streams(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	seen := errors.New("seen")
	first := s.sh(t, "rm -f go; mkfifo go; echo 1 > step")
	err := s.WatchChanges(ctx, client.ChangesQuery{Since: first.Before, Path: "step"}, func(c api.Changes) error {
		if c.Before != first.Before {
			return seen
		}
		s.sh(t, "echo 2 > step")
		return nil
	})
	if !errors.Is(err, seen) {
		t.Errorf("a watch: got %v", err)
	}
	told := false
	id, _, err := s.Attempt(ctx, api.Request{Action: api.ExecAction{Command: "echo begun; read x < go", Cwd: api.Directory(s.dir)}}, func(o api.Output) error {
		if !told && bytes.Contains(o.Data, []byte("begun")) {
			told = true
			s.act(t, "other", api.RunAction{Command: "echo > " + s.dir + "/go", Blocking: true})
		}
		return nil
	})
	if err != nil || !told {
		t.Fatalf("an attempt: told %t, %v", told, err)
	}
	if _, err := s.KeepAttempt(ctx, id); err != nil {
		t.Error(err)
	}
	last := s.sh(t, "rm go; echo 3 > step")
	_, err = s.Bisect(ctx, client.BisectRequest{
		Good: api.StateRef(first.After), Bad: api.StateRef(last.After), Command: "echo > junk", Timeout: time.Minute,
	}, func(e client.BisectEvent) error { return map[string]error{client.BisectTested: seen}[e.Event] })
	if !errors.Is(err, seen) {
		t.Errorf("a bisect: got %v", err)
	}
	s.prints(t, "cat step; ls junk 2>/dev/null", "3") // the caller left, and the present is restored
}
