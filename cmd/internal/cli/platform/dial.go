package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

// goneTime is how long nothing may answer at a sandbox's address until its server is
// given up, where the driver cannot tell: one that is restarted in place is back sooner.
const goneTime = 3 * time.Second

// patientDial makes failures to connect final once the sandbox is gone: as its driver says,
// or after goneTime. While the platform cannot be reached, none is. It may be used
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
	case err == nil, errors.Is(err, sandbox.ErrUnknown):
		d.failed = time.Time{}
	case errors.Is(err, sandbox.ErrNotFound):
		return nil, fmt.Errorf("%w: %w", client.ErrGone, err)
	case d.failed.IsZero():
		d.failed = time.Now()
	case time.Since(d.failed) >= goneTime:
		return nil, fmt.Errorf("%w: %w", client.ErrGone, err)
	}
	return conn, err
}
