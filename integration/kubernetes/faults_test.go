//go:build kubernetes

package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// shellOf is a function that runs commands in a sandbox and returns their output.
func shellOf(t *testing.T, s *sandbox.Sandbox) func(command string) string {
	t.Helper()
	c := clientOf(t, s)
	return func(command string) string {
		t.Helper()
		o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: command}})
		run, ok := o.(api.RunObservation)
		if err != nil || !ok {
			t.Errorf("%s: %v, %v", command, o, err)
		}
		return run.Content
	}
}

// until fails the test unless holds becomes true within readyTime.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(readyTime); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("it does not happen that %s", what)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// schedulable lets the node take Pods, or not.
func schedulable(t *testing.T, yes bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"unschedulable": %v}}`, !yes)
	if _, err := shared.api.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), "node", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Without the API server actions go on, and what needs it fails in time and says so.
// With it nothing was lost.
func TestNoAPIServer(t *testing.T) {
	var full atomic.Bool // no node takes Pods
	noNode := make(chan struct{})
	waits := sync.OnceFunc(func() { close(noNode) })
	d := openIn(t, shared.kubeconfig(), kubernetes.Config{
		Cluster: "test/" + namespace(t), Direct: true,
		Progress: func(_ string, _ sandbox.State, waiting string) {
			if full.Load() && strings.HasPrefix(waiting, "a node") {
				waits()
			}
		},
	})
	spec := small
	spec.Key = "first"
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	shell := shellOf(t, s)
	shell("echo kept >/tmp/file")
	const gatewayKey = "the key of a gateway of this test"
	g := serve(t, openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + spaceOf(t), Direct: true}), gatewayKey)
	through := func() {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.addr+"/sandboxes/"+s.ID+"/execute_action",
			strings.NewReader(`{"action": {"action": "run", "args": {"command": "cat /tmp/file"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", gatewayKey)
		r.Header.Set("Content-Type", "application/json")
		begun := time.Now()
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("kept")) {
			t.Errorf("through the gateway: %d %s", answer.StatusCode, text)
		}
		t.Logf("an action through the gateway: %v", time.Since(begun))
	}
	through()
	// A call that needs the API server says that the state is unknown.
	unknown := func() {
		t.Helper()
		fresh := openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + spaceOf(t), Direct: true}) // as a command is
		calls := map[string]func(context.Context) error{
			"list":  func(ctx context.Context) error { _, err := d.List(ctx); return err },
			"ls":    func(ctx context.Context) error { _, err := fresh.List(ctx); return err },
			"get":   func(ctx context.Context) error { _, err := d.Get(ctx, s.ID); return err },
			"rm":    func(ctx context.Context) error { return fresh.Delete(ctx, s) },
			"renew": func(ctx context.Context) error { return d.Renew(ctx, s, time.Now().Add(time.Hour)) },
			"prune": func(ctx context.Context) error { _, err := d.Prune(ctx, false); return err },
			"create": func(ctx context.Context) error {
				spec := small
				spec.Key = "second"
				_, err := d.Create(ctx, spec)
				return err
			},
		}
		var group sync.WaitGroup
		for name, call := range calls {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), readyTime)
				defer cancel()
				begun := time.Now()
				if err := call(ctx); !errors.Is(err, sandbox.ErrUnknown) || ctx.Err() != nil {
					t.Errorf("%s: %v", name, err)
				} else {
					t.Logf("%s, after %v: %v", name, time.Since(begun), err)
				}
			})
		}
		group.Wait()
	}

	t.Log("it is stopped")
	shared.signal(t, "apiserver", syscall.SIGSTOP)
	stopped := sync.OnceFunc(func() { shared.signal(t, "apiserver", syscall.SIGCONT) })
	defer stopped()
	shell("echo more >>/tmp/file")
	through()
	unknown()
	through()
	shell("true")
	stopped()

	t.Log("it is killed while a creation waits")
	until(t, "the API server answers", func() bool { _, err := d.List(t.Context()); return err == nil })
	schedulable(t, false)
	defer schedulable(t, true) // for the tests that follow
	full.Store(true)
	waiting := make(chan error, 1)
	go func() {
		spec := small
		spec.Key = "waits"
		_, err := d.Create(t.Context(), spec)
		waiting <- err
	}()
	select {
	case <-noNode:
	case err := <-waiting:
		t.Fatalf("the creation did not wait for a node: %v", err)
	}
	shared.kill(t, "apiserver")
	back := sync.OnceFunc(func() {
		shared.restart(t, "apiserver")
		until(t, "the API server answers", func() bool { _, err := d.List(t.Context()); return err == nil })
	})
	defer back()
	shell("echo last >>/tmp/file")
	through()
	unknown()
	back()
	schedulable(t, true)
	if err := <-waiting; err != nil {
		t.Errorf("the creation that waited: %v", err)
	}

	spec.Key = "second"
	if _, err := d.Create(t.Context(), spec); err != nil {
		t.Error(err)
	}
	spec.Key = "first"
	if again, err := d.Create(t.Context(), spec); err != nil || again.Instance != s.Instance {
		t.Errorf("the first one: %+v, %v", again, err)
	}
	if text := shell("cat /tmp/file"); !strings.HasPrefix(text, "kept") || len(strings.Fields(text)) != 3 {
		t.Errorf("the file has %q", text)
	}
	until(t, "all three are ready", func() bool {
		all, err := d.List(t.Context())
		ready := 0
		for _, s := range all {
			if s.State == sandbox.Ready {
				ready++
			}
		}
		return err == nil && ready == 3 && len(all) == 3
	})
	through()
}

