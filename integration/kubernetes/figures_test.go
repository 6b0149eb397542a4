//go:build kubernetes

package kubernetes_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/api"
	actiond "github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// barePod is a Pod of the sandboxes' image that does nothing.
func barePod(name string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "bare", Image: busyboxImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"}}},
	}}
}

// preparedPod is a bare Pod with an init container that ends, as sandboxes had before decision 037.
func preparedPod(name string) *corev1.Pod {
	pod := barePod(name)
	first := pod.Spec.Containers[0]
	first.Name, first.Command = "first", []string{"true"}
	pod.Spec.InitContainers = []corev1.Container{first}
	return pod
}

// barely is the time from a bare Pod's creation to the report that it is ready.
func barely(t *testing.T, space string, of *corev1.Pod) time.Duration {
	t.Helper()
	pods := shared.api.CoreV1().Pods(space)
	watch, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + of.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	begun := time.Now()
	if _, err := pods.Create(t.Context(), of, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		for i := 0; ok && i < len(pod.Status.Conditions); i++ {
			if c := pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				took := time.Since(begun)
				if err := pods.Delete(t.Context(), of.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				return took
			}
		}
	}
	t.Fatal("the watch ended before the Pod was ready")
	return 0
}

// spread are the least, the median and the largest of durations, in milliseconds.
func spread(all []time.Duration) string {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%.2f ms (%.2f to %.2f, %d rounds)", ms(all[len(all)/2]), ms(all[0]), ms(all[len(all)-1]), len(all))
}

// The figures of docs/reference/kubernetes.md, each beside what it is compared with, in turns. Unless
// ACTIOND_FIGURES is set it goes one round, which shows that they can be measured.
func TestFigures(t *testing.T) {
	rounds, commands := 1, 1
	if os.Getenv("ACTIOND_FIGURES") != "" {
		rounds, commands = 25, 1000
	}
	small := small
	small.CPUs = 0 // the default
	space := namespace(t)
	steps := &timeline{}
	d := openAs(t, shared.kubeconfig(), kubernetes.Config{
		Cluster: "test/" + space, ServerImage: serverImage, Agent: agent.Agent{}, Direct: true, Progress: steps.note,
	})
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load of the machine: %s", load)

	var created, bare, prepared []time.Duration
	var last *sandbox.Sandbox
	for i := range rounds {
		bare = append(bare, barely(t, space, barePod(fmt.Sprint("bare-", i))))
		prepared = append(prepared, barely(t, space, preparedPod(fmt.Sprint("prepared-", i))))
		steps.begin()
		begun := time.Now()
		s, err := d.Create(t.Context(), small)
		created = append(created, time.Since(begun))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("create %v: %s", created[i], steps)
		if last != nil {
			if err := d.Delete(t.Context(), last); err != nil {
				t.Error(err)
			}
		}
		last = s
	}
	t.Logf("create to the first answer: %s; a bare Pod to Ready: %s; one with an init container: %s", spread(created), spread(bare), spread(prepared))
	t.Logf("ratios of the medians: %.2f, %.2f", float64(created[len(created)/2])/float64(bare[len(bare)/2]), float64(created[len(created)/2])/float64(prepared[len(prepared)/2]))

	var claimed []time.Duration
	for range rounds {
		if err := d.Warm(t.Context(), "p", small); err != nil {
			t.Fatal(err)
		}
		waiting := members(t, d)
		begun := time.Now()
		s, warm, err := d.Claim(t.Context(), small, waiting)
		claimed = append(claimed, time.Since(begun))
		if err != nil || !warm {
			t.Fatalf("Claim: %v, %v", warm, err)
		}
		if err := d.Delete(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	t.Logf("warm claim to the first answer: %s", spread(claimed))

	dir := t.TempDir()
	socket, key := filepath.Join(dir, "s"), strings.Repeat("k", 64)
	testhelp.WriteFile(t, filepath.Join(dir, "key"), key, 0o600)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := exec.CommandContext(ctx, shared.path("server"), "--addr", "unix:"+socket, "--working-dir", t.TempDir(), "--session-key-file", filepath.Join(dir, "key"), "--state-dir", t.TempDir())
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer stop()
	podKey, err := last.Key()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(dial sandbox.DialFunc, key string) func() time.Duration {
		c, err := agent.Client(dial, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return func() time.Duration { return oneTrue(t, c) }
	}
	until(t, "the server listens", func() bool { _, err := os.Stat(socket); return err == nil })
	bySocket := ask(func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }, key)
	byAddress := ask(last.Dial, podKey)
	var sockets, addresses []time.Duration
	for i := range 100 + commands {
		one, other := bySocket(), byAddress()
		if i >= 100 { // the others warm up
			sockets, addresses = append(sockets, one), append(addresses, other)
		}
	}
	t.Logf("true by the Pod's address: %s; by a Unix socket of the same program: %s", spread(addresses), spread(sockets))
	t.Logf("ratio of the medians: %.2f", float64(addresses[len(addresses)/2])/float64(sockets[len(sockets)/2]))
	load, _ = os.ReadFile("/proc/loadavg")
	t.Logf("load of the machine: %s", load)
}

// oneTrue is the time of one command that does nothing.
func oneTrue(t *testing.T, c *actiond.Client) time.Duration {
	t.Helper()
	begun := time.Now()
	if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err != nil {
		t.Fatal(err)
	}
	return time.Since(begun)
}

// timeline are the steps of a creation and when they began. Creations come one by one.
type timeline struct {
	begun time.Time
	steps []string
}

func (l *timeline) begin() { l.begun, l.steps = time.Now(), nil }

func (l *timeline) note(_ string, state sandbox.State, waiting string) {
	l.steps = append(l.steps, fmt.Sprintf("%v %s %s", time.Since(l.begun).Round(time.Millisecond), state, waiting))
}

func (l *timeline) String() string { return strings.Join(l.steps, "; ") }
