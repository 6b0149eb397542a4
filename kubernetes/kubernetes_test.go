package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

// agent takes every claim, unless it is told to fail.
type agent struct {
	sandbox.Agent // what is not faked

	mu       sync.Mutex
	claims   []sandbox.Claim
	ttl      time.Duration   // of the last renewal
	fail     error           // of the next Ready
	claiming func() error    // called by Claim
	usage    []sandbox.Stats // of the next calls of Usage
	hang     func()          // called by the first Ready, which then waits for its context
}

func (a *agent) Claim(_ context.Context, _ sandbox.DialFunc, c sandbox.Claim) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claiming != nil {
		if err := a.claiming(); err != nil {
			return err
		}
	}
	a.claims = append(a.claims, c)
	return nil
}

func (a *agent) Ready(ctx context.Context, _ sandbox.DialFunc, _ string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hang != nil {
		a.hang()
		a.hang = nil
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return a.fail
}

func (a *agent) Renew(_ context.Context, _ sandbox.DialFunc, _, _ string, ttl time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ttl = ttl
	return nil
}

func (a *agent) Usage(context.Context, sandbox.DialFunc, string) (sandbox.Stats, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.usage[0]
	a.usage = a.usage[1:]
	return next, nil
}

func (a *agent) Status(context.Context, sandbox.DialFunc, string) (sandbox.Status, error) {
	return sandbox.Status{}, errors.New("the driver does not ask")
}

// world is a cluster in memory, in which every Pod gets the status at once.
type world struct {
	*fake.Clientset

	driver *kubernetes.Driver
	agent  *agent
	status corev1.PodStatus
	ahead  time.Duration // the API server's clock, of this machine's
}

var running = corev1.PodStatus{
	Phase: corev1.PodRunning, PodIP: "10.0.0.1",
	ContainerStatuses: []corev1.ContainerStatus{{Name: "sandbox", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Clientset: fake.NewClientset(), agent: &agent{}, status: running}
	uid := 0
	w.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, ok := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
		if ok {
			uid++
			object.SetUID(types.UID(strings.Repeat("u", uid)))
			if made := object.GetCreationTimestamp(); made.IsZero() {
				object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(w.ahead).Truncate(time.Second)))
			}
		}
		if pod, ok := object.(*corev1.Pod); ok {
			pod.Status = w.status
			pod.Spec.NodeName = "node"
		}
		return false, nil, nil
	})
	w.driver = kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", ReadyTimeout: 20 * time.Second}, w,
		func(context.Context) (net.Conn, error) { return nil, errors.New("tests do not connect") })
	return w
}

func (w *world) create(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	s, err := w.driver.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fail makes the calls of a kind fail; after they were carried out if done is set.
func (w *world) fail(verb, resource string, done bool, err error) (calls *int) {
	calls = new(int)
	var mu sync.Mutex
	w.PrependReactor(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		*calls++
		if done && *calls == 1 {
			if create, ok := action.(clienttesting.CreateAction); ok {
				_ = w.Tracker().Create(action.GetResource(), create.GetObject(), action.GetNamespace())
			}
		}
		return true, nil, err
	})
	return calls
}

// hash is that of the specification of the tests.
func (w *world) hash(t *testing.T) string {
	t.Helper()
	s := spec
	hash, err := w.driver.Check(t.Context(), &s)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// left are the names of the objects in the cluster.
func (w *world) left(t *testing.T) (names []string) {
	t.Helper()
	pods, err := w.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "agents")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.(*corev1.PodList).Items {
		names = append(names, "pod/"+p.Name)
	}
	secrets, err := w.Tracker().List(corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithKind("Secret"), "agents")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.(*corev1.SecretList).Items {
		names = append(names, "secret/"+s.Name)
	}
	return names
}

var spec = sandbox.Spec{Image: "image", Key: "key", Name: "first", Env: map[string]string{"A": "1"}, TTL: time.Hour}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(t, spec)
	if s.ID != sandbox.ID("key") || s.State != sandbox.Ready || s.Name != "first" || s.Deadline.IsZero() || s.Instance == "" {
		t.Errorf("created %+v", *s)
	}
	key, err := s.Key()
	if err != nil || len(w.agent.claims) != 1 || w.agent.claims[0].Key != key || w.agent.claims[0].Env["A"] != "1" || w.agent.claims[0].TTL > time.Hour {
		t.Errorf("key %q, %v; claims %+v", key, err, w.agent.claims)
	}
	secret, err := w.CoreV1().Secrets("agents").Get(t.Context(), "sandbox-"+s.ID, metav1.GetOptions{})
	if err != nil || len(secret.OwnerReferences) != 1 || string(secret.OwnerReferences[0].UID) != s.Instance {
		t.Errorf("the Secret is not its Pod's: %+v, %v", secret, err)
	}
	again, err := w.driver.Create(t.Context(), spec)
	if err != nil || again.Instance != s.Instance || len(w.agent.claims) != 1 {
		t.Errorf("the same key again: %v, %v, %d claims", again, err, len(w.agent.claims))
	}
	if err := w.driver.Renew(t.Context(), s, time.Time{}); err != nil || w.agent.ttl != 0 {
		t.Errorf("Renew: %v, %v", err, w.agent.ttl)
	}
	if found, err := w.driver.Get(t.Context(), s.ID); err != nil || !found.Deadline.IsZero() {
		t.Errorf("without a deadline: %+v, %v", found, err)
	}
	if err := w.driver.Delete(t.Context(), s); err != nil || len(w.left(t)) > 0 {
		t.Errorf("Delete: %v, left %v", err, w.left(t))
	}
}

