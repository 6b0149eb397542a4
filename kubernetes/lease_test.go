package kubernetes_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

// other is another process that uses the cluster of w.
func (w *world) other() *kubernetes.Driver {
	return kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", LeaseTime: 3 * time.Second}, w, nil)
}

// One process leads; another takes over when the first has ended its work, and not
// before.
func TestLead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.other(), w.other()
	ctx, stop := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan error, 1)
	var working atomic.Int32
	go func() {
		ended <- first.Lead(ctx, "pool-A_b", false, func(ctx context.Context) {
			working.Add(1)
			close(leads)
			<-ctx.Done()
			<-time.After(500 * time.Millisecond) // creations that are undone
			working.Add(-1)
		})
	}()
	<-leads
	if err := second.Lead(t.Context(), "pool-A_b", false, func(context.Context) { t.Error("two lead") }); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("without waiting: %v", err)
	}
	waiting, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := second.Lead(waiting, "pool-A_b", true, func(context.Context) { t.Error("two lead") }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gives up: %v", err)
	}
	took := make(chan error, 1)
	go func() {
		ctx, done := context.WithCancel(t.Context())
		took <- second.Lead(ctx, "pool-A_b", true, func(context.Context) {
			if working.Load() != 0 {
				t.Error("two lead")
			}
			done()
		})
	}()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := <-took; err != nil {
		t.Errorf("the second: %v", err)
	}
	lease, err := w.CoordinationV1().Leases("agents").Get(t.Context(), "actiond-pool-a-b", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lead was not given back: %+v, %v", lease, err)
	}
}

// Without the API server the lead is lost, and work ends; with it work begins again.
func TestLeadIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var down atomic.Bool
	w.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, apierrors.NewInternalError(errors.New("down"))
	})
	ctx, stop := context.WithCancel(t.Context())
	rounds := 0
	err := w.other().Lead(ctx, "reaper", true, func(lead context.Context) {
		if rounds++; rounds == 2 {
			stop()
			return
		}
		down.Store(true)
		<-lead.Done()
		if cause := context.Cause(lead); ctx.Err() != nil || cause == nil || !strings.Contains(cause.Error(), "lead") {
			t.Errorf("ended by %v", cause)
		}
		down.Store(false)
	})
	if err != nil || rounds != 2 {
		t.Errorf("%v after %d rounds", err, rounds)
	}
}

// All gateways have one key, whichever of them makes it.
func TestGatewayKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := make(chan string, 8)
	for range cap(keys) {
		go func() {
			key, err := w.other().GatewayKey(t.Context(), "actiond-gateway-key")
			if err != nil {
				t.Error(err)
			}
			keys <- key
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if key := <-keys; key != first || len(key) < 32 {
			t.Errorf("keys of %d and %d characters, which differ: %v", len(first), len(key), key != first)
		}
	}
	w.create(t, spec)
	for _, bad := range []string{"", "A", "../x", "sandbox-" + sandbox.ID("key")} {
		if key, err := w.driver.GatewayKey(t.Context(), bad); err == nil {
			t.Errorf("the Secret %q is taken: a key of %d characters", bad, len(key))
		}
	}
	if _, err := w.CoreV1().Secrets("agents").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Data: map[string][]byte{"key": []byte("my own key")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if key, err := w.driver.GatewayKey(t.Context(), "mine"); err != nil || key != "my own key" {
		t.Errorf("%q, %v", key, err)
	}
}

// A process that was killed leaves its Lease held. Its clock, by which the Lease was renewed, may differ by hours;
// what counts is that the Lease does not change for LeaseTime.
func TestLeadOfADeadProcess(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string]time.Duration{"an hour ago": time.Hour, "just now": 0, "on a clock that is an hour ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			renewed := metav1.NewMicroTime(time.Now().Add(-ago))
			if _, err := w.CoordinationV1().Leases("agents").Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "actiond-pool-a"},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(3)), AcquireTime: &renewed, RenewTime: &renewed,
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			led := false
			if err := w.other().Lead(t.Context(), "pool-a", false, func(context.Context) { led = true }); err != nil || !led {
				t.Errorf("led: %t, %v", led, err)
			}
		})
	}
}