// A sandbox whose node is lost is unknown, and ready again with its node. Once the
// cluster removes its Pod it is gone. It is never replaced before a caller removes it.
func TestNodeDies(t *testing.T) {
	d := open(t, true)
	spec := small
	spec.Key = "key"
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	shell := shellOf(t, s)
	shell("echo kept >/tmp/file")
	is := func(state sandbox.State) func() bool {
		return func() bool {
			found, err := d.Get(t.Context(), s.ID)
			if err != nil {
				t.Error(err)
				return true
			}
			if found.State == state {
				t.Logf("it is %s: %s", state, found.Detail)
			}
			return found.State == state
		}
	}
	same := func() {
		t.Helper()
		if again, err := d.Create(t.Context(), spec); err != nil || again.Instance != s.Instance {
			t.Errorf("its key: %+v, %v", again, err)
		}
		if removed, err := d.(sandbox.Pruner).Prune(t.Context(), false); err != nil || len(removed) != 0 {
			t.Errorf("Prune: %+v, %v", removed, err)
		}
	}
	shared.kill(t, "kubelet")
	back := sync.OnceFunc(func() { shared.restart(t, "kubelet") })
	defer back()
	begun := time.Now()
	until(t, "it is unknown", is(sandbox.Unknown))
	t.Logf("after %v", time.Since(begun))
	same()
	if text := shell("cat /tmp/file"); !strings.Contains(text, "kept") {
		t.Errorf("its processes live, and answer %q", text)
	}
	back()
	until(t, "it is ready again", is(sandbox.Ready))
	same()

	shared.kill(t, "kubelet")
	defer func() {
		shared.restart(t, "kubelet")
		if err := shared.awaitNode(); err != nil {
			t.Error(err)
		}
	}()
	until(t, "it is unknown", is(sandbox.Unknown))
	// The taint manager does this after five minutes, but not to the last node of a cluster.
	pods, _ := objects(t, spaceOf(t))
	if err := shared.api.CoreV1().Pods(spaceOf(t)).Delete(t.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone", is(sandbox.Gone))
	_, err = d.Create(t.Context(), spec)
	t.Log(err)
	if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "is gone, being removed; remove it with 'rm' or 'prune'") {
		t.Errorf("its key: %v", err)
	}
	found, err := d.Get(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), found); err != nil {
		t.Error(err)
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// A taint empties the node: creations say so, sandboxes end and are not found, their
// records go with them, and those that tolerate the taint stay.
func TestNodeIsEmptied(t *testing.T) {
	d := open(t, true)
	taint := func(ctx context.Context, taints string) {
		t.Helper()
		if _, err := shared.api.CoreV1().Nodes().Patch(ctx, "node", types.MergePatchType, []byte(`{"spec": {"taints": `+taints+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var words sync.Map // of the events, by sandbox
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = d.(sandbox.Watcher).Events(ctx, func(e sandbox.Event) error { words.Store(e.ID, e.What); return nil })
	}()
	defer func() { stop(); <-watched }()

	spec, tolerant := small, small
	spec.Key, tolerant.Tolerations = "key", []string{"maintenance:NoExecute"}
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	stays, err := d.Create(t.Context(), tolerant)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the events have them", func() bool { _, ok := words.Load(stays.ID); return ok })
	t.Cleanup(func() { taint(context.WithoutCancel(t.Context()), "null") })
	space := spaceOf(t)
	evicting := openIn(t, shared.kubeconfig(), kubernetes.Config{
		Cluster: "test/" + space, Direct: true,
		Agent: &evictor{evict: func() { taint(t.Context(), `[{"key": "maintenance", "effect": "NoExecute"}]`) }},
	})
	_, err = evicting.Create(t.Context(), small)
	t.Log(err)
	if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "being removed: DeletionByTaintManager") {
		t.Errorf("a creation meanwhile: %v", err)
	}
	until(t, "it is removed", func() bool { _, err := d.Get(t.Context(), s.ID); return errors.Is(err, sandbox.ErrNotFound) })
	until(t, "it is reported", func() bool { word, _ := words.Load(s.ID); return word == "destroy" })
	until(t, "its record is gone", func() bool {
		pods, secrets := objects(t, space)
		return len(pods) == 1 && len(secrets) == 1
	})
	if found, err := d.Get(t.Context(), stays.ID); err != nil || found.State != sandbox.Ready || found.Instance != stays.Instance {
		t.Errorf("the one that tolerates the taint: %+v, %v", found, err)
	}
	shellOf(t, stays)("true")
	if removed, err := d.(sandbox.Pruner).Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("Prune: %+v, %v", removed, err)
	}
	taint(t.Context(), "null")
	if again, err := d.Create(t.Context(), spec); err != nil || again.Instance == s.Instance {
		t.Errorf("its key: %+v, %v", again, err)
	}
}

// The errors for users who ask for things that the cluster refuses.
func TestRefusals(t *testing.T) {
	t.Parallel()
	space := namespace(t)
	in := func(kubeconfig string, config kubernetes.Config) *kubernetes.Driver {
		config.Cluster, config.Direct = "test/"+space, true
		return openIn(t, kubeconfig, config)
	}
	d := in(shared.kubeconfig(), kubernetes.Config{})
	want := func(name string, d *kubernetes.Driver, change func(*sandbox.Spec), is error, parts ...string) {
		t.Run(name, func(t *testing.T) {
			spec := small
			if change != nil {
				change(&spec)
			}
			ctx, cancel := context.WithTimeout(t.Context(), readyTime)
			defer cancel()
			_, err := d.Create(ctx, spec)
			t.Log(err)
			if err == nil || ctx.Err() != nil || is != nil && !errors.Is(err, is) {
				t.Errorf("got %v, want %v", err, is)
			}
			for _, part := range parts {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %v", part, err)
				}
			}
		})
	}
	want("server image", in(shared.kubeconfig(), kubernetes.Config{ServerImage: "actiond.test/none:1"}), nil, sandbox.ErrNoImage, "the server's image actiond.test/none:1 cannot be pulled")
	want("sidecar", in(shared.kubeconfig(), kubernetes.Config{ServerImage: pauseImage}), nil, nil, "the server could not be copied into it: ", "its last words:", "invalid number")
	brief := in(shared.kubeconfig(), kubernetes.Config{ReadyTimeout: 5 * time.Second})
	want("processors", brief, func(s *sandbox.Spec) { s.CPUs = 1000; s.Memory = 1 << 30 }, nil, "waiting for its Pod to run", "Insufficient cpu")
	want("volume", brief, func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "absent", Target: "/data"}} }, nil, `persistentvolumeclaim "absent" not found`)

	quotas := shared.api.CoreV1().ResourceQuotas(space)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the quota is counted", func() bool {
		q, err := quotas.Get(t.Context(), "small", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	want("quota", d, nil, sandbox.ErrQuota, "namespace "+space+": the quota is used up", "exceeded quota: small")
	if err := quotas.Delete(t.Context(), "small", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	evicting := &evictor{Agent: agent.Agent{}, evict: func() {
		pods, _ := objects(t, space)
		if err := shared.api.PolicyV1().Evictions(space).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: space}}); err != nil {
			t.Error(err)
		}
	}}
	want("eviction", in(shared.kubeconfig(), kubernetes.Config{Agent: evicting}), nil, sandbox.ErrNotFound, "being removed: EvictionByEvictionAPI")

	_, limited := installed(t)
	want("rights", in(limited, kubernetes.Config{}), nil, nil, "cannot create resource", "'runtimectl doctor' lists the rights that are missing")
	all, err := d.List(t.Context())
	if pods, secrets := objects(t, space); err != nil || len(all)+len(pods)+len(secrets) != 0 {
		t.Errorf("left: %v, %v, %v, %v", all, pods, secrets, err)
	}

	space = "absent"
	want("no namespace", in(shared.kubeconfig(), kubernetes.Config{}), nil, nil, "create it with 'kubectl create namespace absent'")
	held, err := shared.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ends-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	space = held.Name
	if _, err := shared.api.CoreV1().ConfigMaps(space).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"actiond.test/held"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shared.api.CoreV1().Namespaces().Delete(t.Context(), space, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("namespace ends", in(shared.kubeconfig(), kubernetes.Config{}), nil, nil, "the namespace "+space+" is being removed; use another one")
	if _, err := shared.api.CoreV1().ConfigMaps(space).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// evictor has the sandbox evicted before its first command.
type evictor struct {
	agent.Agent

	evict func()
}

func (e *evictor) Ready(ctx context.Context, _ sandbox.DialFunc, _ string) error {
	e.evict()
	<-ctx.Done()
	return context.Cause(ctx)
}

// A sandbox cannot claim its neighbours, whose servers it reaches where the network has
// no policies: neither with its own key and ticket, nor with what others see of theirs.
func TestNeighbourClaims(t *testing.T) {
	t.Parallel()
	d := open(t, true).(*kubernetes.Driver)
	attacker, err := d.Create(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	owned, err := d.Create(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Warm(t.Context(), "p", small); err != nil {
		t.Fatal(err)
	}
	own, err := attacker.Key()
	if err != nil {
		t.Fatal(err)
	}
	pods, _ := objects(t, spaceOf(t))
	keys := []string{"", own}
	addresses := map[string]string{}
	for _, pod := range pods {
		command := pod.Spec.Containers[0].Command
		for i, word := range command {
			if word == "--claim-hash" {
				keys = append(keys, command[i+1])
			}
		}
		if id := pod.Labels["actiond.dev/id"]; id != attacker.ID {
			addresses[id] = pod.Status.PodIP
		}
	}
	if len(keys) != 5 || len(addresses) != 2 {
		t.Fatalf("%d keys, addresses %v", len(keys), addresses)
	}
	// From this machine: the bridges of some let Pods reach each other, others do not.
	body := `{"key": "` + strings.Repeat("a", 64) + `"}`
	for id, address := range addresses {
		for _, key := range keys {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+":1000/v1/claim", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Session-API-Key", key)
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				continue
			}
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusForbidden {
				t.Errorf("the claim of %s with %q was answered: %d %s", id, key, answer.StatusCode, text)
			}
		}
	}
	shellOf(t, owned)("true")
	if s, warm, err := d.Claim(t.Context(), small, members(t, d)); err != nil || !warm || s == nil {
		t.Errorf("the claim of a pool whose member was attacked: %+v, %v, %v", s, warm, err)
	}
}