// The keys of many sandboxes are read by one list, and that of one sandbox with its record;
// one whose record was deleted says so.
func TestReadKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		s := w.create(t, sandbox.Spec{Image: "image", Name: name})
		var err error
		if keys[name], err = s.Key(); err != nil {
			t.Fatal(err)
		}
		if name == "c" {
			if err := w.CoreV1().Secrets("agents").Delete(t.Context(), "sandbox-"+s.ID, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := w.driver.List(t.Context())
	if err != nil || w.driver.ReadKeys(t.Context(), all) != nil {
		t.Fatal(err)
	}
	one, err := w.driver.Get(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	gets := w.fail("get", "secrets", false, apierrors.NewNotFound(corev1.Resource("secrets"), "s"))
	for _, s := range append(all, one) {
		key, err := s.Key()
		if s.Name == "c" {
			if !errors.Is(err, sandbox.ErrConflict) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "its Secret sandbox-"+s.ID+" was deleted; remove the sandbox with 'runtimectl rm "+s.ID+"'") {
				t.Errorf("got %q, %v", key, err)
			}
		} else if err != nil || key != keys[s.Name] {
			t.Errorf("%s: got %q, %v", s.Name, key, err)
		}
	}
	if *gets != 1 {
		t.Errorf("%d Secrets were read", *gets)
	}
}

// A connection that fails is not the end of a sandbox; the cluster knows whether it ended.
func TestDialFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*testing.T, *world, *corev1.Pod)
		is     error
	}{
		"it runs": {func(*testing.T, *world, *corev1.Pod) {}, sandbox.ErrUnknown},
		"no API server": {func(_ *testing.T, w *world, _ *corev1.Pod) {
			w.fail("get", "pods", false, apierrors.NewInternalError(errors.New("broken")))
		}, sandbox.ErrUnknown},
		"no right to look": {func(_ *testing.T, w *world, _ *corev1.Pod) {
			w.fail("get", "pods", false, apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("no")))
		}, sandbox.ErrUnknown},
		"ended": {func(t *testing.T, w *world, pod *corev1.Pod) {
			t.Helper()
			pod.Status = terminated(1, "")
			if _, err := w.CoreV1().Pods("agents").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, sandbox.ErrNotFound},
		"removed": {func(t *testing.T, w *world, pod *corev1.Pod) {
			t.Helper()
			if err := w.CoreV1().Pods("agents").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, sandbox.ErrNotFound},
		"replaced": {func(t *testing.T, w *world, pod *corev1.Pod) {
			t.Helper()
			pod.UID = "another"
			if _, err := w.CoreV1().Pods("agents").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, sandbox.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.create(t, spec)
			pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 {
				t.Fatalf("%d Pods, %v", len(pods.Items), err)
			}
			tt.change(t, w, &pods.Items[0])
			if _, err := s.Dial(t.Context()); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), "tests do not connect") {
				t.Errorf("got %v, want %v", err, tt.is)
			}
		})
	}
}

// Whichever call fails, whether or not the API server carried it out, a creation
// leaves nothing.
func TestCreateFails(t *testing.T) {
	t.Parallel()
	broken := apierrors.NewInternalError(errors.New("broken"))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("exceeded quota: small, requested: pods=1"))
	pods := corev1.Resource("pods")
	for _, tt := range []struct {
		name, verb, resource string
		done                 bool
		err                  error
		is                   error
		want                 string
	}{
		{"record", "create", "secrets", false, broken, sandbox.ErrUnknown, "making the record"},
		{"record made", "create", "secrets", true, broken, sandbox.ErrUnknown, "making the record"},
		{"names", "list", "secrets", false, broken, sandbox.ErrUnknown, "looking for the name first"},
		{"pod", "create", "pods", false, broken, sandbox.ErrUnknown, "making the Pod"},
		{"pod made", "create", "pods", true, broken, sandbox.ErrUnknown, "making the Pod"},
		{"quota", "create", "pods", false, quota, sandbox.ErrQuota, "namespace agents: the quota is used up"},
		{"policy", "create", "pods", false, apierrors.NewForbidden(pods, "p", errors.New("maximum cpu usage per Container is 1")), sandbox.ErrInvalid, "maximum cpu usage"},
		{
			"rights", "create", "pods", false, apierrors.NewForbidden(pods, "p", errors.New(`User "u" cannot create resource "pods" in API group ""`)), nil,
			"'runtimectl doctor' lists the rights that are missing",
		},
		{"no namespace", "create", "secrets", false, apierrors.NewNotFound(corev1.Resource("namespaces"), "agents"), nil, "create it with 'kubectl create namespace agents'"},
		{"refused", "create", "pods", false, apierrors.NewBadRequest("no such field"), sandbox.ErrInvalid, "no such field"},
		{"owner", "patch", "secrets", false, broken, sandbox.ErrUnknown, "to its Pod"},
		{"note", "patch", "pods", false, apierrors.NewNotFound(pods, "p"), sandbox.ErrNotFound, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			calls := w.fail(tt.verb, tt.resource, tt.done, tt.err)
			s, err := w.driver.Create(t.Context(), spec)
			if s != nil || err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || *calls == 0 {
				t.Errorf("got %v, %v after %d calls; want %v, %q", s, err, *calls, tt.is, tt.want)
			}
			if left := w.left(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// terminated is a Pod whose server ended.
func terminated(status int32, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "sandbox", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status, Message: message}}},
	}}
}

