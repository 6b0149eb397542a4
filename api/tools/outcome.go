package tools

import (
	"cmp"
	"strings"

	"github.com/actiond/actiond/api"
)

// The beginnings by which the protocol tells how a run and an edit came out
// (docs/openhands.md, sections 3.2 and 5.3).
const (
	timedOutNote = "[The command timed out after "
	silentNote   = "[The command has no new output after "
	refusedText  = "ERROR:"
)

// Outcome tells whether a tool failed, by what was observed, and the machine
// word for how. A command that still runs after a silence has not failed; one
// whose time is over has.
func Outcome(o api.Observation) (isError bool, code string) {
	switch o := o.(type) {
	case api.ErrorObservation:
		return true, cmp.Or(o.Code, commandFailed)
	case api.RunObservation:
		return runOutcome(o.Metadata)
	case api.ReadObservation:
		return o.Code != "" || o.ImplSource == impl && strings.HasPrefix(o.Content, refusedText+"\n"), o.Code
	case api.EditObservation:
		return o.Code != "" || strings.HasPrefix(o.Content, refusedText+"\n"), o.Code
	case api.IPythonObservation:
		return o.Failure != "", o.Failure
	case api.BrowseObservation:
		if o.Error {
			return true, commandFailed
		}
	default:
	}
	return false, ""
}

func runOutcome(m api.RunMetadata) (isError bool, code string) {
	switch {
	case m.ExitCode == 0, m.ExitCode == -1 && strings.Contains(m.Suffix, silentNote):
		return false, ""
	case m.ExitCode == -1 && strings.Contains(m.Suffix, timedOutNote):
		return true, timedOut
	}
	return true, commandFailed
}
