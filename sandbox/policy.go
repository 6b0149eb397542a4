package sandbox

import (
	"errors"

	"github.com/actiond/actiond/egress"
)

// ErrNoSecrets reports a network policy with secrets.
var ErrNoSecrets = errors.New("secrets are not supported yet: leave them out")

// CheckPolicy returns what is wrong with the network policy of a sandbox, or nil. No driver
// keeps secrets outside of its records yet, so a policy with one is refused with [ErrNoSecrets].
func CheckPolicy(p *egress.Policy) error {
	if len(p.Secrets) > 0 {
		return ErrNoSecrets
	}
	return p.Check()
}
