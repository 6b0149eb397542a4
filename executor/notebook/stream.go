package notebook

import (
	"context"
	"slices"
	"sync"
	"unicode/utf8"
)

const (
	// maxBehind is how many bytes of output wait for a slow reader, as many as a
	// shell's log keeps.
	maxBehind = 1 << 20
	// chunkSize is how many bytes are delivered at once.
	chunkSize = 32 << 10
)

// Chunk is a stretch of a cell's text, with the colours that the result leaves out.
type Chunk struct {
	// Offset is that of the first byte of Data since the cell began.
	Offset int64
	// Missed counts the bytes before Offset that were dropped before they could be
	// delivered.
	Missed int64
	// Data is not empty, and is valid UTF-8 where the kernel sent that.
	Data []byte
}

// Stream is [Notebook.Run] that delivers the text of the cell as it comes, in order
// and once. The cell never waits for deliver. Data is valid during the call only, and
// deliver is not called after Stream returned, or ctx ended.
func (n *Notebook) Stream(ctx context.Context, name string, c Cell, deliver func(Chunk)) (Result, error) {
	f := &follower{changed: make(chan struct{}, 1)}
	c.follower = f
	var delivering sync.WaitGroup
	delivering.Go(func() { f.deliver(ctx, deliver) })
	defer delivering.Wait()
	defer f.end()
	return n.Run(ctx, name, c)
}

// A follower keeps the text of a cell until it is delivered.
type follower struct {
	changed chan struct{} // of capacity 1

	mu      sync.Mutex
	waiting []byte // the text before offset
	offset  int64
	over    bool
}

// write adds text, of which the oldest is dropped when too much waits.
func (f *follower) write(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.waiting = append(f.waiting, text...)
	f.offset += int64(len(text))
	if len(f.waiting) > 2*maxBehind {
		from := wholeRunes(f.waiting, len(f.waiting)-maxBehind)
		f.waiting = slices.Clone(f.waiting[from:])
	}
	f.signal()
}

// end reports that the stream ended.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// take returns the text that waits, the offset behind it, and whether it is the last.
func (f *follower) take() (text []byte, offset int64, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, f.waiting = f.waiting, nil
	return text, f.offset, f.over
}

// deliver delivers text until the last of it, or until ctx ends.
func (f *follower) deliver(ctx context.Context, to func(Chunk)) {
	var next int64 // the offset of the first byte that was not delivered
	for {
		text, offset, over := f.take()
		at := offset - int64(len(text))
		for len(text) > 0 && ctx.Err() == nil {
			n := wholeRunes(text, min(chunkSize, len(text)))
			to(Chunk{Offset: at, Missed: at - next, Data: text[:n]})
			at += int64(n)
			next, text = at, text[n:]
		}
		if over {
			return
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return
		}
	}
}

// wholeRunes returns n, or a little less where n would cut a character.
func wholeRunes(text []byte, n int) int {
	for back := 0; back < utf8.UTFMax && n-back > 0; back++ {
		if n-back == len(text) || utf8.RuneStart(text[n-back]) {
			return n - back
		}
	}
	return n
}
