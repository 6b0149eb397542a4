package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// The policy of a sandbox is a Secret in the namespace of the egress proxy, which watches them, and
// which Pods of sandboxes with a policy reach by TCP with a token. The Secret is made before the Pod
// and removed after it. A warm sandbox has neither Secret nor token: it reaches nothing.

const (
	egressSuffix = "-egress" // of the namespace of the egress proxy
	egressName   = "actiond-egress"
	// networkPolicy is the value of labelNetwork of Pods that reach the egress proxy alone.
	networkPolicy = "policy"
	notePod       = domain + "pod" // of a policy's Secret: the name of the sandbox's Pod

	labelComponent = domain + "component"
	egressPort     = 3128
	metricsPort    = 3129

	// policyTime is how long a change of a policy waits until the egress proxy applies it, and
	// creationPolicyTime how long a creation does, which fails otherwise.
	policyTime         = 5 * time.Second
	creationPolicyTime = 15 * time.Second
	policyPause        = 50 * time.Millisecond
	// egressStart is how long it may take to start again.
	egressStart = time.Minute
	// askTime is how long it may take to answer.
	askTime = 10 * time.Second
	// maxEgressAnswer bounds its answers, in bytes.
	maxEgressAnswer = 1 << 20
	// maxDenials is how many denials the egress proxy keeps of a sandbox.
	maxDenials = 1000
	// changeTries limits the attempts to change a policy that others change at the same time.
	changeTries = 10
)

// policyLabels are those of a policy's Secret.
func policyLabels(id string) map[string]string {
	name, value, _ := strings.Cut(egress.SecretLabel, "=")
	return map[string]string{name: value, labelID: id}
}

// egressRights are those that policies need in the namespace of the egress proxy.
var egressRights = []right{
	{"secrets", "", []string{"create", "get", "list", "patch", "delete"}},
	{"services", "", []string{"get"}},
	{"pods", "", []string{"list"}},
}

func (d *Driver) egressSpace() string { return d.namespace + egressSuffix }

//nolint:ireturn // the library has no type for it
func (d *Driver) policies() typedcorev1.SecretInterface {
	return d.api.CoreV1().Secrets(d.egressSpace())
}

// egressAddress returns the address at which sandboxes reach the egress proxy. It fails with
// ErrInvalid where the cluster has none for this account.
func (d *Driver) egressAddress(ctx context.Context) (netip.AddrPort, error) {
	const cannot = "network policies cannot be kept here: "
	service, err := d.api.CoreV1().Services(d.egressSpace()).Get(ctx, egressName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return netip.AddrPort{}, sandbox.Invalid(cannot+"there is no egress proxy in namespace %s; 'runtimectl manifests' prints one", d.egressSpace())
	case apierrors.IsForbidden(err):
		return netip.AddrPort{}, sandbox.Invalid(cannot+"the cluster does not allow this account to use the egress proxy in namespace %s; ask for the Role actiond-egress-writer there", d.egressSpace())
	case err != nil:
		return netip.AddrPort{}, apiError(ctx, "looking for the egress proxy", err)
	}
	at, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		return netip.AddrPort{}, sandbox.Invalid(cannot+"the Service %s in namespace %s has no address", egressName, d.egressSpace())
	}
	return netip.AddrPortFrom(at, egressPort), nil
}

// connectPolicy writes the policy of a sandbox whose Pod is to be made. Another caller's for the same
// Pod stays as it is; that of an earlier sandbox of the key is replaced by the caller that began this
// creation.
func (d *Driver) connectPolicy(ctx context.Context, r *record, spec *sandbox.Spec, mine bool) error {
	if !r.Policy {
		return nil
	}
	ca, err := egress.NewCA(r.ID) // also for secrets that come later
	if err != nil {
		return err
	}
	conf := egress.Conf{Generation: 1, Policy: *spec.Policy, Private: spec.Private, CA: ca, Token: egress.HashToken(r.Token)}
	data, err := conf.Encode()
	if err != nil {
		return fmt.Errorf("network policy of sandbox %s: %w", r.ID, err)
	}
	for {
		_, err := d.policies().Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: egress.SecretPrefix + r.ID, Labels: policyLabels(r.ID), Annotations: map[string]string{notePod: r.Pod}},
			Data:       map[string][]byte{egress.SecretField: data},
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return d.creationError(ctx, "writing the network policy of sandbox "+r.ID, err)
		}
		found, err := d.policies().Get(ctx, egress.SecretPrefix+r.ID, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return apiError(ctx, "reading the network policy of sandbox "+r.ID, err)
		case found.Annotations[notePod] == r.Pod:
			return nil
		case !mine:
			return errUndone
		}
		if err := d.removePolicy(ctx, found); err != nil {
			return err
		}
	}
}

