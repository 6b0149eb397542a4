package platform

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api/client"
)

func TestPatientDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := syscall.ECONNREFUSED
		d := &patientDial{dial: func(context.Context) (net.Conn, error) {
			if answer != 0 {
				return nil, answer
			}
			return nil, nil //nolint:nilnil // only the error is looked at
		}}
		dial := func(gone bool) {
			t.Helper()
			_, err := d.to(t.Context())
			if answer != 0 && !errors.Is(err, answer) || errors.Is(err, client.ErrGone) != gone {
				t.Errorf("got %v, want gone: %v", err, gone)
			}
		}
		dial(false)
		time.Sleep(goneTime - time.Millisecond)
		dial(false)
		answer = 0
		dial(false)
		answer = syscall.ECONNREFUSED
		time.Sleep(goneTime)
		dial(false)
		time.Sleep(goneTime)
		dial(true)
	})
}
