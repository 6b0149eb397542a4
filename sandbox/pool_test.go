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

// members is a platform with sandboxes in a pool, of which the first that is offered is claimed.
type members struct {
	fickle

	all       []*sandbox.Sandbox
	discarded []string
}

func (m *members) List(context.Context) ([]*sandbox.Sandbox, error) { return m.all, nil }

func (m *members) Claim(_ context.Context, _ sandbox.Spec, from []*sandbox.Sandbox) (*sandbox.Sandbox, bool, error) {
	return from[0], true, nil
}

func (m *members) Discard(_ context.Context, s *sandbox.Sandbox) error {
	m.discarded = append(m.discarded, s.ID)
	return nil
}

func (m *members) Lead(ctx context.Context, _ string, _ bool, work func(context.Context)) error {
	work(ctx)
	return nil
}

// Members with another server than new ones get are not given away, and removed.
func TestPoolOfAnotherServer(t *testing.T) {
	t.Parallel()
	in := sandbox.Sandbox{State: sandbox.Ready, Spec: "hash", Pool: "warm"}
	old, current := in, in
	old.ID, old.Outdated, current.ID = "old", true, "current"
	m := &members{all: []*sandbox.Sandbox{&old, &current}}
	pool, err := sandbox.NewPool(t.Context(), m, "warm", sandbox.Spec{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // after it was filled once
	pool.Run(ctx, time.Hour)
	if got := fmt.Sprint(m.discarded); got != "[old]" {
		t.Errorf("discarded %s", got)
	}
	if s, _, err := pool.Claim(t.Context(), sandbox.Spec{}); err != nil || s != &current {
		t.Errorf("claimed %+v, %v", s, err)
	}
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
