package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/actiond/actiond/sandbox"
)

// recordTime is how long a record may exist without its Pod: its creator may be slow.
const recordTime = 5 * time.Minute

// Prune is [sandbox.Pruner]'s. Afterwards each creation whose caller died has left
// exactly one sandbox or none, and no Secret without a Pod.
func (d *Driver) Prune(ctx context.Context, dryRun bool) ([]sandbox.Removal, error) {
	pods, err := d.listPods(ctx)
	if err != nil {
		return nil, err
	}
	records, err := d.listRecords(ctx)
	if records == nil {
		return nil, err
	}
	errs := []error{err}
	used := map[string]bool{} // the names of their Pods
	for _, r := range records {
		used[r.Pod] = true
	}
	var removed []sandbox.Removal
	for _, pod := range pods {
		s := pod.instance
		used[s.pod] = true
		r := records[s.ID]
		if r != nil && r.Pod == s.pod {
			delete(records, s.ID)
		} else {
			r = nil
		}
		if d.reason(pod.Pod, s, r) == "" {
			continue
		}
		removal, err := d.pruneNow(ctx, s, dryRun)
		if removal != nil {
			removed = append(removed, *removal)
		}
		errs = append(errs, err)
	}
	for _, r := range records {
		gone, err := d.abandoned(ctx, r)
		if gone && !dryRun {
			err = d.forget(ctx, r)
		}
		if gone && err == nil {
			removed = append(removed, sandbox.Removal{ID: r.ID, Name: r.Name, Reason: "it has a record and no Pod"})
		}
		errs = append(errs, err)
	}
	orphans, err := d.prunePolicies(ctx, used, dryRun)
	return append(removed, orphans...), errors.Join(append(errs, err)...)
}

// listRecords returns the records of sandboxes by id, without their secrets. An error about
// some records comes with the others; nil means that they could not be listed.
func (d *Driver) listRecords(ctx context.Context) (map[string]*record, error) {
	records := map[string]*record{}
	var errs []error
	if err := d.mirrored(true).each(ctx, d.recordSource(), func(object any) error {
		r, err := readRecord(object.(*corev1.Secret))
		errs = append(errs, err)
		if err == nil {
			records[r.ID] = r
		}
		return nil
	}); err != nil {
		return nil, apiError(ctx, "listing the records of sandboxes", err)
	}
	return records, errors.Join(errs...)
}

// pruneNow reads a sandbox that had expired or ended when it was listed again, and removes
// it unless it was renewed or claimed since.
func (d *Driver) pruneNow(ctx context.Context, listed *instance, dryRun bool) (*sandbox.Removal, error) {
	pod, err := d.pods().Get(ctx, listed.pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (pod.UID != listed.uid || leaving(pod)) {
		return nil, nil //nolint:nilnil // another caller removed it
	}
	if err != nil {
		return nil, apiError(ctx, "looking at the Pod "+listed.pod, err)
	}
	s := d.sandbox(pod)
	r, err := d.record(ctx, s.ID)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && r.Pod != s.pod {
		r, err = nil, nil
	}
	reason := d.reason(pod, s, r)
	if err != nil || reason == "" {
		return nil, err
	}
	if !dryRun {
		if gone, err := d.prune(ctx, pod, s, r); !gone || err != nil {
			return nil, err
		}
	}
	return &sandbox.Removal{ID: s.ID, Name: s.Name, Reason: reason}, nil
}

// prune removes a sandbox, and reports whether it did: it may have been claimed or renewed since
// its Pod was read.
func (d *Driver) prune(ctx context.Context, pod *corev1.Pod, s *instance, r *record) (bool, error) {
	if removed, err := d.deleteAsListed(ctx, pod, s.grace()); !removed || err != nil {
		return false, err
	}
	switch {
	case r != nil:
		return true, d.forget(ctx, r)
	case s.policy:
		return true, d.disconnect(ctx, s.ID, s.pod)
	}
	return true, nil
}

// reason returns why a sandbox must be removed, or "".
func (d *Driver) reason(pod *corev1.Pod, s *instance, r *record) string {
	now := d.clock.now()
	over := (&sandbox.Sandbox{Deadline: s.ends}).Overdue(now)
	// A living caller gives up earlier.
	within, err := time.ParseDuration(pod.Annotations[noteWithin])
	if err != nil { // of another version
		within = d.config.ReadyTimeout
	}
	creating := pod.Annotations[noteReady] == "" && now.Before(s.begun.Add(within+startTime+recordTime))
	switch {
	case r == nil:
		return "its key is lost"
	case over != "":
		return over
	case creating:
		return ""
	case s.State == sandbox.Gone:
		return s.Detail
	case pod.Annotations[noteReady] == "":
		return "its creator died"
	}
	return ""
}

// abandoned reports whether the Pod of a record no longer exists, or will not be created.
func (d *Driver) abandoned(ctx context.Context, r *record) (bool, error) {
	if d.clock.now().Sub(r.made) < recordTime {
		return false, nil
	}
	pod, err := d.pods().Get(ctx, r.Pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || pod.Labels[labelID] != r.ID) {
		return true, nil // a Pod of another id: of an unfinished claim, or of a record in the pool
	}
	return false, apiError(ctx, "looking for the Pod "+r.Pod, err)
}

// Logs is [sandbox.Logger]'s. Kubernetes merges both outputs; they go to stdout.
func (d *Driver) Logs(ctx context.Context, s *sandbox.Sandbox, o sandbox.LogOptions, stdout, _ io.Writer) error {
	of, err := instanceOf(s)
	if err != nil {
		return err
	}
	options := &corev1.PodLogOptions{Container: containerName, Follow: o.Follow, Timestamps: o.Timestamps}
	if o.Tail != nil {
		options.TailLines = new(int64(*o.Tail))
	}
	if !o.Since.IsZero() {
		options.SinceTime = &metav1.Time{Time: o.Since}
	}
	log, err := d.pods().GetLogs(of.pod, options).Stream(ctx)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%q: %w", s.ID, sandbox.ErrNotFound)
	}
	if err != nil {
		return apiError(ctx, "reading the log of sandbox "+s.ID, err)
	}
	defer func() { _ = log.Close() }()
	if _, err := io.Copy(stdout, log); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading the log of sandbox %s: %w", s.ID, err)
	}
	return nil
}

