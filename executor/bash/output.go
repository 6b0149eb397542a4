package bash

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// output takes bytes from the terminal.
func (s *Session) output(sh *shell, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell != sh {
		return // a job that outlived its shell
	}
	s.log.Append(p)
	if l := s.listener; l != nil {
		l.deliver(Chunk{Offset: l.next, Data: p})
		l.next += int64(len(p))
	}
	_, _ = s.screen.Write(p)
	s.lastByte = time.Now()
	s.changed()
}

// chunkSize is how many bytes of output that came before an answer began are delivered
// at once.
const chunkSize = 32 << 10

// outputListener delivers the output of one answer. The lock of the session guards it.
type outputListener struct {
	next    int64 // offset of the first byte that was not delivered
	deliver func(Chunk)
}

// Chunk is a stretch of a session's output.
type Chunk struct {
	// Offset is that of the first byte of Data since the session began.
	Offset int64
	// Missed counts the bytes before Offset that came before the answer began and are
	// no longer kept.
	Missed int64
	// Data is empty only where the last bytes of an answer were missed.
	Data []byte
}

// listen delivers the present output for the coming answer, from an offset on, and
// then all that follows. The caller holds mu.
func (s *Session) listen(from int64, deliver func(Chunk)) {
	l := &outputListener{next: from, deliver: deliver}
	s.listener = l
	buf := make([]byte, min(chunkSize, s.log.End()-l.next))
	for end := s.log.End(); l.next < end; {
		c := s.read(l.next, end, buf)
		deliver(c)
		l.next = c.Offset + int64(len(c.Data))
	}
}

// read returns the kept output between from and end, as much as buf takes. The
// caller holds mu.
func (s *Session) read(from, end int64, buf []byte) Chunk {
	at := min(max(from, s.log.Start()), end)
	n, _ := s.log.ReadAt(buf[:min(int64(len(buf)), end-at)], at) // it lies within what is kept
	return Chunk{Offset: at, Missed: at - from, Data: buf[:n]}
}

// unlisten ends the delivery of an answer that is not given.
func (s *Session) unlisten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
}

// watch returns a channel that is closed at the next change that a reader of the
// session can see. The caller holds mu.
func (s *Session) watch() <-chan struct{} {
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.more
}

// changed closes the channel of watch. The caller holds mu.
func (s *Session) changed() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// An outputLog is a ring buffer of the last bytes that came out of a terminal, each at its
// offset from the start of the session, so that output can be streamed and
// replayed from any point that is still kept.
//
// The zero outputLog is empty and keeps up to logSize bytes. It takes no memory
// before the first byte and grows with the output. It is not safe for
// concurrent use: the lock of the session guards it.
type outputLog struct {
	ring []byte // its size is a power of two, so that offset & (size-1) is the place of a byte
	end  int64
	kept int
}

// logSize is how many bytes a log keeps; firstRing is how it begins.
const (
	logSize   = 1 << 20
	firstRing = 4 << 10
)

// errLogGone is the error for offsets that the log no longer keeps or has not
// reached.
var errLogGone = errors.New("output is no longer kept")

// Append adds p at the end of the log, in the place of the oldest bytes.
func (l *outputLog) Append(p []byte) {
	if skip := len(p) - logSize; skip > 0 {
		l.end += int64(skip)
		p = p[skip:]
	}
	if l.kept+len(p) > len(l.ring) && len(l.ring) < logSize {
		l.grow(l.kept + len(p))
	}
	if len(p) == 0 {
		return
	}
	at := l.place(l.end)
	n := copy(l.ring[at:], p)
	copy(l.ring, p[n:])
	l.end += int64(len(p))
	l.kept = min(l.kept+len(p), len(l.ring))
}

// End returns the offset behind the last byte: how many bytes came in all.
func (l *outputLog) End() int64 { return l.end }

// Start returns the offset of the oldest byte kept.
func (l *outputLog) Start() int64 { return l.end - int64(l.kept) }

// ReadAt fills p with the bytes from offset off on and returns how many there
// were. As io.ReaderAt wants it, the error is io.EOF where the log ends before
// p is full; it wraps errLogGone where off is before Start or behind End.
func (l *outputLog) ReadAt(p []byte, off int64) (int, error) {
	if off < l.Start() || off > l.end {
		return 0, fmt.Errorf("reading output at %d, kept is %d to %d: %w", off, l.Start(), l.end, errLogGone)
	}
	want := len(p)
	p = p[:min(int64(len(p)), l.end-off)]
	if len(p) > 0 {
		n := copy(p, l.ring[l.place(off):])
		copy(p[n:], l.ring)
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return len(p), nil
}

// place returns where in the ring the byte at off is.
func (l *outputLog) place(off int64) int { return int(off & int64(len(l.ring)-1)) }

// grow makes the ring large enough for size bytes, at most logSize.
func (l *outputLog) grow(size int) {
	next := max(len(l.ring), firstRing)
	for next < min(size, logSize) {
		next *= 2
	}
	old := *l
	l.ring = make([]byte, next)
	for off := old.Start(); off < old.end; {
		from := old.ring[old.place(off):]
		from = from[:min(int64(len(from)), old.end-off)]
		n := copy(l.ring[l.place(off):], from)
		off += int64(n)
	}
}
