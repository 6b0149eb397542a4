package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

const egressSpace = "agents-egress"

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// withEgress installs the policies of the manifests and an egress proxy. up starts its Pod.
func withEgress(t *testing.T, w *world, up bool) *world {
	t.Helper()
	for _, p := range policies(t) {
		p.Namespace = "agents"
		for i := range p.Spec.Egress {
			for j := range p.Spec.Egress[i].To {
				if of := p.Spec.Egress[i].To[j].NamespaceSelector; of != nil && of.MatchLabels[corev1.LabelMetadataName] == "actiond-egress" {
					of.MatchLabels[corev1.LabelMetadataName] = egressSpace
				}
			}
		}
		if err := w.Tracker().Add(&p); err != nil {
			t.Fatal(err)
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: egressSpace, Name: "actiond-egress"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9"}}
	if err := w.Tracker().Add(service); err != nil {
		t.Fatal(err)
	}
	if !up {
		return w
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: egressSpace, Name: "egress", Labels: map[string]string{"actiond.dev/component": "egress"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "server"}}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if err := w.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	proxy := egress.New(egress.Config{Log: slog.New(slog.DiscardHandler)})
	l := testhelp.Listen(t)
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(ctx, l) }()
	t.Cleanup(func() {
		proxy.Close()
		end()
		<-served
	})
	var mu sync.Mutex
	known := map[string]bool{}
	w.driver.DialEgress(func(context.Context) (net.Conn, error) { // it has followed the Secrets when it is asked
		mu.Lock()
		defer mu.Unlock()
		secrets := w.policySecrets(t)
		for id := range known {
			if !slices.ContainsFunc(secrets, func(s corev1.Secret) bool { return s.Name == "sandbox-"+id }) {
				if err := proxy.Delete(id); err != nil {
					t.Error(err)
				}
				delete(known, id)
			}
		}
		for _, s := range secrets {
			id := strings.TrimPrefix(s.Name, "sandbox-")
			known[id] = true
			conf, err := egress.ParseConf(s.Data["conf"])
			if err == nil {
				err = proxy.Apply(id, conf)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return net.Dial("tcp", l.Addr().String())
	})
	return w
}

// policySecrets are those in the namespace of the egress proxy.
func (w *world) policySecrets(t *testing.T) []corev1.Secret {
	t.Helper()
	list, err := w.Tracker().List(corev1.SchemeGroupVersion.WithResource("secrets"), secretKind, egressSpace)
	if err != nil {
		t.Fatal(err)
	}
	return list.(*corev1.SecretList).Items
}

func policySpec(t *testing.T) sandbox.Spec {
	t.Helper()
	s := spec
	rule, err := egress.ParseRule("api.example")
	if err != nil {
		t.Fatal(err)
	}
	s.Policy = &egress.Policy{Mode: egress.ModeAllowlist, Allow: []egress.Rule{rule}}
	return s
}

// TestPolicy: a sandbox with a policy has a Secret at the egress proxy, which is there before its Pod,
// and a token that its server alone gets; a change holds once the proxy applies it, and nothing is left.
func TestPolicy(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newVersionedWorld(t), true)
	ctx := t.Context()
	s, err := w.driver.Create(ctx, policySpec(t))
	if err != nil {
		t.Fatal(err)
	}
	order := ""
	for _, a := range w.Actions() {
		if create, ok := a.(clienttesting.CreateAction); ok {
			order += fmt.Sprintf("%s %T;", create.GetNamespace(), create.GetObject())
		}
	}
	if order != "agents *v1.Secret;agents-egress *v1.Secret;agents *v1.Pod;" {
		t.Errorf("the order is %s", order)
	}
	claim := w.agent.claims[0]
	if claim.Egress != "10.96.0.9:3128" || len(claim.Token) != len(s.ID)+1+64 || !claim.Names {
		t.Errorf("the claim %+v", claim)
	}
	secrets := w.policySecrets(t)
	if len(secrets) != 1 || secrets[0].Name != "sandbox-"+s.ID || secrets[0].Labels["actiond.dev/managed"] != "policy" {
		t.Fatalf("%+v", secrets)
	}
	conf, err := egress.ParseConf(secrets[0].Data["conf"])
	if err != nil || conf.Generation != 1 || conf.Token != egress.HashToken(claim.Token) || strings.Contains(string(secrets[0].Data["conf"]), claim.Token[13:]) {
		t.Errorf("%s, %v", secrets[0].Data["conf"], err)
	}
	pods, err := w.CoreV1().Pods("agents").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(pods, err)
	}
	pod := pods.Items[0]
	text, err := json.Marshal(pod)
	if err != nil || strings.Contains(string(text), claim.Token[13:]) || strings.Contains(string(text), conf.Token) {
		t.Errorf("the Pod shows the token: %s", text)
	}
	if pod.Labels["actiond.dev/network"] != "policy" || pod.Spec.DNSPolicy != corev1.DNSNone || !slices.Equal(pod.Spec.DNSConfig.Nameservers, []string{"127.0.0.1"}) {
		t.Errorf("%+v", pod)
	}
	n, err := w.driver.Network(ctx, s)
	if err != nil || !n.Up || n.Generation != 1 || n.Policy.Mode != egress.ModeAllowlist {
		t.Errorf("Network: %+v, %v", n, err)
	}

	// Another controller changes it at the same time.
	conflicts := 0
	w.PrependReactor("patch", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; a.GetNamespace() != egressSpace || conflicts > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "sandbox", errors.New("it has changed"))
	})
	asked := 0
	n, err = w.driver.SetNetwork(ctx, s, func(n *sandbox.Network) error { asked++; n.Policy.Mode = egress.ModePublic; return nil })
	if err != nil || !n.Up || n.Generation != 2 || n.Policy.Mode != egress.ModePublic || asked != 2 {
		t.Errorf("SetNetwork: %+v, %v, after %d", n, err, asked)
	}
	if denied, err := w.driver.Denied(ctx, s, 0, 0); err != nil || len(denied) != 0 {
		t.Errorf("Denied: %v, %v", denied, err)
	}
	if d, err := w.driver.Inspect(ctx, s); err != nil || d.Network != "public" || d.Names != "unknown" || !slices.ContainsFunc(d.LostProtection, func(text string) bool { return strings.Contains(text, "may not enforce") }) {
		t.Errorf("Inspect: %+v, %v", d, err)
	}
	if again, err := w.driver.Create(ctx, policySpec(t)); err != nil || again.Instance != s.Instance || len(w.policySecrets(t)) != 1 {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	plain, err := w.driver.Create(ctx, sandbox.Spec{Image: "image", Key: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.driver.Network(ctx, plain); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("one without a policy: %v", err)
	}
	if err := errors.Join(w.driver.Delete(ctx, s), w.driver.Delete(ctx, plain)); err != nil {
		t.Fatal(err)
	}
	if left := append(w.left(t), fmt.Sprint(w.policySecrets(t))); len(left) != 1 || left[0] != "[]" {
		t.Errorf("left: %v", left)
	}
	if _, err := w.driver.Network(ctx, s); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("one that was removed: %v", err)
	}
}

