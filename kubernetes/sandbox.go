package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	"github.com/actiond/actiond/sandbox"
)

// instance is a sandbox and its Pod; it is the sandbox's Access.
type instance struct {
	*sandbox.Sandbox

	driver *Driver
	pod    string // its name
	uid    types.UID
	ip     string // empty before it runs
	lost   bool   // its node is
	policy bool   // it has a network policy

	begun, ends time.Time // on the API server's clock; ends is zero: never

	mu  sync.Mutex
	key string // empty before it was read
}

// sandbox returns the sandbox of a Pod.
func (d *Driver) sandbox(pod *corev1.Pod) *instance {
	notes := pod.Annotations
	s := &instance{
		driver: d, pod: pod.Name, uid: pod.UID, ip: pod.Status.PodIP, lost: lostNode(pod), policy: pod.Labels[labelNetwork] == networkPolicy,
	}
	s.Sandbox = &sandbox.Sandbox{
		ID: pod.Labels[labelID], Name: notes[noteName], Owner: notes[noteOwner], Image: notes[noteImage], Spec: notes[noteSpec], Pool: notes[notePool],
		User: notes[noteUser], AllowRoot: notes[noteRoot] == "true", Labels: map[string]string{}, Instance: string(pod.UID), Access: s,
	}
	age, _ := time.ParseDuration(notes[noteAge]) // 0 if the Pod has none
	s.begun = pod.CreationTimestamp.Add(age)
	if after, err := time.ParseDuration(notes[noteEnds]); err == nil {
		s.ends = pod.CreationTimestamp.Add(after)
	}
	s.setTimes(s.Sandbox)
	s.IdleLimit, _ = time.ParseDuration(notes[noteIdle])
	s.GPUs, _ = sandbox.ParseGPUs(notes[noteGPUs])
	for name, value := range pod.Labels {
		if !strings.HasPrefix(name, domain) {
			s.Labels[name] = value
		}
	}
	s.Outdated = s.Pool != "" && notes[noteServer] != d.config.ServerImage
	s.State, s.Detail = stateOf(pod)
	return s
}

// setTimes sets the time of creation on the API server's clock, by which lists are ordered,
// and the deadline on this machine's clock, with which callers compare it.
func (s *instance) setTimes(of *sandbox.Sandbox) {
	of.Created, of.Deadline = s.begun, s.driver.clock.here(s.ends)
}

// stateOf returns the state of the sandbox of a Pod. A Pod that ended is gone: it cannot be
// started again.
func stateOf(pod *corev1.Pod) (state sandbox.State, detail string) {
	if pod.DeletionTimestamp != nil {
		return sandbox.Gone, removal(pod)
	}
	state, waiting, err := look(pod)
	switch {
	case err != nil:
		return sandbox.Gone, err.Error()
	case waiting != "":
		return state, "waits for " + waiting
	case pod.Annotations[noteReady] == "":
		return sandbox.Starting, "on node " + pod.Spec.NodeName
	case lostNode(pod):
		return sandbox.Unknown, "node " + pod.Spec.NodeName + " does not report: its Pod still runs there, or ended with it"
	}
	return sandbox.Ready, "on node " + pod.Spec.NodeName
}

// lostNode reports whether the cluster has lost the node of a Pod whose containers run.
// Only then is a Pod without a readiness probe, and with running containers, not ready:
// the node lifecycle controller removes its readiness, and keeps the rest of the last
// report of the node.
func lostNode(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return c.Reason == "" // nodes give a reason
		}
	}
	return false
}

// leaving reports whether the node of a Pod is removing it. A lost node cannot: its Pod
// remains, with its sandbox gone, until the node is back or a caller removes it.
func leaving(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil && !lostNode(pod) }

// List is [sandbox.Driver]'s. It leaves out Pods that their nodes are removing; the
// sandboxes of Pods that ended are gone.
func (d *Driver) List(ctx context.Context) ([]*sandbox.Sandbox, error) {
	pods, err := d.listPods(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*sandbox.Sandbox, len(pods))
	for i := range pods {
		all[i] = pods[i].sandbox()
	}
	slices.SortFunc(all, (*sandbox.Sandbox).Compare)
	return all, nil
}

// listPods returns the Pods of sandboxes without those that their nodes are removing. Callers
// must not change them.
func (d *Driver) listPods(ctx context.Context) (pods []*listed, err error) {
	if err := d.mirrored(false).each(ctx, d.podSource(), func(object any) error {
		if p := object.(*listed); !leaving(p.Pod) && sandbox.IsID(p.Labels[labelID]) {
			pods = append(pods, p)
		}
		return nil
	}); err != nil {
		return nil, apiError(ctx, "listing the sandboxes", err)
	}
	return pods, nil
}