// The words of the cluster reach the caller.
func TestReasons(t *testing.T) {
	t.Parallel()
	waiting := func(name, reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: name, Image: "image", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
		}}
	}
	for _, tt := range []struct {
		name   string
		status corev1.PodStatus
		fail   error
		is     error
		want   string
	}{
		{"image", waiting("sandbox", "ErrImagePull", "image: not found"), nil, sandbox.ErrNoImage, "its image image cannot be pulled: ErrImagePull: image: not found"},
		{"server image", waiting("server", "ErrImageNeverPull", "absent"), nil, sandbox.ErrNoImage, "the server's image image cannot be pulled"},
		{"server", waiting("server", "PostStartHookError", "no /server"), nil, nil, "the server could not be copied into it: PostStartHookError: no /server: is image of another version than runtimectl?"},
		{"server crashes", waiting("server", "CrashLoopBackOff", "back-off 10s"), nil, nil, "the server could not be copied into it: CrashLoopBackOff: "},
		{"start", waiting("sandbox", "RunContainerError", "no /bin"), nil, nil, "RunContainerError: no /bin"},
		{"evicted", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on memory"}, nil, nil, "Evicted: The node was low on memory"},
		{"ended", terminated(1, "a message of the agent"), nil, nil, "its server ended with status 1\n"},
		{"given up", terminated(70, "it crashed 6 times\n"), nil, nil, "it crashed 6 times\n"},
		{"no shell", running, errors.New("no shell"), nil, "waiting for the first command in its shell: no shell"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status, w.agent.fail = tt.status, tt.fail
			_, err := w.driver.Create(t.Context(), spec)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if left := w.left(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// One failed pull does not end a creation: the kubelet tries again. The second one does.
func TestFailedPulls(t *testing.T) {
	t.Parallel()
	status := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "sandbox", Image: "image", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "registry restarts"}},
		}}}
	}
	for name, tt := range map[string]struct {
		then []corev1.PodStatus
		want error
	}{
		"it succeeds":             {[]corev1.PodStatus{status("ImagePullBackOff"), running}, nil},
		"seen for the first time": {[]corev1.PodStatus{running}, nil},
		"it fails again":          {[]corev1.PodStatus{status("ImagePullBackOff"), status("ErrImagePull")}, sandbox.ErrNoImage},
		"no back-off seen":        {[]corev1.PodStatus{status("ContainerCreating"), status("ErrImagePull")}, sandbox.ErrNoImage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status = status("ErrImagePull")
			var changes sync.WaitGroup
			d := kubernetes.New(kubernetes.Config{Agent: w.agent, ServerImage: "server", Progress: func(_ string, state sandbox.State, waiting string) {
				if len(tt.then) == 0 || !strings.Contains(waiting, "node") {
					return
				}
				next := tt.then[0]
				tt.then = tt.then[1:]
				changes.Go(func() {
					pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
					if err == nil {
						pods.Items[0].Status = next
						_, err = w.CoreV1().Pods("agents").UpdateStatus(t.Context(), &pods.Items[0], metav1.UpdateOptions{})
					}
					if err != nil {
						t.Error(err)
					}
				})
			}}, w, nil)
			if _, err := d.Create(t.Context(), spec); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			changes.Wait()
		})
	}
}

// A server that dies while it is claimed breaks its connection first. The cluster's words
// for its end, which come a moment later, are those that the caller gets.
func TestServerDiesInClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent.claiming = func() error {
		pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("%d Pods, %v", len(pods.Items), err)
		}
		pod := &pods.Items[0]
		pod.Status = terminated(1, "")
		go func() {
			if _, err := w.CoreV1().Pods("agents").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}()
		return errors.New("http: server closed idle connection")
	}
	if _, err := w.driver.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "its server ended with status 1\n") {
		t.Errorf("got %v", err)
	}
}

// A container that brought the server and cannot be started again later does no harm.
func TestServerIsThere(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"CrashLoopBackOff", "PostStartHookError", "ErrImagePull", "ImagePullBackOff", "RunContainerError"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status = running
			w.status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "server", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
			}
			if s, err := w.driver.Create(t.Context(), spec); err != nil || s.State != sandbox.Ready {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// The container that brought the server ends after the sandbox's, and the Pod's phase
// changes then.
func TestGoneBeforeItsPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.status = running
	s := w.create(t, spec)
	pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods, %v", len(pods.Items), err)
	}
	pod := pods.Items[0]
	pod.Status.ContainerStatuses = terminated(70, "it crashed 6 times").ContainerStatuses
	if _, err := w.CoreV1().Pods("agents").UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.driver.Get(t.Context(), s.ID); err != nil || got.State != sandbox.Gone || got.Detail != "it crashed 6 times" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A caller goes on where another one died.
func TestCreateAfterCrash(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"pods", "secrets"} { // it died before the Pod was made, and before the Secret got its owner
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, die := context.WithCancel(t.Context())
			dead := false
			w.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if dead || action.Matches("create", "pods") && verb == "pods" || action.Matches("patch", "secrets") && verb == "secrets" {
					die()
					dead = true
					return true, nil, context.Canceled
				}
				return false, nil, nil
			})
			if _, err := w.driver.Create(ctx, spec); err == nil {
				t.Fatal("a caller without a cluster created a sandbox")
			}
			dead, verb = false, "" // another caller
			s := w.create(t, spec)
			if left := w.left(t); len(left) != 2 || s.State != sandbox.Ready {
				t.Errorf("%+v; there are %v", s, left)
			}
		})
	}
}

// A caller that follows may make the Pod anew while the caller that began undoes its
// creation. Neither leaves a Pod without a record.
func TestCreateRaces(t *testing.T) {
	t.Parallel()
	t.Run("the caller that began", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.fail("create", "pods", false, apierrors.NewInternalError(errors.New("broken")))
		w.PrependReactor("delete", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			secret, err := w.Tracker().Get(action.GetResource(), "agents", action.(clienttesting.DeleteAction).GetName())
			var r kubernetes.Record
			if err == nil {
				err = json.Unmarshal(secret.(*corev1.Secret).Data["record"], &r)
			}
			if err == nil {
				err = w.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: r.Pod}})
			}
			if err != nil {
				t.Error(err)
			}
			return false, nil, nil
		})
		if _, err := w.driver.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		if left := w.left(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("the caller that follows", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		data, err := json.Marshal(kubernetes.Record{ID: sandbox.ID("key"), Pod: "first", Spec: w.hash(t)})
		if err != nil {
			t.Fatal(err)
		}
		secrets := corev1.SchemeGroupVersion.WithResource("secrets")
		if err := w.Tracker().Add(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "agents", Name: "sandbox-" + sandbox.ID("key"), UID: "of the first", CreationTimestamp: metav1.Now(),
				Labels: map[string]string{"actiond.dev/managed": "sandbox"},
			},
			Data: map[string][]byte{"record": data},
		}); err != nil {
			t.Fatal(err)
		}
		undone := false
		w.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if undone {
				return false, nil, nil
			}
			undone = true
			name := action.(clienttesting.PatchAction).GetName()
			if err := w.Tracker().Delete(secrets, "agents", name); err != nil {
				t.Error(err)
			}
			return true, nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
		})
		s, err := w.driver.Create(t.Context(), spec)
		if err != nil || !undone {
			t.Fatal(err, undone)
		}
		if key, err := s.Key(); err != nil || key == "" {
			t.Errorf("the key: %q, %v", key, err)
		}
		if left := w.left(t); len(left) != 2 || slices.Contains(left, "pod/first") {
			t.Errorf("left: %v", left)
		}
	})
}

