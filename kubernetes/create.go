package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// Create is [sandbox.Driver]'s. Several callers with one key work on one record and
// one Pod, so the sandbox is created even if one of them dies. A sandbox that ended is
// not replaced: it must be removed first, and Create fails with ErrConflict.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	hash, err := d.checkCreation(ctx, &spec)
	if err != nil {
		return nil, err
	}
	return d.createWhole(ctx, sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16))), hash, &spec)
}

// checkCreation is Check, and refuses a creation without the server's image, or without
// the parts that enforce a network policy or --network none.
func (d *Driver) checkCreation(ctx context.Context, spec *sandbox.Spec) (hash string, err error) {
	if hash, err = d.Check(ctx, spec); err != nil {
		return "", err
	}
	if d.config.ServerImage == "" {
		return "", sandbox.Invalid("%s needs an image with the server: build it with 'make image-server', push it to a registry of the cluster, and name it with --server-image", d.Platform())
	}
	if spec.Policy != nil {
		if _, err := d.egressAddress(ctx); err != nil {
			return "", err
		}
	}
	if spec.Network == "none" { // also with a policy
		return hash, d.checkIsolation(ctx, spec)
	}
	return hash, nil
}

// createWhole repeats create while other callers undo the creation that it joined.
func (d *Driver) createWhole(ctx context.Context, id, hash string, spec *sandbox.Spec) (*sandbox.Sandbox, error) {
	for {
		s, err := d.create(ctx, newRecord(id, hash, spec), spec)
		if !errors.Is(err, errUndone) {
			return s, err
		}
		if err := channel.Sleep(ctx, createPause); err != nil {
			return nil, err
		}
	}
}

// createPause is the pause before a creation that another caller undid is repeated.
const createPause = 100 * time.Millisecond

// create creates the sandbox, or continues a creation that another caller began. After an
// error it undoes its own creation. It fails with errUndone if another caller undid a
// creation that this one joined.
func (d *Driver) create(ctx context.Context, fresh *record, spec *sandbox.Spec) (s *sandbox.Sandbox, err error) {
	id := fresh.ID
	d.config.Progress(id, sandbox.Pending, "the record of its key")
	r, mine, err := d.take(ctx, fresh)
	if err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, errUndone) && mine {
			why := err.Error() // as text: the caller must not try again
			err = fmt.Errorf("creating sandbox %s: it was removed meanwhile: %w: %s", id, sandbox.ErrNotFound, why)
		}
		if err != nil && mine {
			err = errors.Join(err, d.undo(ctx, r))
		}
	}()
	if mine {
		if err := d.nameIsFree(ctx, r, spec.Name); err != nil {
			return nil, err
		}
	}
	d.config.Progress(id, sandbox.Creating, "the Pod "+r.Pod)
	pod, made, err := d.pod(ctx, r, spec, mine)
	if err != nil {
		return nil, err
	}
	if err := d.own(ctx, r, pod); err != nil {
		if made && errors.Is(err, errUndone) { // the caller that began the creation does not know this Pod
			undoCtx, cancel := settling(ctx)
			defer cancel()
			err = errors.Join(err, d.deletePod(undoCtx, pod.Name, pod.UID, removeGrace))
		}
		return nil, err
	}
	if pod, err = d.bringUp(ctx, r, pod, spec); err != nil {
		return nil, err
	}
	d.config.Progress(id, sandbox.Ready, "")
	return d.sandbox(pod).Sandbox, nil
}

