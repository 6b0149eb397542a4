package docker

import (
	"context"
	"fmt"
)

// lockName waits until no other creation, in this process or another, uses the
// name. An empty name needs no lock. Callers take it before the lock of an id.
func (h *Host) lockName(ctx context.Context, name string) (unlock func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	unlock, err = h.state.lock(ctx, "name-"+name)
	if err != nil {
		return nil, fmt.Errorf("waiting for another creation of the name %s: %w", name, err)
	}
	return unlock, nil
}