// Get is [sandbox.Driver]'s.
func (d *Driver) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	// Without a list of all sandboxes, if possible.
	if pod := d.mirrored(false).podOf(ref); pod != nil {
		return pod.sandbox(), nil
	}
	r, err := d.recordOf(ctx, ref)
	if err != nil {
		return nil, err
	}
	if r != nil {
		pod, err := d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
		if err == nil && !leaving(pod) && pod.Labels[labelID] == r.ID {
			s := d.sandbox(pod)
			s.key = r.Key
			return s.Sandbox, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, apiError(ctx, "looking at sandbox "+ref, err)
		}
	}
	all, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	return sandbox.Find(all, ref)
}

// recordOf returns the record of an id or a name, or nil unless exactly one exists.
func (d *Driver) recordOf(ctx context.Context, ref string) (*record, error) {
	if sandbox.IsID(ref) {
		r, err := d.record(ctx, ref)
		if errors.Is(err, sandbox.ErrNotFound) {
			return nil, nil //nolint:nilnil // as documented
		}
		return r, err
	}
	named, err := d.named(ctx, ref)
	if err != nil || len(named) != 1 {
		return nil, err
	}
	return readRecord(&named[0])
}

// instanceOf returns the instance of a sandbox. It fails with ErrNotFound for a sandbox of
// another driver.
func instanceOf(s *sandbox.Sandbox) (*instance, error) {
	of, ok := s.Access.(*instance)
	if !ok {
		return nil, fmt.Errorf("%q: %w", s.ID, sandbox.ErrNotFound)
	}
	return of, nil
}

// podOf reads the Pod of a sandbox. It fails with ErrNotFound if the Pod is gone or replaced.
func (d *Driver) podOf(ctx context.Context, s *sandbox.Sandbox) (*instance, *corev1.Pod, error) {
	of, err := instanceOf(s)
	if err != nil {
		return nil, nil, err
	}
	pod, err := d.pods().Get(ctx, of.pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != of.uid {
		return nil, nil, fmt.Errorf("%q: %w", s.ID, sandbox.ErrNotFound)
	}
	return of, pod, apiError(ctx, "looking at sandbox "+s.ID, err)
}

// Delete is [sandbox.Driver]'s. It returns when the API server has accepted it; the node
// then ends the processes within a second or two.
func (d *Driver) Delete(ctx context.Context, s *sandbox.Sandbox) error {
	of, err := instanceOf(s)
	if err != nil {
		return err
	}
	r, err := d.record(ctx, s.ID)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	if err := d.deletePod(ctx, of.pod, of.uid, of.grace()); err != nil {
		return err
	}
	d.seenGone(ctx, of.pod, of.uid)
	switch {
	case r != nil && r.Pod == of.pod:
		return d.forget(ctx, r)
	case of.policy: // the record belongs to another sandbox of the key
		return d.disconnect(ctx, s.ID, of.pod)
	}
	return nil
}

// removeGrace is how long a sandbox may take to end by itself, in seconds.
const removeGrace = 1

// grace is removeGrace, or 0 if the node is lost: only that removes its Pod from the
// cluster. The node ends the processes if it comes back.
func (s *instance) grace() int64 {
	if s.lost {
		return 0
	}
	return removeGrace
}

// deletePod removes the Pod of a name, and of a uid unless that is empty. A Pod that no
// longer exists is not an error.
func (d *Driver) deletePod(ctx context.Context, name string, uid types.UID, grace int64) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := d.pods().Delete(ctx, name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return apiError(ctx, "removing the Pod "+name, err)
}

// Renew is [sandbox.Renewer]'s.
func (d *Driver) Renew(ctx context.Context, s *sandbox.Sandbox, deadline time.Time) error {
	of, pod, err := d.podOf(ctx, s)
	if err != nil {
		return err
	}
	key, err := of.readKey(ctx)
	if err != nil {
		return err
	}
	r, err := d.record(ctx, s.ID)
	if err != nil {
		return err
	}
	var ttl time.Duration
	notes := map[string]any{noteEnds: nil}
	if !deadline.IsZero() {
		ttl = max(time.Until(deadline), time.Second)
		notes[noteEnds] = d.clock.of(deadline).Sub(pod.CreationTimestamp.Time).String()
	}
	// The server first: it may refuse.
	if err := d.config.Agent.Renew(ctx, d.sandbox(pod).Dial, key, r.Ticket, ttl); err != nil {
		return fmt.Errorf("setting the deadline in the server of sandbox %s: %w", s.ID, err)
	}
	renewed, err := d.note(ctx, pod, notes)
	if err != nil {
		return err
	}
	if leaving(renewed) {
		return fmt.Errorf("%q: %w: it is being removed", s.ID, sandbox.ErrNotFound)
	}
	s.Deadline = deadline
	return nil
}

// keyTime bounds the reading of a key: [sandbox.Access] has no context for it.
const keyTime = 15 * time.Second

// Key is [sandbox.Access]'s.
func (s *instance) Key() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTime)
	defer cancel()
	return s.readKey(ctx)
}