// pod finds the Pod of a record, or creates it; made reports that it did.
func (d *Driver) pod(
	ctx context.Context, r *record, spec *sandbox.Spec, mine bool,
) (pod *corev1.Pod, made bool, err error) {
	if mine && r.From != "" {
		if err := d.connectPolicy(ctx, r, spec, mine); err != nil {
			return nil, false, err
		}
		pod, err = d.adopt(ctx, r, spec)
		return pod, err == nil, err
	}
	if !mine {
		pod, err := d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
		if err == nil && pod.Labels[labelID] != r.ID {
			return nil, false, d.lostClaim(ctx, r)
		}
		if err == nil && pod.DeletionTimestamp != nil && !leaving(pod) {
			return nil, false, fmt.Errorf("%w: sandbox %s is gone, %s; remove it with 'rm' or 'prune'", sandbox.ErrConflict,
				r.ID, removal(pod))
		}
		if !apierrors.IsNotFound(err) {
			return pod, false, apiError(ctx, "looking for the Pod "+r.Pod, err)
		}
		if d.clock.now().Sub(r.made) > recordTime {
			return nil, false, fmt.Errorf("%w: sandbox %s is gone; remove it with 'rm' or 'prune'", sandbox.ErrConflict, r.ID)
		}
	}
	if err := d.connectPolicy(ctx, r, spec, mine); err != nil {
		return nil, false, err
	}
	pod, err = d.pods().Create(ctx, podFor(spec, r, &d.config), metav1.CreateOptions{})
	made = err == nil
	if apierrors.IsAlreadyExists(err) {
		pod, err = d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
	}
	return pod, made, d.creationError(ctx, "making the Pod of sandbox "+r.ID, err)
}

// creationError is apiError for creations, which the cluster may refuse; it adds advice.
func (d *Driver) creationError(ctx context.Context, doing string, err error) error {
	var refusal apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) && errors.As(err, &refusal) && refusal.Status().Details != nil &&
		refusal.Status().Details.Kind == "namespaces":
		return fmt.Errorf("%s: the namespace %s does not exist; create it with 'kubectl create namespace %s', or use another one", doing, d.namespace, d.namespace)
	case !apierrors.IsForbidden(err):
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%s: the namespace %s is being removed; use another one", doing, d.namespace)
	case strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Errorf("%s: namespace %s: %w: %w", doing, d.namespace, sandbox.ErrQuota, err)
	case !lacksRight(err): // a policy of the namespace: its Pod Security, its LimitRange, a webhook
		return fmt.Errorf("%s: %w: %w", doing, sandbox.ErrInvalid, err)
	}
	return apiError(ctx, doing, err)
}

// undo removes the objects of this caller's creation. It deletes the Pod first, so that a
// crash leaves a record that names the Pod, and once more at the end: a caller that joined
// may have created it again while the record existed.
func (d *Driver) undo(ctx context.Context, r *record) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	if r.Pool != "" { // another process may have claimed it since it was noted as ready
		return errors.Join(d.discard(ctx, r.Pod, "", r.ID), d.forget(ctx, r))
	}
	if r.From != "" { // the Pod is the pool's until it has the id
		pod, err := d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.Labels[labelID] != r.ID {
			return d.forget(ctx, r)
		}
		if err != nil {
			return apiError(ctx, "looking at the Pod "+r.Pod, err)
		}
	}
	return errors.Join(d.deletePod(ctx, r.Pod, "", removeGrace), d.forget(ctx, r), d.deletePod(ctx, r.Pod, "", removeGrace))
}

// startTime is how long a sandbox may take from the start of its container to the first command.
const startTime = time.Minute