// A sandbox that is removed while it is created does not come back.
func TestRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent.hang = func() {
		found, err := w.driver.Get(t.Context(), "first")
		if err == nil {
			err = w.driver.Delete(t.Context(), found)
		}
		if err != nil {
			t.Error(err)
		}
	}
	s, err := w.driver.Create(t.Context(), spec)
	if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "removed meanwhile") {
		t.Errorf("got %v, %v", s, err)
	}
	if left := w.left(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A sandbox that could not be removed is not reported as removed.
func TestPruneFails(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"pods", "secrets"} {
		w := newWorld(t)
		w.create(t, sandbox.Spec{Image: "image", TTL: time.Millisecond})
		w.fail("delete", resource, false, apierrors.NewInternalError(errors.New("broken")))
		if removed, err := w.driver.Prune(t.Context(), false); !errors.Is(err, sandbox.ErrUnknown) || len(removed) > 0 {
			t.Errorf("%s: got %v, %v", resource, removed, err)
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	create := func(key string, ttl time.Duration) *sandbox.Sandbox {
		s, err := w.driver.Create(ctx, sandbox.Spec{Image: "image", Key: key, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kept := create("kept", time.Hour)
	over, lost, ended, died := create("over", time.Millisecond), create("lost", 0), create("ended", 0), create("died", 0)
	pods, secrets := w.CoreV1().Pods("agents"), w.CoreV1().Secrets("agents")
	podOf := func(s *sandbox.Sandbox) *corev1.Pod {
		all, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "actiond.dev/id=" + s.ID})
		if err != nil || len(all.Items) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return &all.Items[0]
	}
	if err := secrets.Delete(ctx, "sandbox-"+lost.ID, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := podOf(ended)
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod = podOf(died)
	delete(pod.Annotations, "actiond.dev/ready")
	pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	if _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Two records without a Pod: one whose creator may be slow, and an old one.
	for id, age := range map[string]time.Duration{"00000000000a": 0, "00000000000b": 2 * kubernetes.RecordTime} {
		data, err := json.Marshal(kubernetes.Record{ID: id, Pod: "none-" + id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: "sandbox-" + id, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
				Labels: map[string]string{"actiond.dev/managed": "sandbox", "actiond.dev/id": id},
			},
			Data: map[string][]byte{"record": data},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{over.ID, lost.ID, ended.ID, died.ID, "00000000000b"}
	slices.Sort(want)
	for _, dryRun := range []bool{true, false} {
		removed, err := w.driver.Prune(ctx, dryRun)
		var ids []string
		for _, r := range removed {
			ids = append(ids, r.ID)
			if r.Reason == "" {
				t.Errorf("%+v has no reason", r)
			}
		}
		slices.Sort(ids)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("Prune: %v, %v, want %v", removed, err, want)
		}
	}
	left := w.left(t)
	slices.Sort(left)
	if len(left) != 3 || !strings.HasPrefix(left[0], "pod/sandbox-"+kept.ID) || left[1] != "secret/sandbox-00000000000a" || left[2] != "secret/sandbox-"+kept.ID {
		t.Errorf("left: %v", left)
	}
}

// The times of sandboxes are the API server's: however a machine's clock is set, it gives a
// sandbox the time that was asked for, and removes none that has time left.
func TestClocks(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"slow": 20 * time.Minute, "fast": -20 * time.Minute, "right": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.ahead = ahead
			w.driver.Clock().Ahead(ahead)
			spec := sandbox.Spec{Image: "image", TTL: 15 * time.Minute}
			about := func(what string, at time.Time, want time.Duration) {
				t.Helper()
				if left := time.Until(at); left > want+time.Second || left < want-time.Minute {
					t.Errorf("%s is in %v, want %v", what, left, want)
				}
			}
			kept := func(want ...string) {
				t.Helper()
				_, err := w.driver.Prune(t.Context(), false)
				all, listErr := w.driver.List(t.Context())
				var ids []string
				for _, s := range all {
					ids = append(ids, s.ID)
				}
				slices.Sort(ids)
				slices.Sort(want)
				if err != nil || listErr != nil || !slices.Equal(ids, want) {
					t.Errorf("Prune leaves %q, want %q; %v, %v", ids, want, err, listErr)
				}
			}
			s := w.create(t, spec)
			about("its creation", s.Created.Add(-w.ahead), 0)
			about("its deadline", s.Deadline, 15*time.Minute)
			about("its server's deadline", time.Now().Add(w.agent.claims[0].TTL), 15*time.Minute)
			w.agent.claiming = func() error { // another machine prunes meanwhile
				kept(s.ID, sandbox.ID("slow"))
				return nil
			}
			spec.Key, spec.TTL = "slow", 0
			slow := w.create(t, spec)
			w.agent.claiming = nil
			if err := w.driver.Renew(t.Context(), s, time.Now().Add(30*time.Minute)); err != nil {
				t.Fatal(err)
			}
			s, err := w.driver.Get(t.Context(), s.ID)
			if err != nil {
				t.Fatal(err)
			}
			about("its new deadline", s.Deadline, 30*time.Minute)
			spec.Key = ""
			if err := w.driver.Warm(t.Context(), "pool", spec); err != nil {
				t.Fatal(err)
			}
			all, err := w.driver.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			warm := all[slices.IndexFunc(all, func(s *sandbox.Sandbox) bool { return s.Pool != "" })]
			w.ahead += 20 * time.Minute // of the API server's clock pass
			w.driver.Clock().Ahead(20 * time.Minute)
			kept(s.ID, slow.ID, warm.ID)
			spec.TTL = time.Hour
			claimed, _, err := w.driver.Claim(t.Context(), spec, []*sandbox.Sandbox{warm})
			if err != nil {
				t.Fatal(err)
			}
			about("the claim", claimed.Created.Add(-w.ahead), 0)
			about("the end of the claimed one", claimed.Deadline, time.Hour)
			w.ahead += 20 * time.Minute
			w.driver.Clock().Ahead(20 * time.Minute)
			kept(slow.ID, claimed.ID)
		})
	}
}

// The fields that a Pod must not have, whatever is asked for.
func TestPod(t *testing.T) {
	t.Parallel()
	s := sandbox.Spec{Image: "image", Mounts: []sandbox.Mount{{Source: "data", Target: "/data"}}, Labels: map[string]string{"team": "a"}, Runtime: "gvisor", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}}
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	r := &kubernetes.Record{ID: "0123456789ab", Pod: "p", Key: "the key", Ticket: "the ticket"}
	pod := kubernetes.PodOf(&s, r, "server", false)
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{r.Key, r.Ticket, "hostPath", `"privileged":true`, `"allowPrivilegeEscalation":true`, "hostNetwork", "hostPID", "SYS_"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("%q is in the Pod", secret)
		}
	}
	spec := pod.Spec
	if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || spec.RestartPolicy != corev1.RestartPolicyNever || *spec.RuntimeClassName != "gvisor" ||
		spec.Containers[0].SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || pod.Labels["team"] != "a" {
		t.Errorf("%s", data)
	}
	disk := int64(0)
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Resources.Limits.Memory().IsZero() ||
			c.Resources.Limits.Cpu().IsZero() || c.Resources.Limits.StorageEphemeral().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("container %s: %+v, %+v", c.Name, c.SecurityContext, c.Resources)
		}
		disk += c.Resources.Limits.StorageEphemeral().Value()
	}
	if disk > 10<<30+64<<20 { // the kubelet compares what the whole Pod writes with the sum
		t.Errorf("it may write %d bytes", disk)
	}
	if env := spec.Containers[0].Env; len(env) != 1 || env[0].Name != "NVIDIA_VISIBLE_DEVICES" || env[0].Value != "void" {
		t.Errorf("the image or the specification decides about GPUs: %v", env)
	}
	s.GPUs = sandbox.GPUs{Count: 2}
	withGPUs := kubernetes.PodOf(&s, r, "server", false)
	c := withGPUs.Spec.Containers[0]
	gpus := c.Resources.Limits["nvidia.com/gpu"] // also the request: the API server sets it
	if gpus.Value() != 2 || len(c.Env) != 0 || !slices.Contains(c.Command, "--device-groups") || withGPUs.Annotations["actiond.dev/gpus"] != "2" {
		t.Errorf("with GPUs: %v, %v, %q, %v", gpus, c.Env, c.Command, withGPUs.Annotations)
	}
	s.GPUs, s.Disk = sandbox.GPUs{}, 3<<30
	limited := kubernetes.PodOf(&s, r, "server", false).Spec.Containers[0].Resources.Limits
	if got := limited.StorageEphemeral().Value(); got != s.Disk {
		t.Errorf("with a disk limit it may write %d bytes", got)
	}
	for allow, want := range map[bool][]corev1.Capability{
		false: {"SETUID", "SETGID", "KILL", "CHOWN", "NET_BIND_SERVICE"},
		true:  {"SETUID", "SETGID", "KILL", "CHOWN", "NET_BIND_SERVICE", "DAC_OVERRIDE", "FOWNER", "FSETID"},
	} {
		s.AllowRoot = allow
		pod := kubernetes.PodOf(&s, r, "server", false)
		c := pod.Spec.Containers[0]
		if !slices.Equal(c.SecurityContext.Capabilities.Add, want) || slices.Contains(c.Command, "--allow-root") != allow || (pod.Annotations["actiond.dev/allow-root"] == "true") != allow {
			t.Errorf("root is allowed, %t: %q with %v", allow, c.Command, c.SecurityContext.Capabilities.Add)
		}
	}
	if spec.HostUsers != nil || len(spec.InitContainers) != 1 {
		t.Errorf("without being asked: host users %v, init containers %v", spec.HostUsers, spec.InitContainers)
	}
	// The sandbox's container starts after the hook of a sidecar, which puts the server there.
	first := spec.InitContainers[0]
	if *first.RestartPolicy != corev1.ContainerRestartPolicyAlways || !slices.Contains(first.Args, spec.Containers[0].Command[0]) ||
		!slices.Equal(first.Lifecycle.PostStart.Exec.Command, []string{"/server", "lent", spec.Containers[0].Command[0]}) || first.Resources.Requests.Memory().Value() > 16<<20 {
		t.Errorf("%+v", first)
	}
	// An agent's account may not listen where the server does.
	if len(spec.SecurityContext.Sysctls) != 1 || spec.SecurityContext.Sysctls[0].Value != "1024" || !slices.Contains(spec.Containers[0].Command, "0.0.0.0:1000") {
		t.Errorf("sysctls %v, command %q", spec.SecurityContext.Sysctls, spec.Containers[0].Command)
	}
}

