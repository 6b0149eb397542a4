package egress

import (
	"context"
	"sync"
	"time"
)

// Denial is a connection that the policy refused.
type Denial struct {
	// Number is counted from 1 in each sandbox.
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Host   string    `json:"host"`
	Port   uint16    `json:"port"`
	Reason string    `json:"reason"`
	// Connection is the number by which the sandbox knows the connection, 0 for none.
	Connection int64 `json:"connection,omitzero"`
}

const (
	maxDenials = 1000
	// maxAnswered bounds the denials in an answer to a sandbox, which may ask on many connections
	// at a time and read nothing.
	maxAnswered = 100
)

// denials are the latest of a sandbox. Its zero value has none.
type denials struct {
	mu    sync.Mutex
	n     int64
	ring  []Denial // number n is at (n-1) % maxDenials
	added chan struct{}
}

func (d *denials) add(one Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	one.Number = d.n
	if len(d.ring) < maxDenials {
		d.ring = append(d.ring, one)
	} else {
		d.ring[(d.n-1)%maxDenials] = one
	}
	if d.added != nil {
		close(d.added)
		d.added = nil
	}
}

func (d *denials) last() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// await returns the denials after a number once there are any, or none when ctx has ended.
func (d *denials) await(ctx context.Context, after int64) []Denial {
	for {
		found, added := d.since(after)
		if len(found) > 0 {
			return found
		}
		select {
		case <-added:
		case <-ctx.Done():
			return found
		}
	}
}

// since returns the denials after a number, and a channel that is closed at the next one. A number
// that no denial has is of a proxy that ended; the client knows none of this one.
func (d *denials) since(after int64) ([]Denial, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if after > d.n {
		after = 0
	}
	if d.added == nil {
		d.added = make(chan struct{})
	}
	found := []Denial{}
	for n := max(after, d.n-maxDenials, 0); n < d.n; n++ {
		found = append(found, d.ring[n%maxDenials])
	}
	return found, d.added
}
