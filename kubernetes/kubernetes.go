// Package kubernetes is the driver of sandboxes that are Pods of a cluster.
//
// A sandbox is a Pod and a Secret in one namespace, which belongs to one
// controller. The Secret is named after the idempotency key and is created first:
// it is the record that the key is taken, and it holds the key of the sandbox's
// server, the ticket of its claim and the name of the Pod. Every caller that finds
// the record can therefore continue a creation whose first caller died, and the
// API server decides which of several callers is first. The driver stores nothing on
// its own machine.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/actiond/actiond/sandbox"
)

// Config configures a Driver.
type Config struct {
	// Cluster is CONTEXT or CONTEXT/NAMESPACE of the kubeconfig that kubectl uses.
	// Default: its current context, or the cluster that this program runs in, and the
	// namespace that these name.
	Cluster string
	// ServerImage is the image with the server, which is copied into Pods.
	// [Driver.Create] requires it. Default: the image of this program's container, where it runs in a
	// Pod of the namespace.
	ServerImage string
	// ServerVolume mounts ServerImage in Pods instead of copying the server. The cluster
	// must support image volumes. Default: copy.
	ServerVolume bool
	// Agent sends requests to the servers. Required.
	Agent sandbox.Agent
	// Progress is called with each step of a creation. It must be safe for concurrent
	// use. Default: no call.
	Progress func(id string, state sandbox.State, waiting string)
	// Logger receives warnings that are not returned as errors. Default: discard.
	Logger *slog.Logger
	// ReadyTimeout is how long a Pod may wait for a node and for its image. Default 15
	// minutes: an autoscaler may have to start a node.
	ReadyTimeout time.Duration
	// Direct connects to Pods by their addresses instead of the API server's port
	// forwarding. Default: true where this program runs in a Pod of the cluster.
	Direct bool
	// LeaseTime is how long a leader may not renew its Lease before another process takes
	// the lead. Default 15 seconds.
	LeaseTime time.Duration
}

// Driver manages the sandboxes of a namespace. It may be used concurrently, also by
// several processes.
type Driver struct {
	config    Config
	api       client.Interface
	namespace string
	host      string // the API server's address
	// configz reads the configuration of a node's kubelet.
	configz func(ctx context.Context, node string) ([]byte, error)
	dial    func(ctx context.Context, pod *instance) (net.Conn, error)
	// dialEgress connects to a port of the egress proxy.
	dialEgress func(ctx context.Context, pod *corev1.Pod, port int) (net.Conn, error)
	mirrors    atomic.Pointer[mirrors] // nil while no Events runs
	clock      *clock
	// policiesListed is when policies without a sandbox were looked for, or the start.
	policiesListed atomic.Pointer[time.Time]
	claiming       sync.Map // the warm Pods that this process is claiming, by uid

	// outageTime and seenTime, except in tests
	outage, seenLimit time.Duration
}

var (
	_ sandbox.Driver    = (*Driver)(nil)
	_ sandbox.Renewer   = (*Driver)(nil)
	_ sandbox.Files     = (*Driver)(nil)
	_ sandbox.Meter     = (*Driver)(nil)
	_ sandbox.Logger    = (*Driver)(nil)
	_ sandbox.Inspector = (*Driver)(nil)
	_ sandbox.Watcher   = (*Driver)(nil)
	_ sandbox.Pruner    = (*Driver)(nil)
	_ sandbox.Doctor    = (*Driver)(nil)
	_ sandbox.Leader    = (*Driver)(nil)
	_ sandbox.Warmer    = (*Driver)(nil)
	_ sandbox.KeyKeeper = (*Driver)(nil)
	_ sandbox.KeyReader = (*Driver)(nil)
	_ sandbox.Networker = (*Driver)(nil)
	_ sandbox.Labeler   = (*Driver)(nil)
)

