//go:build kubernetes

package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/api"
	actiond "github.com/actiond/actiond/api/client"
)

const gatewayName = "actiond-gateway"

// rolledOut waits for a Deployment with two Pods of its newest template and no others, and
// returns them.
func rolledOut(t *testing.T, space string) (pods []corev1.Pod) {
	t.Helper()
	if err := shared.await("the gateways", "kubelet", func(ctx context.Context) error {
		d, err := shared.api.AppsV1().Deployments(space).Get(ctx, gatewayName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, err := shared.api.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: "actiond.dev/component=gateway"})
		if err != nil {
			return err
		}
		pods = list.Items
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 || s.Replicas != 2 || len(pods) != 2 {
			words, _ := json.Marshal(list.Items)
			return fmt.Errorf("%+v; %s", s, words)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return pods
}

// ready returns the address of one of the Service's endpoints that are ready.
func ready(ctx context.Context, space string) (string, error) {
	list, err := shared.api.DiscoveryV1().EndpointSlices(space).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + gatewayName})
	if err != nil {
		return "", err
	}
	var all []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				all = append(all, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*s.Ports[0].Port))))
			}
		}
	}
	if len(all) == 0 {
		return "", errors.New("no gateway is ready")
	}
	return all[rand.IntN(len(all))], nil
}

// logged fails the test where a gateway was refused a right.
func logged(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		log, err := shared.api.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Error(err)
		}
		if text := strings.ToLower(string(log)); strings.Contains(text, "forbidden") || strings.Contains(text, "does not allow") {
			t.Errorf("%s logged:\n%s", p.Name, log)
		}
	}
}

