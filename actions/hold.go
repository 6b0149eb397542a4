package actions

import (
	"context"
	"fmt"

	"github.com/actiond/actiond/api"
)

// lock takes mu once nothing is restored. The error is the cause of the end of ctx.
func (e *effects) lock(ctx context.Context) error {
	for {
		e.mu.Lock()
		freed := e.freed
		if freed == nil {
			return nil
		}
		e.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold keeps actions from beginning until free is called, once: something is restored. It refuses where one runs, unless
// force is set, and waits for another restore.
func (e *effects) hold(ctx context.Context, force bool) (free func(), err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if len(e.open) > 0 && !force {
		return nil, e.busy()
	}
	e.step() // so that earlier changes are not taken for the restore's
	freed := make(chan struct{})
	e.freed = freed
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.freed = nil
		close(freed)
	}, nil
}

// busy refuses a restore, and names the work in its way. The caller holds mu.
func (e *effects) busy() *api.Error {
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
	return api.Conflict(what + "; wait for its end or cancel it, or use force")
}
