package kubernetes_test

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/internal/ticket"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

// controlled is a cluster in memory with agent-sandbox, whose controller carries out
// what it is told before the call returns.
type controlled struct {
	*world

	driver  kubernetes.AgentSandbox
	objects *dynamicfake.FakeDynamicClient
	version string

	mu    sync.Mutex
	count int
	pools map[string]int      // how many Sandboxes a pool should still make
	free  map[string][]string // the Sandboxes that wait, by pool
	mute  bool                // it answers no claims
	meet  func(box, pod metav1.Object)
}

func newControlled(t *testing.T, version string, ready time.Duration) *controlled {
	t.Helper()
	w := newVersionedWorld(t)
	w.Resources = []*metav1.APIResourceList{
		{GroupVersion: "agents.x-k8s.io/" + version, APIResources: []metav1.APIResource{{Name: "sandboxes"}}},
		{GroupVersion: "extensions.agents.x-k8s.io/" + version, APIResources: []metav1.APIResource{{Name: "sandboxtemplates"}, {Name: "sandboxwarmpools"}, {Name: "sandboxclaims"}}},
	}
	c := &controlled{world: w, version: version, pools: map[string]int{}, free: map[string][]string{}}
	c.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		c.resource("sandboxtemplates"): "SandboxTemplateList", c.resource("sandboxwarmpools"): "SandboxWarmPoolList",
		c.resource("sandboxclaims"): "SandboxClaimList", c.resource("sandboxes"): "SandboxList",
	})
	c.objects.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		object := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		c.made(object)
		if err := c.objects.Tracker().Create(action.GetResource(), object, "agents"); err != nil {
			return true, nil, err
		}
		switch object.GetKind() {
		case "SandboxWarmPool":
			size, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
			for range size {
				c.free[object.GetName()] = append(c.free[object.GetName()], c.box(t, object, ""))
			}
		case "SandboxClaim":
			if !c.mute {
				c.bind(t, object)
			}
		}
		return true, object, nil
	})
	c.objects.PrependReactor("delete", "sandboxclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		del := action.(clienttesting.DeleteActionImpl)
		found, err := c.objects.Tracker().Get(action.GetResource(), "agents", del.GetName())
		if err == nil && del.DeleteOptions.Preconditions != nil && *del.DeleteOptions.Preconditions.UID != found.(metav1.Object).GetUID() {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), del.GetName(), errors.New("another uid"))
		}
		return false, nil, nil
	})
	plain := kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", ReadyTimeout: ready}, w,
		func(context.Context) (net.Conn, error) { return nil, errors.New("tests do not connect") })
	c.driver = kubernetes.WithDynamic(plain, c.objects)
	c.world.driver = plain
	return c
}

func (c *controlled) resource(name string) schema.GroupVersionResource {
	group := "extensions.agents.x-k8s.io"
	if name == "sandboxes" {
		group = "agents.x-k8s.io"
	}
	return schema.GroupVersionResource{Group: group, Version: c.version, Resource: name}
}

func (c *controlled) made(object metav1.Object) {
	c.count++
	object.SetUID(types.UID(fmt.Sprint("uid-", c.count)))
	object.SetNamespace("agents")
	object.SetCreationTimestamp(metav1.Now())
}

