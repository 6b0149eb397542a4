package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/actiond/actiond/sandbox"
)

// fickle is a platform whose lead is refused, fails, is lost, and is had at last.
type fickle struct {
	sandbox.Driver
	sandbox.Warmer

	asked []bool // wait, of each call
	leads chan struct{}
}

func (*fickle) Check(context.Context, *sandbox.Spec) (string, error) { return "hash", nil }

func (*fickle) List(context.Context) ([]*sandbox.Sandbox, error) { return nil, nil }

func (f *fickle) Lead(ctx context.Context, _ string, wait bool, work func(context.Context)) error {
	f.asked = append(f.asked, wait)
	switch len(f.asked) {
	case 1:
		return fmt.Errorf("%w: another process has it", sandbox.ErrConflict)
	case 2:
		return errors.New("no answer")
	case 3:
		return nil // it was lost
	}
	close(f.leads)
	work(ctx)
	return nil
}

// A pool is filled again after its lead was lost, and after errors.
func TestPoolGoesOn(t *testing.T) {
	t.Parallel()
	f := &fickle{leads: make(chan struct{})}
	pool, err := sandbox.NewPool(t.Context(), f, "warm", sandbox.Spec{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pool.Run(ctx, time.Millisecond)
	}()
	<-f.leads
	cancel()
	<-ended
	if got := fmt.Sprint(f.asked); got != "[false true true true]" {
		t.Errorf("the lead was asked for with wait = %s", got)
	}
}
