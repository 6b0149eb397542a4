package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// actionEnd returns how an action went, as the end of exec: nil where it succeeded, and otherwise
// the exit code of its command if it has one.
func actionEnd(o api.Observation) error {
	const late = "the command timed out"
	outcome, code := api.OutcomeOf(o)
	var ended error
	switch o := o.(type) {
	case api.ExecObservation:
		ended = programEnd(o, late)
	case api.RunObservation:
		ended = runEnd(o)
	case api.ErrorObservation:
		ended = fmt.Errorf("the action failed: %s", output.Clean(o.Content))
		if outcome == api.OutcomeUnknown { // what it printed is shown as lines
			why, printed, _ := strings.Cut(o.Content, "What it printed:\n")
			if ended = errors.New(output.Clean(strings.TrimRight(why, ". "))); printed != "" {
				ended = errors.New(ended.Error() + output.LastLines(printed))
			}
		}
	default:
		ended = fmt.Errorf("the action failed: %s", output.Clean(api.Content(o)))
	}
	switch own, _ := errors.AsType[*command.ExitError](ended); {
	case outcome == api.OutcomeSucceeded:
		return nil
	case outcome == api.OutcomeRunning, code == api.CodeTimedOut:
		return &command.ExitError{Code: command.ExitTimeout, Why: late}
	case outcome == api.OutcomeCancelled && own == nil: // it ended well all the same, or has no exit code
		return &command.ExitError{Code: command.ExitInterrupted, Why: "the action was cancelled"}
	}
	return ended
}

// programEnd returns how a program ended, as the end of exec; late is said of one that did not.
func programEnd(ended api.ExecObservation, late string) error {
	switch {
	case ended.PID == nil && ended.ExitCode != nil:
		return &command.ExitError{Code: *ended.ExitCode, Why: output.Clean(ended.Content)}
	case ended.ExitCode != nil && *ended.ExitCode == 0:
		return nil
	case ended.ExitCode != nil:
		return &command.ExitError{Code: *ended.ExitCode, Said: ended.Content}
	case ended.Signal != nil:
		return &command.ExitError{Code: signalBase + signalNumbers[*ended.Signal]}
	}
	return &command.ExitError{Code: command.ExitTimeout, Why: late}
}

// signalBase is added to the number of the signal that ended a command, as in a shell.
const signalBase = 128

// signalNumbers are Linux's, by their names: this program may run on another system.
var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
	"SIGKILL": 9,
	"SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGSTKFLT": 16,
	"SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGIO": 29, "SIGPWR": 30, "SIGSYS": 31,
}

// runEnd returns how a command of a persistent shell ended, as the end of exec.
func runEnd(run api.RunObservation) error {
	switch code := run.Metadata.ExitCode; {
	case code == 0:
		return nil
	case code > 0:
		return &command.ExitError{Code: code, Said: run.Content}
	case run.Metadata.Suffix == "": // the shell did not start, in the time of the command or at all
		return fmt.Errorf("the command was not run: %s",
			output.Clean(strings.TrimSpace(strings.TrimPrefix(run.Content, "ERROR:"))))
	}
	return fmt.Errorf("the command has no exit code: %s", output.Clean(strings.TrimSpace(run.Metadata.Suffix)))
}
