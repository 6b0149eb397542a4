package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// states are the words for the states of an action.
var states = []string{
	api.StateReserved, api.StateRunning, api.StateDone, api.StateCancelled, api.StateRefused, api.StateUnknown,
}

// listActions answers with the actions that are kept, the newest first.
func (s *Server) listActions(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	before, limit, err := pageOf(r)
	if err != nil {
		return err
	}
	state := query.Get("state")
	if state != "" && !slices.Contains(states, state) {
		return invalid("query.state: must be one of %s, got %s", strings.Join(states, ", "), api.Describe(state))
	}
	list := s.actions.List(before, limit+1, query.Get("session"), state)
	answer := api.RecordedActions{Actions: []api.RecordedAction{}}
	if len(list) > limit {
		list = list[:limit]
		answer.Next = max(before, 1)
		if limit > 0 {
			answer.Next = list[limit-1].N
		}
	}
	for _, info := range list {
		answer.Actions = append(answer.Actions, recordedAction(info))
	}
	return writeJSON(w, http.StatusOK, answer)
}

// recordedAction returns the record of an action without its answer.
func recordedAction(info journal.Info) api.RecordedAction {
	a := api.RecordedAction{
		ID: info.ID, N: info.N, State: info.State.String(), Outcome: actions.OutcomeOf(info),
		Session: actions.SessionOf(info), Kind: info.Kind, Text: info.Text,
		Begin: info.Begin.UTC(), OutputBytes: info.Output, Denied: info.Denied, Lasting: !info.Lost,
	}
	switch info.Effect {
	case journal.EffectNone:
		a.Effect = api.EffectNone
	case journal.EffectSome:
		a.Effect = api.EffectChanges
	case journal.EffectUnknown:
	}
	if !info.End.IsZero() {
		a.End = new(info.End.UTC())
	}
	return a
}

// findAction returns the action in the path.
func (s *Server) findAction(r *http.Request) (*actions.Run, error) {
	run, leave, err := s.joinAction(r)
	leave()
	return run, err
}

// joinAction returns the action in the path, whose answer is held until leave.
func (s *Server) joinAction(r *http.Request) (run *actions.Run, leave func(), err error) {
	id, err := pathValue(r, "id")
	if err != nil {
		return nil, func() {}, err
	}
	run, leave, err = s.actions.Join(id)
	switch {
	case errors.Is(err, journal.ErrForgotten):
		err = errForgotten(id)
	case err == nil && run == nil:
		err = refuse(http.StatusNotFound, "There is no action %s", api.Excerpt(id))
	}
	return run, leave, err
}

// getAction answers with the record of an action. It waits for the end if it is asked to.
func (s *Server) getAction(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	wait, err := waitIn(r, 0, maxWait)
	if err != nil {
		return err
	}
	if run.UnderWay() && wait > 0 {
		stop, err := s.joinLimit()
		if err != nil {
			return err
		}
		defer stop()
		run.Wait(r.Context(), wait)
	}
	return s.writeRecord(w, r, http.StatusOK, run)
}

// cancelTime is how long a cancelled action is waited for, unless the request says: all
// grace times of a command.
const cancelTime = 10 * time.Second

// cancelAction ends an action and answers with its record then: with 202 where it has not
// ended. An action that ended before stays as it is, and is refused where it left a command
// running.
func (s *Server) cancelAction(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	wait, err := waitIn(r, cancelTime, maxWait)
	if err != nil {
		return err
	}
	if !run.UnderWay() {
		if hint := stillRunningHint(run); hint != "" {
			return refuse(http.StatusConflict, "The action was answered while its command went on: to end that, %s", hint)
		}
		return s.writeRecord(w, r, http.StatusOK, run)
	}
	s.actions.Cancel(run)
	if run.Wait(r.Context(), wait) {
		_, err := run.Answer(r.Context())
		if refusal, ok := errors.AsType[*api.Error](err); ok {
			return refusal // it left no record
		}
		return s.writeRecord(w, r, http.StatusOK, run)
	}
	if info := run.Info(); slices.Contains(uncancellable, info.Kind) {
		return refuse(http.StatusConflict, "A running %s cannot be cancelled; it finishes by itself", info.Kind)
	}
	return s.writeRecord(w, r, http.StatusAccepted, run)
}

