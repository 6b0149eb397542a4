package platform

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

// goneTime is how long nothing may answer at a sandbox's address until its server is
// given up: one that is restarted in place is back sooner.
const goneTime = 3 * time.Second

// patientDial makes failures to connect final after goneTime. It may be used
// concurrently.
type patientDial struct {
	dial sandbox.DialFunc

	mu     sync.Mutex
	failed time.Time // first, since the last success
}

func (d *patientDial) to(ctx context.Context) (net.Conn, error) {
	conn, err := d.dial(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.failed = time.Time{}
	case d.failed.IsZero():
		d.failed = time.Now()
	case time.Since(d.failed) >= goneTime:
		return nil, fmt.Errorf("%w: %w", client.ErrGone, err)
	}
	return conn, err
}