// A server ends that is not claimed: its creator died. A claim brings the sandbox's own limit.
func TestUnclaimedEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		record kubernetes.Record
		ttl    time.Duration
		want   string
	}{
		"no limit of its own": {kubernetes.Record{}, 0, "--ttl 6m0s"},
		"a longer one":        {kubernetes.Record{}, time.Hour, "--ttl 6m0s"},
		"in a pool":           {kubernetes.Record{Pool: "p"}, sandbox.PoolAge, "--ttl 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sandbox.Spec{Image: "image", TTL: tt.ttl}
			if err := s.Complete(); err != nil {
				t.Fatal(err)
			}
			words := strings.Join(kubernetes.PodOf(&s, &tt.record, "server", false).Spec.Containers[0].Command, " ")
			if !strings.Contains(words, tt.want) {
				t.Errorf("%s: want %s", words, tt.want)
			}
		})
	}
}

// A user namespace, and the server from a volume: what is sent where the cluster has them.
func TestPodOfNewerClusters(t *testing.T) {
	t.Parallel()
	s := sandbox.Spec{Image: "image", UserNamespace: true}
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	pod := kubernetes.PodOf(&s, &kubernetes.Record{ID: "0123456789ab", Pod: "p"}, "registry.example/server:1", true)
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		t.Errorf("host users: %v", pod.Spec.HostUsers)
	}
	c := pod.Spec.Containers[0]
	var volume corev1.Volume
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if m.Name == v.Name && strings.HasPrefix(c.Command[0], m.MountPath+"/") {
				volume = v
				if !m.ReadOnly || c.Command[0] != m.MountPath+"/server" {
					t.Errorf("%q with %+v", c.Command, m)
				}
			}
		}
	}
	if want := (&corev1.ImageVolumeSource{Reference: "registry.example/server:1", PullPolicy: corev1.PullIfNotPresent}); !reflect.DeepEqual(volume.Image, want) || volume.EmptyDir != nil || len(pod.Spec.InitContainers) > 0 {
		t.Errorf("%+v, init containers %+v", volume, pod.Spec.InitContainers)
	}
	s.UserID = 1 << 16
	if _, err := newWorld(t).driver.Check(t.Context(), &s); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "user id 65536: ") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, change := range map[string]func(*sandbox.Spec){
		"a process limit":        func(s *sandbox.Spec) { s.Pids = 100 },
		"a file limit":           func(s *sandbox.Spec) { s.OpenFiles = 1000 },
		"security options":       func(s *sandbox.Spec) { s.SecurityOpts = []string{"seccomp=unconfined"} },
		"read-only files":        func(s *sandbox.Spec) { s.ReadOnly = true },
		"network bridge (Pods":   func(s *sandbox.Spec) { s.Network = "bridge" },
		"network none: the net":  func(s *sandbox.Spec) { s.Network = "none" },
		"mount /etc: ":           func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "/etc", Target: "/data"}} },
		"mount target /.actiond": func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "data", Target: "/.actiond"}} },
		"mount target /var":      func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "data", Target: "/var"}} },
		"label a b=":             func(s *sandbox.Spec) { s.Labels = map[string]string{"a b": ""} },
		"labels of actiond.dev":  func(s *sandbox.Spec) { s.Labels = map[string]string{"actiond.dev/id": "x"} },
		`image pull secret "A b" is not the name of a Secret: `:                                 func(s *sandbox.Spec) { s.PullSecrets = []string{"A b"} },
		"node selector disk=a b: a node cannot have this label: ":                               func(s *sandbox.Spec) { s.NodeSelector = map[string]string{"disk": "a b"} },
		`GPUs "all": the driver of Kubernetes gives GPUs by number; ask for a number such as 1`: func(s *sandbox.Spec) { s.GPUs = sandbox.GPUs{Count: sandbox.AllGPUs} },
		`GPUs "device=GPU-a": the driver of Kubernetes gives`:                                   func(s *sandbox.Spec) { s.GPUs = sandbox.GPUs{Devices: []string{"GPU-a"}} },
		`toleration "gpu:Never": must be KEY[=VALUE][:EFFECT]: the effect must be one of`:       func(s *sandbox.Spec) { s.Tolerations = []string{"gpu", "gpu:Never"} },
	} {
		s := spec
		change(&s)
		if _, err := w.driver.Create(t.Context(), s); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if left := w.left(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Operators may give Pods the labels that controllers of the cluster obey; clients of a gateway may not.
func TestOperatorsLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, ours := range map[string]bool{
		"kueue.x-k8s.io/queue-name": true, "app.kubernetes.io/part-of": true, "k8s.io/x": true, "team.example/cost": false, "x-k8s.io.example/x": false,
	} {
		s := spec
		s.Labels = map[string]string{name: "x"}
		if _, err := w.driver.Check(t.Context(), &s); err != nil {
			t.Errorf("%s: of an operator: %v", name, err)
		}
		if err := w.driver.CheckLabels(s.Labels); errors.Is(err, sandbox.ErrInvalid) != ours || err != nil && !strings.Contains(err.Error(), "label "+name+": labels of ") {
			t.Errorf("%s: of a client: %v", name, err)
		}
	}
}

// In a Pod of the cluster, the server is that of the image that this program runs from.
func TestOwnImage(t *testing.T) {
	t.Parallel()
	self := corev1.Container{Name: "main", Image: "own:2", Command: []string{os.Args[0], "serve"}}
	sidecar := corev1.Container{Name: "proxy", Image: "proxy:1"}
	for name, tt := range map[string]struct {
		containers []corev1.Container
		err        error
		want       string
		unknown    bool
	}{
		"alone":            {[]corev1.Container{{Name: "main", Image: "own:2"}}, nil, "own:2", false},
		"beside a sidecar": {[]corev1.Container{sidecar, self}, nil, "own:2", false},
		"not known":        {[]corev1.Container{sidecar, sidecar}, nil, "", false},
		"no right":         {nil, apierrors.NewForbidden(corev1.Resource("pods"), "x", nil), "", false},
		"no Pod of it":     {nil, nil, "", false},
		"no answer":        {nil, apierrors.NewServiceUnavailable("starting"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tt.err != nil {
				w.fail("get", "pods", false, tt.err)
			}
			hostname, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			if tt.containers != nil {
				if _, err := w.CoreV1().Pods("agents").Create(t.Context(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: hostname}, Spec: corev1.PodSpec{Containers: tt.containers},
				}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if image, err := w.driver.OwnImage(); image != tt.want || errors.Is(err, sandbox.ErrUnknown) != tt.unknown || err != nil && !tt.unknown {
				t.Errorf("got %q, %v", image, err)
			}
		})
	}
}

// Where a Pod may run, and with which credentials its images are pulled.
func TestPlacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(t, sandbox.Spec{
		Image: "image", PullSecrets: []string{"registry", "other.registry"}, NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"},
		Tolerations: []string{"gpu", "team=a", "example.com/spot:NoSchedule", "dedicated=agents:NoExecute", "empty="},
	})
	pods, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{LabelSelector: "actiond.dev/id=" + s.ID})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(pods, err)
	}
	got := pods.Items[0].Spec
	want := corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}, {Name: "other.registry"}}, NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"},
		Tolerations: []corev1.Toleration{
			{Key: "gpu", Operator: "Exists"},
			{Key: "team", Operator: "Equal", Value: "a"},
			{Key: "example.com/spot", Operator: "Exists", Effect: "NoSchedule"},
			{Key: "dedicated", Operator: "Equal", Value: "agents", Effect: "NoExecute"},
			{Key: "empty", Operator: "Equal"},
		},
	}
	if !reflect.DeepEqual(got.ImagePullSecrets, want.ImagePullSecrets) || !reflect.DeepEqual(got.NodeSelector, want.NodeSelector) || !reflect.DeepEqual(got.Tolerations, want.Tolerations) {
		t.Errorf("got %+v", got)
	}
}

