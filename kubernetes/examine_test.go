package kubernetes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/sandbox"
)

// examine are the findings of a cluster, in which everything is allowed.
func (w *world) examine(t *testing.T) []sandbox.Finding {
	t.Helper()
	w.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	found, err := w.driver.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func has(found []sandbox.Finding, status, about, text string) bool {
	return slices.ContainsFunc(found, func(f sandbox.Finding) bool {
		return f.Status == status && f.About == about && strings.Contains(f.Text, text)
	})
}

// Doctor says what the network lets pass, and whether policies are enforced.
func TestExamine(t *testing.T) {
	t.Parallel()
	yes := true
	server := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"}, Spec: corev1.ServiceSpec{
		ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	public := server.DeepCopy()
	public.Spec.ClusterIPs = []string{"203.0.113.7"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	calico := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "calico-node"}, Status: appsv1.DaemonSetStatus{NumberReady: 1}}
	amazon := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-node"}, Status: appsv1.DaemonSetStatus{NumberReady: 1},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "aws-eks-nodeagent", Args: []string{"--enable-network-policy=false"}}}}}},
	}
	dead := calico.DeepCopy()
	dead.Status.NumberReady = 0
	for _, tt := range []struct {
		name     string
		objects  []runtime.Object
		policies bool
		want     []sandbox.Finding
		not      string
	}{
		{"nothing", []runtime.Object{server, node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "odd"}}, dead, amazon}, false, []sandbox.Finding{
			{Status: "weaker", About: "network", Text: "sandboxes reach each other"},
			{Status: "weaker", About: "network", Text: "Pods of other namespaces reach sandboxes"},
			{Status: "weaker", About: "network", Text: "sandboxes reach the API server at 10.96.0.1:443"},
			{Status: "weaker", About: "network", Text: "the metadata service of a cloud (one of 169.254.169.254, 169.254.170.2, "},
			{Status: "weaker", About: "network", Text: "none reach the network"},
			{Status: "weaker", About: "network plugin", Text: "no network plugin that enforces policies was found"},
			{Status: "weaker", About: "user namespaces", Text: "user ids of these nodes: "},
			{Status: "weaker", About: "processes", Text: "the processes of a Pod: old"},
			{Status: "note", About: "processes", Text: "not known for these nodes: odd"},
		}, ""},
		{"policies and a plugin", []runtime.Object{server, calico, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Status:     corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &yes}}}},
		}}, true, []sandbox.Finding{
			{Status: "ok", About: "network", Text: "only the gateway reaches sandboxes"},
			{Status: "ok", About: "network plugin", Text: "kube-system/calico-node enforces"},
			{Status: "ok", About: "user namespaces", Text: "--userns private gives each sandbox its own"},
		}, ""},
		{"a public API server", []runtime.Object{public, calico}, true, []sandbox.Finding{
			{Status: "weaker", About: "network", Text: "sandboxes reach the API server at 203.0.113.7:443"},
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for _, o := range tt.objects {
				if err := w.Tracker().Add(o); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range policies(t) {
				p.Namespace = "agents"
				if tt.policies {
					if err := w.Tracker().Add(&p); err != nil {
						t.Fatal(err)
					}
				}
			}
			found := w.examine(t)
			for _, want := range tt.want {
				if !has(found, want.Status, want.About, want.Text) {
					t.Errorf("%+v is not among %+v", want, found)
				}
			}
			for _, f := range found {
				if f.About == tt.not && tt.not != "" || f.Status == "weaker" && f.About == "network" && !slices.ContainsFunc(tt.want, func(w sandbox.Finding) bool { return strings.Contains(f.Text, w.Text) }) && len(tt.want) < 5 {
					t.Errorf("said %+v", f)
				}
			}
		})
	}
}

