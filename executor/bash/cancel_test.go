package bash_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

// cancelled runs a command and cancels it once it has printed "begun".
func cancelled(t *testing.T, s *bash.Session, text string) bash.Result {
	t.Helper()
	cancel, said := make(chan struct{}), ""
	r, err := s.Run(t.Context(), bash.Command{Text: text, Hard: -1, Cancelled: cancel, Output: func(c bash.Chunk) {
		had := strings.Contains(said, "begun")
		if said += string(c.Data); !had && strings.Contains(said, "begun") {
			close(cancel)
		}
	}})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return r
}

// A cancelled command ends, whatever it does against that, and the session lives on with
// its background jobs.
func TestCancel(t *testing.T) {
	t.Parallel()
	for program, path := range shells(t) {
		for _, tt := range []struct {
			name, text string
			by         string
			status     int
			replaced   bool
		}{
			{"a program", "echo begun; sleep 1000", "Ctrl-C", 130, false},
			{"a program that cleans up", `sh -c 'trap "echo clean; exit 7" INT; echo begun; sleep 1000 & wait'`, "Ctrl-C", 7, false},
			{"a program that ignores Ctrl-C", `sh -c 'trap "" INT; echo begun; exec sleep 1000'`, "SIGTERM", 143, false},
			{"a program that ignores all", `sh -c 'trap "" INT TERM HUP; echo begun; while :; do sleep 1; done'`, "SIGKILL", 137, false},
			{"a pipe of such programs", `sh -c 'trap "" INT TERM; while :; do sleep 1; done' | sh -c 'trap "" INT TERM; echo begun; while :; do sleep 1; done'`, "SIGKILL", 137, false},
			{"the shell itself", `trap "" INT; echo begun; while :; do :; done`, "the end of its shell", -1, true},
		} {
			t.Run(program+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				s := session(t, path)
				do(t, s, "export kept=yes; sleep 1000 & echo $! >job")
				pid := s.Info().PID
				r := cancelled(t, s, tt.text)
				if r.Outcome != bash.Completed || r.Cancelled != tt.by || r.Status != tt.status {
					t.Errorf("got %+v, want status %d by %s", r, tt.status, tt.by)
				}
				if got := do(t, s, "echo $kept"); got.Output != "yes" {
					t.Errorf("afterwards: got %+v", got)
				}
				if replaced := s.Info().PID != pid; replaced != tt.replaced || (r.Restarted != "") != tt.replaced {
					t.Errorf("got another shell: %t (%q)", replaced, r.Restarted)
				}
				if !tt.replaced {
					if got := do(t, s, "kill -0 $(cat job) && echo lives; kill $(cat job)"); got.Output != "lives" {
						t.Errorf("the job of the command before: got %+v", got)
					}
				}
			})
		}
	}
}

// A Run that waits for another's command, or types into it, ends its wait alone.
func TestCancelWait(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	begin(t, s, "echo begun; read x; echo got $x", "begun")
	cancel := make(chan struct{})
	close(cancel)
	r, err := s.Run(t.Context(), bash.Command{Hard: -1, Cancelled: cancel})
	if err != nil || r.Outcome != bash.Abandoned || r.Cancelled != "" {
		t.Errorf("got %+v, %v", r, err)
	}
	if r := enter(t, s, "y"); !strings.Contains(r.Output, "got y") || r.Cancelled != "" {
		t.Errorf("got %+v", r)
	}
}
