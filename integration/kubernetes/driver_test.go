//go:build kubernetes

package kubernetes_test

import (
	"context"
	"strings"
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
	return made.Name
}

// open opens a driver for a namespace of its own.
func open(t *testing.T, direct bool) sandbox.Driver {
	t.Helper()
	t.Setenv("KUBECONFIG", shared.kubeconfig())
	d, err := kubernetes.Open(kubernetes.Config{
		Cluster: "test/" + namespace(t), ServerImage: serverImage, Agent: agent.Agent{}, Direct: direct,
		Progress: func(id string, state sandbox.State, waiting string) { t.Logf("%s %s: %s", id, state, waiting) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

var small = sandbox.Spec{Image: busyboxImage, Memory: 256 << 20}

func TestDriverByAddress(t *testing.T) {
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver { t.Helper(); return open(t, true) }, Spec: small}.Run(t)
}

func TestDriverByPortForward(t *testing.T) {
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver { t.Helper(); return open(t, false) }, Spec: small}.Run(t)
}

// What a user sees who asks for what the cluster does not have.
func TestReasons(t *testing.T) {
	d := open(t, true)
	for _, tt := range []struct {
		name   string
		within time.Duration
		change func(*sandbox.Spec)
		want   []string
	}{
		{"image", time.Minute, func(s *sandbox.Spec) { s.Image, s.Pull = "actiond.test/none:1", sandbox.PullNever }, []string{"no such image", "actiond.test/none:1"}},
		{"claim", 5 * time.Second, func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "absent", Target: "/data"}} }, []string{`persistentvolumeclaim "absent" not found`}},
		{"size", 5 * time.Second, func(s *sandbox.Spec) { s.Memory = 1 << 50 }, []string{"Insufficient memory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := small
			tt.change(&spec)
			ctx, cancel := context.WithTimeout(t.Context(), tt.within)
			defer cancel()
			_, err := d.Create(ctx, spec)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			t.Log(err)
		})
	}
	if left, err := d.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
