package kubernetes

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the API server's clock. All stored times, and the times compared with them, are
// of this clock: the clocks of machines that share a namespace may differ.
type clock struct {
	ahead atomic.Int64 // of this machine's clock, in nanoseconds
}

// heard corrects the clock, if it must be wrong, by the Date of a response, which has
// whole seconds.
func (c *clock) heard(sent, received time.Time, date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	least, most := int64(at.Sub(received)), int64(at.Add(time.Second).Sub(sent))
	known := c.ahead.Load()
	c.ahead.CompareAndSwap(known, min(max(known, least), most)) // unless another response did
}

func (c *clock) now() time.Time { return c.of(time.Now()) }

// of converts a time of this machine's clock to this one.
func (c *clock) of(here time.Time) time.Time { return here.Add(time.Duration(c.ahead.Load())) }

// here converts a time of this clock to this machine's. The zero time stays zero.
func (c *clock) here(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-time.Duration(c.ahead.Load()))
}
