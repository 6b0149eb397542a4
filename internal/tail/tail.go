// Package tail keeps the end of the output of a program, such as its errors.
package tail

import (
	"slices"
	"strings"
	"sync"
)

// Buffer keeps the end of the bytes written to it, in about twice its size of
// memory. It may be used concurrently.
type Buffer struct {
	most int

	mu  sync.Mutex
	end []byte // the kept bytes, and up to as many before them
	cut bool
}

// New returns a buffer that keeps so many bytes.
func New(most int) *Buffer { return &Buffer{most: most} }

// Write keeps the end of p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := p[max(0, len(p)-b.most):]
	b.cut = b.cut || len(b.end)+len(p) > b.most
	if over := len(b.end) + len(own) - b.most; over > b.most {
		b.end = slices.Delete(b.end, 0, min(over, len(b.end)))
	}
	b.end = append(b.end, own...)
	return len(p), nil
}

// Kept returns the kept bytes, and whether others came before them.
func (b *Buffer) Kept() (end string, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.end[max(0, len(b.end)-b.most):]), b.cut
}

// String returns the kept bytes as text, without white space around it.
func (b *Buffer) String() string {
	end, _ := b.Kept()
	return Text(end)
}

// Text makes text of the output of a program: bytes that are not UTF-8, or were cut in
// half, are replaced, and white space around it is removed.
func Text(end string) string { return strings.TrimSpace(strings.ToValidUTF8(end, "\uFFFD")) }
