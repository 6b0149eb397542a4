package kubernetes

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/ticket"
	"github.com/actiond/actiond/sandbox"
)

// The API of agent-sandbox. Objects are read without a schema: missing fields are empty,
// and unknown fields are preserved.
const (
	agentGroup      = "agents.x-k8s.io"
	extensionsGroup = "extensions.agents.x-k8s.io"

	podNameNote = "agents.x-k8s.io/pod-name" // of a Sandbox: the name of the Pod, if it differs

	labelPool = domain + "pool"  // of templates and warm pools: the hash of the pool's name
	noteClaim = domain + "claim" // of a Pod: the uid of its SandboxClaim

	// poolKeySecret has the key that tickets of Pods of templates are signed with.
	poolKeySecret = "actiond-pool-key"
	// podVariable has the uid of the Pod, which is the name in its ticket.
	podVariable = "ACTIOND_POD"
)

// agentVersions are the versions that this driver supports, the preferred one first. Claims
// of older versions do not name a pool.
var agentVersions = []string{"v1", "v1beta1"}

// AgentSandbox is a [Driver] with the pools of agent-sandbox: its controller creates and
// replaces the warm Pods, and a SandboxClaim takes one. All other methods are the
// Driver's. It may be used concurrently.
type AgentSandbox struct{ *Driver }

var _ sandbox.PoolKeeper = AgentSandbox{}

// Check is [sandbox.Driver]'s.
func (a AgentSandbox) Check(ctx context.Context, spec *sandbox.Spec) (hash string, err error) {
	if spec.Policy != nil {
		return "", sandbox.Invalid("sandboxes of a pool of agent-sandbox cannot have network policies; use another pool, or none")
	}
	return a.Driver.Check(ctx, spec)
}

// agentAPI are the resources of agent-sandbox in the driver's namespace.
type agentAPI struct {
	version                             string // of templates, pools and claims, with their group
	templates, pools, claims, sandboxes dynamic.ResourceInterface
	found                               time.Time
}

// agentAge is how long the version of agent-sandbox and the key of pools are cached: an
// operator may change them.
const agentAge = time.Minute

// agents finds agent-sandbox in the cluster. It fails with ErrUnsupported if the cluster does
// not serve it, or if the account may not ask. The result is cached for agentAge, and
// while the API server does not answer.
func (d *Driver) agents(ctx context.Context) (*agentAPI, error) {
	last := d.agentSandbox.Load()
	if last != nil && time.Since(last.found) < d.recheck {
		return last, nil
	}
	version, err := d.served(ctx, extensionsGroup, "sandboxtemplates", "sandboxwarmpools", "sandboxclaims")
	var core string
	if err == nil {
		core, err = d.served(ctx, agentGroup, "sandboxes")
	}
	if err != nil {
		if last != nil && errors.Is(err, sandbox.ErrUnknown) {
			return last, nil
		}
		return nil, err
	}
	of := func(group, version, resource string) dynamic.ResourceInterface {
		return d.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(d.namespace)
	}
	found := &agentAPI{
		version:   extensionsGroup + "/" + version,
		templates: of(extensionsGroup, version, "sandboxtemplates"), pools: of(extensionsGroup, version, "sandboxwarmpools"),
		claims: of(extensionsGroup, version, "sandboxclaims"), sandboxes: of(agentGroup, core, "sandboxes"),
		found: time.Now(),
	}
	d.agentSandbox.Store(found)
	return found, nil
}

// errHidden reports that the account may not ask for the APIs of the cluster. Such an account
// has created no pools.
var errHidden = fmt.Errorf("%w: the cluster does not allow this account to find out whether agent-sandbox is served",
	sandbox.ErrUnsupported)

