package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
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
	session := query.Get("session")
	list := s.cfg.Journal.List(before, int(limit)+1, func(info journal.Info) bool { //nolint:gosec // at most maxPage
		return (state == "" || info.State.String() == state) && (session == "" || sessionOf(info) == session)
	})
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

// sessionOf is the name of the session of an action.
func sessionOf(info journal.Info) string {
	if info.Session == "" {
		return "default"
	}
	return info.Session
}

func recordedAction(info journal.Info) api.RecordedAction {
	a := api.RecordedAction{
		ID: info.ID, N: info.N, State: info.State.String(), Outcome: outcomeOf(info), Session: sessionOf(info), Kind: info.Kind, Text: info.Text,
		Begin: info.Begin.UTC(), OutputBytes: info.Output, Lasting: !info.Lost,
	}
	if !info.End.IsZero() {
		a.End = new(info.End.UTC())
	}
	return a
}

// findAction returns the action in the path, and its flight while it is under way.
func (s *Server) findAction(r *http.Request) (*journal.Action, *flight, error) {
	id, err := pathValue(r, "id")
	if err != nil {
		return nil, nil, err
	}
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	a, err := s.cfg.Journal.Lookup(id)
	switch {
	case errors.Is(err, journal.ErrForgotten):
		return nil, nil, errForgotten(id)
	case err != nil:
		return nil, nil, err
	case a == nil:
		return nil, nil, refuse(http.StatusNotFound, "There is no action %s", api.Excerpt(id))
	}
	return a, s.flights.all[a.N()], nil
}

// getAction answers with what is known of an action. It waits for the end if it is asked
// to.
func (s *Server) getAction(w http.ResponseWriter, r *http.Request) error {
	a, f, err := s.findAction(r)
	if err != nil {
		return err
	}
	wait, err := number(r, "wait", 0, uint64(maxWait/time.Second))
	if err != nil {
		return err
	}
	if f != nil && wait > 0 {
		stop, err := s.joins()
		if err != nil {
			return err
		}
		defer stop()
		await(r.Context(), f.done, time.Duration(wait)*time.Second) //nolint:gosec // at most maxWait
	}
	return s.writeRecorded(w, http.StatusOK, a, f)
}

// cancelTime is how long a cancelled action is waited for, unless the request says: all
// grace times of a command.
const cancelTime = 10 * time.Second

// cancelAction ends an action and answers with what is known of it then: with 202 where
// it has not ended. An action that ended before stays as it is, and is refused where it left
// a command running.
func (s *Server) cancelAction(w http.ResponseWriter, r *http.Request) error {
	a, f, err := s.findAction(r)
	if err != nil {
		return err
	}
	wait, err := number(r, "wait", uint64(cancelTime/time.Second), uint64(maxWait/time.Second))
	if err != nil {
		return err
	}
	if f == nil {
		if next := goesOn(a); next != "" {
			return refuse(http.StatusConflict, "The action was answered while its command went on: to end that, %s", next)
		}
		return s.writeRecorded(w, http.StatusOK, a, f)
	}
	s.cancel(f)
	if await(r.Context(), f.done, time.Duration(wait)*time.Second) { //nolint:gosec // at most maxWait
		if refusal, ok := errors.AsType[*api.Error](f.err); ok {
			return refusal // it left no record
		}
		return s.writeRecorded(w, http.StatusOK, a, f)
	}
	if info := a.Info(); slices.Contains(uncancellable, info.Kind) {
		return refuse(http.StatusConflict, "A %s that has begun is not cancelled: it ends by itself", info.Kind)
	}
	return s.writeRecorded(w, http.StatusAccepted, a, f)
}

// goesOn returns how to end the command that an action left running with its answer; "" where
// it left none, or its answer is not kept.
func goesOn(a *journal.Action) string {
	info := a.Info()
	body, err := a.Result()
	if err != nil || info.State != journal.Done {
		return ""
	}
	o, err := api.DecodeObservation(body)
	if err != nil {
		return ""
	}
	if run, ok := o.(api.RunObservation); ok && run.Outcome == api.OutcomeRunning {
		return fmt.Sprintf("send a run of C-c with is_input to the session %s", api.Excerpt(sessionOf(info)))
	}
	if program, ok := o.(api.ExecObservation); ok && program.PID != nil && program.ExitCode == nil && program.Signal == nil {
		return fmt.Sprintf("send a signal to the process group %d with kill in a session", *program.PID)
	}
	return ""
}

// uncancellable are the actions that do not end halfway.
var uncancellable = []string{api.ReadAction{}.Kind(), api.WriteAction{}.Kind(), api.EditAction{}.Kind()}

