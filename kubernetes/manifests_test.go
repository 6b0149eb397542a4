package kubernetes_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/kubernetes/manifests"
	"github.com/actiond/actiond/sandbox"
)

// printed are the objects that are printed. Unknown and doubled fields are errors.
func printed(t *testing.T, o manifests.Options) (objects []runtime.Object) {
	t.Helper()
	text, err := manifests.Gateway(o)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// only is the one object of its type.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) (found T) {
	t.Helper()
	n := 0
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = typed
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d objects are a %T", n, found)
	}
	return found
}

// The manifests printed are the base, and the base has all files of its directory.
func TestManifestsAreTheBase(t *testing.T) {
	t.Parallel()
	text, err := manifests.Gateway(manifests.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kustomization := testhelp.ReadFile(t, "manifests/kustomization.yaml")
	var files []string
	for _, m := range regexp.MustCompile(`(?m)^ *- (\S+)$`).FindAllSubmatch(kustomization, -1) {
		files = append(files, string(m[1]))
	}
	var base []string
	for _, name := range files {
		data := testhelp.ReadFile(t, filepath.Join("manifests", name))
		base = append(base, string(data))
	}
	if want := strings.Join(base, "---\n"); string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	there, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(there) != len(files)+1 {
		t.Errorf("the kustomization has %v of %v, %v", files, there, err)
	}
}

func TestManifestOptions(t *testing.T) {
	t.Parallel()
	replicas := 5
	objects := printed(t, manifests.Options{Namespace: "123", Image: "registry.example/a:1", Replicas: &replicas, NoEgress: true})
	text, err := manifests.Gateway(manifests.Options{Namespace: "123", Image: "registry.example/a:1", Replicas: &replicas})
	if err != nil || strings.Contains(string(text), "namespace: actiond\n") || strings.Contains(string(text), "actiond-server") {
		t.Errorf("%v\n%s", err, text)
	}
	d := only[*appsv1.Deployment](t, objects)
	if c := d.Spec.Template.Spec.Containers[0]; d.Namespace != "123" || *d.Spec.Replicas != 5 || c.Image != "registry.example/a:1" {
		t.Errorf("%+v", d)
	}
	if b := only[*rbacv1.RoleBinding](t, objects); b.Subjects[0].Namespace != "123" || b.Namespace != "123" {
		t.Errorf("%+v", b)
	}
	if n := only[*corev1.Namespace](t, objects); n.Name != "123" || n.Namespace != "" {
		t.Errorf("%+v", n)
	}
	for _, bad := range []manifests.Options{{Namespace: "A"}, {Namespace: "a.b"}, {Namespace: "a-"}, {Namespace: strings.Repeat("a", 57)}, {Namespace: "a\nkind: Secret"}, {Image: "a b"}, {Image: "a\nb"}} {
		if text, err := manifests.Gateway(bad); err == nil || text != nil {
			t.Errorf("%+v: %s", bad, text)
		}
	}
}

// The gateway may do what the driver does in its namespace, and nothing else.
func TestManifestRights(t *testing.T) {
	t.Parallel()
	objects := printed(t, manifests.Options{NoEgress: true})
	got := map[string][]string{}
	for _, rule := range only[*rbacv1.Role](t, objects).Rules {
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.NonResourceURLs) > 0 {
			t.Errorf("%+v", rule)
		}
		got[strings.TrimSuffix(rule.Resources[0]+"."+rule.APIGroups[0], ".")] = rule.Verbs
	}
	want := kubernetes.Rights()
	delete(want, "pods/portforward") // inside of the cluster Pods are reached by their addresses
	for resource, verbs := range want {
		if !slices.Equal(got[resource], verbs) {
			t.Errorf("the Role gives %q on %s, and the driver uses %q", got[resource], resource, verbs)
		}
		delete(got, resource)
	}
	if len(got) > 0 {
		t.Errorf("the driver does not use %v", got)
	}
	account := only[*corev1.ServiceAccount](t, objects)
	binding := only[*rbacv1.RoleBinding](t, objects)
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != account.Name || binding.RoleRef.Name != only[*rbacv1.Role](t, objects).Name {
		t.Errorf("%+v", binding)
	}
}