// served returns the best version in which the cluster has all the resources.
func (d *Driver) served(ctx context.Context, group string, resources ...string) (string, error) {
	for _, version := range agentVersions {
		list, err := d.api.Discovery().ServerResourcesForGroupVersion(group + "/" + version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if apierrors.IsForbidden(err) {
			return "", errHidden
		}
		if err != nil {
			return "", apiError(ctx, "looking for agent-sandbox", err)
		}
		names := make([]string, len(list.APIResources))
		for i, r := range list.APIResources {
			names[i] = r.Name
		}
		if !slices.ContainsFunc(resources, func(name string) bool { return !slices.Contains(names, name) }) {
			return version, nil
		}
	}
	return "", fmt.Errorf("%w: the cluster does not serve %s in version v1 or v1beta1: install agent-sandbox with its extensions, or use a pool of this program: --pool NAME", sandbox.ErrUnsupported, group)
}

// Prepare is [sandbox.Warmer]'s. It fails if the cluster does not serve agent-sandbox.
func (a AgentSandbox) Prepare(ctx context.Context, spec sandbox.Spec) error {
	if _, err := a.checkCreation(ctx, &spec); err != nil {
		return err
	}
	_, err := a.agents(ctx)
	return err
}

// poolKey is the key of pools, and the time when it was read.
type poolKey struct {
	ed25519.PrivateKey

	read time.Time
}

// poolKey returns the key that signs the tickets of Pods of templates.
func (d *Driver) poolKey(ctx context.Context) (ed25519.PrivateKey, error) {
	if last := d.agentKey.Load(); last != nil && time.Since(last.read) < d.recheck {
		return last.PrivateKey, nil
	}
	text, err := d.GatewayKey(ctx, poolKeySecret)
	if err != nil {
		return nil, err
	}
	seed := sha256.Sum256([]byte("actiond pool\x00" + text))
	key := &poolKey{ed25519.NewKeyFromSeed(seed[:]), time.Now()}
	d.agentKey.Store(key)
	return key.PrivateKey, nil
}

// poolTemplate returns the template of the Pods of a pool. Its name, which is also that of
// the warm pool, is derived from its contents.
func (d *Driver) poolTemplate(
	pool, hash string, spec sandbox.Spec, key ed25519.PublicKey,
) (name string, template map[string]any, err error) {
	spec.TTL, spec.Idle = 0, 0 // a claim sets them
	r := &record{Template: templateSeed(hash), claimKey: hex.EncodeToString(key)}
	pod := podFor(&spec, r, &d.config)
	pod.Spec.Hostname = ""
	c := containerOf(pod)
	c.Env = append(c.Env, corev1.EnvVar{Name: podVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}})
	// The controller prefers Pods that are ready, and a startup probe costs nothing
	// after the start.
	c.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(port)}},
		PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: int32(startTime.Seconds()) * 5,
	}
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	if err != nil {
		return "", nil, fmt.Errorf("writing the template of pool %s: %w", pool, err)
	}
	// The controller keeps the labels and annotations of a template on its Pods, so a
	// template has none that a claim changes.
	labels := map[string]any{}
	for name, value := range pod.Labels {
		if name != labelManaged && name != labelID {
			labels[name] = value
		}
	}
	template = map[string]any{"metadata": map[string]any{"labels": labels}, "spec": made}
	sum := sha256.Sum256(append([]byte(pool+"\x00"), encode(template)...))
	return "actiond-" + hex.EncodeToString(sum[:8]), template, nil
}

// templateSeed returns the seed of the user id of a template's Pods.
func templateSeed(hash string) string { return "template " + hash }

// object returns an object of agent-sandbox.
func (api *agentAPI) object(kind, name, pool string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.version, "kind": kind,
		"metadata": map[string]any{
			"name": name, "labels": map[string]any{labelManaged: "pool", labelPool: nameHash(pool)}, "annotations": map[string]any{noteName: pool},
		},
		"spec": spec,
	}}
}

// KeepPool is [sandbox.PoolKeeper]'s: a SandboxTemplate and a SandboxWarmPool.
func (a AgentSandbox) KeepPool(ctx context.Context, pool string, spec sandbox.Spec, size int) error {
	hash, err := a.checkCreation(ctx, &spec)
	if err != nil {
		return err
	}
	api, err := a.agents(ctx)
	if err != nil {
		return err
	}
	key, err := a.poolKey(ctx)
	if err != nil {
		return err
	}
	name, template, err := a.poolTemplate(pool, hash, spec, key.Public().(ed25519.PublicKey))
	if err != nil {
		return err
	}
	_, err = api.templates.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.templates.Create(ctx, api.object("SandboxTemplate", name, pool, map[string]any{
			"podTemplate": template,
			// The policies of the namespace apply to all its Pods, and admit the gateway.
			"networkPolicyManagement": "Unmanaged",
		}), metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return a.creationError(ctx, "making the SandboxTemplate of pool "+pool, err)
	}
	found, err := api.pools.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = api.pools.Create(ctx, api.object("SandboxWarmPool", name, pool, map[string]any{
			"replicas": int64(size), "sandboxTemplateRef": map[string]any{"name": name},
		}), metav1.CreateOptions{})
	case err == nil:
		if has, _, _ := unstructured.NestedInt64(found.Object, "spec", "replicas"); has != int64(size) {
			_, err = api.pools.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size),
				metav1.PatchOptions{})
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return a.creationError(ctx, "making the SandboxWarmPool of pool "+pool, err)
	}
	return api.removePools(ctx, pool, name)
}

