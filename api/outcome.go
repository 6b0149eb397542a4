package api

import (
	"cmp"
	"strings"
)

// Outcome is the outcome of an action.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"      // the code, if there is one, gives the reason
	OutcomeCancelled  Outcome = "cancelled"   // it began, and a request or the end of the server ended it
	OutcomeRunning    Outcome = "running"     // it is still running, and the observation is a part of its result
	OutcomeNotStarted Outcome = "not_started" // it did nothing, and may be sent again
	OutcomeUnknown    Outcome = "unknown"     // it began, and its result is lost
)

// Outcomes are all outcomes.
var Outcomes = [...]Outcome{OutcomeSucceeded, OutcomeFailed, OutcomeCancelled, OutcomeRunning, OutcomeNotStarted, OutcomeUnknown}

// Codes of commands, programs and cells.
const (
	CodeFailed   = "command_failed" // the exit code is not 0, or the code raised an exception
	CodeTimedOut = "timed_out"
	CodeBusy     = "busy" // another command of the session is running
)

// The beginnings by which the legacy protocol says how a run and an edit ended
// (docs/reference/openhands-protocol.md, sections 3.2 and 5.3).
const (
	timedOutNote = "\n[The command timed out after "
	silentNote   = "\n[The command has no new output after "
	endedNote    = "\n[The command "
	busyNote     = "\n[Your command "
	refusedText  = "ERROR:\n"
)

// OutcomeOf derives the outcome of an action from its observation, with a code for the reason
// or "".
func OutcomeOf(o Observation) (outcome Outcome, code string) {
	switch o := o.(type) {
	case RunObservation:
		return o.outcome()
	case ExecObservation:
		return o.outcome()
	case IPythonObservation:
		if o.Outcome == "" && o.Failure == "" {
			return OutcomeSucceeded, ""
		}
		return cmp.Or(o.Outcome, OutcomeFailed), o.Failure
	case ReadObservation:
		return failedIf(o.Code != "" || o.ImplSource == implEditor && strings.HasPrefix(o.Content, refusedText), o.Code)
	case EditObservation:
		return failedIf(o.Code != "" || strings.HasPrefix(o.Content, refusedText), o.Code)
	case BrowseObservation:
		return failedIf(o.Error, CodeFailed)
	case MCPObservation:
		return failedIf(strings.HasSuffix(o.Content, mcpFailed), CodeFailed)
	case UserRejectedObservation:
		return OutcomeNotStarted, ""
	case ErrorObservation:
		return cmp.Or(o.Outcome, OutcomeFailed), o.Code
	default:
		return OutcomeSucceeded, ""
	}
}

func failedIf(failed bool, code string) (Outcome, string) {
	if failed {
		return OutcomeFailed, code
	}
	return OutcomeSucceeded, ""
}

// outcome derives the outcome from the exit code and the notes for servers that do not send
// it, such as the reference.
func (o RunObservation) outcome() (Outcome, string) {
	m := o.Metadata
	switch {
	case o.Outcome != "":
		return o.Outcome, o.Code
	case m.ExitCode == 0:
		return OutcomeSucceeded, ""
	case m.ExitCode > 0:
		return OutcomeFailed, CodeFailed
	case strings.HasPrefix(m.Suffix, timedOutNote):
		return OutcomeRunning, CodeTimedOut
	case strings.HasPrefix(m.Suffix, silentNote):
		return OutcomeRunning, ""
	case strings.HasPrefix(m.Suffix, endedNote):
		return OutcomeFailed, CodeFailed
	case strings.HasPrefix(m.Suffix, busyNote):
		return OutcomeNotStarted, CodeBusy
	}
	return OutcomeNotStarted, ""
}

func (o ExecObservation) outcome() (Outcome, string) {
	by := ""
	if o.EndedBy != nil {
		by = *o.EndedBy
	}
	switch {
	case o.PID == nil:
		return OutcomeNotStarted, ""
	case o.ExitCode == nil && o.Signal == nil:
		return OutcomeRunning, CodeTimedOut
	case by == "kill_after":
		return OutcomeFailed, CodeTimedOut
	case by != "":
		return OutcomeCancelled, ""
	}
	return failedIf(o.ExitCode == nil || *o.ExitCode != 0, CodeFailed)
}