// claimPolicy waits until the egress proxy has the policy of a sandbox that is to be claimed, and adds
// to the claim how the server reaches it.
func (d *Driver) claimPolicy(ctx context.Context, r *record, claim *sandbox.Claim) error {
	at, err := d.egressAddress(ctx)
	if err != nil {
		return err
	}
	secret, err := d.policies().Get(ctx, egress.SecretPrefix+r.ID, metav1.GetOptions{})
	if err != nil {
		return apiError(ctx, "reading the network policy of sandbox "+r.ID, err)
	}
	conf, err := egress.ParseConf(secret.Data[egress.SecretField])
	if err != nil {
		return fmt.Errorf("network policy of sandbox %s: %w", r.ID, err)
	}
	claim.Egress, claim.Token, claim.Names = at.String(), r.Token, r.Names
	claim.CA, claim.Placeholders = conf.CA.Certificate, conf.Policy.Placeholders()
	_, err = d.applied(ctx, creationPolicyTime, r.Token, 1)
	return err
}

// disconnect removes the policy of a sandbox, unless it is that of another Pod.
func (d *Driver) disconnect(ctx context.Context, id, pod string) error {
	found, err := d.policies().Get(ctx, egress.SecretPrefix+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && found.Annotations[notePod] != pod {
		return nil
	}
	if err != nil {
		return apiError(ctx, "looking at the network policy of sandbox "+id, err)
	}
	return d.removePolicy(ctx, found)
}

func (d *Driver) removePolicy(ctx context.Context, secret *corev1.Secret) error {
	err := d.policies().Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return apiError(ctx, "removing the network policy "+secret.Name, err)
}

// prunePolicies removes the policies whose sandboxes no longer exist. used are the names of Pods. A
// process that prunes again and again lists them every recordTime.
func (d *Driver) prunePolicies(ctx context.Context, used map[string]bool, dryRun bool) (removed []sandbox.Removal, err error) {
	if last := d.policiesListed.Load(); d.mirrors.Load() != nil && time.Since(*last) < recordTime {
		return nil, nil
	}
	d.policiesListed.Store(new(time.Now()))
	list, err := d.policies().List(ctx, metav1.ListOptions{LabelSelector: egress.SecretLabel})
	if apierrors.IsForbidden(err) { // it has made none
		return nil, nil
	}
	if err != nil {
		return nil, apiError(ctx, "listing the network policies of sandboxes", err)
	}
	var errs []error
	for i := range list.Items {
		secret := &list.Items[i]
		id, pod := secret.Labels[labelID], secret.Annotations[notePod]
		if used[pod] || d.clock.now().Sub(secret.CreationTimestamp.Time) < recordTime {
			continue
		}
		// The record may have been made since the Pods and the records were listed.
		r, err := d.record(ctx, id)
		if err == nil && r.Pod == pod || err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			errs = append(errs, err)
			continue
		}
		if !dryRun {
			err = d.removePolicy(ctx, secret)
		} else {
			err = nil
		}
		if errs = append(errs, err); err == nil {
			removed = append(removed, sandbox.Removal{ID: id, Reason: "it has a network policy and no Pod"})
		}
	}
	return removed, errors.Join(errs...)
}