// TestPolicySecrets: the value of a secret is in the Secret at the egress proxy alone, a change that
// does not name it keeps it, and the claim has what the sandbox needs to trust the proxy.
func TestPolicySecrets(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newVersionedWorld(t), true)
	ctx := t.Context()
	host, err := egress.ParseHost("api.example")
	if err != nil {
		t.Fatal(err)
	}
	const value, rotated = "sesame-open-1", "sesame-open-2"
	withSecret := policySpec(t)
	withSecret.Policy.Secrets = []egress.Secret{{Name: "API", Value: value, Hosts: []egress.Host{host}, Var: "API_KEY"}}
	s, err := w.driver.Create(ctx, withSecret)
	if err != nil {
		t.Fatal(err)
	}
	stored := func() egress.Conf {
		t.Helper()
		conf, err := egress.ParseConf(w.policySecrets(t)[0].Data["conf"])
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	claim, conf := w.agent.claims[0], stored()
	if claim.CA != conf.CA.Certificate || claim.CA == "" || claim.Placeholders["API_KEY"] != "actiond-secret-API" || conf.Policy.Secrets[0].Value != value {
		t.Errorf("the claim %+v of %+v", claim, conf)
	}
	objects, err := w.CoreV1().Secrets("agents").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := w.CoreV1().Pods("agents").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.driver.Network(ctx, s)
	if err != nil || len(n.Policy.Secrets) != 1 {
		t.Errorf("Network: %+v, %v", n, err)
	}
	if text := fmt.Sprintf("%s %v %+v %+v", objects.Items[0].Data["record"], pods.Items, claim, n); strings.Contains(text, value) || strings.Contains(text, string(conf.CA.Key)) {
		t.Errorf("it is shown: %s", text)
	}
	if _, err := w.driver.SetNetwork(ctx, s, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModePublic; return nil }); err != nil || stored().Policy.Secrets[0].Value != value {
		t.Errorf("a change of something else: %v, %+v", err, stored())
	}
	if _, err := w.driver.SetNetwork(ctx, s, func(n *sandbox.Network) error { n.Policy.Secrets[0].Value = rotated; return nil }); err != nil || stored().Policy.Secrets[0].Value != rotated || stored().CA != conf.CA {
		t.Errorf("a rotation: %v, %+v", err, stored())
	}
	evil, err := egress.ParseHost("evil.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.driver.SetNetwork(ctx, s, func(n *sandbox.Network) error { n.Policy.Secrets[0].Hosts[0] = evil; return nil }); !errors.Is(err, sandbox.ErrInvalid) || strings.Contains(err.Error(), rotated) {
		t.Errorf("the value for another host: %v", err)
	}
}

