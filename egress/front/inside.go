package front

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/actiond/actiond/egress"
)

const (
	// maxEnded bounds the connections whose denials inside TLS were not asked for.
	maxEnded = 1024
	// maxAsked bounds the questions for the denials that the egress proxy keeps.
	maxAsked = 16
)

// opened are the connections whose TLS the egress proxy opens. Requests in them may be denied, which
// the front does not see; the egress proxy numbers these denials. The zero value has none.
type opened struct {
	asking sync.Mutex // one question at a time; before mu
	last   int64      // number of the last denial that was told

	mu      sync.Mutex
	open    int
	ended   []int64 // connections that ended since they were asked for, the oldest first
	ends    time.Time
	clients map[int64]func(Denial) Denial // by number; adds the client to a denial and tells of it
}

// noteOpened notes a connection while its client waits for the answer, so that its process can be found.
func (f *Front) noteOpened(c *client, t *tunnel) {
	d := Denial{Client: addrPort(c.RemoteAddr()), Front: addrPort(c.LocalAddr())}
	tell := func(Denial) string { return "" }
	if f.cfg.Opened != nil {
		tell = f.cfg.Opened(d.Client, d.Front)
	}
	t.closed = f.opened.enter(t.number, func(one Denial) Denial {
		one.Client, one.Front = d.Client, d.Front
		one.Process = tell(one)
		return one
	})
}

// enter adds a connection, and returns a function for its end, which may be called repeatedly.
func (o *opened) enter(number int64, client func(Denial) Denial) (closed func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open++
	if o.clients == nil {
		o.clients = map[int64]func(Denial) Denial{}
	}
	o.clients[number] = client
	return sync.OnceFunc(func() { o.leave(number) })
}

// leave notes the end of a connection, whose denials may be yet to be asked for.
func (o *opened) leave(number int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
	o.ends = time.Now()
	if o.ended = append(o.ended, number); len(o.ended) > maxEnded {
		delete(o.clients, o.ended[0])
		o.ended = o.ended[1:]
	}
}

// openSince reports whether a connection was open after a time.
func (o *opened) openSince(since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open > 0 || o.ends.After(since)
}

// Collect asks the egress proxy for denials inside of TLS, where a connection whose TLS it opens was
// open after a time, and tells of them by [Config.Opened].
func (f *Front) Collect(since time.Time) {
	if f.opened.openSince(since) {
		f.collect()
	}
}

// collect asks for the denials of connections whose TLS is opened, and records each once.
func (f *Front) collect() {
	o := &f.opened
	o.asking.Lock()
	defer o.asking.Unlock()
	o.mu.Lock()
	ended := len(o.ended)
	o.mu.Unlock()
	for range maxAsked {
		found, err := f.egress.deniedAfter(f.life, o.last)
		if err != nil {
			return
		}
		for _, d := range found {
			o.last = d.Number
			o.mu.Lock()
			client := o.clients[d.Connection]
			o.mu.Unlock()
			if client != nil {
				f.denials.add(client(Denial{Time: time.Now(), Host: d.Host, Port: d.Port, Reason: d.Reason}))
				f.metrics.Denied(d.Reason)
			}
		}
		if len(found) == 0 {
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, number := range o.ended[:min(ended, len(o.ended))] { // all of these ended before the question
		delete(o.clients, number)
	}
	o.ended = o.ended[min(ended, len(o.ended)):]
}

// deniedAfter returns denials after a number, the oldest first; not all, where there are many.
func (e *egressClient) deniedAfter(ctx context.Context, number int64) ([]egress.Denial, error) {
	var answer struct {
		Denied []egress.Denial `json:"denied"`
	}
	_, err := e.get(ctx, "/denied?after="+strconv.FormatInt(number, 10), "", maxDenied, &answer)
	return answer.Denied, err
}
