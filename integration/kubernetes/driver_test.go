//go:build kubernetes

package kubernetes_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

// namespace makes a namespace that is removed with the test.
func namespace(t *testing.T) string {
	t.Helper()
	made, err := shared.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.api.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	awaitAccount(t, made.Name)
	spaces.Store(testOf(t), made.Name)
	return made.Name
}

// spaces are the newest namespaces of tests.
var spaces sync.Map

func testOf(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// spaceOf is the newest namespace of a test, for a second driver.
func spaceOf(t *testing.T) string {
	t.Helper()
	space, _ := spaces.Load(testOf(t))
	return space.(string)
}

// awaitAccount waits for the account of a namespace, without which it takes no Pods.
func awaitAccount(t *testing.T, space string) {
	t.Helper()
	if err := shared.await("the account of "+space, "controllers", func(ctx context.Context) error {
		_, err := shared.api.CoreV1().ServiceAccounts(space).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// opening guards the variable that names the kubeconfig: tests run at the same time.
var opening sync.Mutex

// openAs opens a driver with an account.
func openAs(t *testing.T, kubeconfig string, config kubernetes.Config) *kubernetes.Driver {
	t.Helper()
	opening.Lock()
	defer opening.Unlock()
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil { // t.Setenv refuses parallel tests
		t.Fatal(err)
	}
	d, err := kubernetes.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// open opens a driver for a namespace of its own.
func open(t *testing.T, direct bool) sandbox.Driver {
	t.Helper()
	return openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + namespace(t), Direct: direct})
}

// openFor is open for a test of the suite, with an egress proxy for the one of networks.
func openFor(t *testing.T, direct bool) sandbox.Driver {
	t.Helper()
	if !strings.HasSuffix(t.Name(), "/network") {
		return open(t, direct)
	}
	space, _ := withEgress(t)
	return openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + space, Direct: direct})
}

// openIn opens a driver with an account, and completes its configuration.
func openIn(t *testing.T, kubeconfig string, config kubernetes.Config) *kubernetes.Driver {
	t.Helper()
	config.ServerImage = cmp.Or(config.ServerImage, serverImage)
	// Not to the test's output: what the libraries started may log after the test.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	config.Logger = cmp.Or(config.Logger, logger.With("test", t.Name()))
	told := config.Progress
	config.Progress = func(id string, state sandbox.State, waiting string) {
		t.Logf("%s %s: %s", id, state, waiting)
		if told != nil {
			told(id, state, waiting)
		}
	}
	if config.Agent == nil {
		config.Agent = agent.Agent{}
	}
	return openAs(t, kubeconfig, config)
}

// small asks for so little that those of all tests fit on a node of two processors.
var small = sandbox.Spec{Image: busyboxImage, Memory: 256 << 20, CPUs: 0.5}

func TestDriverByAddress(t *testing.T) {
	t.Parallel()
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver { t.Helper(); return openFor(t, true) }, Spec: small}.Run(t)
}

func TestDriverByPortForward(t *testing.T) {
	t.Parallel()
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver { t.Helper(); return openFor(t, false) }, Spec: small}.Run(t)
}

// The errors for a user who asks for things that the cluster does not have.
func TestReasons(t *testing.T) { //nolint:tparallel // its namespace is looked at afterwards
	t.Parallel()
	d := open(t, true)
	for name, change := range map[string]func(*sandbox.Spec){
		"Insufficient memory": func(s *sandbox.Spec) { s.Memory = 1 << 50 },
		"no such image: its image actiond.test/none:1 cannot be pulled": func(s *sandbox.Spec) { s.Image, s.Pull = "actiond.test/none:1", sandbox.PullNever },
		`persistentvolumeclaim "absent" not found`:                      func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "absent", Target: "/data"}} },
	} {
		t.Run(name, func(t *testing.T) {
			spec := small
			change(&spec)
			fails(t, d, spec, name)
		})
	}
	if left, err := d.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Sixteen claimers of two drivers get a sandbox each of a pool of eight, and the eight
// of the pool go to eight of them.
func TestPool(t *testing.T) {
	t.Parallel()
	const size, claimers = 8, 16
	first := open(t, true)
	second := openAs(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + spaceOf(t), ServerImage: serverImage, Agent: agent.Agent{}, Direct: true})
	var pools []*sandbox.Pool
	for _, d := range []sandbox.Driver{first, second} {
		pool, err := sandbox.NewPool(t.Context(), d, "shared", small, size, nil)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, pool)
	}
	ctx, stop := context.WithCancel(t.Context())
	var filling sync.WaitGroup
	filling.Go(func() { pools[0].Run(ctx, time.Second) })
	defer filling.Wait()
	defer stop()
	for ready := 0; ready < size; {
		<-time.After(100 * time.Millisecond)
		all, err := first.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ready = 0
		for _, s := range all {
			if s.Pool == "shared" && s.State == sandbox.Ready {
				ready++
			}
		}
	}
	stop()
	filling.Wait()
	got, fromPool := make([]*sandbox.Sandbox, claimers), make([]bool, claimers)
	took := make([]time.Duration, claimers)
	claim := func(i int) {
		spec := small
		spec.Key = fmt.Sprint("claimer ", i)
		begun := time.Now()
		var err error
		if got[i], fromPool[i], err = pools[i%2].Claim(t.Context(), spec); err != nil {
			t.Errorf("claimer %d: %v", i, err)
		}
		took[i] = time.Since(begun)
	}
	claim(0) // alone, for the log
	t.Logf("a claim, with a first command: %v", took[0])
	var claiming sync.WaitGroup
	for i := 1; i < claimers; i++ {
		claiming.Go(func() { claim(i) })
	}
	claiming.Wait()
	owners, warm := map[string]int{}, 0
	for i, s := range got {
		if s == nil {
			continue
		}
		if other, taken := owners[s.Instance]; taken {
			t.Errorf("claimers %d and %d got one sandbox", other, i)
		}
		owners[s.Instance] = i
		if fromPool[i] {
			warm++
		}
		t.Logf("claimer %d: warm %v, %v", i, fromPool[i], took[i])
	}
	if len(owners) != claimers || warm != size {
		t.Errorf("%d sandboxes, %d of them of the pool; want %d and %d", len(owners), warm, claimers, size)
	}
	for _, s := range got {
		if s != nil {
			if err := first.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		}
	}
	if removed, err := first.(sandbox.Pruner).Prune(t.Context(), true); err != nil || len(removed) != 0 {
		t.Errorf("left: %+v, %v", removed, err)
	}
}
