package edit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/actiond/actiond/executor/internal/worker"
)

// regexReplace replaces the matches of an expression. A worker finds them, because an expression may take time in the
// square of the text's length, and cannot be interrupted.
func (e *Editor) regexReplace(p place, c Command, r Replacement) (Result, error) {
	switch {
	case r.Old == "":
		return Result{}, missing("old_str", "str_replace")
	case r.Expected != nil && (*r.Expected < 1 || *r.Expected > maxReplacements):
		return Result{}, invalid(CodeInvalidArgument, "expected_replacements", strconv.Itoa(*r.Expected),
			fmt.Sprintf("It should be between 1 and %d.", maxReplacements))
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	in, err := c.searched(p, t.view)
	if err != nil {
		return Result{}, err
	}
	found, err := e.workers.Replace(in.view[in.start:in.end], r.Old, r.New, maxReplacements, int(e.maxRead))
	if err != nil {
		return Result{}, regexError(err)
	}
	changes := make([]change, len(found))
	same := true
	for i, m := range found {
		changes[i] = change{in.start + m.Start, in.start + m.End, string(m.Text)}
		same = same && t.view[changes[i].start:changes[i].end] == changes[i].text
	}
	if err := r.checkCount(in, changes); err != nil {
		return Result{}, err
	}
	if same {
		return Result{}, refuse(CodeNoChange, "No replacement was performed. Each match of old_str `%s` in %s is already what new_str makes of it.", r.Old, in.name)
	}
	line, text := 1+strings.Count(t.view[:changes[0].start], "\n"), changes[0].text // which apply trims
	return e.apply(p, f, t, changes, unifiedDiff, func(diff, view string) string {
		if len(changes) == 1 {
			return replacedAt(p, view, line, text)
		}
		return fmt.Sprintf("Replaced %d matches in %s:\n%s\n%s", len(changes), p.shown, clipped(diff), reviewReplace)
	})
}

// checkCount refuses a number of matches that was not expected.
func (r Replacement) checkCount(in scope, found []change) error {
	expected := r.expected()
	count := strconv.Itoa(len(found))
	if len(found) > maxReplacements {
		count = "more than " + strconv.Itoa(maxReplacements)
	}
	switch {
	case len(found) == 0:
		return refuse(CodeNoMatch, "No replacement was performed, the expression old_str `%s` does not match in %s. "+
			"^ and $ match at lines with (?m), and a dot matches a line feed with (?s).", r.Old, in.name)
	case len(found) <= maxReplacements && (len(found) == expected || r.AllowMultiple && r.Expected == nil):
		return nil
	case len(found) < expected:
		return refuse(CodeNoMatch, "No replacement was performed. Expected %d matches of old_str `%s` but found %s.",
			expected, r.Old, count)
	default:
		return refuse(CodeMultipleMatches, "No replacement was performed. Expected %d matches of old_str `%s` but found %s, at (line:column) %s. "+
			"Make it more specific, or say how many to replace with expected_replacements or allow_multiple.",
			expected, r.Old, count, places(in.view, found, len(found)))
	}
}

// regexError returns a worker's error in words for the agent.
func regexError(err error) *Error {
	if failure, ok := errors.AsType[*worker.Error](err); ok {
		return &Error{CodeInvalidArgument, fmt.Sprintf("No replacement was performed: %s.", failure.Reason), err}
	}
	for _, limit := range []error{worker.ErrTime, worker.ErrMemory, worker.ErrAnswer, worker.ErrKilled} {
		if errors.Is(err, limit) {
			return &Error{CodeTooLarge, fmt.Sprintf("No replacement was performed: searching the file with this expression was stopped, because %s. "+
				"Use an expression that matches less.", limit), err}
		}
	}
	return &Error{CodeCommandFailed, fmt.Sprintf("No replacement was performed: %s.", err), err}
}
