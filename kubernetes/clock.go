package kubernetes

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the API server's clock. All that is stored, and all that is compared with it, is
// of that clock: machines that share a namespace need not agree on the time.
type clock struct {
	ahead atomic.Int64 // of this machine's clock, in nanoseconds
}

// heard corrects the clock, where it must be wrong, by the Date of an answer, which has
// whole seconds.
func (c *clock) heard(sent, received time.Time, date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	least, most := int64(at.Sub(received)), int64(at.Add(time.Second).Sub(sent))
	known := c.ahead.Load()
	c.ahead.CompareAndSwap(known, min(max(known, least), most)) // unless another answer did
}

func (c *clock) now() time.Time { return c.of(time.Now()) }

// of is a time of this machine's clock on this one.
func (c *clock) of(here time.Time) time.Time { return here.Add(time.Duration(c.ahead.Load())) }

// here is a time of this clock on this machine's. The zero time stays what it is.
func (c *clock) here(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-time.Duration(c.ahead.Load()))
}
