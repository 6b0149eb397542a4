package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/tail"
)

// ErrBisect reports a bisect that ended without a result.
var ErrBisect = errors.New("the bisect has no result")

// BisectRequest asks which action broke something, between a state in which a command succeeds and a later one in which
// it fails. Both are believed.
type BisectRequest struct {
	Good, Bad api.StateRef
	// Command is a shell command: it exits with 0 in a good state, with 125 where a state cannot be tested, and otherwise
	// in a bad one. 126, 127 and a timeout end the bisect, as with git.
	Command string
	// Timeout bounds a test; 0 means ten minutes.
	Timeout time.Duration
}

// Events of a bisect.
const (
	BisectTesting = "testing" // a state was restored, and its test begins
	BisectTested  = "tested"
	BisectResult  = "result" // the end
)

// Verdicts of a test.
const (
	VerdictGood = "good"
	VerdictBad  = "bad"
	VerdictSkip = "skip"
)

// BisectEvent is a step of a bisect.
type BisectEvent struct {
	// Event is one of the events above, and says which members there are.
	Event string `json:"event"`
	// State is the tested state, and N the action that ended with it; of a result the first bad one. N is 0 if it was no
	// action.
	State string `json:"state,omitzero"`
	N     uint64 `json:"n,omitzero"`
	// Left is about how many tests are to come.
	Left int `json:"left,omitzero"`
	// Verdict, ExitCode and Output, its end, are of a test.
	Verdict  string `json:"verdict,omitzero"`
	ExitCode *int   `json:"exit_code,omitzero"`
	Output   string `json:"output,omitzero"`
	// Tests is how many tests there were.
	Tests int `json:"tests,omitzero"`
	// Skipped are states that may be the first bad one as well, because they could not be tested.
	Skipped []string `json:"skipped,omitempty"`
	// Detail says which files a restore could not bring back.
	Detail string `json:"detail,omitzero"`
}

