package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

func TestPatientDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answer error = syscall.ECONNREFUSED
		d := &patientDial{dial: func(context.Context) (net.Conn, error) {
			if answer != nil {
				return nil, answer
			}
			return nil, nil //nolint:nilnil // only the error is looked at
		}}
		dial := func(gone bool) {
			t.Helper()
			_, err := d.to(t.Context())
			if answer != nil && !errors.Is(err, answer) || errors.Is(err, client.ErrGone) != gone {
				t.Errorf("got %v, want gone: %v", err, gone)
			}
		}
		dial(false)
		time.Sleep(goneTime - time.Millisecond)
		dial(false)
		answer = nil
		dial(false)
		answer = syscall.ECONNREFUSED
		time.Sleep(goneTime)
		dial(false)
		time.Sleep(goneTime)
		dial(true)
		answer = fmt.Errorf("its node is starting: %w", sandbox.ErrUnknown)
		dial(false)
		time.Sleep(2 * goneTime)
		dial(false)
		answer = syscall.ECONNREFUSED
		dial(false)
		answer = fmt.Errorf("its Pod ended: %w", sandbox.ErrNotFound)
		dial(true)
	})
}