// Doctor asks whether a Pod of a sandbox would be admitted, and makes none.
func TestExamineAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var options metav1.CreateOptions
	w.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options = action.(clienttesting.CreateActionImpl).CreateOptions
		return true, &corev1.Pod{}, nil
	})
	if found := w.examine(t); !has(found, "ok", "admission", "admits the Pod of a sandbox") || !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) {
		t.Errorf("%+v, with the options %+v", found, options)
	}
	w.fail("create", "pods", false, apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("violates PodSecurity \"restricted:latest\"")))
	if found := w.examine(t); !has(found, "missing", "admission", "violates PodSecurity") {
		t.Errorf("%+v", found)
	}
}

// Doctor knows nodes that can mount the server's image.
func TestExamineImageVolumes(t *testing.T) {
	t.Parallel()
	for runtimes, want := range map[string]bool{
		"v1.36.3 containerd://2.1.4": true, "v1.36.3+k3s1 containerd://2.1.5-k3s1": true, "v1.35.0 cri-o://1.33.2": true,
		"v1.36.3 containerd://1.6.20~ds1": false, "v1.34.1 containerd://2.1.4": false, "v1.36.3 docker://29.0.0": false, " ": false,
		"v1.36.3 containerd://2.1.4 v1.36.3 containerd://2.0.1": false,
	} {
		w := newWorld(t)
		words := strings.Fields(runtimes)
		for i := 0; i+1 < len(words) || i == 0; i += 2 {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("new", i)}}
			if len(words) > 0 {
				node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: words[i], ContainerRuntimeVersion: words[i+1]}
			}
			if err := w.Tracker().Add(node); err != nil {
				t.Fatal(err)
			}
		}
		if got := has(w.examine(t), "note", "server", "can mount the server's image"); got != want {
			t.Errorf("%q: %t, want %t", runtimes, got, want)
		}
	}
}

// Doctor knows clusters that cannot start what it makes.
func TestExamineVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"v1.28.9": true, "v1.29.0-rc.1": false, "v1.36.3+k3s1": false, "v0.0.0-master": false, "odd": false} {
		w := newWorld(t)
		w.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: version}
		if got := has(w.examine(t), "missing", "server", "does not support sidecar containers"); got != want {
			t.Errorf("%s: %t, want %t", version, got, want)
		}
	}
}

// Clocks that differ are named.
func TestExamineClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		20 * time.Minute: "this machine's clock is 20m0s behind the API server's", -time.Hour: "this machine's clock is 1h0m0s ahead of the API server's", time.Second: "",
	} {
		w := newWorld(t)
		w.driver.Clock().Ahead(ahead)
		if found := w.examine(t); has(found, "note", "clock", want) != (want != "") {
			t.Errorf("%v: %+v", ahead, found)
		}
	}
}

// Where the account may not look, doctor says that, and does not fail.
func TestExamineIsNotAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, resource := range []string{"networkpolicies", "daemonsets", "nodes", "services", "endpointslices"} {
		w.fail("list", resource, false, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("not yours")))
		w.fail("get", resource, false, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("not yours")))
	}
	found := w.examine(t)
	if !has(found, "note", "network", "does not allow this account to list") || !has(found, "note", "nodes", "not yours") {
		t.Errorf("%+v", found)
	}

	w = newWorld(t)
	w.fail("list", "endpointslices", false, apierrors.NewForbidden(corev1.Resource("endpointslices"), "", errors.New("not yours")))
	if found := w.examine(t); !has(found, "note", "network", "behind its service are not known: ") {
		t.Errorf("%+v", found)
	}
}