// box makes a Sandbox of a pool and its Pod, and returns its name.
func (c *controlled) box(t *testing.T, pool *unstructured.Unstructured, name string) string {
	t.Helper()
	ref, _, _ := unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	template, err := c.objects.Tracker().Get(c.resource("sandboxtemplates"), "agents", ref)
	if err != nil {
		t.Fatal(err)
	}
	content, _, _ := unstructured.NestedMap(template.(*unstructured.Unstructured).Object, "spec", "podTemplate")
	box := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "agents.x-k8s.io/" + c.version, "kind": "Sandbox", "spec": map[string]any{"podTemplate": content, "added": "later"},
	}}
	c.made(box)
	if box.SetName(name); name == "" {
		box.SetName(fmt.Sprintf("%s-%d", pool.GetName(), c.count))
	}
	yes := true
	box.SetOwnerReferences([]metav1.OwnerReference{{Kind: pool.GetKind(), Name: pool.GetName(), UID: pool.GetUID(), Controller: &yes}})
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &pod); err != nil {
		t.Fatal(err)
	}
	pod.Name = box.GetName()
	pod.Labels = map[string]string{"agents.x-k8s.io/sandbox-name-hash": "x"}
	pod.Annotations = map[string]string{}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Sandbox", Name: box.GetName(), UID: box.GetUID(), Controller: &yes}}
	if c.meet != nil {
		c.meet(box, &pod)
	}
	if err := c.objects.Tracker().Create(c.resource("sandboxes"), box, "agents"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Pods("agents").Create(t.Context(), &pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return box.GetName()
}

// bind gives a claim a Sandbox of its pool: one that waits, or a new one.
func (c *controlled) bind(t *testing.T, claim *unstructured.Unstructured) {
	t.Helper()
	ref, _, _ := unstructured.NestedString(claim.Object, "spec", "warmPoolRef", "name")
	pool, err := c.objects.Tracker().Get(c.resource("sandboxwarmpools"), "agents", ref)
	if err != nil {
		c.status(t, claim, map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "WarmPoolNotFound", "message": "not found"}}})
		return
	}
	var name string
	if waiting := c.free[ref]; len(waiting) > 0 {
		name, c.free[ref] = waiting[0], waiting[1:]
		found, err := c.objects.Tracker().Get(c.resource("sandboxes"), "agents", name)
		if err != nil {
			t.Fatal(err)
		}
		box := found.DeepCopyObject().(*unstructured.Unstructured)
		yes := true
		box.SetOwnerReferences([]metav1.OwnerReference{{Kind: "SandboxClaim", Name: claim.GetName(), UID: claim.GetUID(), Controller: &yes}})
		if err := c.objects.Tracker().Update(c.resource("sandboxes"), box, "agents"); err != nil {
			t.Fatal(err)
		}
	} else {
		owner := pool.DeepCopyObject().(*unstructured.Unstructured)
		owner.SetUID(claim.GetUID())
		name = c.box(t, owner, claim.GetName())
	}
	// With what a later version may add or change.
	c.status(t, claim, map[string]any{
		"sandbox": map[string]any{"name": name, "podIPs": []any{"10.0.0.1"}, "new": int64(1)}, "conditions": []any{"odd", map[string]any{"type": "Ready", "status": "True"}},
	})
}

func (c *controlled) status(t *testing.T, claim *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	claim = claim.DeepCopy()
	claim.Object["status"] = status
	if err := c.objects.Tracker().Update(c.resource("sandboxclaims"), claim, "agents"); err != nil {
		t.Fatal(err)
	}
}