// RemovePool is [sandbox.PoolKeeper]'s.
func (a AgentSandbox) RemovePool(ctx context.Context, pool string) error {
	api, err := a.agents(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return nil // it was removed with its definition
	}
	if err != nil {
		return err
	}
	return api.removePools(ctx, pool, "")
}

// removePools removes the warm pools and templates of a pool except one. Claimed sandboxes
// belong to their claims, and remain.
func (api *agentAPI) removePools(ctx context.Context, pool, except string) error {
	var errs []error
	for kind, resource := range map[string]dynamic.ResourceInterface{"SandboxWarmPool": api.pools, "SandboxTemplate": api.templates} {
		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: labelManaged + "=pool," + labelPool + "=" + nameHash(pool)})
		if err != nil {
			errs = append(errs, apiError(ctx, "listing the warm pools and templates of pool "+pool, err))
			continue
		}
		for i := range list.Items {
			if name := list.Items[i].GetName(); name != except {
				if err := resource.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					errs = append(errs, apiError(ctx, "removing the "+kind+" "+name, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// errNoPool reports that no pool has sandboxes of the specification.
var errNoPool = errors.New("no such pool")

// ClaimFrom is [sandbox.PoolKeeper]'s. The SandboxClaim is named after the key, and created
// first; the record of the key is created once the claim has a Pod. Several callers with
// one key therefore follow one claim and one record.
func (a AgentSandbox) ClaimFrom(ctx context.Context, pool string, spec sandbox.Spec) (*sandbox.Sandbox, bool, error) {
	pooled := spec
	pooled.Key, pooled.Secret, pooled.Name, pooled.Owner, pooled.Env = "", "", "", "", nil
	poolHash, err := a.Check(ctx, &pooled)
	if err != nil {
		return nil, false, err
	}
	hash, err := a.checkCreation(ctx, &spec)
	if err != nil {
		return nil, false, err
	}
	api, err := a.agents(ctx)
	if err != nil {
		return nil, false, err
	}
	key, err := a.poolKey(ctx)
	if err != nil {
		return nil, false, err
	}
	name, _, err := a.poolTemplate(pool, poolHash, pooled, key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, false, err
	}
	c := claiming{AgentSandbox: a, api: api, id: sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16))), hash: hash, spec: &spec, pool: name, template: templateSeed(poolHash), key: key}
	for {
		s, warm, err := c.try(ctx)
		if errors.Is(err, errNoPool) {
			return nil, false, nil
		}
		if !errors.Is(err, errUndone) {
			return s, warm, err
		}
		if err := channel.Sleep(ctx, createPause); err != nil {
			return nil, false, err
		}
	}
}

// claiming is one call of ClaimFrom.
type claiming struct {
	AgentSandbox

	api      *agentAPI
	id, hash string
	spec     *sandbox.Spec
	pool     string // the SandboxWarmPool
	template string // the seed of the user id of its Pods
	key      ed25519.PrivateKey
}

// try creates the SandboxClaim, or follows that of another caller with the key.
func (c *claiming) try(ctx context.Context) (s *sandbox.Sandbox, warm bool, err error) {
	if _, err := c.record(ctx, c.id); err == nil {
		s, err := c.createWhole(ctx, c.id, c.hash, c.spec)
		return s, false, err
	} else if !errors.Is(err, sandbox.ErrNotFound) {
		return nil, false, err
	}
	if err := c.nameIsFree(ctx, &record{ID: c.id}, c.spec.Name); err != nil {
		return nil, false, err
	}
	claim, mine, err := c.makeClaim(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil && mine {
			err = errors.Join(err, c.giveUp(ctx, claim.GetUID()))
		}
	}()
	pod, warm, err := c.await(ctx, claim.GetUID())
	if err != nil {
		return nil, false, err
	}
	r := newRecord(c.id, c.hash, c.spec)
	r.Pod, r.PodUID, r.Ticket = pod.Name, pod.UID, ticket.Sign(c.key, string(pod.UID))
	r.Claim, r.Template = claim.GetUID(), c.template
	r.Claimed = claim.GetCreationTimestamp().Time // from which the end of the claim is computed
	s, err = c.create(ctx, r, c.spec)
	return s, warm && err == nil, err
}

// makeClaim creates the SandboxClaim of the key, or finds an existing one.
func (c *claiming) makeClaim(ctx context.Context) (claim *unstructured.Unstructured, mine bool, err error) {
	name := secretPrefix + c.id
	spec := map[string]any{"warmPoolRef": map[string]any{"name": c.pool}}
	if c.spec.TTL > 0 {
		spec["lifecycle"] = lifecycle(c.clock.now().Add(c.spec.TTL))
	}
	claim, err = c.api.claims.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": c.api.version, "kind": "SandboxClaim",
		"metadata": map[string]any{
			"name": name, "labels": map[string]any{labelManaged: "sandbox", labelID: c.id},
			"annotations": map[string]any{noteSpec: c.hash},
		},
		"spec": spec,
	}}, metav1.CreateOptions{})
	if err == nil {
		return claim, true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		// The API server may have created it although its response did not arrive: Prune
		// removes a claim without a record.
		return nil, false, c.creationError(ctx, "making the SandboxClaim of sandbox "+c.id, err)
	}
	claim, err = c.api.claims.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, errUndone
	case err != nil:
		return nil, false, apiError(ctx, "reading the SandboxClaim "+name, err)
	case claim.GetDeletionTimestamp() != nil:
		return nil, false, errUndone
	case claim.GetLabels()[labelManaged] != "sandbox":
		return nil, false, fmt.Errorf("%w: the SandboxClaim %s has the name of a sandbox's claim and was not created by this driver", sandbox.ErrConflict, name)
	case claim.GetAnnotations()[noteSpec] != c.hash:
		return nil, false, fmt.Errorf("%w: sandbox %s has this key and another specification", sandbox.ErrConflict, c.id)
	}
	return claim, false, nil
}

