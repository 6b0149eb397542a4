package platform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/actiond/actiond/sandbox"
)

// elsewhereTime bounds the look at another platform, which only makes an error clearer.
const elsewhereTime = 500 * time.Millisecond

// Find gets the sandbox that ref names. If it does not exist on this machine, or the engine
// cannot be reached, the error says whether the other platform of this machine has one of
// this name.
func (p *Platform) Find(ctx context.Context, driver sandbox.Driver, ref string) (*sandbox.Sandbox, error) {
	s, err := driver.Get(ctx, ref)
	unreachable, isUnreachable := errors.AsType[*sandbox.UnreachableError](err)
	if !errors.Is(err, sandbox.ErrNotFound) && !isUnreachable || p.Kubernetes {
		return s, err
	}
	other, name := *p, "local"
	if other.Local = !p.Local; p.Local {
		name = "docker"
	}
	ctx, cancel := context.WithTimeout(ctx, elsewhereTime)
	defer cancel()
	there := other.In(func(driver sandbox.Driver) error {
		_, err := driver.Get(ctx, ref)
		return err
	})
	switch {
	case there != nil:
		return nil, err
	case isUnreachable:
		hinted := *unreachable
		hinted.Hint = fmt.Sprintf("'--on %s' has a sandbox of that name", name)
		return nil, &hinted
	}
	return nil, fmt.Errorf("%w here; '--on %s' has one", err, name)
}
