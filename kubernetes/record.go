package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// record is the content of the Secret of a key: everything that a second caller needs to
// continue the creation.
type record struct {
	ID     string            `json:"id"`
	Pod    string            `json:"pod"` // its name
	Key    string            `json:"key"` // of the server
	Ticket string            `json:"ticket"`
	Spec   string            `json:"spec"` // hash of the specification
	Name   string            `json:"name"`
	Owner  string            `json:"owner,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Pool   string            `json:"pool,omitempty"`   // of a warm sandbox, which has no key yet
	Policy bool              `json:"policy,omitempty"` // it has a network policy, in another Secret
	Token  string            `json:"token,omitempty"`  // by which the egress proxy knows it then
	Names  bool              `json:"names,omitempty"`  // with Policy: programs that know no proxy can connect to names
	From   string            `json:"from,omitempty"`   // of a claim: the id that its Pod has in the pool

	uid    types.UID   // of the Secret
	made   time.Time   // the Secret, on the API server's clock
	looked *corev1.Pod // of a claim: its Pod in the pool, for the first attempt
}

// recordField is the field of the Secret with the record as JSON.
const recordField = "record"

// secretPrefix is the prefix of the names of Secrets; the id follows.
const secretPrefix = "sandbox-"

// errUndone reports that another caller removed the Pod or the record of a creation:
// the caller that began it, or one that removes the sandbox.
var errUndone = errors.New("another caller undid its creation")

// newRecord returns the record of a new sandbox.
func newRecord(id, hash string, spec *sandbox.Spec) *record {
	r := &record{
		ID: id, Pod: secretPrefix + id + "-" + strings.ToLower(rand.Text()[:8]), Key: cmp.Or(spec.Secret, random.Hex(32)), Ticket: random.Hex(32),
		Spec: hash, Name: cmp.Or(spec.Name, id), Owner: spec.Owner, Env: spec.Env,
	}
	if spec.Policy != nil {
		r.Policy, r.Names = true, !spec.NoNames
		r.Token, _ = egress.NewToken(id)
	}
	return r
}

// take creates the record of a key, or finds an existing one. mine reports that this call
// created it. It tries to create the record first: most keys are new.
func (d *Driver) take(ctx context.Context, r *record) (found *record, mine bool, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, false, fmt.Errorf("writing the record of sandbox %s: %w", r.ID, err)
	}
	made, err := d.secrets().Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: secretPrefix + r.ID, Labels: map[string]string{labelManaged: "sandbox", labelID: r.ID, labelName: nameHash(r.Name)},
		},
		Data: map[string][]byte{recordField: data},
	}, metav1.CreateOptions{})
	if err == nil {
		r.uid, r.made = made.UID, made.CreationTimestamp.Time
		return r, true, nil
	}
	taken := apierrors.IsAlreadyExists(err)
	if taken || apierrors.IsForbidden(err) { // a quota, for example, is checked before the name
		found, lookErr := d.record(ctx, r.ID)
		switch {
		case lookErr == nil:
			return follow(found, r.Spec)
		case taken && errors.Is(lookErr, sandbox.ErrNotFound):
			return nil, false, errUndone
		case taken:
			return nil, false, lookErr
		}
		return nil, false, d.creationError(ctx, "making the record of sandbox "+r.ID, err)
	}
	// The API server may have created it although its response did not arrive. If it does
	// not answer now, Prune removes the record.
	undoCtx, cancel := settling(ctx)
	defer cancel()
	undone := d.forget(undoCtx, r)
	if errors.Is(undone, sandbox.ErrUnknown) {
		undone = nil
	}
	return nil, false, errors.Join(d.creationError(ctx, "making the record of sandbox "+r.ID, err), undone)
}

// follow joins the creation of another caller.
func follow(found *record, hash string) (*record, bool, error) {
	if found.Spec != hash {
		return nil, false, fmt.Errorf("%w: sandbox %s has this key and another specification", sandbox.ErrConflict, found.ID)
	}
	return found, false, nil
}

// nameIsFree fails with ErrConflict if another record has the name. It is called after the
// own record was created: only then do two concurrent callers see each other.
func (d *Driver) nameIsFree(ctx context.Context, r *record, name string) error {
	if name == "" {
		return nil
	}
	taken := func(id string) error {
		return fmt.Errorf("%w: sandbox %s has the name %s; remove it, or take another name", sandbox.ErrConflict, id, name)
	}
	if sandbox.IsID(name) && name != r.ID {
		if _, err := d.record(ctx, name); !errors.Is(err, sandbox.ErrNotFound) {
			return cmp.Or(err, taken(name))
		}
	}
	all, err := d.named(ctx, name)
	if err != nil {
		return err
	}
	for i := range all {
		if id := all[i].Labels[labelID]; id != r.ID {
			return taken(id)
		}
	}
	return nil
}

// named returns the Secrets of the records with a name.
func (d *Driver) named(ctx context.Context, name string) ([]corev1.Secret, error) {
	list, err := d.secrets().List(ctx, metav1.ListOptions{LabelSelector: ours + "," + labelName + "=" + nameHash(name)})
	if err != nil {
		return nil, apiError(ctx, "looking for the name "+name, err)
	}
	return list.Items, nil
}

// nameHash returns a value of a label for a name.
func nameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// record reads the record of an id. It fails with ErrNotFound.
func (d *Driver) record(ctx context.Context, id string) (*record, error) {
	secret, err := d.secrets().Get(ctx, secretPrefix+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%q: %w", id, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, apiError(ctx, "reading the record of sandbox "+id, err)
	}
	return readRecord(secret)
}

func readRecord(secret *corev1.Secret) (*record, error) {
	r := &record{uid: secret.UID, made: secret.CreationTimestamp.Time}
	if err := json.Unmarshal(secret.Data[recordField], r); err != nil || secret.Labels[labelManaged] != "sandbox" || secretPrefix+r.ID != secret.Name {
		return nil, fmt.Errorf("%w: the Secret %s has the name of a sandbox's record and was not created by this driver",
			sandbox.ErrConflict, secret.Name)
	}
	return r, nil
}

// forget removes the record, unless another one has replaced it, after the network policy of its
// sandbox. A record that no longer exists is not an error.
func (d *Driver) forget(ctx context.Context, r *record) error {
	if r.Policy {
		if err := d.disconnect(ctx, r.ID, r.Pod); err != nil {
			return err
		}
	}
	if r.uid == "" {
		found, err := d.record(ctx, r.ID)
		if errors.Is(err, sandbox.ErrNotFound) || err == nil && (found.Ticket != r.Ticket || found.Key != r.Key) {
			return nil
		}
		if err != nil {
			return err
		}
		r.uid = found.uid
	}
	err := d.secrets().Delete(ctx, secretPrefix+r.ID,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return apiError(ctx, "removing the record of sandbox "+r.ID, err)
}

// own makes the Pod the owner of the Secret, which Kubernetes then removes with the Pod.
func (d *Driver) own(ctx context.Context, r *record, pod *corev1.Pod) error {
	patch := encode(map[string]any{"metadata": map[string]any{
		"uid":             r.uid, // a Secret of the same name that was made later is another record
		"ownerReferences": []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}})
	_, err := d.secrets().Patch(ctx, secretPrefix+r.ID, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errUndone
	}
	return apiError(ctx, "giving the record of sandbox "+r.ID+" to its Pod", err)
}
