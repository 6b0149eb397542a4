package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

// newVersionedWorld is a cluster that refuses changes of a Pod that has changed since it
// was looked at, as an API server does.
// A renewal that lands while a sandbox is being pruned is kept.
func TestRenewedWhilePruned(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	s := w.create(t, sandbox.Spec{Image: "image", TTL: time.Nanosecond})
	var once sync.Once
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	w.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { // between the reading of the Pod and its removal
			all, err := w.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), "agents")
			if err != nil {
				t.Error(err)
				return
			}
			pod := all.(*corev1.PodList).Items[0]
			pod.Annotations["actiond.dev/ends-after"] = "1h0m0s"
			pod.ResourceVersion += "1"
			if err := w.Tracker().Update(pods, &pod, "agents"); err != nil {
				t.Error(err)
			}
		})
		return false, nil, nil
	})
	if removed, err := w.driver.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := w.driver.Get(t.Context(), s.ID); err != nil {
		t.Errorf("the renewed sandbox: %v", err)
	}
}

func newVersionedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	var mu sync.Mutex
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	conflict := func(name string) error {
		return apierrors.NewConflict(pods.GroupResource(), name, errors.New("it has changed"))
	}
	w.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		patch := action.(clienttesting.PatchAction)
		found, err := w.Tracker().Get(pods, "agents", patch.GetName())
		if err != nil {
			return true, nil, err
		}
		pod := found.DeepCopyObject().(*corev1.Pod)
		var changes map[string]any
		if err := json.Unmarshal(patch.GetPatch(), &changes); err != nil {
			return true, nil, err
		}
		meta := changes["metadata"].(map[string]any)
		if uid, ok := meta["uid"]; ok && uid != string(pod.UID) {
			return true, nil, conflict(pod.Name)
		}
		if version, ok := meta["resourceVersion"]; ok && version != pod.ResourceVersion {
			return true, nil, conflict(pod.Name)
		}
		merge(pod.Labels, meta["labels"])
		merge(pod.Annotations, meta["annotations"])
		version, _ := strconv.Atoi(pod.ResourceVersion)
		pod.ResourceVersion = strconv.Itoa(version + 1)
		return true, pod.DeepCopy(), w.Tracker().Update(pods, pod, "agents")
	})
	w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		del := action.(clienttesting.DeleteActionImpl)
		found, err := w.Tracker().Get(pods, "agents", del.GetName())
		if err != nil {
			return true, nil, err
		}
		if p := del.DeleteOptions.Preconditions; p != nil && p.ResourceVersion != nil && *p.ResourceVersion != found.(*corev1.Pod).ResourceVersion {
			return true, nil, conflict(del.GetName())
		}
		return false, nil, nil
	})
	w.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).ResourceVersion = "1"
		return false, nil, nil
	})
	return w
}

// merge changes a map as a merge patch says.
func merge(into map[string]string, changes any) {
	all, _ := changes.(map[string]any)
	for name, value := range all {
		if text, ok := value.(string); ok {
			into[name] = text
		} else {
			delete(into, name)
		}
	}
}

// warm fills a pool and returns its members.
func (w *world) warm(t *testing.T, size int) []*sandbox.Sandbox {
	t.Helper()
	bare := spec
	bare.Key, bare.Name, bare.Env = "", "", nil
	for range size {
		if err := w.driver.Warm(t.Context(), "p", bare); err != nil {
			t.Fatal(err)
		}
	}
	return w.members(t)
}

func (w *world) members(t *testing.T) (members []*sandbox.Sandbox) {
	t.Helper()
	all, err := w.driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Pool == "p" {
			members = append(members, s)
		}
	}
	return members
}

