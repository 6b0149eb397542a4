package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// whileRunning does work once the container of the Pod runs, and returns the Pod in that
// state. It reports progress until then. The end of the Pod ends work, and is the error.
func (d *Driver) whileRunning(
	ctx context.Context, r *record, pod *corev1.Pod, work func(context.Context, *corev1.Pod) error,
) (*corev1.Pod, error) {
	workCtx, ended := context.WithCancelCause(ctx)
	watchCtx, stop := context.WithCancel(ctx)
	runs := make(chan *corev1.Pod, 1)
	watched := make(chan struct{})
	go func() { // ends with this function
		defer close(watched)
		said, running := "", false
		var pulls pulling
		ended(d.follow(watchCtx, pod, func(now *corev1.Pod) error {
			if now == nil || now.UID != pod.UID {
				return errUndone
			}
			if now.DeletionTimestamp != nil {
				return fmt.Errorf("%w: its Pod is %s", errUndone, removal(now))
			}
			state, waiting, err := look(now)
			if pulls.again(err) {
				state, waiting, err = sandbox.Creating, "node "+now.Spec.NodeName+" to pull its image again: "+err.Error(), nil
			}
			switch {
			case err != nil || running:
			case waiting == "":
				running = true
				runs <- now
			case waiting != said:
				said = waiting
				d.config.Progress(r.ID, state, waiting)
			}
			return err
		}))
	}()
	var err error
	found := pod // which the goroutine reads
	select {
	case found = <-runs:
		err = work(workCtx, found)
		if err != nil { // if the Pod has ended, the connection breaks before the cluster reports it
			select {
			case <-workCtx.Done():
			case <-time.After(endTime):
			}
		}
	case <-workCtx.Done():
		err = context.Cause(workCtx)
	}
	if workCtx.Err() != nil && err != nil {
		err = context.Cause(workCtx)
	}
	stop()
	<-watched
	return found, err
}

// endTime is how long the cluster may take to report the end of a Pod.
const endTime = 2 * time.Second

// outageTime is how long a creation waits for an API server that does not answer: it may
// be restarted or replaced.
const outageTime = 30 * time.Second

// follow calls each with the Pod, which the caller has just read, after every change of
// the Pod, and with nil once it no longer exists, until each returns an error, or the API
// server was silent for outageTime. RetryWatcher of client-go would neither end after an
// outage, nor read the Pod again after "410 Gone".
func (d *Driver) follow(ctx context.Context, pod *corev1.Pod, each func(*corev1.Pod) error) error {
	err := each(pod)
	var silent time.Time // since when; zero: it answers
	for name := pod.Name; err == nil; {
		err = d.changes(ctx, pod, func() { silent = time.Time{} }, each)
		for err = d.outlast(ctx, &silent, err); err == nil; {
			pod, err = d.pods().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return each(nil)
			}
			if err == nil {
				err = each(pod)
				break
			}
			err = d.outlast(ctx, &silent, apiError(ctx, "looking at the Pod "+name, err))
		}
	}
	return err
}

// outlast returns an error that ends a wait. If the API server does not answer, it pauses
// and returns nil instead, for at most outageTime. silent is the beginning of the outage.
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
	return channel.Sleep(ctx, createPause)
}

// changes calls each with every new state of a Pod, until each returns an error or the API
// server ends the watch, and begun when the watch begins.
func (d *Driver) changes(ctx context.Context, pod *corev1.Pod, begun func(), each func(*corev1.Pod) error) error {
	w, err := d.pods().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil // too much has changed in the cluster since
	}
	if err != nil {
		return apiError(ctx, "watching the Pod "+pod.Name, err)
	}
	defer w.Stop()
	begun()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return channel.Sleep(ctx, createPause)
			}
			now, isPod := event.Object.(*corev1.Pod)
			if !isPod || now.Name != pod.Name {
				continue
			}
			if event.Type == watch.Deleted {
				now = nil
			}
			if err := each(now); err != nil {
				return err
			}
		}
	}
}

// refusedImages are the kubelet's reasons for an image that it cannot get.
var refusedImages = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable"}

// refusedContainers are its reasons for a container that does not start. Its further
// attempts use the same specification.
var refusedContainers = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}

// refusedServers are its reasons for a failed container that copies the server.
var refusedServers = []string{"PostStartHookError", "CrashLoopBackOff"}

// look returns the condition that the Pod waits for, or "" once its container runs. An
// error means that it will not run.
func look(pod *corev1.Pod) (state sandbox.State, waiting string, err error) {
	// The sidecar ends after the sandbox's container, and the phase changes then.
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded || statusOf(pod).State.Terminated != nil {
		return sandbox.Gone, "", errors.New(endedIn(pod))
	}
	statuses := pod.Status.ContainerStatuses
	if !begun(pod) { // an init container that failed after it copied the server does no harm
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
			err := fmt.Errorf("%w: %s %s cannot be pulled: %s: %s", sandbox.ErrNoImage, what, c.Image, w.Reason, w.Message)
			if w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff" {
				err = &pullError{error: err, reason: w.Reason, container: c.Name, absent: strings.Contains(w.Message, "code = NotFound") || strings.HasSuffix(w.Message, ": not found")}
			}
			return "", "", err
		case slices.Contains(refusedContainers, w.Reason):
			return "", "", fmt.Errorf("the node cannot start its container %s: %s: %s", c.Name, w.Reason, w.Message)
		case c.Name == initName && slices.Contains(refusedServers, w.Reason):
			return "", "", fmt.Errorf("the server could not be copied into it: %s: %s: is %s of another version than runtimectl?", w.Reason, w.Message, c.Image)
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

// pullError is a failed pull, which the kubelet tries again.
type pullError struct {
	error
	reason, container string
	absent            bool // the registry answered, and does not have the image
}

func (e *pullError) Unwrap() error { return e.error }

// pulling counts the failed pulls of a Pod.
type pulling struct {
	last   string // the latest failure, by container and reason
	failed int
}

// again reports whether err is a failed pull that the next one may cure: the first, unless the
// image does not exist.
func (p *pulling) again(err error) bool {
	failed, ok := errors.AsType[*pullError](err)
	if !ok {
		p.last = ""
		return false
	}
	now := failed.container + " " + failed.reason
	if now != p.last && failed.reason == "ErrImagePull" {
		p.failed++
	}
	p.last = now
	return p.failed < 2 && !failed.absent
}

// begun reports whether the sandbox's container runs.
func begun(pod *corev1.Pod) bool { return statusOf(pod).State.Running != nil }

// statusOf returns the status of the sandbox's container.
func statusOf(pod *corev1.Pod) (none corev1.ContainerStatus) {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == containerName {
			return c
		}
	}
	return none
}

// containerOf returns the sandbox's container, which every Pod of this driver has.
func containerOf(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == containerName {
			return &pod.Spec.Containers[i]
		}
	}
	return &corev1.Container{}
}