// Open finds the cluster. It does not connect yet.
func Open(config Config) (*Driver, error) {
	loaded, err := load(config.Cluster)
	if err != nil {
		return nil, err
	}
	access, err := loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes cluster: %w", err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, fmt.Errorf("finding the namespace: %w", err)
	}
	access.QPS = -1 // the API server has its own priorities and fairness
	calling, clock := rest.CopyConfig(access), &clock{}
	calling.Wrap(func(calls http.RoundTripper) http.RoundTripper { return bounded{calls, answerTime, clock} })
	api, err := client.NewForConfig(calling)
	if err != nil {
		return nil, fmt.Errorf("preparing access to the Kubernetes cluster: %w", err)
	}
	own, err := rest.InClusterConfig()
	inside := err == nil && own.Host == access.Host
	config.Direct = config.Direct || inside
	d := newDriver(config, api, namespace)
	d.clock = clock
	d.host = access.Host
	d.configz = func(ctx context.Context, node string) ([]byte, error) {
		return api.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	}
	if inside && config.ServerImage == "" {
		if d.config.ServerImage, err = d.ownImage(); err != nil {
			return nil, err
		}
	}
	if !config.Direct {
		d.dial = (&forwarder{access: access, api: api, namespace: namespace}).dial
		d.dialEgress = (&forwarder{access: access, api: api, namespace: d.egressSpace()}).dialEgress
	}
	return d, nil
}

// ownImage returns the image of the container that this program runs in, or "" where its Pod cannot be
// read: it may be of another namespace.
func (d *Driver) ownImage() (string, error) {
	name, err := os.Hostname() // of a Pod, its name
	if err != nil {
		return "", fmt.Errorf("finding the Pod of this program: %w", err)
	}
	pod, err := d.pods().Get(context.Background(), name, metav1.GetOptions{}) // see bounded
	if err = apiError(context.Background(), "reading the image of this program's Pod", err); err != nil {
		if errors.Is(err, sandbox.ErrUnknown) {
			return "", err
		}
		return "", nil
	}
	for _, c := range pod.Spec.Containers { // others are sidecars
		if len(pod.Spec.Containers) == 1 || slices.Contains(c.Command, os.Args[0]) {
			return c.Image, nil
		}
	}
	return "", nil
}