func TestClaim(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	members := w.warm(t, 2)
	if len(members) != 2 || members[0].State != sandbox.Ready || len(w.agent.claims) != 0 {
		t.Fatalf("warm: %+v, %d claims", members, len(w.agent.claims))
	}
	if _, err := members[0].Key(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of a warm one: %v", err)
	}
	s, warm, err := w.driver.Claim(t.Context(), spec, members)
	if err != nil || !warm || s.ID != sandbox.ID("key") || s.Pool != "" || s.Name != "first" || s.State != sandbox.Ready || s.Instance != members[0].Instance && s.Instance != members[1].Instance {
		t.Fatalf("Claim: %+v, %v, %v", s, warm, err)
	}
	list, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items { // a node with it may be emptied, or not
		used := string(pod.UID) == s.Instance || pod.Name == s.Instance
		got := [2]string{pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], pod.Annotations["karpenter.sh/do-not-disrupt"]}
		if want := [2]string{strconv.FormatBool(!used), strconv.FormatBool(used)}; got != want {
			t.Errorf("%s, in use %t: got %v, want %v", pod.Name, used, got, want)
		}
	}
	key, err := s.Key()
	if err != nil || len(w.agent.claims) != 1 || w.agent.claims[0].Key != key || w.agent.claims[0].Env["A"] != "1" || w.agent.claims[0].TTL <= 0 {
		t.Errorf("key %q, %v; claims %+v", key, err, w.agent.claims)
	}
	again, warm, err := w.driver.Claim(t.Context(), spec, w.members(t))
	if err != nil || warm || again.Instance != s.Instance || len(w.agent.claims) != 1 {
		t.Errorf("the same key again: %+v, %v, %v", again, warm, err)
	}
	// A claimer with an old list must not remove it, and the other one can be removed.
	for _, member := range members {
		if err := w.driver.Discard(t.Context(), member); err != nil {
			t.Error(err)
		}
	}
	if found, err := w.driver.Get(t.Context(), s.ID); err != nil || found.Instance != s.Instance {
		t.Errorf("after Discard: %+v, %v", found, err)
	}
	if left := w.members(t); len(left) != 0 {
		t.Errorf("left in the pool: %v", left)
	}
	if other, warm, err := w.driver.Claim(t.Context(), sandbox.Spec{Image: "image", Key: "other"}, members); other != nil || warm || err != nil {
		t.Errorf("claimed of nothing: %+v, %v, %v", other, warm, err)
	}
}

