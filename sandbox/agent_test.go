package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/sandbox"
)

func TestUntilListening(t *testing.T) {
	t.Parallel()
	other, odd := errors.New("not yet"), errors.New("it will never listen")
	for name, tt := range map[string]struct {
		errs []error // of the calls; the last one repeats
		want error
		took time.Duration
	}{
		"at once":       {[]error{nil}, nil, 0},
		"later":         {[]error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, io.EOF, nil}, nil, 15 * time.Millisecond},
		"cut":           {[]error{syscall.EPIPE, io.ErrUnexpectedEOF, nil}, nil, 3 * time.Millisecond},
		"wrapped":       {[]error{fmt.Errorf("claiming: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), nil}, nil, time.Millisecond},
		"a timeout":     {[]error{&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, nil}, nil, time.Millisecond},
		"the caller's":  {[]error{fmt.Errorf("forwarding: %w", other), nil}, nil, time.Millisecond},
		"another error": {[]error{syscall.ECONNREFUSED, odd}, odd, time.Millisecond},
		"never":         {[]error{syscall.ECONNREFUSED}, context.DeadlineExceeded, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				err := sandbox.UntilListening(ctx, func() error {
					err := tt.errs[0]
					tt.errs = tt.errs[min(1, len(tt.errs)-1):]
					return err
				}, other)
				if took := time.Since(begun); !errors.Is(err, tt.want) || took != tt.took {
					t.Errorf("got %v after %v, want %v after %v", err, took, tt.want, tt.took)
				}
			})
		})
	}
}
