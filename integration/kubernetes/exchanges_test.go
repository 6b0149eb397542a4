//go:build kubernetes

package kubernetes_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/integration/exchanges"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// programs makes a claim in a namespace of the directory with the programs of this machine.
func programs(t *testing.T, space string) sandbox.Mount {
	t.Helper()
	const name = "programs"
	class, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	volumes := shared.api.CoreV1().PersistentVolumes()
	volume, err := volumes.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/usr"}},
			ClaimRef: &corev1.ObjectReference{Namespace: space, Name: name}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volumes.Delete(context.WithoutCancel(t.Context()), volume.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := shared.api.CoreV1().PersistentVolumeClaims(space).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class, VolumeName: volume.Name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return sandbox.Mount{Source: name, Target: "/usr", ReadOnly: true}
}

// TestExchanges replays what was recorded of the reference server against sandboxes with
// this machine's programs: by port forwarding, and through a gateway.
func TestExchanges(t *testing.T) {
	t.Parallel()
	recorded := exchanges.Dir(t, "../..")
	space, kubeconfig := installed(t)
	spec := sandbox.Spec{
		Image: hostImage, Mounts: []sandbox.Mount{programs(t, space)}, Env: map[string]string{"LANG": "C.UTF-8"},
		Flags: []string{"--no-enable-browser"}, // as it was recorded
	}
	r := startReplica(t, kubeconfig, "the key of a gateway in a test")
	outside := openAs(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + space, ServerImage: serverImage, Agent: agent.Agent{}})
	forwarded, forwardedKey := made(t, outside, spec)
	passed, passedKey := made(t, r.driver, spec)
	t.Run("port forwarding", func(t *testing.T) {
		t.Parallel()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return forwarded.Dial(ctx) }}
		defer transport.CloseIdleConnections()
		exchanges.Replay(t, recorded, "http://sandbox", forwardedKey, transport)
	})
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		exchanges.Replay(t, recorded, "http://"+r.addr+"/sandboxes/"+passed.ID, passedKey, http.DefaultTransport)
	})
}

// made makes a sandbox that is removed with the test, and returns its key.
func made(t *testing.T, d *kubernetes.Driver, spec sandbox.Spec) (s *sandbox.Sandbox, key string) {
	t.Helper()
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Delete(context.WithoutCancel(t.Context()), s); err != nil {
			t.Error(err)
		}
	})
	if key, err = s.Key(); err != nil {
		t.Fatal(err)
	}
	return s, key
}
