//go:build kubernetes

package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/api"
	actiond "github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// containerOf is the container of a sandbox's Pod.
func containerOf(t *testing.T, s *sandbox.Sandbox) corev1.ContainerStatus {
	t.Helper()
	pods, err := shared.api.CoreV1().Pods(spaceOf(t)).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if string(pod.UID) == s.Instance && len(pod.Status.ContainerStatuses) == 1 {
			return pod.Status.ContainerStatuses[0]
		}
	}
	t.Fatalf("the Pod of %s has no container", s.ID)
	return corev1.ContainerStatus{}
}

// asRoot runs a line in a container as its root, past the server. How it ends is not
// known where it ends the container's processes.
func asRoot(ctx context.Context, container corev1.ContainerStatus, line string) string {
	id := strings.TrimPrefix(container.ContainerID, "containerd://")
	cmd := exec.CommandContext(ctx, "ctr", "--address", shared.containerdSocket(), "-n", "k8s.io", "tasks", "exec", "--exec-id", rand16(), id, "/bin/sh", "-c", line)
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

func rand16() string { return strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "") }

// theServer is the first child of PID 1.
const theServer = `set -- $(cat /proc/1/task/*/children); `

// A server that is killed is started again in its container: files and journal hold, what
// ran is unknown, and the owner's key, variables and deadline are the same. One that is
// killed again and again ends the sandbox, which says why.
func TestServerCrashes(t *testing.T) { //nolint:tparallel // they look into the last namespace of the test
	t.Parallel()
	for name, direct := range map[string]bool{"by address": true, "by port forward": false} {
		t.Run(name, func(t *testing.T) { testCrashes(t, direct) })
	}
}

func testCrashes(t *testing.T, direct bool) {
	t.Helper()
	d := open(t, direct)
	spec := small
	spec.TTL, spec.Env = time.Hour, map[string]string{"TOKEN": "of the owner"}
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, s)
	run := func(want, command string) {
		t.Helper()
		o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: command}})
		if run, ok := o.(api.RunObservation); err != nil || !ok || strings.ReplaceAll(run.Content, "\r", "") != want {
			t.Errorf("%s: got %#v, %v, want %q", command, o, err, want)
		}
	}
	container := containerOf(t, s)
	before, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run("", "echo kept >/workspace/file")
	result := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), api.Request{Key: "busy", Session: "busy", Action: api.RunAction{Command: "echo begins; sleep 1000", Blocking: true}})
		result <- err
	}()
	testhelp.Eventually(t, func() bool {
		var output bytes.Buffer
		_, err := c.Output(t.Context(), "busy", actiond.OutputPart{}, &output)
		return err == nil && strings.HasPrefix(output.String(), "begins")
	}, "the action prints")
	server := asRoot(t.Context(), container, theServer+"echo $1")
	asRoot(t.Context(), container, theServer+"kill -9 $1")

	if err := <-result; !errors.Is(err, actiond.ErrUnknown) {
		t.Errorf("the action that ran: %v", err)
	}
	var output bytes.Buffer
	if _, err := c.Output(t.Context(), "busy", actiond.OutputPart{}, &output); err != nil || !strings.HasPrefix(output.String(), "begins") {
		t.Errorf("its output is %q, %v", output.String(), err)
	}
	run("kept\nof the owner", "cat /workspace/file; echo $TOKEN")
	run("0", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 100[0]'")
	run("0", "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c memfd")
	run("denied", "ls /proc/1/fd >/dev/null 2>&1 || echo denied")
	after, err := c.Status(t.Context())
	if err != nil || after.Deadline == nil || after.Deadline.Sub(*before.Deadline).Abs() > time.Minute {
		t.Errorf("the life was %+v and is %+v, %v", before, after, err)
	}
	if now := containerOf(t, s); now.ContainerID != container.ContainerID || now.RestartCount != 0 {
		t.Errorf("the container is another one: %+v", now)
	}
	if now := asRoot(t.Context(), container, theServer+"echo $1"); now == server {
		t.Errorf("the server is still process %s", now)
	}
	if err := d.(sandbox.Renewer).Renew(t.Context(), s, time.Now().Add(2*time.Hour)); err != nil {
		t.Error(err)
	}
	if got, err := d.Get(t.Context(), s.ID); err != nil || got.State != sandbox.Ready {
		t.Errorf("got %+v, %v", got, err)
	}
	if direct {
		testGivenUp(t, d, s, container)
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// testGivenUp kills the server until its sandbox ends. An agent wrote a reason of its own.
func testGivenUp(t *testing.T, d sandbox.Driver, s *sandbox.Sandbox, container corev1.ContainerStatus) {
	t.Helper()
	asRoot(t.Context(), container, "echo all is well >/dev/termination-log")
	ended := func() bool {
		got, err := d.Get(t.Context(), s.ID)
		if err == nil && got.State != sandbox.Ready && got.State != sandbox.Gone { // while its sidecar ends
			t.Errorf("it is %s: %s", got.State, got.Detail)
		}
		return err == nil && got.State == sandbox.Gone
	}
	testhelp.Eventually(t, func() bool {
		asRoot(t.Context(), container, theServer+"kill -9 $1")
		return ended()
	}, "the sandbox ends")
	got, err := d.Get(t.Context(), s.ID)
	if err != nil || !strings.Contains(got.Detail, "its server crashed 6 times within 10m0s, at last: the server was ended by signal 9") {
		t.Errorf("got %+v, %v", got, err)
	}
	details, err := d.(sandbox.Inspector).Inspect(t.Context(), s)
	if err != nil || details.ExitCode != 70 || details.Ended.IsZero() {
		t.Errorf("got %+v, %v", details, err)
	}
}