// giveUp removes the claim, unless another caller with the key has continued with it.
func (c *claiming) giveUp(ctx context.Context, uid types.UID) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	r, err := c.record(ctx, c.id)
	if err == nil && r.Claim == uid {
		return nil
	}
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return c.releaseClaim(ctx, c.id, uid)
}

// lookAgain is how long a claimer waits for a change of the claim before it looks again: the
// Pod of a new Sandbox does not change the claim.
const lookAgain = 500 * time.Millisecond

// await returns the Pod of the claim, and whether it was warm.
func (c *claiming) await(ctx context.Context, uid types.UID) (pod *corev1.Pod, warm bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.ReadyTimeout,
		fmt.Errorf("nothing after %v", c.config.ReadyTimeout))
	defer cancel()
	said := ""
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = &sandbox.StartError{ID: c.id, Step: "waiting for agent-sandbox to give it a Pod", Err: context.Cause(ctx), Hint: said}
		}
	}()
	var silent time.Time // since when; zero: the API server answers
	for {
		pod, warm, err := c.awaitOnce(ctx, uid, func(waiting string) {
			silent = time.Time{}
			if waiting != said {
				said = waiting
				c.config.Progress(c.id, sandbox.Pending, "agent-sandbox to give it a Pod: "+waiting)
			}
		})
		if err = c.outlast(ctx, &silent, err); pod != nil || err != nil {
			return pod, warm, err
		}
	}
}