const (
	bisectTimeout = 10 * time.Minute
	// bisectOutput is how much of the end of a test's output an event has, in bytes.
	bisectOutput = 4 << 10
	// bisectEnd bounds a restore of a bisect, and the end of one that was interrupted.
	bisectEnd = 5 * time.Minute
	// Exit codes of a test with a meaning.
	exitSkip          = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// candidate is a state that a bisect may find.
type candidate struct {
	state string
	n     uint64 // the action that ended with it; 0 for none
	skip  bool   // it cannot be tested
}

type bisect struct {
	c       *Client
	r       BisectRequest
	event   func(BisectEvent) error
	states  []candidate    // in order; the last one is known to be bad
	present api.Checkpoint // the state before
	moved   bool           // the workspace is in another one
	tests   int
	output  string // of the last test

	actions map[uint64]bool // of the tests
	after   map[string]bool // the states after its restores
}

// Bisect finds the action that broke something, and returns the last event: it restores states between the good and the
// bad one, runs the command in each, and restores the present at the end, also after an error and the end of ctx. event
// is called with each step; its error ends the bisect. The error is ErrBisect, with the output, where a test could not be
// carried out.
//
// The server knows no bisect: tests and restores are in its log as those of any client, and other actions do not wait.
// Where one changes something meanwhile the bisect ends with ErrForeign, and leaves the workspace as it is. Then, and where
// the client is killed, the present of before is the checkpoint that a *LeftError names, of this bisect or the next one.
func (c *Client) Bisect(ctx context.Context, r BisectRequest, event func(BisectEvent) error) (BisectEvent, error) {
	r.Timeout = cmp.Or(r.Timeout, bisectTimeout)
	b := &bisect{c: c, r: r, event: event, actions: map[uint64]bool{}, after: map[string]bool{}}
	if err := b.begin(ctx); err != nil {
		return BisectEvent{}, err
	}
	last, err := b.search(ctx)
	problem := b.back(ctx, err)
	last.Tests, last.Output = b.tests, b.output
	if err != nil || problem != nil && !errors.As(problem, new(refusedError)) {
		return last, errors.Join(err, problem)
	}
	if last.Output = ""; problem != nil {
		last.Detail = problem.Error()
	}
	return last, event(last)
}

// begin finds the states, and keeps the present.
func (b *bisect) begin(ctx context.Context) error {
	list, err := b.c.Checkpoints(ctx)
	if err == nil {
		err = goesOn(list, bisectPrefix)
	}
	if err != nil {
		return err
	}
	ends, err := b.c.Changes(ctx, ChangesQuery{Since: string(b.r.Good), Until: string(b.r.Bad)})
	if err != nil {
		return err
	}
	good, known := api.StateNumber(ends.Before)
	bad, alsoKnown := api.StateNumber(ends.After)
	if !known || !alsoKnown || good >= bad {
		return fmt.Errorf("the good state must be before the bad one, and %s is not before %s", oneLine(ends.Before), oneLine(ends.After))
	}
	entries, err := b.c.since(ctx, ends.Before)
	if err != nil {
		return err
	}
	b.states = []candidate{{state: ends.After}}
	for _, e := range entries {
		if after, _ := api.StateNumber(e.After); after <= bad {
			one := candidate{state: e.After}
			if e.N != nil {
				one.n = *e.N
			}
			b.states = append(b.states, one)
		}
	}
	slices.SortFunc(b.states, func(x, y candidate) int { // of two entries of one state the action's comes first
		i, _ := api.StateNumber(x.state)
		j, _ := api.StateNumber(y.state)
		return cmp.Or(cmp.Compare(i, j), cmp.Compare(y.n, x.n))
	})
	b.states = slices.CompactFunc(b.states, func(x, y candidate) bool { return x.state == y.state })
	name := bisectPrefix + time.Now().UTC().Format("20060102-150405")
	expires := loopExpires.Seconds() + float64(len(b.states))*b.r.Timeout.Seconds() // all are tested where none can be
	b.present, err = b.c.keepBefore(ctx, api.CheckpointRequest{Name: name, Verify: true, Expires: min(expires, api.MaxCheckpointExpires)})
	return err
}

// search returns the event of the result.
func (b *bisect) search(ctx context.Context) (last BisectEvent, err error) {
	good, bad := -1, len(b.states)-1
	for {
		i, ok := b.next(good, bad)
		if !ok {
			break
		}
		tested, err := b.test(ctx, b.states[i], bits.Len(uint(bad-good-1)))
		if err != nil {
			return BisectEvent{}, err
		}
		switch tested.Verdict {
		case VerdictGood:
			good = i
		case VerdictBad:
			bad = i
		default:
			b.states[i].skip = true
		}
		tested.Left = bits.Len(uint(bad - good - 1))
		if tested.Event == "" { // it is no longer kept
			continue
		}
		if err := b.event(tested); err != nil {
			return BisectEvent{}, err
		}
	}
	found := b.states[bad]
	last = BisectEvent{Event: BisectResult, State: found.state, N: found.n}
	for _, s := range b.states[good+1 : bad] {
		last.Skipped = append(last.Skipped, s.state)
	}
	return last, nil
}

// next returns the state to test between two others: that in the middle, or the nearest one that can be tested.
func (b *bisect) next(good, bad int) (i int, ok bool) {
	middle := good + (bad-good)/2
	for off := range bad - good {
		for _, i := range []int{middle - off, middle + off} {
			if i > good && i < bad && !b.states[i].skip {
				return i, true
			}
		}
	}
	return 0, false
}

// test restores a state and runs the command. An event without a name says that the state is no longer kept.
func (b *bisect) test(ctx context.Context, s candidate, left int) (tested BisectEvent, err error) {
	if err := b.mine(ctx); err != nil {
		return tested, err
	}
	would, err := b.c.Restore(ctx, api.RestoreRequest{To: api.StateRef(s.state), DryRun: true})
	if failed, ok := errors.AsType[*StatusError](err); ok && (failed.Status == http.StatusGone || failed.Status == http.StatusNotFound) {
		return tested, nil
	}
	if err == nil {
		err = b.wouldLose(ctx, s, &would)
	}
	if err == nil {
		err = b.event(BisectEvent{Event: BisectTesting, State: s.state, N: s.n, Left: left})
	}
	if err != nil {
		return tested, err
	}
	if tested.Detail, err = b.restore(ctx, s.state); err != nil {
		return tested, fmt.Errorf("restoring %s: %w", oneLine(s.state), err)
	}
	if ctx.Err() != nil {
		return tested, context.Cause(ctx)
	}
	program, err := b.run(ctx)
	if err != nil {
		return tested, fmt.Errorf("running the command in %s: %w", oneLine(s.state), err)
	}
	tested.Event, tested.State, tested.N, tested.Output, tested.ExitCode = BisectTested, s.state, s.n, b.output, program.ExitCode
	tested.Verdict, err = b.verdict(program)
	if err != nil {
		err = fmt.Errorf("%w: %w in %s", ErrBisect, err, oneLine(s.state))
	}
	return tested, err
}

// restore restores a state, and returns which paths are not as there.
func (b *bisect) restore(ctx context.Context, to string) (detail string, err error) {
	b.moved = true
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), bisectEnd) // the server ends it anyway, and only its answer says that it is ours
	defer cancel()
	r, err := b.c.Restore(whole, api.RestoreRequest{To: api.StateRef(to)})
	if failed, ok := errors.AsType[*StatusError](err); ok && failed.Status == http.StatusConflict { // an action runs
		b.moved = len(b.after) > 0
	}
	if err != nil {
		return "", err
	}
	b.after[r.After] = true
	if r.RefusedCount == 0 || len(r.Refused) == 0 {
		return "", nil
	}
	first := r.Refused[0]
	return fmt.Sprintf("%d paths are not what they were, such as %s: %s", r.RefusedCount, api.Describe(cmp.Or(first.Path, string(first.PathBase64))), oneLine(first.Why)), nil
}

