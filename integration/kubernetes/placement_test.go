//go:build kubernetes

package kubernetes_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// TestPlacement makes sandboxes where the only node has a taint and a label.
func TestPlacement(t *testing.T) {
	change := func(ctx context.Context, patch string) {
		if _, err := shared.api.CoreV1().Nodes().Patch(ctx, "node", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, true)
	change(t.Context(), `{"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": [{"key": "dedicated", "value": "agents", "effect": "NoSchedule"}]}}`)
	t.Cleanup(func() {
		change(context.WithoutCancel(t.Context()), `{"metadata": {"labels": {"disk": null}}, "spec": {"taints": null}}`)
	})
	spec := small
	spec.NodeSelector, spec.Tolerations = map[string]string{"disk": "ssd"}, []string{"dedicated=agents:NoSchedule"}
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	wrong, intolerant := spec, spec
	wrong.NodeSelector, intolerant.Tolerations = map[string]string{"disk": "tape"}, nil
	fails(t, d, wrong, "didn't match Pod's node affinity/selector")
	fails(t, d, intolerant, "untolerated taint")
}

// fails makes a sandbox in the last namespace that does not start, for a reason that the
// error names. The caller gives up once the cluster has said it.
func fails(t *testing.T, d sandbox.Driver, spec sandbox.Spec, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTime)
	defer cancel()
	core, space := shared.api.CoreV1(), spaceOf(t)
	go func() { // ends with ctx
		for waits := 0; ctx.Err() == nil; <-time.After(200 * time.Millisecond) {
			events, err1 := core.Events(space).List(ctx, metav1.ListOptions{})
			records, err2 := core.Secrets(space).List(ctx, metav1.ListOptions{})
			if errors.Join(err1, err2) == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, want) }) &&
				!slices.ContainsFunc(records.Items, func(s corev1.Secret) bool { return len(s.OwnerReferences) == 0 }) {
				waits++ // the creation has given its record to the Pod, for which it waits now
			}
			if waits == 2 {
				cancel()
			}
		}
	}()
	_, err := d.Create(ctx, spec)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	t.Log(err)
}

// A feature that the runtime of this node lacks is reported in the words of the kubelet or the runtime.
func TestOlderNode(t *testing.T) {
	t.Parallel()
	d := open(t, true)
	spec := small
	spec.UserNamespace = true
	fails(t, d, spec, "user namespaces")
	volumes := openAs(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + spaceOf(t), ServerImage: serverImage, ServerVolume: true, Agent: agent.Agent{}, Direct: true})
	fails(t, volumes, small, "the node cannot start its container")
}

// A sandbox without a network is refused where no policies isolate it, and made where
// those of the manifests do. That they are enforced is the network plugin's to show.
func TestNetworkNone(t *testing.T) {
	t.Parallel()
	spec := small
	spec.Network = "none"
	fails(t, open(t, true), spec, "let the sandbox reach the network")
	space, kubeconfig := installed(t)
	d := openAs(t, kubeconfig, kubernetes.Config{ServerImage: serverImage, Agent: agent.Agent{}, Direct: true})
	s, _ := made(t, d, spec)
	pods, err := shared.api.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{LabelSelector: "actiond.dev/network=none,actiond.dev/id=" + s.ID})
	if err != nil || len(pods.Items) != 1 {
		t.Errorf("%+v, %v", pods, err)
	}
}
