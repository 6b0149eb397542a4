package bash

import (
	"context"
	"sync"
)

// chunkSize is how many bytes of output are handed out at once: twice what one
// read of the terminal brings, and little beside the log.
const chunkSize = 32 << 10

// follower is a place in the log from which the output of one answer is handed
// out while it comes. The lock of the session guards its fields.
type follower struct {
	begun bool
	next  int64 // offset of the first byte that was not handed out
	over  bool
	end   int64 // where the answer ends, once it is over
}

// Chunk is a stretch of a session's output.
type Chunk struct {
	// Offset is that of the first byte of Data since the session began.
	Offset int64
	// Missed counts the bytes before Offset that the log has forgotten before
	// their turn came.
	Missed int64
	// Data is empty only where the last bytes of an answer were missed.
	Data []byte
}

// Stream is Run that hands out the raw output as it comes: tell gets every byte
// between Start and End of the result, in order and once, or is told how many
// it missed. The command never waits for tell. Data is only valid during the
// call, and nothing is told after Stream returned. The end of ctx ends the
// telling too.
func (s *Session) Stream(ctx context.Context, c Command, tell func(Chunk)) (Result, error) {
	follow, stop := context.WithCancel(ctx)
	defer stop()
	f := &follower{}
	c.follower = f
	var telling sync.WaitGroup
	telling.Go(func() { s.tell(follow, f, tell) })
	defer telling.Wait()
	r, err := s.Run(ctx, c)
	s.mu.Lock()
	over := f.over
	s.mu.Unlock()
	if !over { // there was no answer with output
		stop()
	}
	return r, err
}

// tell hands out output until f is over or ctx is.
func (s *Session) tell(ctx context.Context, f *follower, tell func(Chunk)) {
	buf := make([]byte, chunkSize)
	for ctx.Err() == nil {
		chunk, done, more := s.next(f, buf)
		if chunk.Missed > 0 || len(chunk.Data) > 0 {
			tell(chunk)
		}
		if done {
			return
		}
		if more != nil {
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

// next returns what comes next for f, in buf, and whether it is the last; more
// is nil unless there is nothing yet.
func (s *Session) next(f *follower, buf []byte) (chunk Chunk, done bool, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.begun {
		return chunk, false, s.watch()
	}
	end := s.log.End()
	if f.over {
		end = f.end
	}
	chunk = s.read(f.next, end, buf)
	f.next = chunk.Offset + int64(len(chunk.Data))
	if f.over && f.next == end {
		return chunk, true, nil
	}
	if len(chunk.Data) == 0 {
		more = s.watch()
	}
	return chunk, false, more
}

// read returns what is kept of the output between from and end, as much as buf
// takes. The caller holds mu.
func (s *Session) read(from, end int64, buf []byte) Chunk {
	at := min(max(from, s.log.Start()), end)
	n, _ := s.log.ReadAt(buf[:min(int64(len(buf)), end-at)], at) // it lies within what is kept
	return Chunk{Offset: at, Missed: at - from, Data: buf[:n]}
}

// begins says where the output of the coming answer begins.
func (s *Session) begins(f *follower) {
	if f == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.begun, f.next = true, s.start
	s.changed()
}

// finish says where the output of the answer ended. The caller holds mu.
func (s *Session) finish(f *follower, end int64) {
	if f == nil {
		return
	}
	if !f.begun {
		f.begun, f.next = true, s.start
	}
	f.over, f.end = true, end
	s.changed()
}

// watch returns a channel that is closed at the next change of what a reader
// of the session sees. The caller holds mu.
func (s *Session) watch() <-chan struct{} {
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.more
}

// changed wakes all who watch. The caller holds mu.
func (s *Session) changed() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}