// names are those of the objects of agent-sandbox of one kind.
func (c *controlled) names(t *testing.T, resource string) (names []string) {
	t.Helper()
	list, err := c.objects.Resource(c.resource(resource)).Namespace("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}

// claimable is a pool of the specification of the tests.
func (c *controlled) claimable(t *testing.T, size int) {
	t.Helper()
	bare := spec
	bare.Key, bare.Name, bare.Env = "", "", nil
	if err := c.driver.KeepPool(t.Context(), "p", bare, size); err != nil {
		t.Fatal(err)
	}
}

func TestAgentSandboxPool(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1beta1", 10*time.Second)
	c.claimable(t, 2)
	c.claimable(t, 2) // changes nothing
	templates, pools := c.names(t, "sandboxtemplates"), c.names(t, "sandboxwarmpools")
	if len(templates) != 1 || !slices.Equal(templates, pools) || len(c.names(t, "sandboxes")) != 2 {
		t.Fatalf("templates %v, pools %v, Sandboxes %v", templates, pools, c.names(t, "sandboxes"))
	}
	found, err := c.objects.Tracker().Get(c.resource("sandboxtemplates"), "agents", templates[0])
	if err != nil {
		t.Fatal(err)
	}
	object := found.(*unstructured.Unstructured).Object
	content, _, _ := unstructured.NestedMap(object, "spec", "podTemplate")
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &pod); err != nil {
		t.Fatal(err)
	}
	if management, _, _ := unstructured.NestedString(object, "spec", "networkPolicyManagement"); management != "Unmanaged" {
		t.Errorf("its network policies are %q", management)
	}
	container := pod.Spec.Containers[0]
	words := strings.Join(container.Command, " ")
	key, err := kubernetes.PoolKey(c.driver.Driver, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	public := hex.EncodeToString(key.Public().(ed25519.PublicKey))
	if !strings.Contains(words, "--claim --claim-key "+public+" --claim-name $(ACTIOND_POD)") || strings.Contains(words, "--claim-hash") || strings.Contains(words, "--ttl") {
		t.Errorf("its command: %s", words)
	}
	if last := container.Env[len(container.Env)-1]; last.Name != "ACTIOND_POD" || last.ValueFrom.FieldRef.FieldPath != "metadata.uid" {
		t.Errorf("its variables: %+v", container.Env)
	}
	if pod.Spec.Hostname != "" || container.StartupProbe == nil || len(pod.Labels) != 0 || len(pod.Annotations) != 0 {
		t.Errorf("its Pod: %+v", pod)
	}
	private := hex.EncodeToString(key.Seed())
	if text := fmt.Sprint(object); strings.Contains(text, private) {
		t.Error("the template says how to sign tickets")
	}
	if all, err := c.driver.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("Pods that wait are sandboxes: %v, %v", all, err)
	}

	c.claimable(t, 5)
	changed, err := c.objects.Tracker().Get(c.resource("sandboxwarmpools"), "agents", pools[0])
	if err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(changed.(*unstructured.Unstructured).Object, "spec", "replicas"); size != 5 {
		t.Errorf("a pool of %d", size)
	}
	if err := c.driver.KeepPool(t.Context(), "q", sandbox.Spec{Image: "image"}, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.driver.KeepPool(t.Context(), "p", sandbox.Spec{Image: "another"}, 1); err != nil {
		t.Fatal(err)
	}
	if got := c.names(t, "sandboxwarmpools"); len(got) != 2 || slices.Contains(got, pools[0]) || !slices.Equal(got, c.names(t, "sandboxtemplates")) {
		t.Errorf("after another specification: pools %v, templates %v", got, c.names(t, "sandboxtemplates"))
	}
	if err := c.driver.RemovePool(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if got := c.names(t, "sandboxwarmpools"); len(got) != 1 || !slices.Equal(got, c.names(t, "sandboxtemplates")) {
		t.Errorf("after the end of one pool: %v, %v", got, c.names(t, "sandboxtemplates"))
	}
}

func TestAgentSandboxClaim(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newControlled(t, version, 10*time.Second)
			bare := spec
			bare.Key, bare.Name, bare.Env = "", "", nil
			pool, err := sandbox.NewPool(t.Context(), c.driver, "p", bare, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.claimable(t, 1)
			s, warm, err := pool.Claim(t.Context(), spec)
			if err != nil || !warm || s.ID != sandbox.ID("key") || s.Name != "first" || s.State != sandbox.Ready || s.Pool != "" {
				t.Fatalf("Claim: %+v, %v, %v", s, warm, err)
			}
			key, err := s.Key()
			if err != nil || len(c.agent.claims) != 1 {
				t.Fatalf("%v, claims %+v", err, c.agent.claims)
			}
			signing, err := kubernetes.PoolKey(c.driver.Driver, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said := c.agent.claims[0]
			if said.Key != key || said.Env["A"] != "1" || said.TTL <= 0 || !ticket.Valid(signing.Public().(ed25519.PublicKey), s.Instance, said.Ticket) {
				t.Errorf("said %+v", said)
			}
			claims := c.names(t, "sandboxclaims")
			if !slices.Equal(claims, []string{"sandbox-" + s.ID}) {
				t.Fatalf("claims %v", claims)
			}
			end := func() string {
				claim, err := c.objects.Tracker().Get(c.resource("sandboxclaims"), "agents", claims[0])
				if err != nil {
					t.Fatal(err)
				}
				text, _, _ := unstructured.NestedString(claim.(*unstructured.Unstructured).Object, "spec", "lifecycle", "shutdownTime")
				return text
			}
			if at, err := time.Parse(time.RFC3339, end()); err != nil || at.Before(s.Deadline) || at.After(s.Deadline.Add(time.Second)) {
				t.Errorf("the claim ends at %v, %v, the sandbox at %v", at, err, s.Deadline)
			}
			again, warm, err := pool.Claim(t.Context(), spec)
			if err != nil || warm || again.Instance != s.Instance || len(c.agent.claims) != 1 {
				t.Errorf("the same key again: %+v, %v, %v", again, warm, err)
			}
			other := spec
			other.Key, other.Name = "other", ""
			cold, warm, err := pool.Claim(t.Context(), other)
			if err != nil || warm || cold.Instance == s.Instance || cold.State != sandbox.Ready {
				t.Errorf("from an empty pool: %+v, %v, %v", cold, warm, err)
			}
			named := spec
			named.Key = "third"
			if _, _, err := pool.Claim(t.Context(), named); !errors.Is(err, sandbox.ErrConflict) || len(c.names(t, "sandboxclaims")) != 2 {
				t.Errorf("a name that is taken: %v, claims %v", err, c.names(t, "sandboxclaims"))
			}
			later := s.Deadline.Add(time.Hour)
			if err := c.driver.Renew(t.Context(), s, later); err != nil || end() < later.UTC().Format(time.RFC3339) {
				t.Errorf("renewed until %v: %v, the claim ends at %v", later, err, end())
			}
			if err := c.driver.Renew(t.Context(), s, time.Time{}); err != nil || end() != "" {
				t.Errorf("renewed without end: %v, the claim ends at %v", err, end())
			}
			if err := c.driver.Delete(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := c.names(t, "sandboxclaims"); !slices.Equal(got, []string{"sandbox-" + cold.ID}) || slices.Contains(c.left(t), "secret/sandbox-"+s.ID) {
				t.Errorf("left: %v, %v", got, c.left(t))
			}
			if err := c.driver.RemovePool(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			other.Key = "fourth"
			plain, warm, err := pool.Claim(t.Context(), other)
			if err != nil || warm || plain.State != sandbox.Ready || len(c.names(t, "sandboxclaims")) != 1 {
				t.Errorf("without the pool: %+v, %v, %v", plain, warm, err)
			}
		})
	}
}

// No two keys get one Pod, and callers with one key get one.
func TestAgentSandboxClaimers(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1beta1", 10*time.Second)
	c.claimable(t, 3)
	got := make([]string, 12)
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			mine := spec
			mine.Key, mine.Name = fmt.Sprint("key-", i/2), ""
			s, _, err := c.driver.ClaimFrom(t.Context(), "p", mine)
			if err != nil {
				t.Errorf("claimer %d: %v", i, err)
				return
			}
			got[i] = s.Instance
		})
	}
	group.Wait()
	for i := range got {
		if got[i] == "" {
			t.Fatalf("claimer %d got nothing", i)
		}
		for j := range i {
			if (got[i] == got[j]) != (i/2 == j/2) {
				t.Errorf("claimers %d and %d: %s, %s", i, j, got[i], got[j])
			}
		}
	}
}

// The claim of a caller that died is finished by the next caller with its key, or removed.
func TestAgentSandboxAfterCrash(t *testing.T) {
	t.Parallel()
	crash := apierrors.NewInternalError(errors.New("crash"))
	for step, fail := range map[string]func(c *controlled){
		"before the record": func(c *controlled) { c.fail("create", "secrets", false, crash) },
		"before the Pod":    func(c *controlled) { c.fail("patch", "pods", false, crash) },
		"before the owner":  func(c *controlled) { c.fail("patch", "secrets", false, crash) },
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := newControlled(t, "v1", 10*time.Second)
			c.claimable(t, 1)
			if _, err := kubernetes.PoolKey(c.driver.Driver, t.Context()); err != nil {
				t.Fatal(err)
			}
			reactors, others := slices.Clone(c.ReactionChain), slices.Clone(c.objects.ReactionChain)
			fail(c)
			c.fail("delete", "*", false, crash)
			c.objects.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, crash })
			if _, _, err := c.driver.ClaimFrom(t.Context(), "p", spec); err == nil {
				t.Fatal("nothing failed")
			}
			c.ReactionChain, c.objects.ReactionChain = reactors, others
			s, _, err := c.driver.ClaimFrom(t.Context(), "p", spec)
			if err != nil || s.State != sandbox.Ready || len(c.names(t, "sandboxclaims")) != 1 || len(c.names(t, "sandboxes")) != 1 {
				t.Fatalf("the next caller: %+v, %v; claims %v, Sandboxes %v", s, err, c.names(t, "sandboxclaims"), c.names(t, "sandboxes"))
			}
			removed, err := c.driver.Prune(t.Context(), false)
			if err != nil || len(removed) != 0 {
				t.Errorf("pruned %+v, %v", removed, err)
			}
		})
	}
}