// The egress proxy reads the Secrets of its namespace, where the gateway may do what the driver does,
// and runs with what Pod Security calls restricted.
func TestManifestEgress(t *testing.T) {
	t.Parallel()
	replicas := 5
	all := printed(t, manifests.Options{Namespace: "123", Image: "registry.example/a:1", Replicas: &replicas})
	deployments := map[string]*appsv1.Deployment{}
	roles, bindings := map[string]*rbacv1.Role{}, map[string]*rbacv1.RoleBinding{}
	for _, object := range all {
		switch o := object.(type) {
		case *appsv1.Deployment:
			deployments[o.Namespace] = o
		case *rbacv1.Role:
			roles[o.Namespace+" "+o.Name] = o
		case *rbacv1.RoleBinding:
			bindings[o.Namespace+" "+o.RoleRef.Name] = o
		case *corev1.Namespace:
			if o.Name == "123-egress" && o.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
				t.Errorf("%+v", o)
			}
		}
	}
	d := deployments["123-egress"]
	if len(deployments) != 2 || d == nil {
		t.Fatalf("%v", deployments)
	}
	pod, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || c.Image != "registry.example/a:1" || pod.HostNetwork ||
		!*pod.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem ||
		!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", d.Spec)
	}
	verbs := map[string]string{}
	for _, name := range []string{"actiond-egress", "actiond-egress-writer"} {
		role, binding := roles["123-egress "+name], bindings["123-egress "+name]
		if role == nil || binding == nil || len(binding.Subjects) != 1 {
			t.Fatalf("%s: %+v, %+v", name, role, binding)
		}
		for _, rule := range role.Rules {
			verbs[name+" "+strings.Join(rule.Resources, " ")] = strings.Join(rule.Verbs, " ")
		}
		if who := binding.Subjects[0]; who.Name != pod.ServiceAccountName && (who.Name != "actiond-gateway" || who.Namespace != "123") {
			t.Errorf("%s is for %+v", name, who)
		}
	}
	want := map[string]string{"actiond-egress secrets": "get list watch"}
	for resource, of := range kubernetes.EgressRights() {
		want["actiond-egress-writer "+resource] = strings.Join(of, " ")
	}
	if !maps.Equal(verbs, want) {
		t.Errorf("got %q, want %q", verbs, want)
	}
	if writer := bindings["123-egress actiond-egress-writer"].Subjects[0]; writer.Name != "actiond-gateway" {
		t.Errorf("the writer is %+v", writer)
	}
}

// The gateway runs with what Pod Security calls restricted, and its key is not printed.
func TestManifestGateway(t *testing.T) {
	t.Parallel()
	objects := printed(t, manifests.Options{NoEgress: true})
	d := only[*appsv1.Deployment](t, objects)
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if *d.Spec.Replicas < 2 || pod.ServiceAccountName != only[*corev1.ServiceAccount](t, objects).Name || len(pod.Containers) != 1 || pod.HostNetwork || pod.HostPID || len(pod.Volumes) > 0 {
		t.Errorf("%+v", d.Spec)
	}
	if !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%+v, %+v", pod.SecurityContext, c.SecurityContext)
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%+v", c)
	}
	var budgets []*policyv1.PodDisruptionBudget
	for _, o := range objects {
		if budget, ok := o.(*policyv1.PodDisruptionBudget); ok {
			budgets = append(budgets, budget)
		}
	}
	if len(budgets) != 2 {
		t.Fatalf("%d budgets", len(budgets))
	}
	budget, sandboxes := budgets[0], budgets[1]
	// The other budget is for sandboxes in use. Without a controller, only a number protects a Pod.
	protects, err := metav1.LabelSelectorAsSelector(sandboxes.Spec.Selector)
	if err != nil || sandboxes.Spec.MinAvailable.Type != intstr.Int || sandboxes.Spec.MinAvailable.IntVal < 100000 {
		t.Errorf("%v, %v", sandboxes.Spec, err)
	}
	for pool, want := range map[string]bool{"": true, "p": false} {
		pod := kubernetes.PodOf(&sandbox.Spec{Image: "image", User: "agent"}, &kubernetes.Record{ID: "0123456789ab", Pod: "p", Pool: pool}, "server", false)
		if protects.Matches(labels.Set(pod.Labels)) != want {
			t.Errorf("pool %q: the budget protects %v, want %t", pool, pod.Labels, want)
		}
	}
	service := only[*corev1.Service](t, objects)
	for name, selector := range map[string]map[string]string{"budget": budget.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "deployment": d.Spec.Selector.MatchLabels} {
		for key, value := range selector {
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("the %s does not select the gateway: %v", name, selector)
			}
		}
	}
	// A Prometheus finds the metrics of each Pod; clients of the Service do not reach them.
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" && p.ContainerPort == 8701 }) || d.Spec.Template.Annotations["prometheus.io/port"] != "8701" {
		t.Errorf("metrics are not found: %+v, %v", c.Ports, d.Spec.Template.Annotations)
	}
	if ports := service.Spec.Ports; len(ports) != 1 || ports[0].Name != "http" || ports[0].TargetPort.StrVal != "http" {
		t.Errorf("the Service publishes %+v", ports)
	}
	for _, o := range objects {
		if _, ok := o.(*corev1.Secret); ok {
			t.Errorf("a Secret is printed: %+v", o)
		}
	}
}

