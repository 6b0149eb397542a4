package server

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
)

// The forms of a streamed answer.
const (
	eventStreamType = "text/event-stream"
	linesType       = "application/x-ndjson"
)

// heartbeatTime is how long a streamed answer is silent at most: half of what
// the least patient proxies in use allow (nginx 60 s, a load balancer 30 to 60 s).
const heartbeatTime = 15 * time.Second

// errReaderGone is the cause that ends the wait of an action whose answer
// cannot be written any more.
var errReaderGone = errors.New("the answer cannot be written any more")

// streamAction answers an action with its output as it comes and then its
// observation, in the form that the request accepts, or at once as
// executeAction does.
func (s *Server) streamAction(w http.ResponseWriter, r *http.Request) error {
	form := streamForm(r)
	if form == "" {
		return s.executeAction(w, r)
	}
	begun := time.Now()
	leave, err := s.enter()
	if err != nil {
		s.metrics.action(r, unread, err, time.Since(begun))
		return err
	}
	defer leave()
	req, err := s.readAction(r, begun)
	if err != nil {
		s.metrics.action(r, unread, err, time.Since(begun))
		return err
	}
	err = s.stream(w, r, req, form)
	s.metrics.action(r, req.Action.Kind(), err, time.Since(begun))
	return nil // it was told in the stream
}

// stream runs an action and writes its events. The error says how it ended.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, req api.Request, form string) error {
	ctx, giveUp := context.WithCancelCause(r.Context())
	defer giveUp(nil)
	out := &events{w: w, form: form, giveUp: giveUp}
	out.begin()
	stop := sync.OnceFunc(out.beat(s.heartbeat))
	defer stop()                                                                      // also of a panic
	o, err := s.cfg.Executor.Stream(ctx, req, func(o api.Output) { _ = out.send(o) }) // what fails ends the wait
	stop()
	if err == nil {
		err = out.send(api.Finished{Observation: o})
	}
	if err == nil || errors.Is(err, errReaderGone) {
		return err
	}
	refusal, id := s.verdict(r, err)
	_ = out.send(api.Failed{Status: refusal.Status, Detail: words(refusal), ID: id}) // err is the one to count
	return err
}

// words are all that a refusal says.
func words(e *api.Error) string {
	if e.Errors != "" {
		return e.Detail + ": " + e.Errors
	}
	return e.Detail
}

// streamForm returns the media type of the stream that a request accepts, ""
// where it wants none.
func streamForm(r *http.Request) string {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch kind, params, err := mime.ParseMediaType(part); {
		case err != nil || params["q"] == "0":
		case kind == eventStreamType, kind == linesType:
			return kind
		}
	}
	return ""
}

// events writes events as they come. It may be used concurrently.
type events struct {
	w      http.ResponseWriter
	form   string
	giveUp context.CancelCauseFunc

	mu   sync.Mutex
	last time.Time // when the last event was written
	err  error     // why nothing can be written any more
}

// begin sends the header, so that the client knows that it is heard.
func (e *events) begin() {
	h := e.w.Header()
	h.Set("Content-Type", e.form)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // asks nginx to pass on what comes
	e.w.WriteHeader(http.StatusOK)
	e.last = time.Now()
	_ = e.flush() // the next event will tell
}

// send writes one event and returns errReaderGone where that is not possible;
// the wait of the action is ended then.
func (e *events) send(event api.Event) error {
	line, err := api.EncodeEvent(event)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if e.form == eventStreamType {
		line = append([]byte("event: "+event.Kind()+"\ndata: "), append(line, '\n')...)
	}
	_, err = e.w.Write(append(line, '\n'))
	e.last = time.Now()
	if err == nil {
		err = e.flush()
	}
	if err != nil {
		e.err = errReaderGone
		e.giveUp(errReaderGone)
	}
	return e.err
}

// flush hands over what was written.
func (e *events) flush() error {
	err := http.NewResponseController(e.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// beat sends heartbeats after every silence of that length, until stop.
func (e *events) beat(every time.Duration) (stop func()) {
	over := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		timer := time.NewTimer(every)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-over:
				return
			}
			e.mu.Lock()
			silent := time.Since(e.last)
			e.mu.Unlock()
			if silent >= every {
				_ = e.send(api.Heartbeat{}) // what fails ends the wait
				silent = 0
			}
			timer.Reset(every - silent)
		}
	})
	return func() {
		close(over)
		beating.Wait()
	}
}