// A claimer that fails leaves nothing, and says what the controller said.
func TestAgentSandboxFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		limit  time.Duration
		change func(c *controlled)
		want   string
	}{
		{"no answer", 300 * time.Millisecond, func(c *controlled) { c.mute = true }, "waiting for agent-sandbox to give it a Pod: nothing after"},
		{"another's Pod", 300 * time.Millisecond, func(c *controlled) {
			c.meet = func(_, pod metav1.Object) { pod.GetOwnerReferences()[0].UID = "someone's" }
		}, "nothing after"},
		{"the server refuses", time.Minute, func(c *controlled) { c.agent.claiming = func() error { return errors.New("broken") } }, "claiming it: broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newControlled(t, "v1beta1", tt.limit)
			tt.change(c)
			c.claimable(t, 1)
			_, _, err := c.driver.ClaimFrom(t.Context(), "p", spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, new(*sandbox.StartError)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if got := c.names(t, "sandboxclaims"); len(got) != 0 || slices.Contains(c.left(t), "secret/sandbox-"+sandbox.ID("key")) {
				t.Errorf("left: %v, %v", got, c.left(t))
			}
		})
	}
}

// A claimer that waits goes on after the API server was away for a moment.
func TestAgentSandboxOverOutage(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1", 10*time.Second)
	c.driver.SetOutage(time.Minute)
	c.claimable(t, 1)
	down := apierrors.NewInternalError(errors.New("down"))
	watches, looks := 0, 0
	c.objects.PrependWatchReactor("sandboxclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
		watches++
		return watches == 1, nil, down
	})
	c.objects.PrependReactor("get", "sandboxclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		looks++
		return looks == 1, nil, down
	})
	if s, _, err := c.driver.ClaimFrom(t.Context(), "p", spec); err != nil || s.State != sandbox.Ready || watches < 3 || looks < 2 {
		t.Errorf("%+v, %v; %d watches, %d looks", s, err, watches, looks)
	}
}