func TestContexts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	config := `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{"name": "c", "cluster": {"server": "https://c"}}], "contexts": [
		{"name": "a", "context": {"cluster": "c", "namespace": "one"}}, {"name": "arn:x:cluster/b", "context": {"cluster": "c"}}]}`
	testhelp.WriteFile(t, file, config, 0o600)
	t.Setenv("KUBECONFIG", file)
	for cluster, want := range map[string]string{"": "one", "a": "one", "a/two": "two", "arn:x:cluster/b": "default", "arn:x:cluster/b/three": "three"} {
		loaded, err := kubernetes.Load(cluster)
		if err != nil {
			t.Errorf("%q: %v", cluster, err)
			continue
		}
		if namespace, _, err := loaded.Namespace(); err != nil || namespace != want {
			t.Errorf("%q: namespace %q, %v, want %q", cluster, namespace, err, want)
		}
	}
	if _, err := kubernetes.Load("none"); err == nil || !strings.Contains(err.Error(), `no context "none"`) {
		t.Errorf("a context that does not exist: %v", err)
	}
	for _, none := range []string{filepath.Join(t.TempDir(), "none"), os.DevNull} {
		t.Setenv("KUBECONFIG", none)
		for _, cluster := range []string{"", "a", "a/two"} {
			if _, err := kubernetes.Open(kubernetes.Config{Cluster: cluster}); err == nil || !strings.HasPrefix(err.Error(), "no Kubernetes cluster is configured: set KUBECONFIG") {
				t.Errorf("%q without a kubeconfig: %v", cluster, err)
			}
		}
	}
}