// Claimers who know the same list get a sandbox each, until there is none left.
func TestClaimers(t *testing.T) {
	t.Parallel()
	const size, claimers = 4, 8
	w := newVersionedWorld(t)
	members := w.warm(t, size)
	made := len(w.Actions())
	got := make([]*sandbox.Sandbox, claimers)
	var group sync.WaitGroup
	for i := range claimers {
		group.Go(func() {
			own := spec
			own.Name, own.Key = "", fmt.Sprint("claimer ", i)
			var err error
			if got[i], _, err = w.driver.Claim(t.Context(), own, members); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	owners := map[string]int{}
	for i, s := range got {
		if s == nil {
			continue
		}
		if other, taken := owners[s.Instance]; taken {
			t.Errorf("claimers %d and %d got one sandbox", other, i)
		}
		owners[s.Instance] = i
	}
	if len(owners) != size {
		t.Errorf("%d of %d sandboxes were claimed", len(owners), size)
	}
	if left := w.left(t); len(left) != 2*size {
		t.Errorf("left: %v", left)
	}
	records := 0
	for _, action := range w.Actions()[made:] {
		if action.Matches("create", "secrets") {
			records++
		}
	}
	if records != size {
		t.Errorf("%d records were made for %d claims", records, size)
	}
}

// A claimer that knows an old list makes no records for Pods of others.
func TestClaimOfTaken(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	members := w.warm(t, 8)
	own := spec
	own.Name, own.Key = "", "others"
	for i := range members {
		own.Key += "'"
		if _, warm, err := w.driver.Claim(t.Context(), own, members[i:i+1]); err != nil || !warm {
			t.Fatal(warm, err)
		}
	}
	w.ClearActions()
	own.Key = "late"
	if s, warm, err := w.driver.Claim(t.Context(), own, members); s != nil || warm || err != nil {
		t.Errorf("%v, %v, %v", s, warm, err)
	}
	for _, action := range w.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("%s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

// A driver with another image of the server knows the Pods that wait with the old one.
func TestOutdated(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	members := w.warm(t, 1)
	next := kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server:2"}, w, nil)
	all, err := next.List(t.Context())
	if err != nil || len(all) != 1 || !all[0].Outdated || members[0].Outdated {
		t.Errorf("%+v, %v", all, err)
	}
	s, _, err := w.driver.Claim(t.Context(), spec, members)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := next.Get(t.Context(), s.ID); err != nil || found.Outdated {
		t.Errorf("claimed: %+v, %v", found, err)
	}
}

// A claimer dies in each step. Another caller with its key gets exactly one sandbox, and
// Prune leaves nothing else.
func TestClaimAfterCrash(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verb, resource string
		nth            int
	}{
		"no record": {"create", "secrets", 1}, "record": {"patch", "pods", 1}, "id": {"patch", "secrets", 1}, "owner": {"agent", "claim", 1},
		"claimed": {"patch", "pods", 2}, "ready": {"delete", "secrets", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newVersionedWorld(t)
			members := w.warm(t, 1)
			ctx, die := context.WithCancel(t.Context())
			defer die()
			calls, dead, armed := 0, false, true
			kill := func() bool {
				if armed {
					calls++
				}
				if armed && calls == tt.nth {
					die()
					dead = true
				}
				return dead
			}
			var mu sync.Mutex
			w.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				if dead || action.Matches(tt.verb, tt.resource) && kill() {
					return true, nil, context.Canceled
				}
				return false, nil, nil
			})
			w.agent.claiming = func() error {
				mu.Lock()
				defer mu.Unlock()
				if tt.verb == "agent" && kill() {
					return context.Canceled
				}
				return nil
			}
			_, _, err := w.driver.Claim(ctx, spec, members)
			if err == nil && name != "ready" {
				t.Fatal("a caller without a cluster claimed a sandbox")
			}
			mu.Lock()
			dead, armed = false, false // another caller
			mu.Unlock()
			w.age(t)
			s, err := w.driver.Create(t.Context(), spec)
			if err != nil || s.ID != sandbox.ID("key") || s.State != sandbox.Ready || s.Pool != "" {
				t.Fatalf("%+v, %v", s, err)
			}
			for _, member := range w.members(t) {
				if err := w.driver.Discard(t.Context(), member); err != nil {
					t.Error(err)
				}
			}
			w.age(t)
			if _, err := w.driver.Prune(t.Context(), false); err != nil {
				t.Error(err)
			}
			if left := w.left(t); len(left) != 2 || !strings.HasPrefix(left[1], "secret/sandbox-"+s.ID) {
				t.Errorf("left: %v", left)
			}
			if found, err := w.driver.Get(t.Context(), s.ID); err != nil || found.Instance != s.Instance {
				t.Errorf("after Prune: %+v, %v", found, err)
			}
		})
	}
}

// lateAnswers is an API server whose answers to changes of Pods are late: after runs first, and
// may lose the answer.
type lateAnswers struct {
	clientgo.Interface

	after func(patch string) error
}

func (a lateAnswers) CoreV1() typedcorev1.CoreV1Interface { //nolint:ireturn // as the client has it
	return lateCore{a.Interface.CoreV1(), a.after}
}

type lateCore struct {
	typedcorev1.CoreV1Interface

	after func(patch string) error
}

func (c lateCore) Pods(namespace string) typedcorev1.PodInterface { //nolint:ireturn // as the client has it
	return latePods{c.CoreV1Interface.Pods(namespace), c.after}
}

type latePods struct {
	typedcorev1.PodInterface

	after func(patch string) error
}

func (p latePods) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	pod, err := p.PodInterface.Patch(ctx, name, kind, patch, o)
	if err := errors.Join(p.after(string(patch)), ctx.Err()); err != nil {
		return nil, err
	}
	return pod, err
}

// Who sees a warm sandbox as ready may claim it, even if its maker ends at that moment, or does
// not learn that it is ready.
func TestWarmMakerLeaves(t *testing.T) {
	t.Parallel()
	bare := spec
	bare.Key, bare.Name, bare.Env = "", "", nil
	warm := func(ctx context.Context, w *world, noted func() error) error {
		api := lateAnswers{w, func(patch string) error {
			if strings.Contains(patch, "actiond.dev/ready") {
				return noted()
			}
			return nil
		}}
		config := kubernetes.Config{Agent: w.agent, ServerImage: "server", ReadyTimeout: 20 * time.Second}
		return kubernetes.New(config, api, func(context.Context) (net.Conn, error) { return nil, errors.New("tests do not connect") }).Warm(ctx, "p", bare)
	}
	t.Run("told to end", func(t *testing.T) {
		t.Parallel()
		w := newVersionedWorld(t)
		ctx, end := context.WithCancel(t.Context())
		err := warm(ctx, w, func() error { end(); return nil })
		if members := w.members(t); err != nil || len(members) != 1 || members[0].State != sandbox.Ready {
			t.Errorf("%v, in the pool: %+v", err, members)
		}
	})
	t.Run("answer lost after a claim", func(t *testing.T) {
		t.Parallel()
		w := newVersionedWorld(t)
		err := warm(t.Context(), w, func() error {
			if _, warm, err := w.driver.Claim(t.Context(), spec, w.members(t)); err != nil || !warm {
				t.Errorf("Claim: %v, %v", warm, err)
			}
			return errors.New("the answer is lost")
		})
		if s, getErr := w.driver.Get(t.Context(), sandbox.ID("key")); getErr != nil || s.State != sandbox.Ready || err == nil {
			t.Errorf("the claimed sandbox: %+v, %v; its maker: %v", s, getErr, err)
		}
	})
	t.Run("answer lost", func(t *testing.T) {
		t.Parallel()
		w := newVersionedWorld(t)
		err := warm(t.Context(), w, func() error { return errors.New("the answer is lost") })
		if left := w.left(t); err == nil || len(left) > 0 {
			t.Errorf("%v, left: %v", err, left)
		}
	})
}