// TestPolicyRefused: where a policy cannot be kept, no sandbox is made, and the refusal says why.
func TestPolicyRefused(t *testing.T) {
	t.Parallel()
	forbid := func(w *world, verb, resource string) {
		w.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New(`User "x" cannot in API group ""`))
		})
	}
	add := func(t *testing.T, w *world, p networkingv1.NetworkPolicySpec) {
		t.Helper()
		p.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		if err := w.Tracker().Add(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "theirs"}, Spec: p}); err != nil {
			t.Fatal(err)
		}
	}
	to := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: peers}}}
	}
	for want, change := range map[string]func(t *testing.T, w *world){
		"no egress proxy in namespace agents-egress; 'runtimectl manifests'": func(t *testing.T, w *world) {
			t.Helper()
			if err := w.CoreV1().Services(egressSpace).Delete(t.Context(), "actiond-egress", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"ask for the Role actiond-egress-writer": func(_ *testing.T, w *world) { forbid(w, "get", "services") },
		"network policy: the cluster does not allow this account to list the network policies": func(_ *testing.T, w *world) {
			forbid(w, "list", "networkpolicies")
		},
		"let the sandbox reach the network (policy theirs)": func(t *testing.T, w *world) { t.Helper(); add(t, w, to()) },
		"reach the network (policy theirs); 'runtimectl": func(t *testing.T, w *world) { // any port of the proxy
			t.Helper()
			add(t, w, to(networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: egressSpace}},
				PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"actiond.dev/component": "egress"}},
			}))
		},
		"let the sandbox reach the network;": func(t *testing.T, w *world) { // and nothing isolates it
			t.Helper()
			for _, p := range policies(t) {
				if err := w.NetworkingV1().NetworkPolicies("agents").Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		w := withEgress(t, newWorld(t), true)
		change(t, w)
		_, err := w.driver.Create(t.Context(), policySpec(t))
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if left := w.left(t); len(left) > 0 || len(w.policySecrets(t)) > 0 {
			t.Errorf("%s: left %v", want, left)
		}
	}
}

// TestPolicyWithoutProxy: without the egress proxy a creation fails as one that can be tried again,
// and leaves nothing; a change is kept, and said not to hold yet.
func TestPolicyWithoutProxy(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newVersionedWorld(t), true)
	s := w.create(t, policySpec(t))
	if err := w.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), egressSpace, "egress"); err != nil {
		t.Fatal(err)
	}
	n, err := w.driver.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModePublic; return nil })
	if err != nil || n.Up || n.Generation != 2 || !strings.Contains(n.Problem, "no Pod of it is ready") {
		t.Errorf("SetNetwork: %+v, %v", n, err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := withEgress(t, newWorld(t), false)
		_, err := w.driver.Create(t.Context(), policySpec(t))
		if !errors.Is(err, sandbox.ErrEgress) || !strings.Contains(err.Error(), "the policy was not applied within 15s: the egress proxy is not ready: no Pod of it is ready in namespace agents-egress") {
			t.Errorf("Create: %v", err)
		}
		if left := w.left(t); len(left) > 0 || len(w.policySecrets(t)) > 0 || len(w.agent.claims) > 0 {
			t.Errorf("left: %v, %v", left, w.policySecrets(t))
		}
	})
	synctest.Test(t, func(t *testing.T) { // one warm sandbox is lost, not all, and no other is made
		w := withEgress(t, newVersionedWorld(t), false)
		for range 2 {
			if err := w.driver.Warm(t.Context(), "p", sandbox.Spec{Image: "image", Policy: &egress.Policy{Mode: egress.ModeNoNetwork}}); err != nil {
				t.Fatal(err)
			}
		}
		if s, _, err := w.driver.Claim(t.Context(), policySpec(t), w.members(t)); s != nil || !errors.Is(err, sandbox.ErrEgress) {
			t.Errorf("Claim: %v, %v", s, err)
		}
		if left := w.members(t); len(left) != 1 || len(w.policySecrets(t)) > 0 || len(w.agent.claims) > 0 {
			t.Errorf("left: %v, %v", left, w.policySecrets(t))
		}
	})
}