// run runs the command, which has ended when it returns.
func (b *bisect) run(ctx context.Context) (api.ExecObservation, error) {
	b.tests++
	key, output := random.UUID7(), tail.New(bisectOutput)
	program, err := b.c.Exec(ctx, api.Request{
		Key: key, Action: api.ExecAction{Command: b.r.Command, KillAfter: b.r.Timeout.Seconds()},
	}, Streams{Stdout: output, Stderr: output})
	b.output = output.String()
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), bisectEnd)
	defer cancel()
	if err != nil && !errors.Is(err, ErrMissed) {
		_, _ = b.c.Cancel(after, key, pollTime) // it may have ended
	} else {
		err = nil
	}
	if a, failed := b.c.Action(after, key, 0); failed == nil && a.N > 0 {
		b.actions[a.N] = true
	}
	return program, err
}

// mine returns ErrForeign if somebody else changed the workspace since the begin.
func (b *bisect) mine(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return b.c.foreign(ctx, b.present.State, func(n uint64, after string) bool { return b.actions[n] || b.after[after] })
}

// wouldLose returns an error if a restore would lose a content of the present for good, such as of a large file. A file
// that a test wrote may be lost.
func (b *bisect) wouldLose(ctx context.Context, s candidate, would *api.Restored) error {
	if len(would.Lost) == 0 {
		return nil
	}
	changed, err := b.c.Changes(ctx, ChangesQuery{Since: b.present.State, Until: would.Before})
	if err != nil {
		return err
	}
	written := map[string]bool{}
	for _, change := range changed.Paths {
		path, _ := change.Names()
		written[path] = true
	}
	for _, path := range would.Lost {
		if !written[string(path)] {
			return fmt.Errorf("restoring %s would lose %s, whose content is not kept", oneLine(s.state), api.Describe(string(path)))
		}
	}
	return nil
}

// verdict judges the state of a test by its end.
func (b *bisect) verdict(o api.ExecObservation) (string, error) {
	switch {
	case o.EndedBy != nil && *o.EndedBy == "kill_after":
		return "", fmt.Errorf("the command took longer than %v", b.r.Timeout)
	case o.EndedBy != nil:
		return "", fmt.Errorf("the command was ended by %s", oneLine(*o.EndedBy))
	case o.ExitCode == nil: // by a signal
		return VerdictBad, nil
	}
	switch *o.ExitCode {
	case 0:
		return VerdictGood, nil
	case exitSkip:
		return VerdictSkip, nil
	case exitNotExecutable, exitNotFound:
		return "", fmt.Errorf("the command cannot be run (exit code %d)", *o.ExitCode)
	}
	return VerdictBad, nil
}

// refusedError names paths that the restore of the present could not bring back.
type refusedError struct{ error }

// back restores the present and removes its checkpoint, which a *LeftError names otherwise. searched is the error of the search.
func (b *bisect) back(ctx context.Context, searched error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bisectEnd)
	defer cancel()
	if errors.Is(searched, ErrForeign) && b.moved {
		return &LeftError{b.present.Name, errors.New("the workspace is left as it is")}
	}
	if b.moved {
		err := b.mine(ctx)
		detail := ""
		if err == nil {
			detail, err = b.restore(ctx, b.present.Name)
		}
		if err == nil { // one may have come in between
			err = b.mine(ctx)
		}
		switch {
		case err != nil:
			return &LeftError{b.present.Name, fmt.Errorf("restoring the present: %w", err)}
		case detail != "":
			return refusedError{&LeftError{b.present.Name, errors.New(detail)}}
		}
	}
	return b.c.RemoveCheckpoint(ctx, b.present.Name)
}
