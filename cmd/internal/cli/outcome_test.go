package cli

import (
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
)

// act, wait, follow and tool call exit with 0 where an action succeeded and only there, and with
// the exit code of its command where it has one that says so.
func TestActionEnd(t *testing.T) {
	t.Parallel()
	run := func(code int, outcome api.Outcome, suffix string) api.Observation {
		return api.RunObservation{Outcome: outcome, Metadata: api.RunMetadata{ExitCode: code, Suffix: suffix}}
	}
	program := func(o api.ExecObservation) api.Observation {
		o.PID = new(7)
		return o
	}
	for name, tt := range map[string]struct {
		o    api.Observation
		want int
	}{
		"a command":                           {run(0, "", ""), 0},
		"a command that failed":               {run(3, "", ""), 3},
		"a command without an exit code":      {run(-1, api.OutcomeFailed, "\n[The command ended"), command.ExitFailed},
		"a command that goes on":              {run(-1, api.OutcomeRunning, ""), command.ExitTimeout},
		"a command that did not run":          {run(-1, api.OutcomeNotStarted, "\n[Your command"), command.ExitFailed},
		"a cancelled command":                 {run(130, api.OutcomeCancelled, ""), 130},
		"a cancelled command that ended well": {run(0, api.OutcomeCancelled, ""), command.ExitInterrupted},
		"a program":                           {program(api.ExecObservation{ExitCode: new(0)}), 0},
		"a program that failed":               {program(api.ExecObservation{ExitCode: new(4)}), 4},
		"a program that a signal ended":       {program(api.ExecObservation{Signal: new("SIGTERM")}), 143},
		"a program that goes on":              {program(api.ExecObservation{}), command.ExitTimeout},
		"a program whose time was over":       {program(api.ExecObservation{ExitCode: new(0), EndedBy: new("kill_after")}), command.ExitTimeout},
		"the same by a signal":                {program(api.ExecObservation{Signal: new("SIGKILL"), EndedBy: new("kill_after")}), command.ExitTimeout},
		"a cancelled program":                 {program(api.ExecObservation{Signal: new("SIGINT"), EndedBy: new("cancel")}), 130},
		"a cancelled program that ended well": {program(api.ExecObservation{ExitCode: new(0), EndedBy: new("cancel")}), command.ExitInterrupted},
		"a program that is not there":         {api.ExecObservation{ExitCode: new(127)}, 127},
		"a cell":                              {api.IPythonObservation{}, 0},
		"a cell that raised":                  {api.IPythonObservation{Failure: api.CodeFailed}, command.ExitFailed},
		"a cell whose time was over":          {api.IPythonObservation{Failure: api.CodeTimedOut}, command.ExitTimeout},
		"a cancelled cell":                    {api.IPythonObservation{Outcome: api.OutcomeCancelled}, command.ExitInterrupted},
		"an edit":                             {api.EditObservation{}, 0},
		"an edit that failed":                 {api.EditObservation{Code: "no_match"}, command.ExitFailed},
		"an action that did not run":          {api.ErrorObservation{Outcome: api.OutcomeNotStarted, Code: "cancelled"}, command.ExitFailed},
		"an action whose end is unknown":      {api.ErrorObservation{Outcome: api.OutcomeUnknown}, command.ExitFailed},
		"a cancelled search":                  {api.ErrorObservation{Outcome: api.OutcomeCancelled}, command.ExitInterrupted},
	} {
		got := command.ExitCode(actionEnd(tt.o))
		if outcome, _ := api.OutcomeOf(tt.o); got != tt.want || (got == 0) != (outcome == api.OutcomeSucceeded) {
			t.Errorf("%s: got %d, want %d; the outcome is %s", name, got, tt.want, outcome)
		}
	}
}

// What an action with an unknown result printed is shown in lines.
func TestActionEndUnknown(t *testing.T) {
	t.Parallel()
	got := actionEnd(api.ErrorObservation{Content: "the result is unknown: it began. What it printed:\nbegun\nhalf", Outcome: api.OutcomeUnknown})
	if want := "the result is unknown: it began; its last words:\n  begun\n  half"; got == nil || got.Error() != want {
		t.Errorf("got %v, want %q", got, want)
	}
}

// A failure names its reason, whatever the kind of the action.
func TestActionEndReason(t *testing.T) {
	t.Parallel()
	for _, o := range []api.Observation{
		api.IPythonObservation{Content: "NameError", Failure: api.CodeFailed},
		api.BrowseObservation{Content: "refused", Error: true},
		api.ErrorObservation{Content: "refused", Outcome: api.OutcomeNotStarted},
	} {
		if got := actionEnd(o); got == nil || got.Error() != "the action failed: "+api.Content(o) {
			t.Errorf("%s: got %v", o.Kind(), got)
		}
	}
}
