package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// A warm sandbox is a Pod with a record of its own, whose server is not claimed. A
// claim is a creation whose Pod exists already: the claimer creates the record of its
// key, which names the Pod and has its ticket, and then gives the Pod its id, if the Pod
// has not changed since it was listed. The remaining steps are those of every creation, so
// other callers with the key continue where a claimer died, and Prune removes the rest.

// errTaken reports that another claimer was faster.
var errTaken = errors.New("another claimer took the warm sandbox")

// claimTime is how long a caller waits for the claimer of the same key to give the Pod
// its id, before it considers the claimer dead.
const claimTime = 10 * time.Second

// Prepare is [sandbox.Warmer]'s. Nodes pull images when Pods are created.
func (d *Driver) Prepare(context.Context, sandbox.Spec) error { return nil }

// Warm is [sandbox.Warmer]'s.
func (d *Driver) Warm(ctx context.Context, pool string, spec sandbox.Spec) error {
	hash, err := d.checkCreation(ctx, &spec)
	if err != nil {
		return err
	}
	spec.TTL, spec.Idle = sandbox.PoolAge, 0 // a claim sets both
	r := newRecord(sandbox.ID("\x00pool "+random.Hex(16)), hash, &spec)
	r.Pool, r.Key, r.Policy, r.Token = pool, "", false, "" // it gets its policy with the claim
	_, err = d.create(ctx, r, &spec)
	return err
}

// Claim is [sandbox.Warmer]'s.
func (d *Driver) Claim(
	ctx context.Context, spec sandbox.Spec, from []*sandbox.Sandbox,
) (*sandbox.Sandbox, bool, error) {
	hash, err := d.checkCreation(ctx, &spec)
	if err != nil {
		return nil, false, err
	}
	id := sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16)))
	// In random order, so that claimers with the same list begin with different Pods.
	from = slices.Clone(from)
	rand.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] }) //nolint:gosec // the order need not be secret
	for _, warm := range from {
		if _, taken := d.claiming.Load(warm.Instance); taken {
			continue
		}
		if _, err := d.record(ctx, id); err == nil {
			s, err := d.createWhole(ctx, id, hash, &spec) // another caller has used the key
			return s, false, err
		} else if !errors.Is(err, sandbox.ErrNotFound) {
			return nil, false, err
		}
		s, err := d.claim(ctx, id, hash, &spec, warm)
		switch {
		case err == nil:
			return s, true, nil
		case errors.Is(err, errTaken), errors.Is(err, errUndone), errors.Is(err, sandbox.ErrNotFound):
			d.config.Logger.DebugContext(ctx, "a warm sandbox is no longer in its pool", slog.String("sandbox", warm.ID),
				slog.Any("error", err))
			continue
		case ctx.Err() != nil:
			return nil, false, fmt.Errorf("claiming a warm sandbox: %w", context.Cause(ctx))
		case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrUnknown), errors.Is(err, sandbox.ErrEgress):
			return nil, false, err // with ErrEgress a new sandbox would fail as well
		}
		d.config.Logger.WarnContext(ctx, "a warm sandbox could not be claimed", slog.String("sandbox", warm.ID),
			slog.Any("error", err))
	}
	return nil, false, nil
}

// claim gives the key the warm sandbox. It fails with errTaken if the sandbox is no longer
// in its pool.
func (d *Driver) claim(
	ctx context.Context, id, hash string, spec *sandbox.Spec, warm *sandbox.Sandbox,
) (*sandbox.Sandbox, error) {
	of, err := instanceOf(warm)
	if err != nil {
		return nil, err
	}
	if _, taken := d.claiming.LoadOrStore(warm.Instance, nil); taken {
		return nil, errTaken
	}
	defer d.claiming.Delete(warm.Instance)
	// The Pod first: if another claimer has taken it, no record is needed.
	pod, err := d.warmPod(ctx, of.pod, warm.ID)
	if err != nil {
		return nil, err
	}
	old, err := d.record(ctx, warm.ID)
	if err != nil {
		return nil, err
	}
	if old.Pod != of.pod || old.Pool == "" {
		return nil, errTaken
	}
	r := newRecord(id, hash, spec)
	r.Pod, r.Ticket, r.From, r.looked = old.Pod, old.Ticket, warm.ID, pod
	s, err := d.create(ctx, r, spec)
	if err != nil {
		return nil, err
	}
	if err := d.forget(ctx, old); err != nil { // Prune removes it later
		d.config.Logger.WarnContext(ctx, "the record of a warm sandbox is left", slog.String("sandbox", warm.ID),
			slog.Any("error", err))
	}
	return s, nil
}

