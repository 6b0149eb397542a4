package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// executeAction answers an action with its observation, by the rules of the legacy
// protocol.
func (s *Server) executeAction(w http.ResponseWriter, r *http.Request) error {
	c, leave, err := s.enterWhole(r, func(begun time.Time) (*call, error) { return s.readAction(r, begun, formLegacy) })
	if err != nil {
		return err
	}
	return s.perform(w, r, c, leave)
}

// postAction answers an action with its output as it comes, where the request accepts a
// stream, or in one piece.
func (s *Server) postAction(w http.ResponseWriter, r *http.Request) error {
	return s.answerAction(w, r, func(begun time.Time) (*call, error) { return s.readAction(r, begun, formAction) })
}

// answerAction answers an action that a function reads, as postAction does.
func (s *Server) answerAction(w http.ResponseWriter, r *http.Request, read func(begun time.Time) (*call, error)) error {
	c, leave, err := s.enterWhole(r, read)
	if err != nil {
		return err
	}
	if accepted := streamForm(r); accepted != "" {
		return s.streamAction(w, r, c, leave, accepted)
	}
	return s.perform(w, r, c, leave)
}

// perform answers a call: it carries the action out, waits for it where it is under way
// already, or returns the recorded answer. leave releases the semaphore of the request.
func (s *Server) perform(w http.ResponseWriter, r *http.Request, c *call, leave func()) error {
	carried := false
	defer func() {
		if !carried && c.unused != nil {
			c.unused()
		}
	}()
	for {
		run, arrival, err := s.actions.Start(&c.Call)
		if err != nil {
			leave()
			return s.replyConflict(w, c, err)
		}
		carried = carried || arrival == actions.First
		if again, err := s.answer(w, r, c, run, arrival, leave); !again {
			return err
		}
		c.Held = 0 // its body gave its memory back
		if leave, err = s.enter(); err != nil {
			return err
		}
		leave = sync.OnceFunc(leave)
	}
}

// answer answers a call with the answer of its run. again says that the run was refused to
// another caller, so that this one may carry the action out.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, c *call, run *actions.Run, arrival actions.Arrival, leave func(),
) (again bool, err error) {
	defer run.Leave()
	if c.soon != nil { // it outlasts this request, which gives its place back
		defer leave()
	}
	wait, async := preferAsync(r)
	async = async && (c.form == formAction || c.form == formTool)
	switch {
	case arrival == actions.First && c.soon != nil:
		go s.actions.Do(r.Context(), run, func() {})
	case arrival == actions.First && async:
		go s.actions.Do(r.Context(), run, leave)
	case arrival == actions.First:
		s.actions.Do(r.Context(), run, leave)
	default:
		leave()
		if arrival == actions.During && (!async || wait > 0) {
			stop, err := s.joinLimit()
			if err != nil {
				return false, err
			}
			defer stop()
		}
	}
	if async && arrival != actions.After && !run.Wait(r.Context(), wait) {
		run.Queue()
		s.identified(w, r, run)
		w.Header().Set("Preference-Applied", "respond-async")
		return false, s.writeRecord(w, r, http.StatusAccepted, run)
	}
	body, written, early, err := s.answerOf(r.Context(), c, run)
	if err != nil {
		_, refused := errors.AsType[*api.Error](err)
		return refused && arrival == actions.During, err
	}
	defer written()
	run.Sending()
	s.identified(w, r, run)
	if arrival == actions.After {
		s.metrics.replays.Inc()
		w.Header().Set(api.ReplayedHeader, "true")
	}
	status := http.StatusOK
	if c.status != nil {
		status = c.status(w.Header(), body)
	}
	parts := [][]byte{body}
	if !early {
		parts, err = s.withChanges(w.Header(), c, run, body)
	}
	if err == nil {
		writeParts(w, status, parts...)
	}
	return false, err
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

// writeParts answers with JSON that is in parts.
func writeParts(w http.ResponseWriter, status int, parts ...[]byte) {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	h := w.Header()
	h.Set("Content-Type", httpserver.JSON)
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(status)
	_ = httpserver.WriteParts(w, parts...) // an error says that the client has left
}

// start carries out the action of a call without waiting for it, or joins the action that came
// with its id before. end is called once the caller no longer waits. leave releases the
// semaphore of the request.
func (s *Server) start(
	ctx context.Context, c *call, leave func(),
) (run *actions.Run, arrival actions.Arrival, end func(), err error) {
	run, arrival, err = s.actions.Start(&c.Call)
	if err == nil && arrival == actions.First {
		if c.soon != nil { // it outlasts the request
			go s.actions.Do(ctx, run, func() {})
			return run, arrival, func() { leave(); run.Leave() }, nil
		}
		go s.actions.Do(ctx, run, leave)
		return run, arrival, run.Leave, nil
	}
	leave()
	if err != nil {
		return nil, arrival, nil, conflict(c, err)
	}
	if arrival == actions.After {
		return run, arrival, run.Leave, nil
	}
	stop, err := s.joinLimit()
	if err != nil {
		run.Leave()
		return nil, arrival, nil, err
	}
	return run, arrival, func() { stop(); run.Leave() }, nil
}

// answerIn waits for the end of a run, and returns its answer in a form. A large one that is
// read from the journal takes its part of the memory before, until it is written.
func (s *Server) answerIn(ctx context.Context, run *actions.Run, want form) (body []byte, written func(), err error) {
	if err := run.Await(ctx); err != nil {
		return nil, nil, err
	}
	taken, err := s.shares.Take(ctx, run.Size())
	if err != nil {
		return nil, nil, err
	}
	answer, err := run.Answer(ctx)
	if body, err = inForm(run, answer, err, want); err != nil {
		s.shares.Give(taken)
		return nil, nil, err
	}
	kept := min(taken, int64(len(body))/actions.EncodedPart)
	s.shares.Give(taken - kept)
	return body, func() { s.shares.Give(kept) }, nil
}

// inForm returns the answer of a run in a form.
func inForm(run *actions.Run, answer actions.Answer, err error, want form) ([]byte, error) {
	switch {
	case errors.Is(err, journal.ErrForgotten):
		return nil, errForgotten(run.ID())
	case err != nil:
		return nil, err
	case answer.Body == nil && want == formHidden: // whose client breaks on an error observation
		return nil, api.BadRequest("The result of the command is not known: " + run.Info().State.String())
	}
	return want.convert(answer)
}

// identified names the action in the header of an answer.
func (s *Server) identified(w http.ResponseWriter, r *http.Request, run *actions.Run) {
	h := w.Header()
	h.Set(api.ActionHeader, run.ID())
	if run.Info().Lost || s.cfg.Journal.Failing() {
		h.Set(api.LastingHeader, "false")
	}
	if prefix, err := forwardedPrefix(r); err == nil {
		h.Set("Location", prefix+"/v1/actions/"+url.PathEscape(run.ID()))
	}
}
