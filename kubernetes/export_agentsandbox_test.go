package kubernetes

import (
	"time"

	"k8s.io/client-go/dynamic"
)

// WithDynamic gives a driver the objects of agent-sandbox, and returns it as one whose
// pools are those.
func WithDynamic(d *Driver, objects dynamic.Interface) AgentSandbox {
	d.dynamic = objects
	return AgentSandbox{d}
}

// SetRecheck says for how long what was found of agent-sandbox counts.
func (d *Driver) SetRecheck(age time.Duration) { d.recheck = age }

// PoolKey is for tests.
var PoolKey = (*Driver).poolKey
