package kubernetes

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/actiond/actiond/sandbox"
)

// New is a driver of a cluster in memory. dial reaches every Pod's server.
func New(config Config, api client.Interface, dial func(ctx context.Context) (net.Conn, error)) *Driver {
	d := newDriver(config, api, "agents")
	d.outage, d.seenLimit = 300*time.Millisecond, time.Minute
	d.configz = func(_ context.Context, node string) ([]byte, error) {
		return map[string][]byte{
			"old": []byte(`{"kubeletconfig": {"podPidsLimit": -1}}`), "new": []byte(`{"kubeletconfig": {"podPidsLimit": 1024}}`), "odd": []byte(`{}`),
		}[node], nil
	}
	d.dial = func(ctx context.Context, _ *instance) (net.Conn, error) { return dial(ctx) }
	return d
}

// Bounded ends calls that are not answered within a time.
func Bounded(calls http.RoundTripper, within time.Duration) http.RoundTripper {
	return bounded{calls, within, &clock{}}
}

// Forward connects to a Pod of the namespace through the API server.
func Forward(ctx context.Context, access *rest.Config, pod string) (net.Conn, error) {
	api, err := client.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	return (&forwarder{access: access, api: api, namespace: "agents"}).dial(ctx, &instance{pod: pod})
}

// Clock is for tests.
type Clock = clock

// Heard tells a clock of an answer with a Date, and returns how far ahead it then is.
func (c *clock) Heard(sent, received time.Time, date string) time.Duration {
	c.heard(sent, received, date)
	return c.Ahead(0)
}

// Ahead moves the clock, and returns how far it is ahead of this machine's.
func (c *clock) Ahead(by time.Duration) time.Duration { return time.Duration(c.ahead.Add(int64(by))) }

// Clock is the clock of the API server.
func (d *Driver) Clock() *Clock { return d.clock }

// SetOutage says how long a creation goes on without the API server.
func (d *Driver) SetOutage(limit time.Duration) { d.outage = limit }

// RecordTime is how long a record may be without its Pod.
const RecordTime = recordTime

// Load is for tests.
var Load = load

// PodOf is the Pod of a specification.
func PodOf(s *sandbox.Spec, r *Record, serverImage string, asVolume bool) *corev1.Pod {
	return podFor(s, r, &Config{ServerImage: serverImage, ServerVolume: asVolume, ReadyTimeout: time.Minute})
}

// Record is for tests.
type Record = record

// Peer is one side of a connection.
type Peer = peer

// NewPeer is a Pod, or without a namespace an address.
func NewPeer(namespace string, within, labels map[string]string, address string) Peer {
	return peer{namespace: namespace, within: within, labels: labels, address: netip.MustParseAddr(address)}
}

// Admits is for tests.
var Admits = admits

// Rights are the verbs that the driver uses, by resource.
func Rights() map[string][]string {
	all := map[string][]string{}
	for _, r := range rights {
		name := r.resource
		if r.sub != "" {
			name += "/" + r.sub
		}
		all[name] = r.verbs
	}
	return all
}

// EgressRights are the verbs that the driver uses in the namespace of the egress proxy.
func EgressRights() map[string][]string {
	all := map[string][]string{}
	for _, r := range egressRights {
		all[r.resource] = r.verbs
	}
	return all
}

// DialEgress says what reaches the egress proxy.
func (d *Driver) DialEgress(dial func(ctx context.Context) (net.Conn, error)) {
	d.dialEgress = func(ctx context.Context, _ *corev1.Pod, _ int) (net.Conn, error) { return dial(ctx) }
}

// Mirrors reports whether the driver mirrors its Pods; the first call also asks for the
// records, whose mirror may be awaited with the second argument.
func (d *Driver) Mirrors(records bool) bool { return d.mirrored(records) != nil }

// TrimSecret is for tests.
var TrimSecret = trimSecret

// OwnImage is for tests.
func (d *Driver) OwnImage() (string, error) { return d.ownImage() }