// TestPolicyPool: what waits in a pool reaches nothing, and has no Secret. Its claimer brings the policy.
func TestPolicyPool(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newVersionedWorld(t), true)
	ctx := t.Context()
	warmSpec := sandbox.Spec{Image: "image", Policy: &egress.Policy{Mode: egress.ModeNoNetwork}}
	if err := w.driver.Warm(ctx, "p", warmSpec); err != nil {
		t.Fatal(err)
	}
	members := w.members(t)
	if len(members) != 1 || len(w.policySecrets(t)) != 0 || len(w.agent.claims) != 0 {
		t.Fatalf("%v, %v", members, w.policySecrets(t))
	}
	if n, err := w.driver.Network(ctx, members[0]); err != nil || n.Policy.Mode != egress.ModeNoNetwork || !n.Up {
		t.Errorf("Network: %+v, %v", n, err)
	}
	if _, err := w.driver.SetNetwork(ctx, members[0], func(*sandbox.Network) error { return nil }); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("SetNetwork: %v", err)
	}
	s, warm, err := w.driver.Claim(ctx, policySpec(t), members)
	if err != nil || !warm {
		t.Fatalf("%v, %v, %v", s, warm, err)
	}
	secrets, claim := w.policySecrets(t), w.agent.claims[0]
	if len(secrets) != 1 || secrets[0].Name != "sandbox-"+s.ID || claim.Egress != "10.96.0.9:3128" || !strings.HasPrefix(claim.Token, s.ID+".") {
		t.Errorf("%v, %+v", secrets, claim)
	}
	if n, err := w.driver.Network(ctx, s); err != nil || n.Policy.Mode != egress.ModeAllowlist || !n.Up {
		t.Errorf("Network: %+v, %v", n, err)
	}
	// A claimer that comes too late leaves nothing of its own, and all of the other's.
	late := policySpec(t)
	late.Key, late.Name = "late", "late"
	if other, _, err := w.driver.Claim(ctx, late, members); other != nil || err != nil {
		t.Errorf("%v, %v", other, err)
	}
	if secrets := w.policySecrets(t); len(secrets) != 1 || secrets[0].Name != "sandbox-"+s.ID {
		t.Errorf("%v", secrets)
	}
}