// TestDeployment runs the gateways of the manifests as Pods: clients of their Service make
// a sandbox and use it, also while the Deployment is restarted.
func TestDeployment(t *testing.T) {
	t.Parallel()
	space, _ := install(t, 2)
	first := rolledOut(t, space)
	secret, err := shared.api.CoreV1().Secrets(space).Get(t.Context(), "actiond-gateway-key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := forward("127.0.0.1:0", func() (string, error) { return ready(context.WithoutCancel(t.Context()), space) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	url := "http://" + l.Addr().String()
	call := func(method, address string, body any) (status int, answer []byte) {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", string(secret.Data["key"]))
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if answer, err = io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, answer
	}
	status, answer := call(http.MethodPost, url+"/v1/sandboxes", map[string]any{"image": busyboxImage, "memory": 256 << 20, "cpus": 0.5})
	var made api.Sandbox
	if err := json.Unmarshal(answer, &made); err != nil || status != http.StatusCreated || made.SessionKey == "" {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	c, err := actiond.New(actiond.Config{BaseURL: url + "/sandboxes/" + made.ID, Key: made.SessionKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := func(key, command string) error {
		o, err := c.Do(t.Context(), api.Request{Key: key, Session: "other", Action: api.RunAction{Command: command}})
		if r, ok := o.(api.RunObservation); err == nil && (!ok || r.Metadata.ExitCode != 0) {
			err = fmt.Errorf("%s: %#v", command, o)
		}
		return err
	}
	if err := run("", "true"); err != nil {
		t.Fatal(err)
	}
	sandboxes, err := shared.api.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{LabelSelector: "actiond.dev/id=" + made.ID})
	if err != nil || len(sandboxes.Items) != 1 {
		t.Fatal(sandboxes, err)
	}
	if slices.ContainsFunc(sandboxes.Items[0].Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil || v.Secret != nil }) {
		t.Errorf("the sandbox has a token of the cluster, or a Secret: %+v", sandboxes.Items[0].Spec.Volumes)
	}
	creations := 0
	for _, p := range first {
		status, text := call(http.MethodGet, "http://"+p.Status.PodIP+":8701/metrics", nil)
		if status != http.StatusOK || !bytes.Contains(text, []byte("\nactiond_gateway_")) {
			t.Errorf("the metrics of %s: %d %s", p.Name, status, text)
		}
		creations += bytes.Count(text, []byte(`actiond_gateway_creations_total{outcome="created"} 1`))
	}
	if creations != 1 {
		t.Errorf("the gateways count %d creations", creations)
	}

	result, limit := make(chan error, 1), 180.0
	go func() {
		o, err := c.Do(t.Context(), api.Request{Key: "survivor", Session: "restart", Timeout: &limit, Action: api.RunAction{
			Blocking: true, Command: "echo ran >>/tmp/ran; until [ -e /tmp/go ]; do sleep 0.1; done; cat /tmp/ran",
		}})
		if r, ok := o.(api.RunObservation); err == nil && (!ok || strings.TrimSpace(r.Content) != "ran") {
			err = fmt.Errorf("got %#v", o)
		}
		result <- err
	}()
	if err := run("", "until [ -e /tmp/ran ]; do sleep 0.1; done"); err != nil {
		t.Fatal(err)
	}
	logged(t, first)
	restart := fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": %q}}}}}`, time.Now().Format(time.RFC3339))
	if _, err := shared.api.AppsV1().Deployments(space).Patch(t.Context(), gatewayName, types.StrategicMergePatchType, []byte(restart), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, restarted := context.WithCancel(t.Context())
	others := make(chan int)
	go func() { // short actions meanwhile, each once
		n := 0
		for ; ctx.Err() == nil; n++ {
			if err := run(fmt.Sprintf("meanwhile-%d", n), "echo . >>/tmp/meanwhile"); err != nil {
				t.Errorf("action %d during the restart: %v", n, err)
				break
			}
		}
		others <- n
	}()
	second := rolledOut(t, space)
	restarted()
	n := <-others
	for _, p := range second {
		if slices.ContainsFunc(first, func(old corev1.Pod) bool { return old.UID == p.UID }) {
			t.Errorf("%s was not restarted", p.Name)
		}
	}
	if err := run("", fmt.Sprintf(`[ "$(wc -l </tmp/meanwhile)" -eq %d ]`, n)); err != nil {
		t.Errorf("%d actions during the restart: %v", n, err)
	}
	if err := run("", "touch /tmp/go"); err != nil {
		t.Error(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	t.Logf("%d actions during the restart", n)
	if status, answer := call(http.MethodDelete, url+"/v1/sandboxes/"+made.ID, nil); status/100 != 2 {
		t.Errorf("%d %s", status, answer)
	}
	if lease, err := shared.api.CoordinationV1().Leases(space).Get(t.Context(), "actiond-reaper", metav1.GetOptions{}); err != nil || lease.Spec.HolderIdentity == nil {
		t.Errorf("no gateway prunes: %+v, %v", lease, err)
	}
	logged(t, second)
}

// TestDoctorInPod has doctor look at the cluster from a gateway's Pod: with the rights of
// the manifests nothing is missing, and it says what it may not look at.
func TestDoctorInPod(t *testing.T) {
	t.Parallel()
	space, _ := install(t, 0)
	gateways, err := shared.api.AppsV1().Deployments(space).Get(t.Context(), gatewayName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "doctor"}, Spec: gateways.Spec.Template.Spec}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	c := &pod.Spec.Containers[0]
	c.Args, c.ReadinessProbe, c.LivenessProbe, c.Lifecycle = []string{"doctor"}, nil, nil, nil
	pods := shared.api.CoreV1().Pods(space)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it ends", func() bool {
		pod, err = pods.Get(t.Context(), "doctor", metav1.GetOptions{})
		return err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	said, err := pods.GetLogs("doctor", &corev1.PodLogOptions{}).DoRaw(t.Context())
	t.Logf("%s\n%s", pod.Status.Phase, said)
	if err != nil || pod.Status.Phase != corev1.PodSucceeded || bytes.Contains(said, []byte("missing")) {
		t.Errorf("%v, %+v", err, pod.Status.ContainerStatuses)
	}
	for _, part := range []string{"namespace " + space, "only the gateway reaches sandboxes", "behind its service are not known", "whether the cluster's network enforces policies is not known"} {
		if !bytes.Contains(said, []byte(part)) {
			t.Errorf("doctor does not say %q", part)
		}
	}
}