// newDriver returns a driver that connects to Pods by their addresses.
func newDriver(config Config, api client.Interface, namespace string) *Driver {
	if config.Progress == nil {
		config.Progress = func(string, sandbox.State, string) {}
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	config.LeaseTime = cmp.Or(config.LeaseTime, 15*time.Second)
	config.ReadyTimeout = cmp.Or(config.ReadyTimeout, 15*time.Minute)
	d := &Driver{config: config, api: api, namespace: namespace, clock: &clock{}, dial: dialPod, dialEgress: dialDirect, outage: outageTime, seenLimit: seenTime}
	d.policiesListed.Store(new(time.Now()))
	return d
}

// answerTime bounds the wait for a response header of the API server, which limits its
// own work on a call to a minute.
const answerTime = 30 * time.Second

// bounded ends calls whose response does not begin in time; a watch, or a log that is
// followed, has no limit after its beginning. It sets the clock by each response.
// [http.Transport.ResponseHeaderTimeout] would not do: client-go hides and shares its
// transports, and over HTTP/2 the timeout does not include the wait for a free stream.
type bounded struct {
	calls  http.RoundTripper
	within time.Duration
	clock  *clock
}

// RoundTrip is [http.RoundTripper]'s.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer, sent := time.AfterFunc(b.within, func() { cancel(nil) }), time.Now()
	response, err := b.calls.RoundTrip(r.WithContext(ctx))
	if !timer.Stop() { // an answer that began at that moment cannot be read
		if err == nil {
			_ = response.Body.Close()
			err = context.Canceled
		}
		if r.Context().Err() == nil {
			err = fmt.Errorf("no answer after %v", b.within)
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	b.clock.heard(sent, time.Now(), response.Header.Get("Date"))
	response.Body = &boundedBody{response.Body, func() { cancel(nil) }}
	return response, nil
}

// boundedBody ends the context of a call when its response was read.
type boundedBody struct {
	io.ReadCloser

	free func()
}

// Close is [io.Closer]'s.
func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.free()
	return err
}

// WrappedRoundTripper lets client-go find its own transport.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.calls }

// errNoCluster reports that no kubeconfig exists, or an empty one.
var errNoCluster = errors.New("no Kubernetes cluster is configured: set KUBECONFIG to a kubeconfig, or write ~/.kube/config")

// load reads the kubeconfig. A context may have slashes in its name, as those of
// Amazon's clusters do: the whole word is a context if there is one of that name.
func load(cluster string) (clientcmd.ClientConfig, error) { //nolint:ireturn // the library has no type for it
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	if cluster != "" {
		known, err := rules.Load()
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig: %w", err)
		}
		if len(known.Contexts) == 0 {
			return nil, errNoCluster
		}
		overrides.CurrentContext = cluster
		if _, ok := known.Contexts[cluster]; !ok {
			if i := strings.LastIndexByte(cluster, '/'); i >= 0 {
				overrides.CurrentContext, overrides.Context.Namespace = cluster[:i], cluster[i+1:]
			}
		}
		if _, ok := known.Contexts[overrides.CurrentContext]; !ok && overrides.CurrentContext != "" {
			return nil, fmt.Errorf("the kubeconfig has no context %q; 'kubectl config get-contexts' lists them",
				overrides.CurrentContext)
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

// Close is [sandbox.Driver]'s.
func (d *Driver) Close() error { return nil }

// Platform is [sandbox.Driver]'s.
func (d *Driver) Platform() string { return "the driver of Kubernetes" }

//nolint:ireturn // the library has no type for it
func (d *Driver) pods() typedcorev1.PodInterface { return d.api.CoreV1().Pods(d.namespace) }

//nolint:ireturn // the same
func (d *Driver) secrets() typedcorev1.SecretInterface { return d.api.CoreV1().Secrets(d.namespace) }

// apiError adds the failed operation to an error of the API server, and ErrUnknown if the
// API server was not reached.
func apiError(ctx context.Context, doing string, err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%s: %w: %w", doing, sandbox.ErrInvalid, err)
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err), errors.As(err, &network):
		return fmt.Errorf("%s: the API server of Kubernetes does not answer: %w: %w", doing, sandbox.ErrUnknown, err)
	}
	if lacksRight(err) {
		return fmt.Errorf("%s: %w; 'runtimectl doctor' lists the rights that are missing", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// lacksRight reports whether the roles of the account, and not a policy, are the cause of a
// refusal.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " in API group ")
}

// settleTime bounds calls that undo something, whose caller may no longer wait.
const settleTime = 15 * time.Second

// settling returns a context for such calls.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}

// crashedStatus is the exit status of the server's init after too many crashes of the
// server, CrashedStatus of cmd/server/internal/pid1. Every process of a Pod can write the message of the container;
// with this status it is the init's.
const crashedStatus = 70

// removal describes the removal of a Pod with the reason of the cluster, if it gives one,
// such as an eviction or a lost node.
func removal(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return "being removed: " + c.Reason + ": " + c.Message
		}
	}
	return "being removed"
}

// endedIn describes the end of the sandbox's container, in the cluster's terms.
func endedIn(pod *corev1.Pod) string {
	if end := statusOf(pod).State.Terminated; end != nil {
		text := fmt.Sprintf("its server ended with status %d", end.ExitCode)
		switch {
		case end.Reason == "OOMKilled":
			text = "its memory limit was reached"
		case end.ExitCode == crashedStatus && end.Message != "":
			text = fmt.Sprintf("%.300s", strings.TrimSpace(end.Message))
		}
		if pod.Status.Reason != "" { // Evicted, for example
			text += ": " + pod.Status.Reason + ": " + pod.Status.Message
		}
		return text
	}
	return strings.TrimSuffix(strings.TrimSpace("the cluster ended it: "+pod.Status.Reason+": "+pod.Status.Message), ":")
}