// TestPolicyPrune: policies without a sandbox go, and not before a creation could have made it.
func TestPolicyPrune(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newVersionedWorld(t), true)
	ctx := t.Context()
	kept, err := w.driver.Create(ctx, policySpec(t))
	if err != nil {
		t.Fatal(err)
	}
	lostSpec := policySpec(t)
	lostSpec.Key, lostSpec.Name = "lost", "lost"
	lost, err := w.driver.Create(ctx, lostSpec)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := w.CoreV1().Pods("agents").List(ctx, metav1.ListOptions{LabelSelector: "actiond.dev/id=" + lost.ID})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(pods, err)
	}
	// As a drained node and the cluster do: the Pod owns its record.
	if err := errors.Join(w.CoreV1().Pods("agents").Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{}),
		w.CoreV1().Secrets("agents").Delete(ctx, "sandbox-"+lost.ID, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	prune := func(dryRun bool, want ...string) {
		t.Helper()
		removed, err := w.driver.Prune(ctx, dryRun)
		var ids []string
		for _, r := range removed {
			ids = append(ids, r.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("Prune: %v, %v, want %v", removed, err, want)
		}
	}
	prune(false)
	w.driver.Clock().Ahead(6 * time.Minute)
	prune(true, lost.ID)
	prune(false, lost.ID)
	prune(false)
	if secrets := w.policySecrets(t); len(secrets) != 1 || secrets[0].Name != "sandbox-"+kept.ID {
		t.Errorf("%v", secrets)
	}
	// The policy of a creation whose caller died, beside its record.
	if err := w.CoreV1().Pods("agents").Delete(ctx, w.podName(t, kept), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	prune(false, kept.ID)
	if left := w.left(t); len(left) > 0 || len(w.policySecrets(t)) > 0 {
		t.Errorf("left: %v, %v", left, w.policySecrets(t))
	}
	// The next sandbox of a key replaces the policy of one that was lost, with another token.
	first, err := w.driver.Create(ctx, policySpec(t))
	if err != nil {
		t.Fatal(err)
	}
	old := w.agent.claims[len(w.agent.claims)-1].Token
	if err := errors.Join(w.CoreV1().Pods("agents").Delete(ctx, w.podName(t, first), metav1.DeleteOptions{}),
		w.CoreV1().Secrets("agents").Delete(ctx, "sandbox-"+first.ID, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	if _, err := w.driver.Create(ctx, policySpec(t)); err != nil {
		t.Fatal(err)
	}
	now := w.agent.claims[len(w.agent.claims)-1].Token
	if secrets := w.policySecrets(t); len(secrets) != 1 || now == old || !strings.Contains(string(secrets[0].Data["conf"]), egress.HashToken(now)) {
		t.Errorf("%v, token %s after %s", secrets, now, old)
	}
}

// podName is the name of the Pod of a sandbox.
func (w *world) podName(t *testing.T, s *sandbox.Sandbox) string {
	t.Helper()
	pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{LabelSelector: "actiond.dev/id=" + s.ID})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(pods, err)
	}
	return pods.Items[0].Name
}

// TestRestartEgress: the Deployment makes the Pod of the proxy again, and that is waited for.
func TestRestartEgress(t *testing.T) {
	t.Parallel()
	w := withEgress(t, newWorld(t), true)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	looked := 0
	w.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if looked++; looked != 3 {
			return false, nil, nil
		}
		if _, err := w.Tracker().Get(pods, egressSpace, "egress"); !apierrors.IsNotFound(err) {
			t.Errorf("the Pod was not removed: %v", err)
		}
		next := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: egressSpace, Name: "next", UID: "next", Labels: map[string]string{"actiond.dev/component": "egress"}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		return false, nil, w.Tracker().Add(next)
	})
	if err := w.driver.RestartEgress(t.Context()); err != nil || looked != 3 {
		t.Errorf("after %d lists: %v", looked, err)
	}
	if err := withEgress(t, newWorld(t), false).driver.RestartEgress(t.Context()); !errors.Is(err, sandbox.ErrEgress) {
		t.Errorf("without a Pod: %v", err)
	}
}

// TestExamineEgress: doctor says whether policies can be kept, by what, and what gives no protection.
func TestExamineEgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if found := w.examine(t); !has(found, "note", "network policies", "there is no egress proxy in namespace agents-egress") {
		t.Errorf("%+v", found)
	}
	w = withEgress(t, newWorld(t), false)
	if found := w.examine(t); !has(found, "weaker", "network policies", "does not answer") {
		t.Errorf("%+v", found)
	}
	w = withEgress(t, newWorld(t), true)
	proxy := egress.New(egress.Config{Log: slog.New(slog.DiscardHandler)})
	defer proxy.Close()
	l := watched(t, egress.NewControl(proxy, "", "v1.2.3"))
	w.driver.DialEgress(func(context.Context) (net.Conn, error) { return net.Dial("tcp", l) })
	found := w.examine(t)
	if !has(found, "ok", "network policies", "the egress proxy v1.2.3 runs in namespace agents-egress, with 0 open connections") ||
		!has(found, "weaker", "network plugin", "a network policy too") {
		t.Errorf("%+v", found)
	}
	for _, f := range found {
		if f.About == "network policies" && f.Status != "ok" {
			t.Errorf("%+v", f)
		}
	}
	everything := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "theirs"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
	}}
	if err := w.Tracker().Add(everything); err != nil {
		t.Fatal(err)
	}
	if found := w.examine(t); !has(found, "weaker", "network policies", "let sandboxes with a network policy reach the network (policy theirs)") {
		t.Errorf("%+v", found)
	}
}

// watched serves what a monitor of an egress proxy sees, and returns its address.
func watched(t *testing.T, c *egress.Control) string {
	t.Helper()
	srv := httptest.NewServer(c.Watched(func() bool { return true }))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}