// policyOf returns the policy of a sandbox. It fails with ErrNotFound, or ErrConflict where there is
// none.
func (d *Driver) policyOf(ctx context.Context, s *sandbox.Sandbox) (*corev1.Secret, egress.Conf, error) {
	of, pod, err := d.podOf(ctx, s)
	switch {
	case err != nil:
		return nil, egress.Conf{}, err
	case leaving(pod):
		return nil, egress.Conf{}, fmt.Errorf("%q: %w", s.ID, sandbox.ErrNotFound)
	case pod.Labels[labelNetwork] != networkPolicy:
		return nil, egress.Conf{}, sandbox.NoPolicy(s)
	}
	secret, err := d.policies().Get(ctx, egress.SecretPrefix+s.ID, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && secret.Annotations[notePod] != of.pod {
		return nil, egress.Conf{}, fmt.Errorf("%w: the network policy of sandbox %s is lost, and it reaches nothing: its Secret %s in namespace %s was deleted; remove the sandbox",
			sandbox.ErrConflict, s.ID, egress.SecretPrefix+s.ID, d.egressSpace())
	}
	if err != nil {
		return nil, egress.Conf{}, apiError(ctx, "reading the network policy of sandbox "+s.ID, err)
	}
	conf, err := egress.ParseConf(secret.Data[egress.SecretField])
	if err != nil {
		return nil, conf, fmt.Errorf("network policy of sandbox %s: %w", s.ID, err)
	}
	return secret, conf, nil
}

// waiting reports whether a sandbox with a policy waits in a pool: it has no Secret.
func waiting(s *sandbox.Sandbox) bool {
	of, err := instanceOf(s)
	return err == nil && of.policy && s.Pool != ""
}

// Network is [sandbox.Networker]'s.
func (d *Driver) Network(ctx context.Context, s *sandbox.Sandbox) (*sandbox.Network, error) {
	if waiting(s) {
		return &sandbox.Network{Policy: egress.Policy{Mode: egress.ModeNoNetwork}, Up: true}, nil
	}
	_, conf, err := d.policyOf(ctx, s)
	if err != nil {
		return nil, err
	}
	n := sandbox.NetworkOf(&conf)
	r, err := d.record(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	status, err := d.applied(ctx, policyTime, r.Token, conf.Generation)
	n.Names = d.names(ctx, s, r) // not before the policy applies: an agent may keep its server busy
	return n.With(ctx, status, err)
}

// names says whether programs in a sandbox that know no proxy can connect to names.
func (d *Driver) names(ctx context.Context, s *sandbox.Sandbox, r *record) string {
	if !r.Names {
		return "off"
	}
	return sandbox.AskNames(ctx, func(ctx context.Context) (sandbox.Status, error) { return d.config.Agent.Status(ctx, s.Dial, r.Key) })
}

// SetNetwork is [sandbox.Networker]'s.
func (d *Driver) SetNetwork(ctx context.Context, s *sandbox.Sandbox, change func(n *sandbox.Network) error) (*sandbox.Network, error) {
	if waiting(s) {
		return nil, fmt.Errorf("%w: sandbox %s waits in a pool; its claim sets the policy", sandbox.ErrConflict, s.ID)
	}
	for range changeTries {
		secret, conf, err := d.policyOf(ctx, s)
		if err != nil {
			return nil, err
		}
		edited, err := egress.ParseConf(secret.Data[egress.SecretField]) // which shares nothing with conf
		if err != nil {
			return nil, err
		}
		n := sandbox.NetworkOf(&edited)
		if err := change(n); err != nil {
			return nil, err
		}
		if err := errors.Join(n.Policy.KeepValues(&conf.Policy), n.Policy.Check()); err != nil {
			return nil, sandbox.Invalid("network policy: %v", err)
		}
		if n.Policy.Equal(&conf.Policy) && slices.Equal(n.Private, conf.Private) {
			return d.Network(ctx, s)
		}
		conf.Policy, conf.Private = n.Policy, n.Private
		conf.Generation++
		data, err := conf.Encode()
		if err != nil {
			return nil, fmt.Errorf("network policy of sandbox %s: %w", s.ID, err)
		}
		patch := encode(map[string]any{
			"metadata": map[string]any{"uid": secret.UID, "resourceVersion": secret.ResourceVersion}, "data": map[string]any{egress.SecretField: data},
		})
		_, err = d.policies().Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, apiError(ctx, "changing the network policy of sandbox "+s.ID, err)
		}
		return d.Network(ctx, s)
	}
	return nil, fmt.Errorf("%w: others change the network policy of sandbox %s at the same time", sandbox.ErrConflict, s.ID)
}

// Denied is [sandbox.Networker]'s.
func (d *Driver) Denied(ctx context.Context, s *sandbox.Sandbox, after int64, wait time.Duration) (all []egress.Denial, err error) {
	if waiting(s) {
		return nil, nil
	}
	if _, _, err := d.policyOf(ctx, s); err != nil {
		return nil, err
	}
	r, err := d.record(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	for len(all) < maxDenials { // an answer has a part of them
		var answer struct {
			Denied []egress.Denial `json:"denied"`
		}
		path := fmt.Sprintf("/denied?after=%d&wait=%d", after, wait/time.Second)
		begun := time.Now()
		if err := d.askEgress(ctx, askTime+wait, egressPort, path, r.Token, &answer); err != nil {
			return all, err
		}
		if len(answer.Denied) == 0 {
			if left := wait - time.Since(begun); left > 0 { // the sandbox has too many connections, and the proxy does not wait
				_ = channel.Sleep(ctx, min(left, time.Second)) // the caller asks again
			}
			return all, nil
		}
		all, wait = append(all, answer.Denied...), 0
		after = all[len(all)-1].Number
	}
	return all, nil
}

// RestartEgress is [sandbox.Networker]'s. The Deployment of the egress proxy names the program.
func (d *Driver) RestartEgress(ctx context.Context) error {
	pod, err := d.egressPod(ctx)
	if err != nil {
		return err
	}
	if err := d.api.CoreV1().Pods(d.egressSpace()).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}); err != nil {
		return apiError(ctx, "removing the Pod of the egress proxy, which its Deployment makes again", err)
	}
	ctx, cancel := context.WithTimeout(ctx, egressStart)
	defer cancel()
	for {
		next, err := d.egressPod(ctx)
		if err == nil && next.UID != pod.UID {
			return nil
		}
		if channel.Sleep(ctx, policyPause) != nil {
			return fmt.Errorf("waiting for the next Pod of the egress proxy: %w", cmp.Or(err, context.Cause(ctx)))
		}
	}
}