// A Pod that the controller makes in the place of one that went is not the sandbox.
func TestAgentSandboxReplaces(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1beta1", 10*time.Second)
	c.claimable(t, 1)
	s, _, err := c.driver.ClaimFrom(t.Context(), "p", spec)
	if err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("agents")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	pod := list.Items[0]
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, OwnerReferences: pod.OwnerReferences, Labels: map[string]string{}}, Spec: pod.Spec}
	if _, err := pods.Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.driver.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the key again: %v", err)
	}
	if _, err := c.driver.Get(t.Context(), s.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("it is found: %v", err)
	}
	// The cluster removes the record with its owner.
	if err := c.CoreV1().Secrets("agents").Delete(t.Context(), "sandbox-"+s.ID, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if removed, err := c.driver.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("pruned a claim that may be another caller's: %+v, %v", removed, err)
	}
	claim, err := c.objects.Tracker().Get(c.resource("sandboxclaims"), "agents", "sandbox-"+s.ID)
	if err != nil {
		t.Fatal(err)
	}
	old := claim.DeepCopyObject().(*unstructured.Unstructured)
	old.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour)))
	if err := c.objects.Tracker().Update(c.resource("sandboxclaims"), old, "agents"); err != nil {
		t.Fatal(err)
	}
	removed, err := c.driver.Prune(t.Context(), true)
	if err != nil || len(removed) != 1 || removed[0].ID != s.ID || len(c.names(t, "sandboxclaims")) != 1 {
		t.Errorf("would prune %+v, %v", removed, err)
	}
	if _, err := c.driver.Prune(t.Context(), false); err != nil || len(c.names(t, "sandboxclaims")) != 0 {
		t.Errorf("after prune: %v, %v", c.names(t, "sandboxclaims"), err)
	}
}

