package server

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
)

// The forms of a streamed answer.
const (
	eventStreamType = "text/event-stream"
	linesType       = "application/x-ndjson"
)

// heartbeatTime is how long a streamed answer is silent at most: half of the
// limit of the least patient proxies in use (nginx 60 s, a load balancer 30 to 60 s).
const heartbeatTime = 15 * time.Second

// errReaderGone says that the reader of a stream is gone.
var errReaderGone = errors.New("the response can no longer be written")

// streamAction answers an action with its output as it comes and then its observation, in
// the media type that the request accepts.
func (s *Server) streamAction(w http.ResponseWriter, r *http.Request, c *call, leave func(), accepted string) error {
	if _, ok := c.Request.Action.(api.ExecAction); ok {
		c.Flow = actions.NewFlow()
		defer c.Flow.Leave()
	}
	run, arrival, end, err := s.start(r.Context(), c, leave)
	if arrival != actions.First && c.unused != nil {
		c.unused()
	}
	if err != nil {
		return err
	}
	defer end()
	s.identified(w, r, run)
	s.follow(w, r, run, 0, accepted, c.Flow, c)
	return nil // it was reported in the stream
}

// follow writes the events of an action behind one of them. The last one has the changes, if c asks for
// them.
func (s *Server) follow(
	w http.ResponseWriter, r *http.Request, run *actions.Run, after uint64, accepted string, flow *actions.Flow, c *call,
) {
	ctx, giveUp := context.WithCancelCause(r.Context())
	defer giveUp(nil)
	out := &events{w: w, form: accepted, giveUp: giveUp}
	out.begin()
	defer out.beat(s.heartbeat, run.Waiting)()
	last, err := run.Follow(ctx, after, flow, func(o api.Output) error { return out.send(o) })
	if err != nil {
		return // there is no reader
	}
	body, written, err := s.answerIn(ctx, run, formAction)
	if err == nil {
		defer written()
		run.Sending()
		if head, tail, err := api.EncodeFinished(last + 1); err == nil {
			parts := [][]byte{tail}
			if added, err := s.withChanges(w.Header(), c, run, tail); err == nil {
				parts = added
			}
			_ = out.write(api.Finished{}.Kind(), last+1, append([][]byte{head, body}, parts...)...)
		}
		return
	}
	refusal, id := s.verdict(r, err)
	_ = out.send(api.Failed{Seq: last + 1, Status: refusal.Status, Detail: api.NewRefusal(refusal, id).Detail, ID: id})
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
	err  error     // why nothing more can be written
}

// begin sends the header, so that the client knows that it is heard.
func (e *events) begin() {
	h := e.w.Header()
	h.Set("Content-Type", e.form)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // asks nginx not to buffer
	e.w.WriteHeader(http.StatusOK)
	e.last = time.Now()
	_ = e.flush() // the next event will tell
}

// send writes one event and returns errReaderGone where that is not possible;
// the wait of the action is ended then.
func (e *events) send(event api.Event) error {
	var seq uint64
	switch event := event.(type) {
	case api.Output:
		seq = event.Seq
	case api.Finished:
		seq = event.Seq
	case api.Failed:
		seq = event.Seq
	case api.Heartbeat:
	}
	line, err := api.EncodeEvent(event)
	if err != nil {
		return err
	}
	return e.write(event.Kind(), seq, line)
}

// write is send for an encoded event, which may come in parts. A number of 0 is left out.
func (e *events) write(kind string, seq uint64, line ...[]byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	end := "\n"
	if e.form == eventStreamType {
		head := "event: " + kind + "\ndata: "
		if seq > 0 {
			head = "id: " + strconv.FormatUint(seq, 10) + "\n" + head
		}
		line, end = append([][]byte{[]byte(head)}, line...), "\n\n"
	}
	err := httpserver.WriteParts(e.w, append(line, []byte(end))...)
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

// raw writes an event, or a comment where it has no name.
func (e *events) raw(event string, data []byte) error {
	text := []byte(": ping\n\n")
	if event != "" {
		text = append(append([]byte("event: "+event+"\ndata: "), data...), "\n\n"...)
	}
	if _, err := e.w.Write(text); err != nil { //nolint:gosec // events, of which the prefix in one was checked
		return err
	}
	return e.flush()
}

// flush sends the written events.
func (e *events) flush() error {
	err := http.NewResponseController(e.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// beat sends heartbeats after every silence of that length, until stop, with the
// result of look.
func (e *events) beat(every time.Duration, look func() *api.Waiting) (stop func()) {
	return channel.Go(func(over <-chan struct{}) {
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
				_ = e.send(api.Heartbeat{Waiting: look()}) // a failure ends the wait
				silent = 0
			}
			timer.Reset(every - silent)
		}
	})
}
