package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// status says what became of a step.
type status string

const (
	passed  status = "ok"      // what must come of it came
	failed  status = "failed"  // something else came, or nothing
	skipped status = "skipped" // it was not sent
)

// result is a step after it was played.
type result struct {
	status status
	// reason says why the step failed or was skipped.
	reason string
	// observation is the answer to an action, nil where there is none.
	observation api.Observation
	// files are the names in the directory of an upload.
	files []string
	took  time.Duration
}

// reporter shows the demo as it is played. Its errors are those of writing.
type reporter interface {
	part(p part) error
	begin(number int, s step) error
	end(number int, p part, s step, r result) error
}

// player plays parts in one session of one sandbox.
type player struct {
	client  *client.Client
	session string // "" for the default one
	dir     string // in the sandbox
	report  reporter
	// explain says more about a call that did not reach the sandbox.
	explain func(error) error

	absent map[string]bool // the tools that the sandbox does not have
	number int             // of the last step
	tally  tally
}

// errFailed ends a demo in which not every step did what it must.
var errFailed = errors.New("the demo failed")

// play plays all parts. It returns errFailed when a step did not do what it
// must, and ends early only where the sandbox cannot be reached or the report
// cannot be written.
func (p *player) play(ctx context.Context, parts []part) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	for _, chapter := range parts {
		if err := p.report.part(chapter); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		if err := p.playPart(ctx, chapter); err != nil {
			return err
		}
	}
	if n := p.tally.count(failed); n > 0 {
		return fmt.Errorf("%w: %d of %d steps did not do what they must", errFailed, n, p.number)
	}
	return nil
}

// prepare goes to the directory and finds out which tools the sandbox has.
func (p *player) prepare(ctx context.Context) error {
	var command strings.Builder
	command.WriteString("cd " + quote(p.dir) + "; pwd")
	for _, tool := range tools {
		command.WriteString("; " + tool.probe + " >/dev/null 2>&1 && echo has:" + tool.name)
	}
	o, err := p.do(ctx, api.RunAction{Command: command.String(), Blocking: true}, 0)
	if err != nil {
		return fmt.Errorf("preparing the session: %w", err)
	}
	lines := strings.Split(content(o), "\n")
	if !slices.Contains(lines, p.dir) {
		return fmt.Errorf("preparing the session: going to %s: %q", p.dir, excerpt(content(o)))
	}
	p.absent = map[string]bool{}
	for _, tool := range tools {
		p.absent[tool.name] = !slices.Contains(lines, "has:"+tool.name)
	}
	return nil
}

// playPart plays one part up to its first failure.
func (p *player) playPart(ctx context.Context, chapter part) error {
	broken := 0 // the step that failed
	for _, s := range chapter.steps {
		p.number++
		if err := p.report.begin(p.number, s); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		var r result
		var lost error
		switch {
		case chapter.missing != "":
			r = result{status: skipped, reason: chapter.missing}
		case broken != 0:
			r = result{status: skipped, reason: fmt.Sprintf("step %d failed", broken)}
		case p.absent[s.needs]:
			r = result{status: skipped, reason: "the sandbox has no working " + s.needs}
		default:
			r, lost = p.playStep(ctx, s)
		}
		if r.status == failed && broken == 0 {
			broken = p.number
		}
		p.tally.add(s, r)
		if err := p.report.end(p.number, chapter, s, r); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		if lost != nil {
			return lost
		}
	}
	return nil
}

// playStep plays one step. The error says that there is no point in going on.
func (p *player) playStep(ctx context.Context, s step) (r result, lost error) {
	begun := time.Now()
	var err error
	if s.upload != nil {
		r.files, err = p.upload(ctx, s.upload)
	} else {
		r.observation, err = p.do(ctx, s.action, s.seconds)
	}
	r.took = time.Since(begun)
	switch {
	case err != nil:
		lost = p.final(ctx, err)
	case s.upload != nil:
		err = s.want.checkFiles(r.files)
	default:
		err = s.want.check(s.kind(), r.observation)
	}
	r.status = passed
	if err != nil {
		r.status, r.reason = failed, err.Error()
	}
	return r, lost
}

// grace is how much longer than its limit a step may take. Without a limit of
// its own a command is answered after 10 seconds of silence.
const grace = time.Minute

// do sends an action with a limit in seconds, 0 for none.
func (p *player) do(ctx context.Context, a api.Action, seconds float64) (api.Observation, error) {
	request := api.Request{Action: a, Session: p.session}
	if seconds > 0 {
		request.Timeout = &seconds
	}
	limit := grace + time.Duration(math.Ceil(seconds))*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	o, err := p.client.Do(ctx, request)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return o, err
}

// interrupt ends what still runs and gives it a moment to clean up after itself,
// as a hang-up would not: go test has a directory to remove. Where nothing runs
// it does nothing.
func (p *player) interrupt(ctx context.Context) {
	const seconds = 2.0
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	_, _ = p.do(ctx, api.RunAction{Command: "C-c", IsInput: true}, seconds) // the session is closed in any case
}

// upload unpacks an archive in the sandbox and returns what is in the
// directory then.
func (p *player) upload(ctx context.Context, u *upload) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, grace, fmt.Errorf("no answer within %v", grace))
	defer cancel()
	if _, err := p.client.Upload(ctx, u.destination, u.name, bytes.NewReader(u.archive), true); err != nil {
		return nil, err
	}
	return p.client.ListFiles(ctx, u.destination)
}

// final returns what a failed call says about all that would follow, nil when
// the next one may work.
func (p *player) final(ctx context.Context, err error) error {
	status, answered := errors.AsType[*client.StatusError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case answered && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return fmt.Errorf("%w: put the server's key into %s", err, keyVariable)
	case answered:
		return nil
	}
	return p.explain(err)
}

// tally counts steps and adds up their times.
type tally struct {
	statuses []status
	kinds    []string // in the order of their first step
	times    map[string][]time.Duration
}

func (t *tally) add(s step, r result) {
	t.statuses = append(t.statuses, r.status)
	if r.status == skipped {
		return
	}
	if t.times == nil {
		t.times = map[string][]time.Duration{}
	}
	kind := s.kind()
	if edit, ok := s.action.(api.EditAction); ok {
		kind += " " + edit.Command
	}
	if _, known := t.times[kind]; !known {
		t.kinds = append(t.kinds, kind)
	}
	t.times[kind] = append(t.times[kind], r.took)
}

func (t *tally) count(s status) int {
	n := 0
	for _, each := range t.statuses {
		if each == s {
			n++
		}
	}
	return n
}

// kind names what is sent.
func (s step) kind() string {
	if s.upload != nil {
		return "upload"
	}
	return s.action.Kind()
}

// total and median of at least one duration.
func total(times []time.Duration) (sum time.Duration) {
	for _, each := range times {
		sum += each
	}
	return sum
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}