// Inspect is [sandbox.Inspector]'s.
func (d *Driver) Inspect(ctx context.Context, s *sandbox.Sandbox) (*sandbox.Details, error) {
	_, pod, err := d.podOf(ctx, s)
	if err != nil {
		return nil, err
	}
	details := &sandbox.Details{
		Instance: string(pod.UID), Pod: pod.Namespace + "/" + pod.Name, Removing: pod.DeletionTimestamp != nil, Network: cmp.Or(pod.Labels[labelNetwork], "default"), LostProtection: lost(pod),
		WorkDir: argument(pod, "--working-dir"),
	}
	if pod.Labels[labelNetwork] == networkPolicy && s.Pool == "" {
		if n, err := d.Network(ctx, s); err == nil {
			details.Network, details.Names = string(n.Policy.Mode), n.Names
		}
	}
	for _, ip := range pod.Status.PodIPs {
		details.Addresses = append(details.Addresses, ip.IP)
	}
	if pod.Spec.RuntimeClassName != nil {
		details.Runtime = *pod.Spec.RuntimeClassName
	}
	limits := containerOf(pod).Resources.Limits
	details.Memory, details.CPUs = limits.Memory().Value(), limits.Cpu().AsApproximateFloat64()
	status := statusOf(pod)
	details.ImageID = status.ImageID
	if status.State.Running != nil {
		details.Started = status.State.Running.StartedAt.Time
	}
	if end := status.State.Terminated; end != nil {
		details.Started, details.Ended = end.StartedAt.Time, end.FinishedAt.Time
		details.ExitCode, details.OutOfMemory = int(end.ExitCode), end.Reason == "OOMKilled"
	}
	return details, nil
}