func (s *instance) readKey(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != "" {
		return s.key, nil
	}
	r, err := s.driver.record(ctx, s.ID)
	switch {
	case errors.Is(err, sandbox.ErrNotFound), err == nil && r.Pod != s.pod:
		return "", &lostKeyError{s.ID}
	case err != nil:
		return "", fmt.Errorf("finding the key of sandbox %s: %w", s.ID, err)
	case r.Key == "":
		return "", fmt.Errorf("finding the key of sandbox %s: %w", s.ID, fs.ErrNotExist)
	}
	s.key = r.Key
	return s.key, nil
}

// lostKeyError reports that the Secret with the key of a sandbox was deleted. It is an
// fs.ErrNotExist for the gateway, which must hide it from clients without the right key.
type lostKeyError struct{ id string }

func (e *lostKeyError) Error() string {
	return fmt.Sprintf("%v: the key of sandbox %s is lost, because its Secret %s was deleted; remove the sandbox with 'runtimectl rm %s'", sandbox.ErrConflict, e.id, secretPrefix+e.id, e.id)
}

func (e *lostKeyError) Unwrap() []error { return []error{sandbox.ErrConflict, fs.ErrNotExist} }

// ReadKeys is [sandbox.KeyReader]'s.
func (d *Driver) ReadKeys(ctx context.Context, all []*sandbox.Sandbox) error {
	asked := map[string]*instance{}
	for _, s := range all {
		if of, err := instanceOf(s); err == nil {
			asked[s.ID] = of
		}
	}
	err := pager.New(d.recordSource().list).EachListItem(ctx, metav1.ListOptions{LabelSelector: ours}, func(object runtime.Object) error {
		r, err := readRecord(object.(*corev1.Secret))
		if err != nil {
			return nil //nolint:nilerr // Key of the sandbox returns this error
		}
		if of := asked[r.ID]; of != nil && of.pod == r.Pod {
			of.mu.Lock()
			of.key = r.Key
			of.mu.Unlock()
		}
		return nil
	})
	return apiError(ctx, "reading the keys of sandboxes", err)
}

// Dial is [sandbox.Access]'s. A sandbox may live without a connection to it, for example
// while its node or the API server restarts: the error is ErrNotFound if the Pod has
// ended, and ErrUnknown if it has not, or if that is not known.
func (s *instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.connect(ctx)
	if err != nil && ctx.Err() == nil {
		err = s.unreached(ctx, err)
	}
	return conn, err
}

// connect is Dial without reading the Pod.
func (s *instance) connect(ctx context.Context) (net.Conn, error) {
	conn, err := s.driver.dial(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("connecting to sandbox %s: %w", s.ID, err)
	}
	return conn, nil
}

// unreached adds the state of the Pod to a failure to connect.
func (s *instance) unreached(ctx context.Context, failed error) error {
	var pod *corev1.Pod
	if m := s.driver.mirrored(false); m != nil {
		if kept := m.pod(s.driver.namespace, s.pod, s.uid); kept != nil {
			pod = kept.Pod
		}
	} else {
		found, err := s.driver.pods().Get(ctx, s.pod, metav1.GetOptions{})
		switch {
		case err == nil && found.UID == s.uid && !leaving(found):
			pod = found
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("%w: %w: %w", failed, sandbox.ErrUnknown, err)
		}
	}
	if pod == nil {
		return fmt.Errorf("%w: its Pod was removed: %w", failed, sandbox.ErrNotFound)
	}
	if state, detail := stateOf(pod); state == sandbox.Gone {
		return fmt.Errorf("%w: %s: %w", failed, detail, sandbox.ErrNotFound)
	}
	return fmt.Errorf("%w: its Pod still exists: %w", failed, sandbox.ErrUnknown)
}

// dialPod connects to a Pod by its address.
func dialPod(ctx context.Context, s *instance) (net.Conn, error) {
	if s.ip == "" {
		return nil, fmt.Errorf("its Pod has no address: it is %s", s.State)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(s.ip, strconv.Itoa(port)))
}