// A sandbox without a network is made where the policies of its namespace isolate it,
// and refused elsewhere, before anything of it exists.
func TestNetworkNone(t *testing.T) {
	t.Parallel()
	ours := policies(t)
	for i := range ours {
		ours[i].Namespace = "agents"
	}
	policy := func(name string, spec networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name}, Spec: spec}
	}
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	closed := policy("closed", networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in, out}})
	dns := policy("dns", networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{out}, Egress: []networkingv1.NetworkPolicyEgressRule{{
		Ports: []networkingv1.NetworkPolicyPort{{}},
	}}})
	team := policy("team", networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, PolicyTypes: []networkingv1.PolicyType{out}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
	})
	peers := policy("peers", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}})
	from := func(cidr string) networkingv1.NetworkPolicy {
		return policy("addresses", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}},
		}}})
	}
	elsewhere := closed.DeepCopy()
	elsewhere.Namespace = "other"
	for _, tt := range []struct {
		name     string
		policies []networkingv1.NetworkPolicy
		labels   map[string]string
		refused  string // the end of a sentence
	}{
		{"those of the manifests", ours, nil, ""},
		{"one that lets nothing pass", []networkingv1.NetworkPolicy{closed}, nil, ""},
		{"one about others", []networkingv1.NetworkPolicy{closed, team}, nil, ""},
		{"none", nil, nil, "reach the network; 'runtimectl manifests' prints policies: apply them to the namespace"},
		{"those of another namespace", []networkingv1.NetworkPolicy{*elsewhere}, nil, "reach the network;"},
		{"only for what comes in", []networkingv1.NetworkPolicy{policy("in", networkingv1.NetworkPolicySpec{})}, nil, "reach the network;"},
		{"only for what goes out", []networkingv1.NetworkPolicy{policy("out", networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{out}})}, nil, "be reached by other Pods;"},
		{"one adds the DNS", append([]networkingv1.NetworkPolicy{dns}, ours...), nil, "reach the network (policy dns);"},
		{"one adds other sandboxes", append([]networkingv1.NetworkPolicy{peers}, ours...), nil, "be reached by other Pods (policy peers);"},
		{"one adds a range of addresses", append([]networkingv1.NetworkPolicy{from("10.0.0.0/8")}, ours...), nil, "be reached from a range of addresses (policy addresses);"},
		{"one adds all addresses", append([]networkingv1.NetworkPolicy{from("::/0")}, ours...), nil, "be reached from a range of addresses (policy addresses);"},
		{"one adds the address of a gateway", append([]networkingv1.NetworkPolicy{from("192.0.2.1/32")}, ours...), nil, ""},
		{"one for a label of the creator", append([]networkingv1.NetworkPolicy{team}, ours...), map[string]string{"team": "a"}, "reach the network (policy team);"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for i := range tt.policies {
				if err := w.Tracker().Add(&tt.policies[i]); err != nil {
					t.Fatal(err)
				}
			}
			spec := sandbox.Spec{Image: "image", Network: "none", Labels: tt.labels}
			if tt.refused != "" {
				for what, err := range map[string]error{
					"Create": func() error { _, err := w.driver.Create(t.Context(), spec); return err }(), "Warm": w.driver.Warm(t.Context(), "pool", spec),
				} {
					if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "network none: the network policies of namespace agents let the sandbox "+tt.refused) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if left := w.left(t); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				return
			}
			if err := w.driver.Warm(t.Context(), "pool", spec); err != nil {
				t.Fatal(err)
			}
			warm, err := w.driver.List(t.Context())
			if err != nil || len(warm) != 1 {
				t.Fatal(warm, err)
			}
			claimed, fromPool, err := w.driver.Claim(t.Context(), spec, warm)
			if err != nil || !fromPool {
				t.Fatal(fromPool, err)
			}
			made := w.create(t, spec)
			for _, s := range []*sandbox.Sandbox{claimed, made} {
				pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{LabelSelector: "actiond.dev/id=" + s.ID})
				if err != nil || len(pods.Items) != 1 || pods.Items[0].Labels["actiond.dev/network"] != "none" {
					t.Errorf("%+v, %v", pods, err)
				}
				if details, err := w.driver.Inspect(t.Context(), s); err != nil || details.Network != "none" {
					t.Errorf("%+v, %v", details, err)
				}
			}
		})
	}
	t.Run("may not look", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.fail("list", "networkpolicies", false, apierrors.NewForbidden(corev1.Resource("networkpolicies"), "", errors.New("not yours")))
		if _, err := w.driver.Create(t.Context(), sandbox.Spec{Image: "image", Network: "none"}); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "does not allow this account to list") {
			t.Error(err)
		}
	})
}
