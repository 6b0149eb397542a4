package server

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

const (
	// inputChunk is how much input is read before the program takes it.
	inputChunk = 32 << 10
	// inputTime bounds one request: one that was cut need not hold its place forever.
	inputTime = time.Hour
	// defaultInputWait is how long a program may take nothing of its input.
	defaultInputWait = 30 * time.Second
)

// Causes that end the writing of input.
var (
	errNotTaken  = errors.New("the program takes no input at the moment")
	errTakenOver = errors.New("another request writes the input")
)

// findProgram returns the action in the path once its program was started. f is nil where the
// program ended; err refuses the request then.
func (s *Server) findProgram(r *http.Request) (a *journal.Action, f *flight, err error) {
	a, f, err = s.findAction(r)
	if err != nil {
		return nil, nil, err
	}
	info := a.Info()
	if kind := (api.ExecAction{}).Kind(); info.Kind != kind {
		return nil, nil, refuse(http.StatusConflict, "The action is a %s: only the program of an %s takes this; type into a run with is_input in its session", info.Kind, kind)
	}
	if f != nil {
		select {
		case <-f.started:
			return a, f, nil
		case <-f.done:
			info = a.Info()
		case <-r.Context().Done():
			return nil, nil, context.Cause(r.Context())
		}
	}
	return a, nil, refuse(http.StatusConflict, "The action has ended (%s)", info.State)
}

// writeInput writes the body of a request to the input of a program, as the program
// takes it, and answers with how much was taken: with 202 where the program took nothing
// for a while. What was taken before is acknowledged again, as long as the record of the action lives.
func (s *Server) writeInput(w http.ResponseWriter, r *http.Request) error {
	a, f, ended := s.findProgram(r)
	if a == nil {
		return ended
	}
	offset, err := number(r, "offset", math.MaxUint64, math.MaxInt64)
	if err != nil {
		return err
	}
	if offset == math.MaxUint64 {
		return invalid("query.offset: must come: the offset of the first byte in the input, from 0")
	}
	wait, err := number(r, "wait", uint64(defaultInputWait/time.Second), uint64(maxWait/time.Second))
	if err != nil {
		return err
	}
	end, err := yes(r, "end")
	if err != nil {
		return err
	}
	if f == nil {
		return repeatInput(w, r, a, 0, int64(offset), end, ended) //nolint:gosec // it is bounded
	}
	ctx, giveUp := context.WithCancelCause(r.Context())
	defer giveUp(nil)
	// A request that was cut may not know it yet: the newest one goes on.
	s.flights.mu.Lock()
	if f.writer != nil {
		f.writer(errTakenOver)
	}
	f.writer = giveUp
	s.flights.mu.Unlock()
	// The program says how fast the body is read.
	httpserver.PatientBody(r)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(inputTime)) // tests have no connection
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()

	body := &countedReader{r: r.Body}
	next, err := copyInput(ctx, f.program, body, int64(offset), end, time.Duration(wait)*time.Second) //nolint:gosec // both are bounded
	answer := api.ProgramInput{Offset: next, Ended: err == nil && end}
	if next > 0 || answer.Ended {
		a.TookInput(next)
	}
	refusal, refused := errors.AsType[*api.Error](err)
	switch {
	case refused && refusal.Status == http.StatusConflict:
		return repeatInput(w, r, a, body.n, int64(offset), end, err) //nolint:gosec // it is bounded
	case errors.Is(err, errNotTaken):
		return writeJSON(w, http.StatusAccepted, answer)
	case errors.Is(err, errTakenOver):
		w.Header().Set("Retry-After", "1")
		return refuse(http.StatusConflict, "Another request writes the input, which goes on at %d: come back in a second", next)
	case errors.Is(err, errBody):
		return unreadBody(r, err)
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// countedReader counts what was read.
type countedReader struct {
	r io.Reader
	n int64
}

func (c *countedReader) Read(p []byte) (n int, err error) {
	n, err = c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// repeatInput answers a request that a program did not take, of whose body so many bytes were read: it acknowledges
// what the program took before it ended, and refuses the rest.
func repeatInput(w http.ResponseWriter, r *http.Request, a *journal.Action, read, offset int64, end bool, refusal error) error {
	taken, ok := a.Input()
	left := taken - offset - read
	if !ok || left < 0 {
		return refusal
	}
	switch n, err := io.CopyN(io.Discard, r.Body, left+1); {
	case n > left:
		return refusal
	case !errors.Is(err, io.EOF):
		return unreadBody(r, err)
	}
	return writeJSON(w, http.StatusOK, api.ProgramInput{Offset: taken, Ended: end})
}

// errBody says that the rest of a body did not come.
var errBody = errors.New("reading the input")

// copyInput writes what body holds, from an offset on, and returns where the input goes on.
// wait bounds the time in which the program takes nothing.
func copyInput(ctx context.Context, p api.Program, body io.Reader, offset int64, end bool, wait time.Duration) (next int64, err error) {
	buf := make([]byte, inputChunk)
	for {
		n, read := body.Read(buf)
		last := errors.Is(read, io.EOF)
		next, err = writeChunk(ctx, p, offset, buf[:n], end && last, wait)
		switch {
		case err != nil || last:
			return next, err
		case ctx.Err() != nil:
			return next, context.Cause(ctx)
		case read != nil:
			return next, errors.Join(errBody, read)
		}
		offset += int64(n)
	}
}

// writeChunk writes data, as long as the program takes some of it within each wait.
func writeChunk(ctx context.Context, p api.Program, offset int64, data []byte, end bool, wait time.Duration) (next int64, err error) {
	for {
		limited, stop := context.WithTimeoutCause(ctx, wait, errNotTaken)
		next, err = p.Write(limited, offset, data, end)
		stop()
		moved := next - offset
		if !errors.Is(err, errNotTaken) || moved <= 0 || moved >= int64(len(data)) {
			return next, err
		}
		offset, data = next, data[moved:]
	}
}

// signalProgram sends a signal to a program.
func (s *Server) signalProgram(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, maxSmallBody)
	if err != nil {
		return err
	}
	signal, err := api.DecodeProgramSignal(body)
	if err != nil {
		return err
	}
	_, f, err := s.findProgram(r)
	if err == nil {
		err = f.program.Signal(signal.Signal)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// resizeProgram gives the terminal of a program a size.
func (s *Server) resizeProgram(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, maxSmallBody)
	if err != nil {
		return err
	}
	size, err := api.DecodeTTY(body)
	if err != nil {
		return err
	}
	_, f, err := s.findProgram(r)
	if err == nil {
		err = f.program.Resize(size)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
