package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/regex"
)

const (
	// maxWait bounds a long poll.
	maxWait = 10 * time.Minute
	// The actions on a page.
	defaultPage = 100
	maxPage     = 1000
)

// states are the words for the states of an action.
var states = []string{
	api.StateReserved, api.StateRunning, api.StateDone, api.StateCancelled, api.StateRefused, api.StateUnknown,
}

// preferAsync reads the header of RFC 7240: whether the client does not want to wait, and
// how long it would.
func preferAsync(r *http.Request) (wait time.Duration, async bool) {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.EqualFold(name, "respond-async"):
			async = true
		case strings.EqualFold(name, "wait"):
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 32); err == nil {
				wait = min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	return wait, async
}

// yes returns whether a parameter of the query is true; false where it is missing.
func yes(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text != "" && text != "true" && text != "false" {
		return false, invalid("query.%s: must be true or false, got %s", name, api.Describe(text))
	}
	return text == "true", nil
}

// number reads a whole number from the query, absent where it is not there.
func number(r *http.Request, name string, absent, most uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n > most {
		return 0, invalid("query.%s: must be a whole number from 0 to %d, got %s", name, most, api.Describe(text))
	}
	return n, nil
}

// listActions answers with the actions that are kept, the newest first.
func (s *Server) listActions(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	before, err := number(r, "before", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", defaultPage, maxPage)
	if err != nil {
		return err
	}
	state := query.Get("state")
	if state != "" && !slices.Contains(states, state) {
		return invalid("query.state: must be one of %s, got %s", strings.Join(states, ", "), api.Describe(state))
	}
	list := s.actions.List(before, int(limit)+1, query.Get("session"), state) //nolint:gosec // at most maxPage
	page := api.RecordedActions{Actions: []api.RecordedAction{}}
	if len(list) > int(limit) { //nolint:gosec // at most maxPage
		list = list[:limit]
		page.Next = max(before, 1)
		if limit > 0 {
			page.Next = list[limit-1].N
		}
	}
	for _, info := range list {
		page.Actions = append(page.Actions, recordedAction(info))
	}
	return writeJSON(w, http.StatusOK, page)
}

// recordedAction returns the record of an action without its answer.
func recordedAction(info journal.Info) api.RecordedAction {
	a := api.RecordedAction{
		ID: info.ID, N: info.N, State: info.State.String(), Outcome: actions.OutcomeOf(info), Session: actions.SessionOf(info), Kind: info.Kind, Text: info.Text,
		Begin: info.Begin.UTC(), OutputBytes: info.Output, Lasting: !info.Lost,
	}
	if !info.End.IsZero() {
		a.End = new(info.End.UTC())
	}
	return a
}

// findAction returns the action in the path.
func (s *Server) findAction(r *http.Request) (*actions.Run, error) {
	id, err := pathValue(r, "id")
	if err != nil {
		return nil, err
	}
	run, err := s.actions.Find(id)
	switch {
	case errors.Is(err, journal.ErrForgotten):
		return nil, errForgotten(id)
	case err == nil && run == nil:
		return nil, refuse(http.StatusNotFound, "There is no action %s", api.Excerpt(id))
	}
	return run, err
}

// getAction answers with the record of an action. It waits for the end if it is asked to.
func (s *Server) getAction(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	wait, err := number(r, "wait", 0, uint64(maxWait/time.Second))
	if err != nil {
		return err
	}
	if run.UnderWay() && wait > 0 {
		stop, err := s.joinLimit()
		if err != nil {
			return err
		}
		defer stop()
		run.Wait(r.Context(), time.Duration(wait)*time.Second) //nolint:gosec // at most maxWait
	}
	return s.writeRecord(w, http.StatusOK, run)
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
	wait, err := number(r, "wait", uint64(cancelTime/time.Second), uint64(maxWait/time.Second))
	if err != nil {
		return err
	}
	if !run.UnderWay() {
		if hint := stillRunningHint(run); hint != "" {
			return refuse(http.StatusConflict, "The action was answered while its command went on: to end that, %s", hint)
		}
		return s.writeRecord(w, http.StatusOK, run)
	}
	s.actions.Cancel(run)
	if run.Wait(r.Context(), time.Duration(wait)*time.Second) { //nolint:gosec // at most maxWait
		_, err := run.Answer(r.Context())
		if refusal, ok := errors.AsType[*api.Error](err); ok {
			return refusal // it left no record
		}
		return s.writeRecord(w, http.StatusOK, run)
	}
	if info := run.Info(); slices.Contains(uncancellable, info.Kind) {
		return refuse(http.StatusConflict, "A running %s cannot be cancelled; it finishes by itself", info.Kind)
	}
	return s.writeRecord(w, http.StatusAccepted, run)
}

// stillRunningHint returns how to end the command that an action left running with its answer;
// "" where it left none, or its answer is not kept.
func stillRunningHint(run *actions.Run) string {
	info := run.Info()
	answer, err := run.Recorded()
	if err != nil || info.State != journal.Done {
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

// writeRecord answers with the record of an action.
func (s *Server) writeRecord(w http.ResponseWriter, status int, run *actions.Run) error {
	answer := recordedAction(run.Info())
	answer.Waiting = run.Waiting()
	if slices.Contains(states[2:], answer.State) {
		recorded, err := run.Recorded()
		body, err := inForm(run, recorded, err, form(run.Info().Form).listed())
		if err != nil {
			return err
		}
		answer.Observation = body
		if o, err := api.DecodeObservation(body); err == nil {
			answer.Outcome, answer.Code = api.OutcomeOf(o) // also where the record is older than outcomes
		}
	}
	return writeJSON(w, status, answer)
}

// actionEvents answers with the events of an action, behind one of them.
func (s *Server) actionEvents(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
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
	accepted := streamForm(r)
	if accepted == "" {
		accepted = linesType
	}
	stop, err := s.joinLimit()
	if err != nil {
		return err
	}
	defer stop()
	s.follow(w, r, run, after, accepted, nil)
	return nil
}

// actionOutput answers with bytes that an action printed, from an offset on and as far as
// they follow each other, or the lines of these that match. It does not wait for more.
func (s *Server) actionOutput(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	from, err := number(r, "offset", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", math.MaxInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	tail, err := number(r, "tail", math.MaxInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	around, err := number(r, "context", 0, actions.MaxContext)
	if err != nil {
		return err
	}
	var re *regexp.Regexp
	if text := r.URL.Query().Get("grep"); text != "" {
		if re, err = regex.Compile(text); err != nil {
			return invalid("query.grep: %v", err)
		}
	}
	name := r.URL.Query().Get("stream")
	out, ok := run.Output(name)
	if !ok {
		return invalid("query.stream: must be %s or %s, got %s", api.StreamStdout, api.StreamStderr, api.Describe(name))
	}
	if out.From = int64(from); out.From > out.Total { //nolint:gosec // at most MaxInt64
		return refuse(http.StatusRequestedRangeNotSatisfiable, "Offset %d is beyond the %d bytes of output so far", out.From, out.Total)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set(api.OutputTotalHeader, strconv.FormatInt(out.Total, 10))
	if tail < math.MaxInt64 {
		if out.From, err = out.LastLines(int64(tail)); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", run.ID(), err)
		}
	}
	if re != nil {
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10))
		out.Search(w, re, int(around), int64(limit)) //nolint:gosec // at most MaxContext and MaxInt64
		return nil
	}
	h.Set("Accept-Ranges", "bytes")
	left := int64(limit) //nolint:gosec // at most MaxInt64
	if begin, end, asked := byteRange(r, out.Total); asked {
		out.From, out.To = begin, end
		if out.From, left, err = out.Stretch(); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", run.ID(), err)
		}
		if left == 0 {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", out.Total))
			return refuse(http.StatusRequestedRangeNotSatisfiable, "None of the requested range is retained (output so far: %d bytes)", out.Total)
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", out.From, out.From+left-1, out.Total))
		h.Set("Content-Length", strconv.FormatInt(left, 10))
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10))
		w.WriteHeader(http.StatusPartialContent)
	}
	h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10)) // where nothing is kept
	out.Write(w, left, func(at int64) { h.Set(api.OutputOffsetHeader, strconv.FormatInt(at, 10)) })
	return nil
}

// byteRange returns the interval of so many bytes that the Range header asks for, which may
// be empty. asked is false where the query says what is wanted, and for what RFC 9110 (14.2)
// lets a server ignore: several ranges, and conditional ones.
func byteRange(r *http.Request, total int64) (begin, end int64, asked bool) {
	spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	first, last, single := strings.Cut(spec, "-")
	query := r.URL.Query()
	if !ok || !single || r.Header.Get("If-Range") != "" || query.Has("offset") || query.Has("limit") || query.Has("tail") {
		return 0, 0, false
	}
	number := func(text string) int64 {
		n, err := strconv.ParseUint(text, 10, 63)
		ok = ok && err == nil
		return int64(n)
	}
	switch {
	case first == "":
		begin, end = max(0, total-number(last)), total
	case last == "":
		begin, end = number(first), total
	default:
		begin, end = number(first), number(last)
		ok = ok && begin <= end
		end = min(end, total-1) + 1
	}
	return begin, end, ok
}