// bringUp waits until a command ran in the sandbox's shell.
func (d *Driver) bringUp(ctx context.Context, r *record, pod *corev1.Pod, spec *sandbox.Spec) (*corev1.Pod, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	within := func(limit time.Duration) *time.Timer {
		return time.AfterFunc(limit, func() { cancel(fmt.Errorf("nothing after %v", limit)) })
	}
	timer := within(d.config.ReadyTimeout)
	defer func() { timer.Stop() }()
	finished := pod.Annotations[noteReady] != ""
	step := "waiting for its Pod to run"
	pod, err := d.whileRunning(ctx, r, pod, func(ctx context.Context, pod *corev1.Pod) error {
		timer.Stop()
		timer = within(startTime)
		if finished {
			return nil
		}
		s := d.sandbox(pod)
		if r.Pool != "" {
			step = "waiting for its shell"
			d.config.Progress(r.ID, sandbox.Starting, "its server to listen")
			return sandbox.UntilListening(ctx, func() error { return d.config.Agent.Ready(ctx, s.connect, "") }, errForward)
		}
		claim := sandbox.Claim{Ticket: r.Ticket, Key: r.Key, Owner: r.Owner, Env: r.Env, Idle: spec.Idle}
		if !s.Deadline.IsZero() {
			claim.TTL = max(time.Until(s.Deadline), time.Second)
		}
		if r.Policy {
			step = "waiting for its network policy"
			d.config.Progress(r.ID, sandbox.Starting, "the egress proxy to apply its policy")
			if err := d.claimPolicy(ctx, r, &claim); err != nil {
				return err
			}
		}
		step = "claiming it"
		d.config.Progress(r.ID, sandbox.Starting, "its server to listen")
		if err := sandbox.UntilListening(ctx, func() error { return d.config.Agent.Claim(ctx, s.connect, claim) }, errForward); err != nil {
			return err
		}
		step = "waiting for the first command in its shell"
		d.config.Progress(r.ID, sandbox.Starting, "the first command in its shell")
		return d.config.Agent.Ready(ctx, s.connect, r.Key)
	})
	if err == nil && finished {
		return pod, nil
	}
	if err == nil {
		step = "noting that it is ready"
		// From here others find it ready, and may claim it: it is not undone because the
		// caller leaves between the note and its answer.
		noteCtx, cancel := settling(ctx)
		defer cancel()
		pod, err = d.note(noteCtx, pod, map[string]any{noteReady: d.clock.now().UTC().Format(time.RFC3339Nano)})
		if errors.Is(err, sandbox.ErrNotFound) {
			return nil, errUndone
		}
	}
	if err == nil || errors.Is(err, errUndone) || errors.Is(err, sandbox.ErrNoImage) || errors.Is(err, sandbox.ErrUnknown) || errors.Is(err, sandbox.ErrConflict) {
		return pod, err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, d.startError(ctx, r, step, err)
}

// encode returns the JSON of maps of texts and numbers.
func encode(object map[string]any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // texts and numbers can be encoded
	}
	return data
}

// note sets annotations of a Pod, and removes those whose value is nil.
func (d *Driver) note(ctx context.Context, pod *corev1.Pod, notes map[string]any) (*corev1.Pod, error) {
	patch := encode(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": notes}})
	changed, err := d.pods().Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, fmt.Errorf("the Pod %s: %w", pod.Name, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, apiError(ctx, "writing the annotations of the Pod "+pod.Name, err)
	}
	d.seen(ctx, changed)
	return changed, nil
}

// startError collects the reasons why a Pod did not start, while the Pod still exists.
func (d *Driver) startError(ctx context.Context, r *record, step string, err error) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	return &sandbox.StartError{ID: r.ID, Step: step, Err: err, Hint: d.lastWarning(ctx, r.Pod), Logs: d.lastWords(ctx, r.Pod)}
}

// lastWarning returns the last warning event of the Pod.
func (d *Driver) lastWarning(ctx context.Context, pod string) string {
	events, err := d.api.CoreV1().Events(d.namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return ""
	}
	var last *corev1.Event
	for i, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && e.InvolvedObject.Name == pod && (last == nil || !eventTime(&e).Before(eventTime(last))) {
			last = &events.Items[i]
		}
	}
	if last == nil {
		return ""
	}
	return "The cluster reports: " + last.Reason + ": " + last.Message
}

func eventTime(e *corev1.Event) time.Time {
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// lastWords returns the last lines of the server's log, or of the init container's if the
// server did not start.
func (d *Driver) lastWords(ctx context.Context, pod string) string {
	for _, container := range []string{containerName, initName} {
		log, err := d.pods().GetLogs(pod, &corev1.PodLogOptions{Container: container, TailLines: new(int64(20))}).Stream(ctx)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(log, 64<<10)) // as far as it goes
		_ = log.Close()
		if said := strings.TrimSpace(string(text)); said != "" {
			return said
		}
	}
	return ""
}
