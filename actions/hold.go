package actions

import (
	"context"
	"fmt"

	"github.com/actiond/actiond/api"
)

// The holders, which keep actions from beginning.
const (
	holdRestore = "restore"
	holdBisect  = "bisect"
)

// lock takes mu once nothing is restored. The error is the cause of the end of ctx.
func (e *effects) lock(ctx context.Context) error { return e.lockUnless(ctx, "") }

// lockUnlessBisect is lock, and refuses to wait for a bisect, which takes long, also for one that begins meanwhile.
func (e *effects) lockUnlessBisect(ctx context.Context) error { return e.lockUnless(ctx, holdBisect) }

func (e *effects) lockUnless(ctx context.Context, refused string) error {
	for {
		e.mu.Lock()
		holder, freed := e.holder, e.freed
		if freed == nil {
			return nil
		}
		e.mu.Unlock()
		if holder == refused {
			return api.Conflict("A bisect is under way, which restores what there was before: wait for its end, or close its connection")
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold keeps actions from beginning until free is called, once. It refuses where one runs, unless force is set, and
// waits for a restore.
func (e *effects) hold(ctx context.Context, holder string, force bool) (free func(), err error) {
	if err := e.lockUnlessBisect(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if len(e.open) > 0 && !force {
		return nil, e.busy(holder)
	}
	e.step() // so that earlier changes are not taken for the holder's
	freed := make(chan struct{})
	e.holder, e.freed = holder, freed
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.holder, e.freed = "", nil
		close(freed)
	}, nil
}

// busy refuses a holder, and names the work in its way. The caller holds mu.
func (e *effects) busy(holder string) *api.Error {
	what := "A request that writes files is under way"
	for _, f := range e.open {
		if f.n > 0 {
			what = fmt.Sprintf("The action %d runs", f.n)
			break
		}
	}
	if more := len(e.open) - 1; more > 0 {
		what += fmt.Sprintf(", and %d more", more)
	}
	what += "; wait for its end or cancel it"
	if holder == holdRestore {
		what += ", or use force"
	}
	return api.Conflict(what)
}