func TestAgentSandboxIsServed(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1beta1", 10*time.Second)
	c.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{}, nil
	})
	found, err := c.driver.Examine(t.Context())
	if err != nil || !has(found, "note", "rights", "to watch sandboxclaims.extensions.agents.x-k8s.io") || has(found, "ok", "agent-sandbox", "") {
		t.Errorf("without rights doctor says %+v, %v", found, err)
	}
	if found := c.examine(t); !has(found, "ok", "agent-sandbox", "extensions.agents.x-k8s.io/v1beta1") {
		t.Errorf("with rights doctor says %+v", found)
	}
}

func TestAgentSandboxIsNotServed(t *testing.T) {
	t.Parallel()
	for version, resources := range map[string][]metav1.APIResource{
		"v1alpha1": {{Name: "sandboxes"}, {Name: "sandboxtemplates"}, {Name: "sandboxwarmpools"}, {Name: "sandboxclaims"}},
		"v1":       {{Name: "sandboxes"}},
	} {
		c := newControlled(t, "v1", 10*time.Second)
		for _, list := range c.Resources {
			group, _, _ := strings.Cut(list.GroupVersion, "/")
			list.GroupVersion, list.APIResources = group+"/"+version, resources
		}
		if err := c.driver.Prepare(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "install agent-sandbox") {
			t.Errorf("%s: Prepare: %v", version, err)
		}
		if _, err := c.driver.Prune(t.Context(), false); err != nil {
			t.Errorf("%s: Prune: %v", version, err)
		}
		if err := c.driver.RemovePool(t.Context(), "p"); err != nil {
			t.Errorf("%s: RemovePool: %v", version, err)
		}
		if found := c.examine(t); !has(found, "note", "agent-sandbox", "does not serve it") {
			t.Errorf("%s: doctor: %+v", version, found)
		}
	}
}

// A finding counts for a while, and while the API server does not answer.
func TestAgentSandboxIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := newControlled(t, "v1beta1", 10*time.Second)
	reads := map[string]int{}
	var refuse error
	c.PrependReactor("get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource().Resource
		reads[resource]++
		return refuse != nil && resource == "resource", nil, refuse // which discovery asks for
	})
	c.claimable(t, 1)
	for range 3 {
		c.claimable(t, 1)
	}
	if reads["secrets"] != 1 {
		t.Errorf("the pool's key was read %d times", reads["secrets"])
	}
	for _, list := range c.Resources { // the cluster is upgraded
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		list.GroupVersion = group + "/v1"
	}
	if found := c.examine(t); !has(found, "ok", "agent-sandbox", "extensions.agents.x-k8s.io/v1beta1") {
		t.Errorf("doctor says %+v", found)
	}
	c.driver.SetRecheck(0)
	refuse = apierrors.NewServiceUnavailable("down")
	if found := c.examine(t); !has(found, "ok", "agent-sandbox", "extensions.agents.x-k8s.io/v1beta1") {
		t.Errorf("without an answer doctor says %+v", found)
	}
	refuse = nil
	if found := c.examine(t); !has(found, "ok", "agent-sandbox", "extensions.agents.x-k8s.io/v1") || has(found, "ok", "agent-sandbox", "v1beta1") {
		t.Errorf("later doctor says %+v", found)
	}
	refuse = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no rights"))
	if found := c.examine(t); !has(found, "note", "agent-sandbox", "does not allow this account to find out") {
		t.Errorf("without rights doctor says %+v", found)
	}
	if _, err := c.driver.Prune(t.Context(), false); err != nil {
		t.Errorf("without rights: %v", err)
	}
}
