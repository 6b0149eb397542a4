package actions

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/actiond/actiond/api"
)

// Errors of the input of programs.
var (
	// ErrNotProgram reports an action that is not an exec.
	ErrNotProgram = errors.New("the action has no program")
	// ErrEnded reports an action that ended.
	ErrEnded = errors.New("the action has ended")
	// ErrNotTaken reports a program that took nothing of its input for a while.
	ErrNotTaken = errors.New("the program takes no input at the moment")
	// ErrTakenOver reports that a later call writes the input.
	ErrTakenOver = errors.New("another request writes the input")
	// ErrBody reports input that could not be read.
	ErrBody = errors.New("reading the input")
)

// inputChunk is how much input is read before the program takes it.
const inputChunk = 32 << 10

// Program returns the program of the action once it was started. The error is
// [ErrNotProgram], [ErrEnded] or the cause of the end of ctx.
func (r *Run) Program(ctx context.Context) (api.Program, error) {
	if r.action.Info().Kind != (api.ExecAction{}).Kind() {
		return nil, ErrNotProgram
	}
	if r.call == nil {
		return nil, ErrEnded
	}
	select {
	case <-r.started:
		return r.program, nil
	case <-r.done:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Input is a part of the input of a program.
type Input struct {
	Body   io.Reader
	Offset int64 // of its first byte in the input
	End    bool  // the input ends behind it
	// Wait bounds the time in which the program takes nothing.
	Wait time.Duration
	// Interrupt ends a Read of Body that waits. It may be called concurrently and more than once.
	Interrupt func()
}

// WriteInput writes input to the program of the action, as fast as the program takes it, and
// returns the offset of the next byte. Input that was taken before is acknowledged again, as
// long as the record of the action lives. Of concurrent calls the latest goes on: the caller
// of an earlier one may have lost its connection without knowing. The error is that of
// [Run.Program] or of [api.Program], [ErrNotTaken], [ErrTakenOver], or wraps [ErrBody].
func (r *Run) WriteInput(ctx context.Context, in Input) (next int64, err error) {
	program, err := r.Program(ctx)
	if errors.Is(err, ErrEnded) {
		return r.repeat(in, 0, err)
	}
	if err != nil {
		return 0, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.m.mu.Lock()
	if r.writer != nil {
		r.writer(ErrTakenOver)
	}
	r.writer = giveUp
	r.m.mu.Unlock()
	defer context.AfterFunc(ctx, in.Interrupt)()

	body := &countingReader{r: in.Body}
	next, err = in.copy(ctx, program, body)
	if next > 0 || err == nil && in.End {
		r.action.TookInput(next)
	}
	if _, refused := errors.AsType[*api.Error](err); refused {
		return r.repeat(in, body.n, err)
	}
	return next, err
}

// countingReader counts the bytes that were read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (n int, err error) {
	n, err = c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// repeat acknowledges input of which so many bytes were read, where the program took all
// of it before; otherwise it returns refusal.
func (r *Run) repeat(in Input, read int64, refusal error) (next int64, err error) {
	taken, ok := r.action.Input()
	left := taken - in.Offset - read
	if !ok || left < 0 {
		return 0, refusal
	}
	switch n, err := io.CopyN(io.Discard, in.Body, left+1); {
	case n > left:
		return 0, refusal
	case !errors.Is(err, io.EOF):
		return 0, errors.Join(ErrBody, err)
	}
	return taken, nil
}

// copy writes body to a program, and returns where the input goes on.
func (in Input) copy(ctx context.Context, p api.Program, body io.Reader) (next int64, err error) {
	buf := make([]byte, inputChunk)
	for offset := in.Offset; ; {
		n, read := body.Read(buf)
		last := errors.Is(read, io.EOF)
		next, err = in.write(ctx, p, offset, buf[:n], in.End && last)
		switch {
		case err != nil || last:
			return next, err
		case ctx.Err() != nil:
			return next, context.Cause(ctx)
		case read != nil:
			return next, errors.Join(ErrBody, read)
		}
		offset += int64(n)
	}
}

// write writes data, as long as the program takes some of it within each wait.
func (in Input) write(ctx context.Context, p api.Program, offset int64, data []byte, end bool) (next int64, err error) {
	for {
		limited, stop := context.WithTimeoutCause(ctx, in.Wait, ErrNotTaken)
		next, err = p.Write(limited, offset, data, end)
		stop()
		moved := next - offset
		if !errors.Is(err, ErrNotTaken) || moved <= 0 || moved >= int64(len(data)) {
			return next, err
		}
		offset, data = next, data[moved:]
	}
}
