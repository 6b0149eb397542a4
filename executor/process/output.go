package process

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/tail"
)

const (
	// readSize is how much is read at once: the capacity of a pipe.
	readSize = 64 << 10
	// dropSize is the same of output that is dropped.
	dropSize = 4 << 10
	// keptEach is how much is kept of the beginning and of the end of a stream, and
	// keptBoth the same of both together: 15,000 characters of four bytes.
	keptEach = 128 << 10
	keptBoth = 60_000
)

// Stream is one of the streams of a program.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	both
)

// Chunk is a stretch of a program's output, or, without Data, that it has begun.
type Chunk struct {
	// PID is the process id of the program in the first chunk, otherwise 0.
	PID    int
	Stream Stream
	// Offset is that of the first byte of Data in its stream.
	Offset int64
	Data   []byte
}

// Text is the kept part of a stream: all of it, or its beginning and its end.
type Text struct {
	Head, Tail []byte
	// Total counts the bytes that there were, those between Head and Tail included.
	Total int64
}

// kept is a Text that grows.
type kept struct {
	most  int // of each end
	head  []byte
	tail  *tail.Buffer // nil while all is in the head
	total int64
}

func (k *kept) add(data []byte) {
	k.total += int64(len(data))
	n := min(len(data), k.most-len(k.head))
	k.head = append(k.head, data[:n]...)
	if n == len(data) {
		return
	}
	if k.tail == nil {
		k.tail = tail.New(k.most)
	}
	_, _ = k.tail.Write(data[n:])
}

func (k *kept) text() Text {
	t := Text{Head: k.head, Total: k.total}
	if k.tail != nil {
		end, _ := k.tail.Kept()
		t.Tail = []byte(end)
	}
	return t
}

// source is the end of a pipe or a terminal that the program writes to.
type source struct {
	stream Stream
	file   *os.File
	settle func() // says that all that was written before the program's end is delivered
}

// take keeps and delivers output. A listener that is slow holds up the program, as the
// next one in a pipeline does.
func (p *Process) take(stream Stream, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.final != nil {
		return
	}
	chunk := Chunk{Stream: stream, Offset: p.kept[stream].total, Data: data}
	p.kept[stream].add(data)
	p.kept[both].add(data)
	p.lastOutput.Store(int64(proc.Uptime()))
	if p.output != nil {
		p.output(chunk)
	}
}

// begin reports that the program runs.
func (p *Process) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastOutput.Store(int64(proc.Uptime()))
	if !p.left && p.output != nil {
		p.output(Chunk{PID: p.PID()})
	}
}

// read delivers the output of one source to its end.
func (p *Process) read(s *source) {
	defer func() { _ = s.file.Close() }()
	settle := sync.OnceFunc(s.settle)
	defer settle()
	buf := make([]byte, readSize)
	if err := p.deliver(s, buf); !errors.Is(err, os.ErrDeadlineExceeded) { // a terminal says EIO where a pipe says EOF
		if p.terminal != "" {
			p.awaitLeader(s, buf)
		}
		return
	}
	// The program has ended, and another one may yet write.
	p.takeRest(s, buf)
	settle()
	p.drop(s, buf[:dropSize:dropSize])
}

// deliver delivers output as it comes, and returns why no more can be read.
func (p *Process) deliver(s *source, buf []byte) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	once := func(fd uintptr) bool {
		err = p.move(s, int(fd), buf)
		return !errors.Is(err, unix.EAGAIN)
	}
	for {
		closed := raw.Read(once)
		if err = cmp.Or(closed, err); err != nil {
			return err
		}
	}
}

// move delivers the output of one read, for which it does not wait.
func (p *Process) move(s *source, fd int, buf []byte) error {
	n, err := unix.Read(fd, buf)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	p.take(s.stream, buf[:n])
	return nil
}

// awaitLeader returns when a program that has closed its terminal has ended: it would get
// SIGHUP where the terminal went first, as at its exit the C library closes all streams.
func (p *Process) awaitLeader(s *source, buf []byte) {
	select {
	case <-p.exited:
	case <-p.closing:
	}
	p.takeRest(s, buf) // it may have opened the terminal again
}

// takeRest delivers the bytes that are in the pipe at this moment, and none that follow.
func (p *Process) takeRest(s *source, buf []byte) {
	_ = terminal.Control(s.file, func(fd int) error {
		rest, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		for err == nil && rest > 0 {
			var n int
			n, err = unix.Read(fd, buf[:min(rest, len(buf))])
			if n <= 0 {
				return err
			}
			p.take(s.stream, buf[:n])
			rest -= n
		}
		return err
	})
}

// drop reads the output of processes that the program has left behind: otherwise SIGPIPE
// would end them.
func (p *Process) drop(s *source, buf []byte) {
	_ = s.file.SetReadDeadline(time.Time{})
	for !channel.Closed(p.closing) {
		if _, err := s.file.Read(buf); err != nil {
			return
		}
	}
}
