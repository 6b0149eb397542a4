package kubernetes

import (
	"context"
	"net"

	client "k8s.io/client-go/kubernetes"
)

// New is a driver of a cluster in memory. dial reaches every Pod's server.
func New(config Config, api client.Interface, dial func(ctx context.Context) (net.Conn, error)) *Driver {
	d := newDriver(config, api, "agents")
	d.dial = func(ctx context.Context, _ *instance) (net.Conn, error) { return dial(ctx) }
	return d
}

// RecordTime is how long a record may be without its Pod.
const RecordTime = recordTime

// Load is for tests.
var Load = load

// PodOf is the Pod of a specification.
var PodOf = podFor

// Record is for tests.
type Record = record