// ToolFailure returns is_error and error_code for an observation. A running command has not
// failed.
func ToolFailure(o Observation) (isError bool, errorCode string) {
	switch outcome, code := OutcomeOf(o); outcome {
	case OutcomeSucceeded, OutcomeRunning:
		return false, ""
	case OutcomeFailed:
		return true, cmp.Or(code, CodeFailed)
	default:
		return true, cmp.Or(code, string(outcome))
	}
}

// OutcomeIn returns the outcome and the code of an encoded observation, without decoding its
// text where it has an outcome.
func OutcomeIn(observation []byte) (outcome Outcome, code string) {
	var seen observed
	scan, err := newScanner(observation, unlimited)
	if err == nil {
		sent := members{}
		err = scan.object("an object", func(name string) error {
			if name != "outcome" && name != "code" {
				return scan.skip()
			}
			return sent.read(scan, name)
		})
		v, _ := decode(observedShape, "member", sent, false)
		seen = v.(observed)
	}
	if err == nil && seen.Outcome != "" && seen.Outcome != legacyFinished {
		return seen.Outcome, seen.Code
	}
	o, err := DecodeObservation(observation) // of a record that is older than outcomes
	if err != nil {
		return "", ""
	}
	return OutcomeOf(o)
}

// WithOutcome returns an observation of the legacy protocol, in which the outcome is incomplete,
// with the outcome that was recorded.
func WithOutcome(o Observation, outcome Outcome) Observation {
	switch o := o.(type) {
	case RunObservation:
		if o.Outcome != outcome {
			o.Outcome, o.Code = outcome, ""
		}
		return o
	case IPythonObservation:
		if o.Outcome != outcome {
			o.Outcome, o.Failure = outcome, ""
		}
		return o
	case ErrorObservation:
		if o.Outcome = outcome; outcome == OutcomeFailed { // which is the zero value
			o.Outcome = ""
		}
		return o
	default:
		return o
	}
}

// legacyFinished is the outcome of the legacy protocol for successes and failures.
const legacyFinished Outcome = "finished"

// EncodeLegacy is EncodeObservation by the legacy protocol: success, the pid -1, a
// _diff_cache, an empty error_id, and the outcomes "finished", "running", "not_started" and
// "failed", where it has one.
func EncodeLegacy(o Observation) ([]byte, error) {
	w, err := legacyWire(o)
	if err != nil {
		return nil, err
	}
	outcome, code := w.Outcome, w.Code
	w.Outcome, w.Code = legacyFinished, ""
	if outcome == OutcomeRunning || outcome == OutcomeNotStarted {
		w.Outcome = outcome
	}
	switch o := o.(type) {
	case RunObservation:
		w.Success = new(o.Metadata.ExitCode == 0)
	case ExecObservation:
		w.Success = new(o.ExitCode != nil && *o.ExitCode == 0)
	case IPythonObservation:
		if w.Success, w.Code = new(true), code; outcome == OutcomeCancelled {
			w.Code = CodeFailed
		}
	case WriteObservation, FileObservation:
	case ReadObservation:
		w.Outcome, w.Code = legacyEdited(o.Code), o.Code
	case EditObservation:
		w.Outcome, w.Code, w.Extras = legacyEdited(o.Code), o.Code, o.legacyExtras()
	case ErrorObservation:
		w.Outcome, w.Code, w.Extras = outcome, code, extrasOf(o)
		if outcome == OutcomeUnknown || outcome == OutcomeCancelled {
			w.Outcome = ""
		}
	default:
		w.Outcome = ""
	}
	return w.encode(o)
}

// legacyWire is wireOf, but has the message and the extras of the legacy protocol for a run, so
// that the others are not made first.
func legacyWire(o Observation) (wire, error) {
	if run, ok := o.(RunObservation); ok {
		return plainWire(o, run.ended(), run.Content).of(o), nil
	}
	return wireOf(o)
}

func legacyEdited(code string) Outcome {
	if code != "" {
		return OutcomeFailed
	}
	return legacyFinished
}
