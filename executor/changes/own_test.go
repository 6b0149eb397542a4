package changes_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// An agent that is the server's own user puts other files in the place of the plan of a restore: nothing waits for them, and restores go on.
func TestPlanReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(plan string) error{
		"a directory": func(plan string) error { return os.MkdirAll(filepath.Join(plan, "full"), 0o700) },
		"a FIFO that is held open": func(plan string) error {
			if err := unix.Mkfifo(plan, 0o600); err != nil {
				return err
			}
			f, err := os.OpenFile(plan, os.O_RDWR|unix.O_NONBLOCK, 0)
			t.Cleanup(func() { _ = f.Close() })
			return err
		},
		"a link": func(plan string) error { return os.Symlink("victim", plan) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			victim := filepath.Join(state, "victim")
			if err := os.WriteFile(victim, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0), StateDir: state})
			do(t, dir, "write a 1")
			before := step(t, tracker)
			if err := tracker.KeepContents(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			want := image(t, dir)
			plan := filepath.Join(state, "restore")
			if err := replace(plan); err != nil {
				t.Fatal(err)
			}
			if r, err := tracker.Resume(); r != nil || err != nil {
				t.Errorf("resumed %v, %v", r, err)
			}
			do(t, dir, "write a 2")
			step(t, tracker)
			if err := replace(plan); err != nil {
				t.Fatal(err)
			}
			if r := restore(t, tracker, before, changes.RestoreOptions{}); refusals(r) != "" {
				t.Error(refusals(r))
			}
			if d := different(want, image(t, dir)); d != "" {
				t.Error(d)
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "text" {
				t.Errorf("the other file has %q, %v", data, err)
			}
		})
	}
}