// writeRecorded answers with what is known of an action, and its flight if it is under way.
func (s *Server) writeRecorded(w http.ResponseWriter, status int, a *journal.Action, f *flight) error {
	answer := recordedAction(a.Info())
	answer.Waiting = f.waiting()
	if slices.Contains(states[2:], answer.State) {
		body, err := s.recorded(a, form(a.Info().Form).listed())
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
	a, f, err := s.findAction(r)
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
	info := a.Info()
	ended := f == nil && info.State.Ended()
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
	stop, err := s.joins()
	if err != nil {
		return err
	}
	defer stop()
	s.follow(w, r, f, a, after, accepted, nil)
	return nil
}

// actionOutput answers with bytes that an action printed, from an offset on and as far as
// they follow each other, or the lines of these that match. It does not wait for more.
func (s *Server) actionOutput(w http.ResponseWriter, r *http.Request) error {
	a, _, err := s.findAction(r)
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
	around, err := number(r, "context", 0, maxContext)
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
	stream := slices.Index(streamNames[:], name)
	if stream < 0 {
		return invalid("query.stream: must be %s or %s, got %s", api.StreamStdout, api.StreamStderr, api.Describe(name))
	}
	info := a.Info()
	total := info.Output
	if name != "" {
		total = info.Streams[stream]
	}
	offset, left := int64(from), int64(limit) //nolint:gosec // at most MaxInt64
	if offset > total {
		return refuse(http.StatusRequestedRangeNotSatisfiable, "The action printed %d bytes yet, and none at %d", total, offset)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set(api.OutputTotalHeader, strconv.FormatInt(total, 10))
	place := func(o journal.Output) (at int64, ok bool) {
		if name == "" {
			return o.Offset, true
		}
		return o.StreamOffset, int(o.Stream) == stream
	}
	part := kept{a: a, place: place, from: offset, to: total}
	if tail < math.MaxInt64 {
		if part.from, err = part.lastLines(int64(tail)); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", a.ID(), err)
		}
	}
	if re != nil {
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(part.from, 10))
		(&search{w: w, re: re, context: int(around), left: left}).run(part) //nolint:gosec // at most maxContext
		return nil
	}
	h.Set("Accept-Ranges", "bytes")
	if begin, end, asked := byteRange(r, total); asked {
		part.from, part.to = begin, end
		if part.from, left, err = part.stretch(); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", a.ID(), err)
		}
		if left == 0 {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", total))
			return refuse(http.StatusRequestedRangeNotSatisfiable, "Of the %d bytes that the action printed yet, none of this range is kept", total)
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.from, part.from+left-1, total))
		h.Set("Content-Length", strconv.FormatInt(left, 10))
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(part.from, 10))
		w.WriteHeader(http.StatusPartialContent)
	}
	part.to = math.MaxInt64 // also what is printed meanwhile
	part.write(w, left)
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

// waiting returns what the command of an action does; nil where it is not known.
func (f *flight) waiting() *api.Waiting {
	if f == nil || channel.Closed(f.done) {
		return nil
	}
	if look := f.look.Load(); look != nil && f.action.Info().State == journal.Running {
		return (*look)()
	}
	return nil
}

// recorded returns the answer of an action that ended.
func (s *Server) recorded(a *journal.Action, want form) ([]byte, error) {
	body, err := a.Result()
	if errors.Is(err, journal.ErrForgotten) {
		return nil, errForgotten(a.ID())
	}
	info := a.Info()
	if err == nil && body != nil {
		outcome := outcomeOf(info)
		if info.State == journal.Done && info.Outcome == 0 { // the record is older than outcomes
			outcome = ""
		}
		return inForm(body, form(info.Form), want, outcome)
	}
	if err != nil {
		return nil, err
	}
	if want == formHidden { // whose client breaks on an error observation
		return nil, api.BadRequest("The result of the command is not known: " + info.State.String())
	}
	switch info.State {
	case journal.Unknown:
		return composed(want, api.StateUnknown, "the result is unknown: the action began, and the server did not see its end. It does not run again; send it with a new identity to run it again. What it printed:\n"+printed(a))
	case journal.Refused:
		return composed(want, api.StateRefused, "The action did not run: the server ended, or its client left, before its turn came. Send it with a new identity to run it.")
	case journal.Reserved, journal.Running, journal.Done, journal.Cancelled:
	}
	return composed(want, info.State.String(), "The action ended ("+info.State.String()+"), and its result was not kept. It does not run again.")
}

// outcomeOf returns how an action went, as far as the journal knows.
func outcomeOf(info journal.Info) api.Outcome {
	switch info.State {
	case journal.Reserved, journal.Running:
		return api.OutcomeRunning
	case journal.Cancelled, journal.Refused:
		return api.OutcomeNotStarted
	case journal.Done:
		if n := int(info.Outcome); n > 0 && n <= len(api.Outcomes) {
			return api.Outcomes[n-1]
		}
	case journal.Unknown:
	}
	return api.OutcomeUnknown
}

// outcomeNumber is that of an outcome in the journal.
func outcomeNumber(outcome api.Outcome) uint8 {
	return uint8(slices.Index(api.Outcomes[:], outcome) + 1) //nolint:gosec // there are six
}

// maxPrinted bounds the output in the answer of an unknown action, in bytes.
const maxPrinted = 1 << 20

// printed returns the output of an action that is kept, as text.
func printed(a *journal.Action) string {
	var b strings.Builder
	cursor := a.Follow(0)
	defer cursor.Close()
	buf := make([]byte, journal.ChunkSize)
	for end := int64(0); ; {
		out, more, err := cursor.Next(buf)
		switch {
		case err != nil || more != nil:
			return strings.ToValidUTF8(strings.ReplaceAll(b.String(), "\r\n", "\n"), "\uFFFD")
		case b.Len()+len(out.Data) > maxPrinted:
			fmt.Fprintf(&b, "\n[... more is at /v1/actions/%s/output?offset=%d ...]", url.PathEscape(a.ID()), out.Offset)
			return strings.ToValidUTF8(strings.ReplaceAll(b.String(), "\r\n", "\n"), "\uFFFD")
		case out.Offset > end:
			fmt.Fprintf(&b, "\n[... %d bytes are not kept ...]\n", out.Offset-end)
		}
		end = out.Offset + int64(len(out.Data))
		_, _ = b.Write(out.Data)
	}
}