// The usage of a sandbox is the report of its server, and processors are counted between two
// reports. A sandbox that is gone is not asked.
func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(t, spec)
	at := time.Unix(100, 0)
	w.agent.usage = []sandbox.Stats{{Time: at, CPU: 10, Memory: 5}, {Time: at.Add(2 * time.Second), CPU: 13, Memory: 6}}
	var got []sandbox.Stats
	enough := errors.New("enough")
	err := w.driver.Stats(t.Context(), s, true, func(u sandbox.Stats) error {
		if got = append(got, u); len(got) == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || got[0].CPU != 0 || got[1].CPU != 1.5 || got[1].Memory != 6 {
		t.Errorf("got %+v, %v", got, err)
	}
	s.State, s.Detail = sandbox.Gone, "evicted"
	for what, err := range map[string]error{
		"Stats":   w.driver.Stats(t.Context(), s, false, func(sandbox.Stats) error { return nil }),
		"CopyIn":  w.driver.CopyIn(t.Context(), s, "/", strings.NewReader("")),
		"CopyOut": func() error { _, err := w.driver.CopyOut(t.Context(), s, "/"); return err }(),
	} {
		if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "evicted") {
			t.Errorf("%s of one that is gone: %v", what, err)
		}
	}
}

// A sandbox whose node is lost is unknown, is neither replaced nor pruned, and comes back.
func TestLostNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(t, spec)
	report := func(status corev1.ConditionStatus, reason string) {
		list, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := &list.Items[0]
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, Reason: reason}}
		if _, err := w.CoreV1().Pods("agents").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		status corev1.ConditionStatus
		reason string
		want   sandbox.State
	}{
		{corev1.ConditionFalse, "", sandbox.Unknown}, {corev1.ConditionFalse, "ContainersNotReady", sandbox.Ready}, {corev1.ConditionTrue, "", sandbox.Ready},
	} {
		report(tt.status, tt.reason)
		again, err := w.driver.Create(t.Context(), spec)
		if err != nil || again.State != tt.want || again.Instance != s.Instance {
			t.Errorf("%s, %s: %+v, %v", tt.status, tt.reason, again, err)
		}
		if removed, err := w.driver.Prune(t.Context(), false); err != nil || len(removed) != 0 {
			t.Errorf("Prune: %+v, %v", removed, err)
		}
	}
}

