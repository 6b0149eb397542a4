package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

const (
	// maxBackground bounds the programs in a list.
	maxBackground = 50
	// firstLines is how many lines the answer to a start has.
	firstLines = 100
	// maxLog bounds the output in an answer, in bytes.
	maxLog = 64 << 10
)

// answerOf is answerIn for the caller of a call. Where that does not wait for the end, the answer is early: the program
// goes on, and its action with it.
func (s *Server) answerOf(
	ctx context.Context, c *call, run *actions.Run,
) (body []byte, written func(), early bool, err error) {
	if c.soon != nil && run.UnderWay() {
		program, err := run.Program(ctx)
		if err == nil && !run.Wait(ctx, *c.soon) {
			if ctx.Err() != nil {
				return nil, nil, false, context.Cause(ctx)
			}
			text, err := lastOutput(run, firstLines)
			if err != nil {
				return nil, nil, false, err
			}
			body, err = c.Encode(api.ExecObservation{Content: text, PID: new(program.PID())})
			return body, func() {}, true, err
		}
		if err != nil && !errors.Is(err, actions.ErrEnded) {
			return nil, nil, false, err
		}
	}
	body, written, err = s.answerIn(ctx, run, c.form)
	return body, written, false, err
}

// lastOutput returns the last lines that an action printed, as text.
func lastOutput(run *actions.Run, lines int) (string, error) {
	out, _ := run.Output("")
	out.From = max(0, out.Total-maxLog)
	from, err := out.LastLines(int64(lines))
	if err != nil {
		return "", fmt.Errorf("reading the output of action %q: %w", run.ID(), err)
	}
	out.From = from
	var b bytes.Buffer
	out.Write(&b, maxLog, func(int64) {})
	return strings.ToValidUTF8(b.String(), "\uFFFD"), nil
}

// backgroundTool tells of the programs that a session's model started in the background.
func (s *Server) backgroundTool(
	ctx context.Context, session string, b tools.Background, cancelled <-chan struct{},
) (api.Observation, error) {
	select {
	case <-time.After(b.Delay):
	case <-cancelled:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var list []string
	for run := range s.actions.Programs(session, string(formTool)) {
		pid, state := stateOf(ctx, run)
		switch {
		case pid == 0: // it never ran
			continue
		case b.PID == 0 && len(list) == maxBackground:
			list = append(list, "[More programs were started; read_background_output finds them by PID.]")
		case b.PID == 0:
			list = append(list, fmt.Sprintf("PID %d %s: %s", pid, state, nameOf(run.Info().Text, nil)))
		case b.PID == pid:
			text, err := lastOutput(run, b.Lines)
			if err != nil {
				return nil, err
			}
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			return api.SuccessObservation{Content: fmt.Sprintf("%s[PID %d %s. It printed %d bytes; these are the last lines.]", text, pid, state, run.Info().Output)}, nil
		}
		if len(list) > maxBackground {
			break
		}
	}
	switch {
	case b.PID != 0:
		text := fmt.Sprintf("No program with the PID %d was started in the background; list_background_processes lists them.", b.PID)
		return api.ErrorObservation{Content: text, Code: tools.InvalidArgument}, nil
	case len(list) == 0:
		return api.SuccessObservation{Content: "No program was started in the background."}, nil
	}
	return api.SuccessObservation{Content: strings.Join(list, "\n")}, nil
}

// stateOf returns the process id of an action's program, 0 where it has none, and its state for a model.
func stateOf(ctx context.Context, run *actions.Run) (pid int, state string) {
	if run.UnderWay() {
		if program, err := run.Program(ctx); err == nil {
			return program.PID(), "runs"
		}
	}
	_, _ = run.Follow(ctx, 0, nil, func(o api.Output) error { // the first output names it, also where the end was not seen
		pid = o.PID
		return actions.ErrEnded
	})
	recorded, err := run.Recorded()
	if err != nil {
		return 0, ""
	}
	o, err := api.DecodeObservation(recorded.Body)
	ended, ok := o.(api.ExecObservation)
	switch {
	case err != nil || !ok:
		return pid, "ended when the server did, and how is not known"
	case ended.PID != nil:
		pid = *ended.PID
	}
	state = "ended"
	if ended.ExitCode != nil {
		state = fmt.Sprintf("ended with exit code %d", *ended.ExitCode)
	} else if ended.Signal != nil {
		state = "was ended by " + *ended.Signal
	}
	return pid, state
}