// policies are those of the namespace of sandboxes.
func policies(t *testing.T) (own []networkingv1.NetworkPolicy) {
	t.Helper()
	return slices.DeleteFunc(allPolicies(t), func(p networkingv1.NetworkPolicy) bool { return p.Namespace != "actiond" })
}

func allPolicies(t *testing.T) (all []networkingv1.NetworkPolicy) {
	t.Helper()
	for _, o := range printed(t, manifests.Options{}) {
		if p, ok := o.(*networkingv1.NetworkPolicy); ok {
			all = append(all, *p)
		}
	}
	return all
}

// TestManifestPolicies calculates which connections the policies let pass.
func TestManifestPolicies(t *testing.T) {
	t.Parallel()
	all := allPolicies(t)
	system := map[string]string{"kubernetes.io/metadata.name": "kube-system"}
	other := map[string]string{"kubernetes.io/metadata.name": "other"}
	pod := func(namespace string, within, labels map[string]string, address string) kubernetes.Peer {
		return kubernetes.NewPeer(namespace, within, labels, address)
	}
	own := map[string]string{"kubernetes.io/metadata.name": "actiond"}
	gateway := pod("actiond", own, map[string]string{"actiond.dev/component": "gateway"}, "10.1.0.1")
	a := pod("actiond", own, map[string]string{"actiond.dev/managed": "sandbox"}, "10.1.0.2")
	b := pod("actiond", own, map[string]string{"actiond.dev/managed": "sandbox", "team": "b"}, "10.1.0.3")
	none := pod("actiond", own, map[string]string{"actiond.dev/managed": "sandbox", "actiond.dev/network": "none"}, "10.1.0.4")
	policy := pod("actiond", own, map[string]string{"actiond.dev/managed": "sandbox", "actiond.dev/network": "policy"}, "10.1.0.6")
	egressSpace := map[string]string{"kubernetes.io/metadata.name": "actiond-egress"}
	proxy := pod("actiond-egress", egressSpace, map[string]string{"actiond.dev/component": "egress"}, "10.1.3.1")
	beside := pod("actiond-egress", egressSpace, map[string]string{"app": "other"}, "10.1.3.2")
	policyElsewhere := pod("other", other, map[string]string{"actiond.dev/network": "policy"}, "10.1.1.3")
	unlabelled := pod("actiond", own, nil, "10.1.0.5")
	elsewhere := pod("other", other, map[string]string{"actiond.dev/managed": "sandbox"}, "10.1.1.1")
	forger := pod("other", other, map[string]string{"actiond.dev/component": "gateway"}, "10.1.1.2")
	dns := pod("kube-system", system, map[string]string{"k8s-app": "kube-dns"}, "10.1.2.1")
	at := func(address string) kubernetes.Peer { return kubernetes.NewPeer("", nil, nil, address) }

	const udp, tcp = corev1.ProtocolUDP, corev1.ProtocolTCP
	for _, tt := range []struct {
		name     string
		from, to kubernetes.Peer
		port     int32
		protocol corev1.Protocol
		want     bool
	}{
		{"the gateway to a sandbox", gateway, a, 1000, tcp, true},
		{"the gateway to one without a network", gateway, none, 1000, tcp, true},
		{"the gateway to another port", gateway, a, 8080, tcp, false},
		{"the gateway to the API server", gateway, at("10.96.0.1"), 443, tcp, true},
		{"a client to the gateway", at("203.0.113.9"), gateway, 8700, tcp, true},
		{"a sandbox to another", a, b, 1000, tcp, false},
		{"a sandbox to a port of another", a, b, 8080, tcp, false},
		{"a sandbox to itself, as another Pod sees it", a, a, 1000, tcp, false},
		{"a sandbox to the gateway", a, gateway, 8700, tcp, false},
		{"a sandbox to the gateway's metrics", a, gateway, 8701, tcp, false},
		{"a Pod of another namespace to a sandbox", elsewhere, a, 1000, tcp, false},
		{"one that calls itself gateway", forger, a, 1000, tcp, false},
		{"the node's network to a sandbox", at("192.168.1.1"), a, 1000, tcp, false},
		{"an unlabelled Pod to a sandbox", unlabelled, a, 1000, tcp, false},
		{"a sandbox to an unlabelled Pod", a, unlabelled, 5432, tcp, false},
		{"an unlabelled Pod to the API server", unlabelled, at("10.96.0.1"), 443, tcp, false},
		{"a sandbox to the API server's service", a, at("10.96.0.1"), 443, tcp, false},
		{"a sandbox to the API server", a, at("172.18.0.2"), 6443, tcp, false},
		{"a sandbox to a kubelet", a, at("192.168.1.1"), 10250, tcp, false},
		{"a sandbox to the metadata service", a, at("169.254.169.254"), 80, tcp, false},
		{"a sandbox to Amazon's by IPv6", a, at("fd00:ec2::254"), 80, tcp, false},
		{"a sandbox to Amazon's of tasks", a, at("169.254.170.2"), 80, tcp, false},
		{"a sandbox to Alibaba's", a, at("100.100.100.200"), 80, tcp, false},
		{"a sandbox to Azure's", a, at("168.63.129.16"), 80, tcp, false},
		{"a sandbox to Oracle's", a, at("192.0.0.192"), 80, tcp, false},
		{"a sandbox to the metadata service by NAT64", a, at("64:ff9b::a9fe:a9fe"), 80, tcp, false},
		{"a sandbox to a mapped address", a, at("::ffff:10.96.0.1"), 443, tcp, false},
		{"a sandbox to its node by a link-local address", a, at("fe80::1"), 10250, tcp, false},
		{"a sandbox to the DNS", a, dns, 53, udp, true},
		{"a sandbox to the DNS by TCP", a, dns, 53, tcp, true},
		{"a sandbox to the node's DNS", a, at("169.254.20.10"), 53, udp, true},
		{"a sandbox to another port there", a, at("169.254.20.10"), 80, tcp, false},
		{"a sandbox to another port of the DNS", a, dns, 9153, tcp, false},
		{"a sandbox to the Internet", a, at("203.0.113.9"), 443, tcp, true},
		{"a sandbox to the Internet by IPv6", a, at("2606:4700::1"), 443, tcp, true},
		{"one without a network to the Internet", none, at("203.0.113.9"), 443, tcp, false},
		{"one without a network to the DNS", none, dns, 53, udp, false},
		{"one without a network to another", none, a, 1000, tcp, false},
		{"one without a network to the egress proxy", none, proxy, 3128, tcp, false},
		{"one with a policy to the egress proxy", policy, proxy, 3128, tcp, true},
		{"one with a policy to its metrics", policy, proxy, 3129, tcp, false},
		{"one with a policy by UDP", policy, proxy, 3128, udp, false},
		{"one with a policy to a Pod beside it", policy, beside, 3128, tcp, false},
		{"one with a policy to a forger of it", policy, pod("actiond", own, map[string]string{"actiond.dev/component": "egress"}, "10.1.0.7"), 3128, tcp, false},
		{"one with a policy to the Internet", policy, at("203.0.113.9"), 443, tcp, false},
		{"one with a policy to the DNS", policy, dns, 53, udp, false},
		{"one with a policy to the node's DNS", policy, at("169.254.20.10"), 53, udp, false},
		{"one with a policy to another", policy, a, 1000, tcp, false},
		{"one with a policy to the API server", policy, at("10.96.0.1"), 443, tcp, false},
		{"the gateway to one with a policy", gateway, policy, 1000, tcp, true},
		{"the gateway to the egress proxy", gateway, proxy, 3128, tcp, true},
		{"the gateway to its metrics", gateway, proxy, 3129, tcp, true},
		{"a sandbox to the egress proxy", a, proxy, 3128, tcp, false},
		{"a Pod of another namespace with the label to the egress proxy", policyElsewhere, proxy, 3128, tcp, false},
		{"one that calls itself gateway to its metrics", forger, proxy, 3129, tcp, false},
		{"the egress proxy to the Internet", proxy, at("203.0.113.9"), 22, tcp, true},
		{"the egress proxy to the Internet by IPv6", proxy, at("2606:4700::1"), 443, tcp, true},
		{"the egress proxy to the DNS", proxy, dns, 53, udp, true},
		{"the egress proxy to the API server's service", proxy, at("10.96.0.1"), 443, tcp, true},
		{"the egress proxy to the API server", proxy, at("172.18.0.2"), 6443, tcp, true},
		{"the egress proxy to a kubelet", proxy, at("192.168.1.1"), 10250, tcp, false},
		{"the egress proxy to a sandbox", proxy, a, 1000, tcp, false},
		{"the egress proxy to the metadata service", proxy, at("169.254.169.254"), 80, tcp, false},
		{"the egress proxy to the metadata service by TLS", proxy, at("169.254.169.254"), 443, tcp, false},
		{"the egress proxy to Amazon's by IPv6", proxy, at("fd00:ec2::254"), 443, tcp, false},
		{"the egress proxy to Alibaba's", proxy, at("100.100.100.200"), 443, tcp, false},
		{"the egress proxy to Azure's", proxy, at("168.63.129.16"), 443, tcp, false},
	} {
		if got := kubernetes.Admits(all, tt.from, tt.to, tt.port, tt.protocol); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The calculation follows the specification where the policies of the manifests do not
// show it.
func TestAdmits(t *testing.T) {
	t.Parallel()
	const tcp = corev1.ProtocolTCP
	a := kubernetes.NewPeer("ns", map[string]string{"team": "a"}, map[string]string{"app": "a"}, "10.0.0.1")
	b := kubernetes.NewPeer("ns", map[string]string{"team": "a"}, map[string]string{"app": "b"}, "10.0.0.2")
	policy := func(spec networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: spec}
	}
	selects := metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	from, to, last := intstr.FromInt32(8000), intstr.FromString("http"), int32(8010)
	for _, tt := range []struct {
		name     string
		policies []networkingv1.NetworkPolicy
		from, to kubernetes.Peer
		port     int32
		want     bool
	}{
		{"no policies", nil, a, b, 80, true},
		{"none that selects either", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "c"}}})}, a, b, 80, true},
		{"one without types is about what comes in", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects})}, b, a, 80, false},
		{"and not about what goes out", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects})}, a, b, 80, true},
		{"a rule without peers is for all", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects, Ingress: []networkingv1.NetworkPolicyIngressRule{{}}})}, b, a, 80, true},
		{"policies add up", []networkingv1.NetworkPolicy{
			policy(networkingv1.NetworkPolicySpec{PodSelector: selects}),
			policy(networkingv1.NetworkPolicySpec{PodSelector: selects, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}}}}}),
		}, b, a, 80, true},
		{"a range of ports", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects, Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &from, EndPort: &last}}}}})}, b, a, 8010, true},
		{"beyond a range of ports", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects, Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &from, EndPort: &last}}}}})}, b, a, 8011, false},
		{"a named port may be any", []networkingv1.NetworkPolicy{policy(networkingv1.NetworkPolicySpec{PodSelector: selects, Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &to}}}}})}, b, a, 80, true},
	} {
		if got := kubernetes.Admits(tt.policies, tt.from, tt.to, tt.port, tcp); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The labels by which policies tell Pods apart are not the creator's.
func TestPolicyLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, label := range []string{"actiond.dev/component", "actiond.dev/network", "actiond.dev/managed"} {
		s := sandbox.Spec{Image: "image", Labels: map[string]string{label: "gateway"}}
		if _, err := w.driver.Check(t.Context(), &s); err == nil {
			t.Errorf("a creator may give a Pod the label %s", label)
		}
	}
}