// awaitOnce is await until the API server ends the watch or does not answer. It calls
// each with the condition that the claim waits for.
func (c *claiming) awaitOnce(
	ctx context.Context, uid types.UID, each func(waiting string),
) (pod *corev1.Pod, warm bool, err error) {
	w, err := c.api.claims.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + secretPrefix + c.id})
	if err != nil {
		return nil, false, apiError(ctx, "watching the SandboxClaim of sandbox "+c.id, err)
	}
	defer w.Stop()
	for open := true; open; {
		pod, warm, waiting, err := c.look(ctx, uid)
		if pod != nil || err != nil {
			return pod, warm, err
		}
		each(waiting)
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case _, open = <-w.ResultChan():
		case <-time.After(lookAgain):
		}
	}
	return nil, false, channel.Sleep(ctx, createPause)
}

// look follows the claim to its Sandbox and to the Pod of that, and checks their owners.
// Before the controller has created the Pod, it returns the reason that the controller gives.
func (c *claiming) look(ctx context.Context, uid types.UID) (pod *corev1.Pod, warm bool, waiting string, err error) {
	claim, err := c.api.claims.Get(ctx, secretPrefix+c.id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (claim.GetUID() != uid || claim.GetDeletionTimestamp() != nil) {
		return nil, false, "", errUndone
	}
	if err != nil {
		return nil, false, "", apiError(ctx, "looking at the SandboxClaim of sandbox "+c.id, err)
	}
	reason, waiting := readiness(claim)
	name, _, _ := unstructured.NestedString(claim.Object, "status", "sandbox", "name")
	if name == "" {
		if reason == "WarmPoolNotFound" || reason == "TemplateNotFound" {
			// The controller may not know the pool yet.
			if _, err := c.api.pools.Get(ctx, c.pool, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				return nil, false, "", errNoPool
			}
		}
		return nil, false, waiting, nil
	}
	box, err := c.api.sandboxes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !ownedBy(box, uid) {
		return nil, false, waiting, nil
	}
	if err != nil {
		return nil, false, "", apiError(ctx, "looking at the Sandbox "+name, err)
	}
	podName := cmp.Or(box.GetAnnotations()[podNameNote], name)
	pod, err = c.pods().Get(ctx, podName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (!ownedBy(pod, box.GetUID()) || pod.DeletionTimestamp != nil) {
		return nil, false, waiting, nil
	}
	if err != nil {
		return nil, false, "", apiError(ctx, "looking at the Pod "+podName, err)
	}
	return pod, name != claim.GetName(), "", nil // a Sandbox that is created for a claim has its name
}

// readiness returns why an object is not ready, as its controller reports it.
func readiness(object *unstructured.Unstructured) (reason, text string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" && condition["status"] != "True" {
			reason, _ = condition["reason"].(string)
			message, _ := condition["message"].(string)
			return reason, reason + ": " + message
		}
	}
	return "", "its controller has not reported yet"
}

// ownedBy reports whether the owner of an object has a uid.
func ownedBy(object metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == uid
}

// adoptClaimed gives the Pod of a claim the id of the record. Several callers with the key
// may do so. It does not accept a Pod that has replaced the one of the record.
func (d *Driver) adoptClaimed(ctx context.Context, r *record, spec *sandbox.Spec) (*corev1.Pod, error) {
	for range adoptTries {
		pod, err := d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (pod.UID != r.PodUID || pod.DeletionTimestamp != nil) {
			return nil, fmt.Errorf("%w: the Pod of sandbox %s is gone: remove the sandbox with 'rm' or 'prune', or try again",
				sandbox.ErrConflict, r.ID)
		}
		if err != nil {
			return nil, apiError(ctx, "looking at the Pod "+r.Pod, err)
		}
		if pod.Labels[labelID] == r.ID {
			return pod, nil
		}
		if pod, err = d.adopt(ctx, r, spec); !errors.Is(err, errTaken) {
			return pod, err
		}
	}
	return nil, errUndone
}

