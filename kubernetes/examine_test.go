package kubernetes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
			{Status: "weaker", About: "network", Text: "metadata service at 169.254.169.254"},
			{Status: "weaker", About: "network", Text: "none reach the network"},
			{Status: "weaker", About: "network plugin", Text: "no network plugin that enforces policies was found"},
			{Status: "weaker", About: "user namespaces", Text: "user ids of these nodes: "},
			{Status: "weaker", About: "processes", Text: "the processes of a Pod: old"},
			{Status: "note", About: "processes", Text: "not known of these nodes: odd"},
		}, ""},
		{"policies and a plugin", []runtime.Object{server, calico, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Status:     corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &yes}}}},
		}}, true, []sandbox.Finding{
			{Status: "ok", About: "network", Text: "only the gateway reaches sandboxes"},
			{Status: "ok", About: "network plugin", Text: "kube-system/calico-node enforces"},
		}, "user namespaces"},
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

// Where the account may not look, doctor says that, and does not fail.
func TestExamineIsNotAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, resource := range []string{"networkpolicies", "daemonsets", "nodes", "services", "endpointslices"} {
		w.fail("list", resource, false, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("not yours")))
		w.fail("get", resource, false, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("not yours")))
	}
	found := w.examine(t)
	if !has(found, "note", "network", "does not allow to look") || !has(found, "note", "nodes", "not yours") {
		t.Errorf("%+v", found)
	}
}