// egressPod returns the Pod of the egress proxy.
func (d *Driver) egressPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := d.api.CoreV1().Pods(d.egressSpace()).List(ctx, metav1.ListOptions{LabelSelector: labelComponent + "=egress"})
	if err != nil {
		return nil, apiError(ctx, "looking for the Pod of the egress proxy", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("%w: no Pod of it is ready in namespace %s", sandbox.ErrEgress, d.egressSpace())
}

// applied waits until the egress proxy applies a generation of the policy of the sandbox that has a
// token, and at most limit: connections that it refuses have ended then.
func (d *Driver) applied(ctx context.Context, limit time.Duration, token string, generation int64) (status egress.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if askErr := d.askEgress(ctx, askTime, egressPort, "/status", token, &status); askErr != nil {
			if ctx.Err() == nil || err == nil { // the end of the time says less than what was before
				err = askErr
			}
		} else if status.Generation >= generation {
			return status, nil
		} else {
			err = fmt.Errorf("%w: it has an earlier policy", sandbox.ErrEgress)
		}
		if channel.Sleep(ctx, policyPause) != nil {
			return status, fmt.Errorf("the policy was not applied within %v: %w", limit, err)
		}
	}
}

// askEgress sends a request to the egress proxy and decodes the answer into into, or stores it there
// as it is if that is a *[]byte.
func (d *Driver) askEgress(ctx context.Context, limit time.Duration, port int, path, token string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod, err := d.egressPod(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.dialEgress(ctx, pod, port)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://egress"+path, http.NoBody)
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set(egress.HeaderToken, "Bearer "+token)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrEgress, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxEgressAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", sandbox.ErrEgress, err)
	case answer.StatusCode == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w: it does not know the sandbox", sandbox.ErrEgress)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: it answered %s", sandbox.ErrEgress, answer.Status)
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = body
		return nil
	}
	return json.Unmarshal(body, into)
}

// dialDirect connects to a port of the egress proxy by the address of its Pod.
func dialDirect(ctx context.Context, pod *corev1.Pod, port int) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
}
