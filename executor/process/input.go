package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// endOfFile is the key that ends input (termios(3), VEOF).
const endOfFile = "\x04"

// Errors of [Process.Write].
var (
	// ErrNoInput says that the program was started without a stream for its input.
	ErrNoInput = errors.New("the program takes no input: it was not started with a stream of it")
	// ErrInputEnded says that the input has ended, and nothing can follow.
	ErrInputEnded = errors.New("the input has ended")
	// ErrUnread says that the program has ended or closed its input.
	ErrUnread = errors.New("the program no longer reads its input")
)

// GapError says that bytes are missing between the input so far and an offset.
type GapError struct{ Offset int64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("bytes before this offset are missing: the input goes on at %d", e.Offset)
}

// input is the standard input of a program: a pipe, or its terminal.
type input struct {
	file     *os.File
	terminal bool

	turn  chan struct{} // a semaphore of one: a write is under way
	mu    sync.Mutex    // held while bytes are written, for which no call waits
	taken int64         // bytes of a stream that were written
	last  byte          // of these
	ended bool
	rest  []byte // of the text that feed writes
}

// newInput returns an input; feed writes text.
func newInput(file *os.File, terminal bool, text []byte) *input {
	return &input{file: file, terminal: terminal, turn: make(chan struct{}, 1), rest: text}
}

// feed writes all that the program is to read, and the end of a pipe. It returns once the
// program has taken it, has closed its end, or has ended.
func (i *input) feed() {
	_ = i.put(context.Background(), i.rest, func(p []byte) { i.rest = i.rest[len(p):] }) // it need not be read
	if !i.terminal {
		i.mu.Lock()
		defer i.mu.Unlock()
		_ = i.file.Close()
	}
}

// ending returns the keys that end the input of a terminal behind some data.
func ending(data []byte) string {
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		return endOfFile + endOfFile // the first one ends the line
	}
	return endOfFile
}

// Write appends data to the input of the program, whose first byte is that at an offset, from 0, and ends
// it if end is set. Input that was taken before is not written again. It waits for the start and for the
// program to take the data, and returns where the input goes on, also with an error: the cause of the end
// of ctx, ErrNoInput, ErrInputEnded, ErrUnread or a *GapError.
func (p *Process) Write(ctx context.Context, offset int64, data []byte, end bool) (next int64, err error) {
	<-p.launched
	if p.input == nil || !p.command.Stream {
		return 0, ErrNoInput
	}
	return p.input.write(ctx, offset, data, end)
}

func (i *input) write(ctx context.Context, offset int64, data []byte, end bool) (next int64, err error) {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return i.next(), context.Cause(ctx)
	}
	next = i.next()
	if ctx.Err() != nil {
		return next, context.Cause(ctx)
	}
	if offset > next {
		return next, &GapError{next}
	}
	data = data[min(next-offset, int64(len(data))):]
	switch {
	case len(data) == 0 && (!end || i.ended):
		return next, nil
	case i.ended:
		return next, ErrInputEnded
	}
	err = i.put(ctx, data, func(p []byte) { i.taken, i.last = i.taken+int64(len(p)), p[len(p)-1] })
	if err == nil && end {
		err = i.finish(ctx)
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) {
		err = ErrUnread
	}
	return i.next(), err
}

func (i *input) next() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.taken
}

// put writes data as the program takes it, and calls took for each part, with mu locked.
func (i *input) put(ctx context.Context, data []byte, took func(p []byte)) error {
	raw, err := i.file.SyscallConn()
	if err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = i.file.SetWriteDeadline(time.Now())
	})
	closed := raw.Write(func(fd uintptr) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		for err = nil; err == nil && len(data) > 0; {
			var n int
			if n, err = unix.Write(int(fd), data); n > 0 {
				took(data[:n])
				data = data[n:]
			}
			if errors.Is(err, unix.EINTR) {
				err = nil
			}
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	if !stop() {
		<-woken
		_ = i.file.SetWriteDeadline(time.Time{})
	}
	switch {
	case closed == nil:
		return err
	case !errors.Is(closed, os.ErrDeadlineExceeded):
		return os.ErrClosed // its own error for that is internal
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return closed
}

// finish ends the input.
func (i *input) finish(ctx context.Context) error {
	if i.terminal {
		typed := ending(nil)
		if i.taken > 0 {
			typed = ending([]byte{i.last})
		}
		if err := i.put(ctx, []byte(typed), func([]byte) {}); err != nil {
			return err // it may not have taken its end
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.terminal {
		if err := i.file.Close(); err != nil {
			return err
		}
	}
	i.ended = true
	return nil
}

// close ends a feed or a write that is under way.
func (i *input) close() {
	if i.terminal {
		_ = i.file.SetWriteDeadline(time.Now())
		return
	}
	_ = i.file.Close()
}