// releaseClaim removes the SandboxClaim of a sandbox, for which its controller would create
// the Pod again. uid is empty for a sandbox without a claim.
func (d *Driver) releaseClaim(ctx context.Context, id string, uid types.UID) error {
	if uid == "" {
		return nil
	}
	api, err := d.agents(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) && !errors.Is(err, errHidden) {
		return nil // it was removed with its definition
	}
	if err != nil {
		return err
	}
	err = api.claims.Delete(ctx, secretPrefix+id, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return apiError(ctx, "removing the SandboxClaim of sandbox "+id, err)
}

// lifecycle returns the end of a claim, which removes its Pod. Its times are whole seconds.
func lifecycle(deadline time.Time) map[string]any {
	return map[string]any{"shutdownTime": deadline.Add(time.Second - 1).UTC().Format(time.RFC3339), "shutdownPolicy": "Delete"}
}

// renewClaim changes the end of the SandboxClaim of a sandbox; the zero time removes it.
// uid is empty for a sandbox without a claim.
func (d *Driver) renewClaim(ctx context.Context, id string, uid types.UID, deadline time.Time) error {
	if uid == "" {
		return nil
	}
	api, err := d.agents(ctx)
	if err != nil {
		return err
	}
	var end any // null removes it
	if !deadline.IsZero() {
		end = lifecycle(d.clock.of(deadline))
	}
	patch := encode(map[string]any{"metadata": map[string]any{"uid": uid}, "spec": map[string]any{"lifecycle": end}})
	_, err = api.claims.Patch(ctx, secretPrefix+id, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("%q: %w", id, sandbox.ErrNotFound)
	}
	return apiError(ctx, "setting the end of the SandboxClaim of sandbox "+id, err)
}

// pruneClaims removes SandboxClaims without a record: their claimers died, or their Pods
// were removed, and the controller has created others. claims are those of the records, by
// the sandbox's id, listed before.
func (d *Driver) pruneClaims(
	ctx context.Context, claims map[string]types.UID, dryRun bool,
) (removed []sandbox.Removal, err error) {
	api, err := d.agents(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := api.claims.List(ctx, metav1.ListOptions{LabelSelector: labelManaged + "=sandbox"})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil // an account that may not list claims has created none, and their definition may be gone
	}
	if err != nil {
		return nil, apiError(ctx, "listing the SandboxClaims", err)
	}
	var errs []error
	for i := range list.Items {
		claim := &list.Items[i]
		id := claim.GetLabels()[labelID]
		begun := claim.GetCreationTimestamp()
		// A living claimer gives up earlier.
		if claims[id] == claim.GetUID() || claim.GetDeletionTimestamp() != nil || claim.GetName() != secretPrefix+id ||
			d.clock.now().Sub(begun.Time) < d.config.ReadyTimeout+recordTime {
			continue
		}
		// The list of records may be a little older than a record.
		r, err := d.record(ctx, id)
		if err == nil && r.Claim == claim.GetUID() {
			continue
		}
		if errors.Is(err, sandbox.ErrNotFound) {
			err = nil
		}
		if err == nil && !dryRun {
			err = d.releaseClaim(ctx, id, claim.GetUID())
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, sandbox.Removal{ID: id, Name: id, Reason: "its SandboxClaim has no record"})
	}
	return removed, errors.Join(errs...)
}

// agentRights are those that an [AgentSandbox] needs besides.
var agentRights = []right{
	{"sandboxtemplates." + extensionsGroup, "", []string{"create", "get", "list", "delete"}},
	{"sandboxwarmpools." + extensionsGroup, "", []string{"create", "get", "list", "patch", "delete"}},
	{"sandboxclaims." + extensionsGroup, "", []string{"create", "get", "list", "watch", "patch", "delete"}},
	{"sandboxes." + agentGroup, "", []string{"get"}},
}

// examineAgentSandbox reports whether pools of agent-sandbox can be used.
func (d *Driver) examineAgentSandbox(ctx context.Context) ([]sandbox.Finding, error) {
	api, err := d.agents(ctx)
	if errors.Is(err, errHidden) {
		return []sandbox.Finding{{Status: "note", About: "agent-sandbox", Text: "the cluster does not allow this account to find out whether it is served"}}, nil
	}
	if errors.Is(err, sandbox.ErrUnsupported) {
		return []sandbox.Finding{{Status: "note", About: "agent-sandbox", Text: "the cluster does not serve it, so it cannot keep pools (--pool agent-sandbox:NAME)"}}, nil
	}
	if err != nil {
		return nil, err
	}
	missing, err := d.checkRights(ctx, agentRights)
	if err != nil || len(missing) > 0 {
		return missing, err
	}
	return []sandbox.Finding{{Status: "ok", About: "agent-sandbox", Text: "the cluster serves " + api.version}}, nil
}
