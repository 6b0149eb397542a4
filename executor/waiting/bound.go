package waiting

import "time"

// Bound bounds looks into /proc in number and in time: a process can hold up the reading of its
// command line, its environment or its memory forever, by pages in a file system of its own.
// Its methods may be called concurrently.
type Bound struct {
	looks chan struct{} // a semaphore
	limit time.Duration
}

// NewBound returns a Bound of most looks at a time, for each of which a caller waits so long.
func NewBound(most int, limit time.Duration) *Bound {
	return &Bound{make(chan struct{}, most), limit}
}

// Do calls look, when fewer than most are under way, and reports whether it ended within the
// limit. Otherwise it may go on, as one of them, and should end at the time that it was given.
func (b *Bound) Do(look func(until time.Time)) bool {
	until := time.Now().Add(b.limit)
	over := time.After(b.limit)
	select {
	case b.looks <- struct{}{}:
	case <-over:
		return false
	}
	done := make(chan struct{})
	go func() { // it may outlast its caller, as a part of the bound
		defer close(done)
		defer func() { <-b.looks }()
		look(until)
	}()
	select {
	case <-done:
		return true
	case <-over:
		return false
	}
}