// lostClaim waits for the claimer that created a record to give its Pod the id, or removes
// the record of a claimer that died before. The caller tries again.
func (d *Driver) lostClaim(ctx context.Context, r *record) error {
	if d.clock.now().Sub(r.made) < claimTime {
		return errUndone
	}
	if err := d.forget(ctx, r); err != nil {
		return err
	}
	return errUndone
}

// warmPod returns a Pod that has its id in the pool. Otherwise it fails with errTaken.
func (d *Driver) warmPod(ctx context.Context, name, id string) (*corev1.Pod, error) {
	pod, err := d.pods().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || pod.Labels[labelID] != id) {
		return nil, errTaken
	}
	return pod, apiError(ctx, "looking at the warm Pod "+name, err)
}

// adopt gives a warm Pod the id of a record. The API server refuses the change if the Pod
// has changed since it was read.
func (d *Driver) adopt(ctx context.Context, r *record, spec *sandbox.Spec) (*corev1.Pod, error) {
	for range adoptTries {
		pod := r.looked
		if r.looked = nil; pod == nil {
			var err error
			if pod, err = d.warmPod(ctx, r.Pod, r.From); err != nil {
				return nil, err
			}
		}
		notes := map[string]any{notePool: nil, noteReady: nil, noteAge: nil, noteEnds: nil, noteIdle: nil}
		for name, value := range notesOf(spec, r, r.made.Sub(pod.CreationTimestamp.Time)) {
			notes[name] = value
		}
		patch := encode(map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "labels": map[string]any{labelManaged: "sandbox", labelID: r.ID, labelWarm: nil}, "annotations": notes,
		}})
		claimed, err := d.pods().Patch(ctx, r.Pod, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case apierrors.IsConflict(err): // by another claimer, or by the node, which reports on the Pod
			continue
		case apierrors.IsNotFound(err):
			return nil, errTaken
		}
		return claimed, apiError(ctx, "claiming the warm Pod "+r.Pod, err)
	}
	return nil, errTaken
}

// adoptTries limits the attempts to change a Pod that others change at the same time.
const adoptTries = 10

// Discard is [sandbox.Warmer]'s.
func (d *Driver) Discard(ctx context.Context, s *sandbox.Sandbox) error {
	of, err := instanceOf(s)
	if err != nil {
		return err
	}
	return d.discard(ctx, of.pod, of.uid, s.ID)
}

// discard removes a warm Pod, unless it has another id by then. A uid of "" is unknown.
func (d *Driver) discard(ctx context.Context, name string, uid types.UID, id string) error {
	for range adoptTries {
		pod, err := d.pods().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (uid != "" && pod.UID != uid || pod.Labels[labelID] != id) {
			return nil
		}
		if err != nil {
			return apiError(ctx, "looking at the warm Pod "+name, err)
		}
		removed, err := d.deleteAsListed(ctx, pod, removeGrace)
		if removed || err != nil {
			return err // the Pod's record goes with it
		}
	}
	return nil
}

// deleteAsListed removes a Pod unless it has changed since it was read, for example by a
// claim, and reports whether it did.
func (d *Driver) deleteAsListed(ctx context.Context, pod *corev1.Pod, grace int64) (bool, error) {
	err := d.pods().Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil, apiError(ctx, "removing the Pod "+pod.Name, err)
}