// A sandbox whose lost node does not carry out its removal is gone and not replaced.
// Its removal by a caller needs no node.
func TestRemovalOnLostNode(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*world, *sandbox.Sandbox) error{
		"rm":    func(w *world, s *sandbox.Sandbox) error { return w.driver.Delete(t.Context(), s) },
		"prune": func(w *world, _ *sandbox.Sandbox) error { _, err := w.driver.Prune(t.Context(), false); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.create(t, spec)
			list, err := w.CoreV1().Pods("agents").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod := &list.Items[0]
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "NoExecute taint"},
			}
			if err := w.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "agents"); err != nil {
				t.Fatal(err)
			}
			const why = "being removed: DeletionByTaintManager: NoExecute taint"
			if _, err := w.driver.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "is gone, "+why) {
				t.Errorf("the key again: %v", err)
			}
			found, err := w.driver.Get(t.Context(), s.ID)
			if err != nil || found.State != sandbox.Gone || found.Detail != why {
				t.Fatalf("%+v, %v", found, err)
			}
			var grace *int64
			w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				grace = action.(clienttesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds
				return false, nil, nil
			})
			if err := remove(w, found); err != nil || grace == nil || *grace != 0 || len(w.left(t)) > 0 {
				t.Errorf("%v, grace %v, left %v", err, grace, w.left(t))
			}
		})
	}
}

// A creation that waits goes on after the API server was away for a moment, and leaves
// nothing if it was away for longer.
func TestCreateOverOutage(t *testing.T) {
	t.Parallel()
	down := apierrors.NewInternalError(errors.New("down"))
	for _, tt := range []struct {
		name          string
		watches, gets int // how many of them fail
		want          error
	}{
		{"a moment", 1, 1, nil}, {"no watch", 1e6, 0, sandbox.ErrUnknown}, {"no look", 1, 1e6, sandbox.ErrUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status = corev1.PodStatus{Phase: corev1.PodPending}
			if tt.want == nil {
				w.driver.SetOutage(time.Minute)
			}
			watches, gets := 0, 0
			w.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				gets++
				return gets <= tt.gets, nil, down
			})
			w.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				if watches++; watches <= tt.watches {
					return true, nil, down
				}
				return true, w.starts(t), nil
			})
			s, err := w.driver.Create(t.Context(), spec)
			if !errors.Is(err, tt.want) || err == nil && (s.State != sandbox.Ready || watches != 2 || gets != 2) || watches == 0 || tt.gets > 0 && gets < 2 {
				t.Errorf("%+v, %v; %d watches, %d looks", s, err, watches, gets)
			}
			if left := w.left(t); err != nil && len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// starts is a watch of the only Pod, whose container then starts.
func (w *world) starts(t *testing.T) *watch.FakeWatcher {
	t.Helper()
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	list, err := w.Tracker().List(resource, corev1.SchemeGroupVersion.WithKind("Pod"), "agents")
	if err != nil || len(list.(*corev1.PodList).Items) != 1 {
		t.Errorf("the Pods: %v, %v", list, err)
		return watch.NewFake()
	}
	pod := &list.(*corev1.PodList).Items[0]
	pod.Status = running
	if err := w.Tracker().Update(resource, pod, "agents"); err != nil {
		t.Error(err)
	}
	changes := watch.NewFakeWithChanSize(1, false)
	changes.Modify(pod)
	return changes
}

// Requests to the API server are what a cluster carries the fewest of, see docs/reference/scale.md.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		spec sandbox.Spec
		want []string
	}{
		{"a key", sandbox.Spec{Image: "image", Key: "key"}, []string{
			"create secrets", "create pods", "patch secrets", "watch pods", "patch pods",
		}},
		{"a name", sandbox.Spec{Image: "image", Name: "first"}, []string{
			"create secrets", "list secrets", "create pods", "patch secrets", "watch pods", "patch pods",
		}},
		{"no network", sandbox.Spec{Image: "image", Network: "none"}, []string{
			"list networkpolicies", "create secrets", "create pods", "patch secrets", "watch pods", "patch pods",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status = corev1.PodStatus{Phase: corev1.PodPending}
			w.PrependReactor("list", "networkpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
				deny := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "deny"}}
				deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
				return true, &networkingv1.NetworkPolicyList{Items: []networkingv1.NetworkPolicy{deny}}, nil
			})
			w.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, w.starts(t), nil })
			w.create(t, tt.spec)
			var got []string
			for _, a := range w.Actions() {
				got = append(got, a.GetVerb()+" "+a.GetResource().Resource)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A key that is taken is followed although the quota is used up, which is asked first.
func TestFollowWithoutQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(t, spec)
	w.fail("create", "*", false, apierrors.NewForbidden(corev1.Resource("secrets"), "s", errors.New("exceeded quota: small, requested: count/secrets=1")))
	if again, err := w.driver.Create(t.Context(), spec); err != nil || again.Instance != s.Instance {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	other := spec
	other.Key = "other"
	if _, err := w.driver.Create(t.Context(), other); !errors.Is(err, sandbox.ErrQuota) {
		t.Errorf("another key: %v", err)
	}
}

// A call that the API server does not begin to answer in time ends. A watch goes on for
// as long as it likes.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const within = time.Minute
		calls := http.Client{Transport: kubernetes.Bounded(roundTripper(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/hang":
				<-r.Context().Done()
				return nil, r.Context().Err()
			case "/late": // as if the answer had begun when the time was over
				time.Sleep(2 * within)
			}
			body, end := io.Pipe()
			go func() { // ends with the call
				select {
				case <-time.After(10 * within):
					_, _ = io.WriteString(end, "changed")
					_ = end.Close()
				case <-r.Context().Done():
					_ = end.CloseWithError(r.Context().Err())
				}
			}()
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		}), within)}
		get := func(path string) (string, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := calls.Do(r)
			if err != nil {
				return "", err
			}
			text, err := io.ReadAll(answer.Body)
			return string(text), errors.Join(err, answer.Body.Close())
		}
		for _, path := range []string{"/hang", "/late"} {
			var network net.Error
			if _, err := get(path); !errors.As(err, &network) || !strings.Contains(err.Error(), "no answer after 1m0s") {
				t.Errorf("%s: %v", path, err)
			}
		}
		if text, err := get("/watch"); err != nil || text != "changed" {
			t.Errorf("a watch: %q, %v", text, err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (do roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return do(r) }