// stillRunningHint returns how to end the command that an action left running with its answer;
// "" where it left none, or its answer is not kept.
func stillRunningHint(run *actions.Run) string {
	info := run.Info()
	commands := []string{api.RunAction{}.Kind(), api.ExecAction{}.Kind()}
	if info.State != journal.Done || !slices.Contains(commands, info.Kind) {
		return "" // others may have a large answer
	}
	answer, err := run.Recorded()
	if err != nil {
		return ""
	}
	o, err := api.DecodeObservation(answer.Body)
	if err != nil {
		return ""
	}
	if command, ok := o.(api.RunObservation); ok && command.Outcome == api.OutcomeRunning {
		return fmt.Sprintf("send a run of C-c with is_input to the session %s", api.Excerpt(actions.SessionOf(info)))
	}
	if program, ok := o.(api.ExecObservation); ok && program.PID != nil && program.ExitCode == nil && program.Signal == nil {
		return fmt.Sprintf("send a signal to the process group %d with kill in a session", *program.PID)
	}
	return ""
}

// uncancellable are the actions that do not end halfway.
var uncancellable = []string{api.ReadAction{}.Kind(), api.WriteAction{}.Kind(), api.EditAction{}.Kind()}

// writeRecord answers with the record of an action, whose answer takes its part of the memory
// where it is large. An action that the caller waits for has it already: status is not 200.
func (s *Server) writeRecord(w http.ResponseWriter, r *http.Request, status int, run *actions.Run) error {
	info := run.Info()
	answer := recordedAction(info)
	answer.Waiting = run.Waiting()
	if !slices.Contains(states[2:], answer.State) {
		return writeJSON(w, status, answer)
	}
	if status == http.StatusOK {
		taken, err := s.shares.Take(r.Context(), info.Result)
		if err != nil {
			return err
		}
		defer s.shares.Give(taken)
	}
	recorded, err := run.Recorded()
	body, err := inForm(run, recorded, err, form(info.Form).listed())
	if err != nil {
		return err
	}
	if outcome, code := api.OutcomeIn(body); outcome != "" {
		answer.Outcome, answer.Code = outcome, code
	}
	answer.Changes = run.Changes()
	answer.Observation = []byte("null")
	head, tail, err := api.EncodeAround(answer)
	if err == nil {
		writeParts(w, status, head, body, tail)
	}
	return err
}

// actionEvents answers with the events of an action, behind one of them.
func (s *Server) actionEvents(w http.ResponseWriter, r *http.Request) error {
	run, leave, err := s.joinAction(r)
	defer leave()
	if err != nil {
		return err
	}
	after, err := number(r, "after", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if after, err = strconv.ParseUint(last, 10, 63); err != nil {
			return invalid("header.Last-Event-ID: must be a number, got %s", api.Describe(last))
		}
	}
	info := run.Info()
	ended := !run.UnderWay() && info.State.Ended()
	switch {
	case after == info.Stretches+1 && ended:
		w.WriteHeader(http.StatusNoContent) // by which a browser learns to stop
		return nil
	case after > info.Stretches:
		return api.BadRequest(fmt.Sprintf("The action has %d events yet, and none with the number %d", info.Stretches, after))
	}
	stop, err := s.joinLimit()
	if err != nil {
		return err
	}
	defer stop()
	c := &call{}
	if run.Changes() != nil {
		c.Request.Changes = api.ChangesFacts
	}
	s.follow(w, r, run, after, cmp.Or(streamForm(r), linesType), nil, c)
	return nil
}