// argument returns the value of a flag of the server in a Pod.
func argument(pod *corev1.Pod, flag string) string {
	words := containerOf(pod).Command
	if i := slices.Index(words, flag); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// lost lists the protections of Docker's sandboxes that a Pod lacks.
func lost(pod *corev1.Pod) []string {
	all := []string{
		"processes are limited by the kubelet's podPidsLimit alone",
		"the seccomp profile is the node's",
	}
	switch pod.Labels[labelNetwork] {
	case "none", networkPolicy:
		all = append(all, "only network policies isolate it, which the cluster's network plugin may not enforce: see 'runtimectl doctor'",
			"it reaches its own node, which network policies never cover")
	}
	if pod.Annotations[noteUser] == "root:0" {
		all = append(all, "commands run with the server's own user: the agent can stop the server and read its memory")
	}
	if pod.Annotations[noteRoot] == "true" {
		all = append(all, "an operator runs programs as root: an agent that prepared the files they use becomes root in the sandbox")
	}
	return all
}

// podEvent returns the event for the current state of a Pod.
func podEvent(pod *corev1.Pod, destroyed bool) sandbox.Event {
	e := sandbox.Event{Time: time.Now(), ID: pod.Labels[labelID], Name: pod.Annotations[noteName], What: "create"}
	switch state := statusOf(pod).State; {
	case state.Terminated != nil:
		e.What, e.Code = "die", strconv.Itoa(int(state.Terminated.ExitCode))
	case state.Running != nil:
		e.What = "start"
	}
	if pod.Status.Phase == corev1.PodFailed && e.What != "die" {
		e.What = "die"
	}
	if destroyed {
		e.What, e.Code = "destroy", ""
	}
	return e
}

// sidecars is the first version with containers like the one of [initContainer].
var sidecars = utilversion.MustParseGeneric("1.29.0")

// Examine is [sandbox.Doctor]'s.
func (d *Driver) Examine(ctx context.Context) ([]sandbox.Finding, error) {
	version, err := d.api.Discovery().ServerVersion()
	if err != nil {
		err = apiError(ctx, "asking for its version", err)
		return []sandbox.Finding{{Status: "missing", About: "cluster", Text: err.Error(), So: "see 'kubectl version' and the kubeconfig"}}, err
	}
	found := []sandbox.Finding{{Status: "ok", About: "cluster", Text: "Kubernetes " + version.GitVersion + ", namespace " + d.namespace}}
	found = append(found, d.examineClock()...)
	missing, err := d.checkRights(ctx, rights)
	if err != nil {
		return found, err
	}
	found = append(found, missing...)
	if at, err := utilversion.ParseGeneric(version.GitVersion); err == nil && at.Major() > 0 && at.LessThan(sidecars) && !d.config.ServerVolume {
		found = append(found, sandbox.Finding{
			Status: "missing", About: "server", Text: "the cluster does not support sidecar containers, which copy the server into Pods",
			So: "use Kubernetes " + sidecars.String() + " or later",
		})
	}
	if d.config.ServerImage == "" {
		found = append(found, sandbox.Finding{
			Status: "missing", About: "server", Text: "no image with the server is configured",
			So: "build it with 'make image-server', push it to a registry of the cluster, and name it with --server-image",
		})
	} else {
		found = append(found, d.examineAdmission(ctx))
	}
	policies, err := d.examineEgress(ctx)
	found = append(found, policies...)
	if err != nil {
		return found, err
	}
	network, err := d.examineNetwork(ctx)
	found = append(found, network...)
	if err != nil {
		return found, err
	}
	found = append(found, d.examineNodes(ctx)...)
	return append(found,
		sandbox.Finding{Status: "weaker", About: "seccomp", Text: "Pods get the profile of their node, not the one that Docker's sandboxes get"},
		sandbox.Finding{Status: "weaker", About: "kernel objects", Text: "System V memory, message queues and inodes of a Pod are not limited"},
	), nil
}

// skewTime is the difference of clocks that is not reported: responses take a moment.
const skewTime = 5 * time.Second

// examineClock compares this machine's clock with the API server's.
func (d *Driver) examineClock() []sandbox.Finding {
	here := time.Now()
	ahead := d.clock.of(here).Sub(here).Round(time.Second)
	if ahead.Abs() < skewTime {
		return nil
	}
	side := "behind"
	if ahead < 0 {
		side = "ahead of"
	}
	return []sandbox.Finding{{
		Status: "note", About: "clock", Text: fmt.Sprintf("this machine's clock is %v %s the API server's", ahead.Abs(), side),
		So: "sandboxes use the API server's clock; synchronize this one with a time service",
	}}
}

// right lists the verbs that the driver uses on one resource.
type right struct {
	resource, sub string // with its group
	verbs         []string
}

// rights are those that the driver needs in its namespace. The Role of the manifests gives
// the same to a gateway, which does not forward ports.
var rights = []right{
	{"pods", "", []string{"create", "get", "list", "watch", "patch", "delete"}},
	{"secrets", "", []string{"create", "get", "list", "watch", "patch", "delete"}},
	{"pods", "log", []string{"get"}},
	{"pods", "portforward", []string{"get", "create"}}, // WebSockets are GETs
	{"events", "", []string{"list"}},
	{"leases.coordination.k8s.io", "", []string{"create", "get", "update"}},
	{"networkpolicies.networking.k8s.io", "", []string{"list"}},
}

// checkRights returns a finding for each right that the cluster does not grant in the driver's namespace.
func (d *Driver) checkRights(ctx context.Context, rights []right) (missing []sandbox.Finding, err error) {
	return d.checkRightsIn(ctx, d.namespace, rights)
}

func (d *Driver) checkRightsIn(
	ctx context.Context, namespace string, rights []right,
) (missing []sandbox.Finding, err error) {
	for _, r := range rights {
		if r.sub == "portforward" && d.config.Direct {
			continue
		}
		resource, group, _ := strings.Cut(r.resource, ".")
		for _, verb := range r.verbs {
			review, err := d.api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: r.sub,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return missing, apiError(ctx, "asking for permissions", err)
			}
			if !review.Status.Allowed {
				status := "missing"
				// Only 'serve', 'doctor' and --network none use the groups, and SPDY works without WebSockets.
				if group != "" || r.sub == "portforward" && verb == "get" {
					status = "note"
				}
				what := r.resource
				if r.sub != "" {
					what += "/" + r.sub
				}
				missing = append(missing, sandbox.Finding{
					Status: status, About: "rights", Text: fmt.Sprintf("the cluster does not allow this account to %s %s in namespace %s", verb, what, namespace),
					So: "ask for a Role with this right, bound to your account",
				})
			}
		}
	}
	return missing, nil
}
