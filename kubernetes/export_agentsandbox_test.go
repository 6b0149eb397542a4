package kubernetes

import "k8s.io/client-go/dynamic"

// WithDynamic gives a driver the objects of agent-sandbox, and returns it as one whose
// pools are those.
func WithDynamic(d *Driver, objects dynamic.Interface) AgentSandbox {
	d.dynamic = objects
	return AgentSandbox{d}
}

// PoolKey is for tests.
var PoolKey = (*Driver).poolKey
