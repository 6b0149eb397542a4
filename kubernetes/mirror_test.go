package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

// following runs Events until the test ends, and returns when the Pods are mirrored.
func (w *world) following(t *testing.T) (events func() []string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var mu sync.Mutex
	var all []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := w.driver.Events(ctx, func(e sandbox.Event) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e.What+" "+e.ID)
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Events ended: %v", err)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	until(t, "the mirror", func() bool { return w.driver.Mirrors(false) })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), all...)
	}
}

// until waits for what another goroutine does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		select {
		case <-t.Context().Done():
			t.Fatalf("waiting for %s: the test was cancelled", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// calls counts the calls of a kind since the last ClearActions.
func (w *world) calls(verb, resource string) (n int) {
	for _, action := range w.Actions() {
		if action.Matches(verb, resource) {
			n++
		}
	}
	return n
}

// A process finds what it made, changed and removed, and asks for no list.
func TestMirror(t *testing.T) {
	w := newVersionedWorld(t)
	events := w.following(t)
	w.ClearActions()
	for range 20 {
		bare := spec
		bare.Key, bare.Name = "", ""
		s := w.create(t, bare)
		deadline := time.Now().Add(time.Hour).UTC()
		if err := w.driver.Renew(t.Context(), s, deadline); err != nil {
			t.Fatal(err)
		}
		all, err := w.driver.List(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != s.ID || all[0].State != sandbox.Ready || !all[0].Deadline.Equal(deadline) {
			t.Fatalf("the list after the creation: %+v, %v", all, err)
		}
		gets := w.calls("get", "pods")
		if found, err := w.driver.Get(t.Context(), s.ID); err != nil || found.Instance != s.Instance || w.calls("get", "pods") != gets {
			t.Fatalf("got %+v, %v, after %d calls", found, err, w.calls("get", "pods")-gets)
		}
		if err := w.driver.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if all, err := w.driver.List(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("the list after the removal: %+v, %v", all, err)
		}
		until(t, "its events", func() bool {
			said := strings.Join(events(), ", ")
			return strings.Contains(said, "start "+s.ID) && strings.Contains(said, "destroy "+s.ID)
		})
	}
	if n := w.calls("list", "pods"); n != 0 {
		t.Errorf("%d lists of the Pods", n)
	}
}

// Sandboxes that another process makes, claims and removes are reported.
func TestMirrorOfOthers(t *testing.T) {
	w := newVersionedWorld(t)
	events := w.following(t)
	other := w.another()
	bare := spec
	bare.Key, bare.Name, bare.Env = "", "", nil
	if err := other.Warm(t.Context(), "p", bare); err != nil {
		t.Fatal(err)
	}
	var pool []*sandbox.Sandbox
	until(t, "the member of the pool", func() bool {
		all, err := w.driver.List(t.Context())
		pool = all
		return err == nil && len(all) == 1 && all[0].State == sandbox.Ready
	})
	s, warm, err := other.Claim(t.Context(), spec, pool)
	if err != nil || !warm {
		t.Fatalf("warm %v, %v", warm, err)
	}
	until(t, "the claim", func() bool { return strings.Contains(strings.Join(events(), ", "), "start "+s.ID) })
	if found, err := w.driver.Get(t.Context(), s.ID); err != nil || found.Pool != "" {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := other.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	until(t, "the removal", func() bool { return strings.Contains(strings.Join(events(), ", "), "destroy "+s.ID) })
	if found, err := w.driver.Get(t.Context(), s.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("found %+v, %v", found, err)
	}
}

// another is the driver of another process.
func (w *world) another() *kubernetes.Driver {
	return kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", ReadyTimeout: 10 * time.Second}, w, nil)
}

// While the API server does not tell what changes, what was told before is no answer.
func TestMirrorWithoutWatch(t *testing.T) {
	w := newVersionedWorld(t)
	told := watch.NewRaceFreeFake()
	var mu sync.Mutex
	up := true
	w.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		if !up {
			return true, nil, syscall.ECONNREFUSED
		}
		return true, told, nil
	})
	w.following(t)
	if all, err := w.driver.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	mu.Lock()
	up = false
	mu.Unlock()
	w.fail("list", "pods", false, syscall.ECONNREFUSED)
	told.Stop()
	until(t, "the end of the mirror", func() bool { return !w.driver.Mirrors(false) })
	if all, err := w.driver.List(t.Context()); !errors.Is(err, sandbox.ErrUnknown) {
		t.Errorf("got %v, %v; the API server is down", all, err)
	}
}

// Who may not watch is told so.
func TestEventsRefused(t *testing.T) {
	w := newWorld(t)
	w.fail("list", "pods", false, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no right")))
	err := w.driver.Events(t.Context(), func(sandbox.Event) error { return nil })
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// The error of the function that is told ends Events.
func TestEventsEnd(t *testing.T) {
	w := newVersionedWorld(t)
	enough := errors.New("enough")
	ended := make(chan error, 1)
	go func() { ended <- w.driver.Events(t.Context(), func(sandbox.Event) error { return enough }) }()
	until(t, "the mirror", func() bool { return w.driver.Mirrors(false) })
	w.create(t, spec)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if w.driver.Mirrors(false) {
		t.Error("it still mirrors")
	}
}

// Prune works from mirrors, finds what is to be removed, and asks for nothing else.
func TestPruneFromMirror(t *testing.T) {
	w := newVersionedWorld(t)
	w.following(t)
	until(t, "the mirror of the records", func() bool { return w.driver.Mirrors(true) })
	for _, ttl := range []time.Duration{time.Nanosecond, time.Hour, time.Hour} {
		each := spec
		each.Key, each.Name, each.TTL = "", "", ttl
		w.create(t, each)
	}
	w.ClearActions()
	var removed []sandbox.Removal
	until(t, "the mirror of the last record", func() bool { // a record that is not mirrored yet is asked for
		var err error
		if removed, err = w.driver.Prune(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return len(removed) == 1 && w.calls("get", "secrets") > 0
	})
	w.ClearActions()
	removed, err := w.driver.Prune(t.Context(), false)
	if err != nil || len(removed) != 1 || !strings.Contains(removed[0].Reason, "its time was up") {
		t.Fatalf("removed %v, %v", removed, err)
	}
	if lists := w.calls("list", "pods") + w.calls("list", "secrets"); lists != 0 {
		t.Errorf("%d lists", lists)
	}
}

// A sandbox that was renewed after it was listed stays.
func TestPruneLooksAgain(t *testing.T) {
	w := newVersionedWorld(t)
	brief := spec
	brief.TTL = time.Nanosecond
	s := w.create(t, brief)
	pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old := pods.DeepCopy()
	if err := w.driver.Renew(t.Context(), s, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, old, nil })
	if removed, err := w.driver.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// No secret stays in memory.
func TestMirroredSecret(t *testing.T) {
	record, err := json.Marshal(kubernetes.Record{
		ID: "0123456789ab", Pod: "pod", Key: "the key", Ticket: "the ticket", Token: "the egress", Env: map[string]string{"TOKEN": "the token"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []*corev1.Secret{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sandbox-0123456789ab", Labels: map[string]string{"actiond.dev/managed": "sandbox"}},
			Data:       map[string][]byte{"record": record},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "another", Annotations: map[string]string{"last-applied": "the key"}},
			Data:       map[string][]byte{"record": record, "more": []byte("the key")},
		},
	} {
		kept, err := kubernetes.TrimSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		again, err := kubernetes.TrimSecret(kept)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		data := string(again.(*corev1.Secret).Data["record"])
		for _, secret := range []string{"the key", "the ticket", "the egress", "the token"} {
			if strings.Contains(string(text)+data, secret) {
				t.Errorf("%s is kept: %s %s", secret, text, data)
			}
		}
	}
}