// age makes all records as old as those of dead callers.
func (w *world) age(t *testing.T) {
	t.Helper()
	secrets := w.CoreV1().Secrets("agents")
	all, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range all.Items {
		secret.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		if _, err := secrets.Update(t.Context(), &secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A sandbox that is claimed between the two lists of Prune has, by the first list, no
// record, and stays.
func TestPruneWhileClaiming(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	members := w.warm(t, 1)
	before, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := w.driver.Claim(t.Context(), spec, members)
	if err != nil {
		t.Fatal(err)
	}
	w.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, before, nil })
	if removed, err := w.driver.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Fatalf("Prune: %+v, %v; claimed %+v", removed, err, s)
	}
	if found, err := w.driver.Get(t.Context(), s.ID); err != nil || found.Instance != s.Instance {
		t.Errorf("after Prune: %+v, %v", found, err)
	}
}

// A warm sandbox ends by itself where no process keeps its pool. One that was claimed has
// the limits of its owner.
func TestWarmEnds(t *testing.T) {
	t.Parallel()
	w := newVersionedWorld(t)
	members := w.warm(t, 1)
	if left := time.Until(members[0].Deadline); left <= 0 || left > sandbox.PoolAge {
		t.Errorf("it ends in %v", left)
	}
	pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(pods, err)
	}
	if command := strings.Join(pods.Items[0].Spec.Containers[0].Command, " "); !strings.Contains(command, " --ttl "+sandbox.PoolAge.String()) {
		t.Errorf("its server is started by %s", command)
	}
	endless := spec
	endless.TTL = 0
	s, warm, err := w.driver.Claim(t.Context(), endless, members)
	if err != nil || !warm || !s.Deadline.IsZero() || w.agent.claims[0].TTL != 0 {
		t.Errorf("%+v, %v, %v; claims %+v", s, warm, err, w.agent.claims)
	}
}

// The pool of a process that ends is taken over by one that waits, with its sandboxes;
// the last process removes them.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const size = 2
	w := newVersionedWorld(t)
	bare := spec
	bare.Key, bare.Name, bare.Env = "", "", nil
	type process struct {
		pool *sandbox.Pool
		stop func()
	}
	start := func() *process {
		// A process that waits asks for the lead within 1.76 s, and one that ends leaves it
		// for 2.11 s: on a busy machine the difference must not be small.
		d := kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", LeaseTime: 6 * time.Second}, w, nil)
		pool, err := sandbox.NewPool(t.Context(), d, "p", bare, size, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { pool.Run(ctx, 100*time.Millisecond) })
		t.Cleanup(running.Wait)
		t.Cleanup(cancel)
		return &process{pool, func() {
			cancel()
			running.Wait()
			if err := pool.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}}
	}
	first := start()
	for len(w.members(t)) < size {
		<-time.After(10 * time.Millisecond)
	}
	names := func() (all []string) {
		for _, s := range w.members(t) {
			all = append(all, s.Instance)
		}
		return all
	}
	before := fmt.Sprint(names())
	w.ClearActions()
	second := start()
	until(t, "the second process to wait", func() bool { return w.calls("get", "leases") >= 2 }) // the first one renews without a look
	first.stop()
	if after := fmt.Sprint(names()); after != before {
		t.Errorf("the pool was %s, and is %s after its process ended", before, after)
	}
	lease, err := w.CoordinationV1().Leases("agents").Get(t.Context(), "actiond-pool-p", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("no process took the pool over: %+v, %v", lease, err)
	}
	second.stop()
	if left := w.members(t); len(left) > 0 {
		t.Errorf("left by the last process: %v", left)
	}
}
