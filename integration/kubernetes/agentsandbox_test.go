//go:build kubernetes

package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

const extensions = "extensions.agents.x-k8s.io"

// agentKinds are the kinds of agent-sandbox, by resource.
var agentKinds = map[string]struct{ group, kind, singular string }{
	"sandboxes":        {"agents.x-k8s.io", "Sandbox", "sandbox"},
	"sandboxclaims":    {extensions, "SandboxClaim", "sandboxclaim"},
	"sandboxtemplates": {extensions, "SandboxTemplate", "sandboxtemplate"},
	"sandboxwarmpools": {extensions, "SandboxWarmPool", "sandboxwarmpool"},
}

// controller does for one namespace what the controller of agent-sandbox does, as far as
// sandboxes need it: it fills pools, makes the Pods of Sandboxes again and again, and
// gives claims a Sandbox that is ready, or else a new one.
type controller struct {
	objects   dynamic.Interface
	namespace string
}

func (c *controller) of(resource string) dynamic.ResourceInterface { //nolint:ireturn // client-go has no other type
	return c.objects.Resource(schema.GroupVersionResource{Group: agentKinds[resource].group, Version: "v1beta1", Resource: resource}).Namespace(c.namespace)
}

// define serves the kinds, for all namespaces, until the test ends.
func (c *controller) define(t *testing.T) {
	t.Helper()
	definitions := c.objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for plural, k := range agentKinds {
		name := plural + "." + k.group
		_, err := definitions.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for tests"}},
			"spec": map[string]any{
				"group": k.group, "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "singular": k.singular, "kind": k.kind, "listKind": k.kind + "List"},
				"versions": []any{map[string]any{
					"name": "v1beta1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := definitions.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the definitions", func() error {
		for resource := range agentKinds {
			if _, err := c.of(resource).List(t.Context(), metav1.ListOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// eventually asks again until ready returns nil.
func eventually(t *testing.T, what string, ready func() error) {
	t.Helper()
	if err := shared.await(what, "apiserver", func(context.Context) error { return ready() }); err != nil {
		t.Fatal(err)
	}
}

// run works until ctx ends. Changes that are refused because something else changed are
// made again.
func (c *controller) run(ctx context.Context, log func(format string, args ...any)) {
	for ctx.Err() == nil {
		for what, work := range map[string]func(context.Context) error{"pools": c.fill, "claims": c.bind, "Sandboxes": c.keep} {
			if err := work(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				log("the controller and %s: %v", what, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func ownerOf(kind string, o metav1.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: agentKinds[kind].group + "/v1beta1", Kind: agentKinds[kind].kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}}
}

// members are the Sandboxes that an object owns.
func (c *controller) members(ctx context.Context, owner metav1.Object) (members []unstructured.Unstructured, err error) {
	all, err := c.of("sandboxes").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, box := range all.Items {
		if by := metav1.GetControllerOf(&box); by != nil && by.UID == owner.GetUID() {
			members = append(members, box)
		}
	}
	return members, nil
}

func (c *controller) fill(ctx context.Context) error {
	pools, err := c.of("sandboxwarmpools").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pool := range pools.Items {
		have, err := c.members(ctx, &pool)
		if err != nil {
			return err
		}
		size, _, _ := unstructured.NestedInt64(pool.Object, "spec", "replicas")
		for range int(size) - len(have) {
			if err := c.box(ctx, &pool, "sandboxwarmpools", &pool, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// box makes a Sandbox of a pool's template.
func (c *controller) box(ctx context.Context, pool *unstructured.Unstructured, kind string, owner metav1.Object, name string) error {
	ref, _, _ := unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	template, err := c.of("sandboxtemplates").Get(ctx, ref, metav1.GetOptions{})
	if err != nil {
		return err
	}
	content, _, _ := unstructured.NestedMap(template.Object, "spec", "podTemplate")
	box := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "spec": map[string]any{"podTemplate": content, "operatingMode": "Running"},
	}}
	box.SetOwnerReferences(ownerOf(kind, owner))
	if box.SetName(name); name == "" {
		box.SetGenerateName(pool.GetName() + "-")
	}
	_, err = c.of("sandboxes").Create(ctx, box, metav1.CreateOptions{})
	return err
}

// keep makes the Pod of each Sandbox, also in the place of one that went, puts back the
// labels and annotations of the template, and says how it is.
func (c *controller) keep(ctx context.Context) error {
	boxes, err := c.of("sandboxes").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods := shared.api.CoreV1().Pods(c.namespace)
	for _, box := range boxes.Items {
		content, _, _ := unstructured.NestedMap(box.Object, "spec", "podTemplate")
		var want corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &want); err != nil {
			return err
		}
		pod, err := pods.Get(ctx, box.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			want.Name, want.OwnerReferences = box.GetName(), ownerOf("sandboxes", &box)
			_, err = pods.Create(ctx, &want, metav1.CreateOptions{})
		case err == nil && pod.DeletionTimestamp == nil:
			changed := pod.DeepCopy()
			if changed.Labels == nil {
				changed.Labels = map[string]string{}
			}
			maps.Copy(changed.Labels, want.Labels)
			if !maps.Equal(changed.Labels, pod.Labels) {
				_, err = pods.Update(ctx, changed, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return err
		}
		ready := "False"
		if pod != nil {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					ready = "True"
				}
			}
		}
		if readyOf(&box) == ready {
			continue
		}
		box.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": "DependenciesNotReady", "message": "of the test"}}}
		if _, err := c.of("sandboxes").UpdateStatus(ctx, &box, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func readyOf(box *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(box.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" {
			status, _ := condition["status"].(string)
			return status
		}
	}
	return ""
}

func (c *controller) bind(ctx context.Context) error {
	claims, err := c.of("sandboxclaims").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, claim := range claims.Items {
		if name, _, _ := unstructured.NestedString(claim.Object, "status", "sandbox", "name"); name != "" || claim.GetDeletionTimestamp() != nil {
			continue
		}
		ref, _, _ := unstructured.NestedString(claim.Object, "spec", "warmPoolRef", "name")
		pool, err := c.of("sandboxwarmpools").Get(ctx, ref, metav1.GetOptions{})
		if err != nil {
			return err
		}
		mine, err := c.members(ctx, &claim)
		if err != nil {
			return err
		}
		free, err := c.members(ctx, pool)
		if err != nil {
			return err
		}
		for i := range free {
			if readyOf(&free[i]) == "True" && len(mine) == 0 {
				free[i].SetOwnerReferences(ownerOf("sandboxclaims", &claim))
				box, err := c.of("sandboxes").Update(ctx, &free[i], metav1.UpdateOptions{})
				if err != nil {
					return err
				}
				mine = append(mine, *box)
			}
		}
		if len(mine) == 0 {
			if err := c.box(ctx, pool, "sandboxclaims", &claim, claim.GetName()); err != nil {
				return err
			}
			continue // with what is there the next time
		}
		claim.Object["status"] = map[string]any{"sandbox": map[string]any{"name": mine[0].GetName()}}
		if _, err := c.of("sandboxclaims").UpdateStatus(ctx, &claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// A pool that the cluster keeps: no two claimers get one Pod, a ticket that was used opens
// no neighbour, and what takes the place of a Pod is not the sandbox.
func TestAgentSandbox(t *testing.T) {
	t.Parallel()
	const size, claimers = 3, 6
	access, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	plain := open(t, true).(*kubernetes.Driver)
	c := &controller{objects, spaceOf(t)}
	c.define(t)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { c.run(ctx, t.Logf) })
	defer working.Wait()
	defer stop()

	other := openAs(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + spaceOf(t), ServerImage: serverImage, Agent: agent.Agent{}, Direct: true})
	drivers := []sandbox.Driver{kubernetes.AgentSandbox{Driver: plain}, kubernetes.AgentSandbox{Driver: other}}
	var pools []*sandbox.Pool
	for _, d := range drivers {
		pool, err := sandbox.NewPool(ctx, d, "shared", small, size, nil)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, pool)
	}
	filling, stopFilling := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { pools[0].Run(filling, time.Second) })
	defer keeping.Wait()
	defer stopFilling()
	waiting := func() (names []string) {
		all, err := c.of("sandboxwarmpools").List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) == 0 {
			return nil
		}
		free, _ := c.members(ctx, &all.Items[0])
		for i := range free {
			if readyOf(&free[i]) == "True" {
				names = append(names, free[i].GetName())
			}
		}
		return names
	}
	full := func() error {
		if n := len(waiting()); n < size {
			return fmt.Errorf("%d of %d wait", n, size)
		}
		return nil
	}
	eventually(t, "the pool", full)

	got := make([]*sandbox.Sandbox, claimers)
	fromPool := 0
	var mu sync.Mutex
	var claiming sync.WaitGroup
	for i := range got {
		claiming.Go(func() {
			spec := small
			spec.Key, spec.TTL = fmt.Sprint("claimer ", i), 0
			begun := time.Now()
			s, warm, err := pools[i%2].Claim(ctx, spec)
			if err != nil {
				t.Errorf("claimer %d: %v", i, err)
				return
			}
			t.Logf("claimer %d: warm %v, %v", i, warm, time.Since(begun))
			mu.Lock()
			defer mu.Unlock()
			if got[i] = s; warm {
				fromPool++
			}
		})
	}
	claiming.Wait()
	owners := map[string]int{}
	for i, s := range got {
		if s == nil {
			t.FailNow()
		}
		if first, taken := owners[s.Instance]; taken {
			t.Errorf("claimers %d and %d got one Pod", first, i)
		}
		owners[s.Instance] = i
		key, err := s.Key()
		if err != nil {
			t.Fatal(err)
		}
		if err := (agent.Agent{}).Ready(ctx, s.Dial, key); err != nil {
			t.Errorf("claimer %d: a command: %v", i, err)
		}
	}
	if fromPool < size {
		t.Errorf("%d of the pool of %d were given away", fromPool, size)
	}
	if all, err := drivers[1].List(ctx); err != nil || len(all) != claimers {
		t.Errorf("%d sandboxes, %v", len(all), err)
	}

	// A secret that root in a sandbox finds in its server does not claim the one beside it.
	eventually(t, "the pool again", full)
	neighbour, err := shared.api.CoreV1().Pods(c.namespace).Get(ctx, waiting()[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := shared.api.CoreV1().Secrets(c.namespace).Get(ctx, "sandbox-"+got[0].ID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var used struct{ Ticket string }
	if err := json.Unmarshal(secret.Data["record"], &used); err != nil || used.Ticket == "" {
		t.Fatalf("%v, %q", err, used.Ticket)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(neighbour.Status.PodIP, "1000"))
	}
	stolen := sandbox.Claim{Ticket: used.Ticket, Key: "0123456789abcdef0123456789abcdef"}
	if err := (agent.Agent{}).Claim(ctx, dial, stolen); err == nil || errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("a neighbour's ticket: %v", err)
	}
	if err := (agent.Agent{}).Claim(ctx, got[0].Dial, sandbox.Claim{Ticket: used.Ticket, Key: stolen.Key}); !errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("a second claim: %v", err)
	}

	// The end of the sandbox is that of its claim.
	end := time.Now().Add(time.Hour)
	if err := drivers[0].(sandbox.Renewer).Renew(ctx, got[0], end); err != nil {
		t.Error(err)
	}
	claim, err := c.of("sandboxclaims").Get(ctx, "sandbox-"+got[0].ID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(claim.Object, "spec", "lifecycle", "shutdownTime")
	if at, err := time.Parse(time.RFC3339, text); err != nil || at.Before(end.Truncate(time.Second)) {
		t.Errorf("the claim ends at %q, the sandbox at %v", text, end)
	}

	// The controller makes another Pod of the same name.
	pods := shared.api.CoreV1().Pods(c.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "actiond.dev/id=" + got[1].ID})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %d Pods", err, len(list.Items))
	}
	lost := list.Items[0].Name
	if err := pods.Delete(ctx, lost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod that takes its place", func() error {
		pod, err := pods.Get(ctx, lost, metav1.GetOptions{})
		if err == nil && (string(pod.UID) == got[1].Instance || pod.Status.PodIP == "") {
			err = errors.New("it is the old one, or does not run")
		}
		return err
	})
	if s, err := drivers[1].Get(ctx, got[1].ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another Pod is taken for the sandbox: %+v, %v", s, err)
	}

	stopFilling()
	keeping.Wait()
	for i, s := range got {
		if err := drivers[i%2].Delete(ctx, s); err != nil {
			t.Error(err)
		}
	}
	if err := pools[1].Drain(ctx); err != nil {
		t.Error(err)
	}
	// The cluster's garbage collector looks for new kinds every 30 seconds.
	eventually(t, "an empty namespace", func() error {
		for resource := range agentKinds {
			if all, err := c.of(resource).List(ctx, metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
				return fmt.Errorf("%d %s, %w", len(all.Items), resource, err)
			}
		}
		all, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) > 0 {
			return fmt.Errorf("%d Pods, %w", len(all.Items), err)
		}
		return nil
	})
	if removed, err := drivers[0].(sandbox.Pruner).Prune(ctx, true); err != nil || len(removed) != 0 {
		t.Errorf("left: %+v, %v", removed, err)
	}
}
