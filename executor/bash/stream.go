package bash

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

// hears delivers what of the output of an answer is there. From here on output is
// delivered as it comes.
func (s *Session) hears(c *Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen(c)
}

// listen delivers what is there of the output of the coming answer, and then what comes.
// The caller holds mu.
func (s *Session) listen(c *Command) {
	s.listener = &outputListener{next: s.start, deliver: c.Output}
	s.tell()
}

// tell delivers what the log has. The caller holds mu.
func (s *Session) tell() {
	l := s.listener
	buf := make([]byte, min(chunkSize, s.log.End()-l.next))
	for end := s.log.End(); l.next < end; {
		c := s.read(l.next, end, buf)
		l.deliver(c)
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

// hear delivers output that has just been appended to the log. The caller holds mu.
func (s *Session) hear(p []byte) {
	if l := s.listener; l != nil {
		l.deliver(Chunk{Offset: l.next, Data: p})
		l.next += int64(len(p))
	}
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
