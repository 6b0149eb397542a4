package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/actiond/actiond/sandbox"
)

// running returns when the container of the Pod runs, and reports what it waits for.
func (d *Driver) running(ctx context.Context, r *record, pod *corev1.Pod) (*corev1.Pod, error) {
	if _, waiting, err := look(pod); r.From != "" && err == nil && waiting == "" && pod.DeletionTimestamp == nil {
		return pod, nil // a warm one
	}
	said := ""
	err := d.follow(ctx, r.Pod, func(now *corev1.Pod) (bool, error) {
		if now == nil || now.UID != pod.UID {
			return false, errUndone
		}
		if now.DeletionTimestamp != nil {
			return false, fmt.Errorf("%w: its Pod is %s", errUndone, removal(now))
		}
		pod = now
		state, waiting, err := look(now)
		if err == nil && waiting != said && waiting != "" {
			said = waiting
			d.config.Progress(r.ID, state, waiting)
		}
		return waiting == "", err
	})
	return pod, err
}

// whileRunning does work until the Pod ends, whose end is then the error.
func (d *Driver) whileRunning(ctx context.Context, r *record, work func(context.Context) error) error {
	workCtx, ended := context.WithCancelCause(ctx)
	watchCtx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { // ends with this function
		defer close(watched)
		err := d.follow(watchCtx, r.Pod, func(now *corev1.Pod) (bool, error) {
			if now == nil {
				return false, errUndone
			}
			if now.DeletionTimestamp != nil {
				return false, fmt.Errorf("%w: its Pod is %s", errUndone, removal(now))
			}
			_, _, err := look(now)
			return false, err
		})
		if watchCtx.Err() == nil {
			ended(err)
		}
	}()
	err := work(workCtx)
	cause := context.Cause(workCtx)
	stop()
	<-watched
	ended(nil)
	if err != nil && cause != nil {
		return cause
	}
	return err
}

// outageTime is how long a creation goes on without the API server, which may be
// restarted or replaced meanwhile.
const outageTime = 30 * time.Second

// follow calls each with the Pod as it is and whenever it changes, nil once it is
// gone, until each returns true or an error, or the API server was silent for
// outageTime.
func (d *Driver) follow(ctx context.Context, name string, each func(*corev1.Pod) (bool, error)) error {
	var silent time.Time // since when; zero: it answers
	for {
		done, err := d.followOnce(ctx, name, func(pod *corev1.Pod) (bool, error) {
			silent = time.Time{}
			return each(pod)
		})
		if err = d.outlast(ctx, &silent, err); done || err != nil {
			return err
		}
	}
}

// outlast returns the error of a wait that is to end. While the API server does not
// answer, it pauses instead, until that was so for outageTime. silent is since when.
func (d *Driver) outlast(ctx context.Context, silent *time.Time, err error) error {
	if !errors.Is(err, sandbox.ErrUnknown) {
		return err
	}
	if silent.IsZero() {
		*silent = time.Now()
	}
	if time.Since(*silent) >= d.outage {
		return err
	}
	return sleep(ctx, createPause)
}

// followOnce is follow until the API server ends the watch or does not answer. The
// watch begins before the Pod is looked at, so no change is missed.
func (d *Driver) followOnce(ctx context.Context, name string, each func(*corev1.Pod) (bool, error)) (bool, error) {
	w, err := d.pods().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return false, apiError(ctx, "watching the Pod "+name, err)
	}
	defer w.Stop()
	pod, err := d.pods().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return each(nil)
	}
	if err != nil {
		return false, apiError(ctx, "looking at the Pod "+name, err)
	}
	if done, err := each(pod); done || err != nil {
		return done, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return false, sleep(ctx, createPause)
			}
			pod, isPod := event.Object.(*corev1.Pod)
			if !isPod || pod.Name != name {
				continue
			}
			if event.Type == watch.Deleted {
				pod = nil
			}
			if done, err := each(pod); done || err != nil {
				return done, err
			}
		}
	}
}

// refusedImages are the kubelet's reasons for an image that it cannot get.
var refusedImages = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable"}

// refusedContainers are its reasons for a container that does not start. It tries
// again, with the same specification.
var refusedContainers = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}

// refusedServers are its reasons for the container that puts the server into the Pod and
// failed.
var refusedServers = []string{"PostStartHookError", "CrashLoopBackOff"}

// look says what the Pod waits for, nothing once its container runs. An error says
// that it will not run.
func look(pod *corev1.Pod) (state sandbox.State, waiting string, err error) {
	// The sidecar ends after the sandbox's container, and the phase changes then.
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded || containerState(pod).Terminated != nil {
		return sandbox.Gone, "", errors.New(endedIn(pod))
	}
	statuses := pod.Status.ContainerStatuses
	if !begun(pod) { // what brought the server and cannot be started again does no harm
		statuses = slices.Concat(pod.Status.InitContainerStatuses, statuses)
	}
	for _, c := range statuses {
		switch w := c.State.Waiting; {
		case w == nil:
		case slices.Contains(refusedImages, w.Reason):
			what := "its image"
			if c.Name == initName {
				what = "the server's image"
			}
			return "", "", fmt.Errorf("%w: %s %s cannot be pulled: %s: %s", sandbox.ErrNoImage, what, c.Image, w.Reason, w.Message)
		case slices.Contains(refusedContainers, w.Reason):
			return "", "", fmt.Errorf("the node cannot start its container %s: %s: %s", c.Name, w.Reason, w.Message)
		case c.Name == initName && slices.Contains(refusedServers, w.Reason):
			return "", "", fmt.Errorf("the server could not be put into it: %s: %s: is %s of another version than runtimectl?", w.Reason, w.Message, c.Image)
		}
	}
	if begun(pod) && pod.Status.PodIP != "" {
		return sandbox.Starting, "", nil
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return sandbox.Pending, "a node: " + c.Message, nil
		}
	}
	if pod.Spec.NodeName == "" {
		return sandbox.Pending, "a node", nil
	}
	return sandbox.Creating, "node " + pod.Spec.NodeName + " to get the image and to start the container", nil
}

// begun tells whether the sandbox's container runs.
func begun(pod *corev1.Pod) bool { return containerState(pod).Running != nil }

// containerState is the state of the sandbox's container.
func containerState(pod *corev1.Pod) corev1.ContainerState {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == containerName {
			return c.State
		}
	}
	return corev1.ContainerState{}
}
