// Package relay carries bytes between two connections.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ErrIdle ends a relay that carried nothing for too long.
var ErrIdle = errors.New("nothing was sent for too long")

// bufferSize is the size of a relay's buffer for each direction, in bytes.
const bufferSize = 16 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Relay carries bytes between two connections.
type Relay struct {
	A, B net.Conn
	// FromA is read in place of A; nil: A itself. A reader that returns an error ends the relay.
	FromA io.Reader
	// Idle is the time without bytes in either direction after which the relay ends.
	Idle time.Duration
	// Count is called with the number of bytes before they are passed on; its error ends the
	// relay without them. nil: nothing is counted. Both directions call it concurrently.
	Count func(fromA bool, n int) error
}

// Run carries bytes until both directions have ended, one of them breaks, or ctx ends. It
// closes both connections, and returns the cause of the end: nil if both sides closed their
// directions. It owns one goroutine, which it waits for.
func (r *Relay) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	shut := func() {
		_ = r.A.Close()
		_ = r.B.Close()
	}
	defer shut()
	defer context.AfterFunc(ctx, shut)() // ends reads and writes
	idle := time.AfterFunc(r.Idle, func() { end(ErrIdle) })
	defer idle.Stop()

	carry := func(to net.Conn, from io.Reader, fromA bool) {
		if err := r.carry(to, from, fromA, idle); err != nil {
			end(err)
		}
	}
	from := r.FromA
	if from == nil {
		from = r.A
	}
	var other sync.WaitGroup
	other.Go(func() { carry(r.B, from, true) })
	carry(r.A, r.B, false)
	other.Wait()
	return context.Cause(ctx)
}

// carry passes on bytes up to the end of the direction.
func (r *Relay) carry(to net.Conn, from io.Reader, fromA bool, idle *time.Timer) error {
	buf := buffers.Get().(*[bufferSize]byte) //nolint:forcetypeassert // the pool has no others
	defer buffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			idle.Reset(r.Idle)
			if r.Count != nil {
				if err := r.Count(fromA, n); err != nil {
					return err
				}
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other direction says when the connection is broken
			}
			return nil
		case err != nil:
			return err
		}
	}
}
