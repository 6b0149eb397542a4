package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/actiond/actiond/sandbox"
)

// While Events runs, the driver mirrors the Pods of its sandboxes in memory, and after the
// first Prune also their records: List, Get, the claimers of a pool and Prune then read
// from memory. A mirror may be a moment old, so a caller that changes a Pod waits for the
// mirror, and a caller that removes a Pod reads it again.

// ours selects the objects of sandboxes.
const ours = labelManaged + "=sandbox"

// mirrors are those of one call of Events.
type mirrors struct {
	pods, records *mirror
	wanted        chan struct{} // has an element once the records are needed
}

// mirror is a copy in memory of objects of one kind. Its methods may be called
// concurrently.
type mirror struct {
	store      toolscache.Indexer
	controller toolscache.Controller
	watching   atomic.Bool

	mu      sync.Mutex
	changed chan struct{} // closed with the next change
}

// source lists and watches the objects of a kind.
type source struct {
	kind  runtime.Object
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	trim  func(any) (any, error) // removes fields that are not needed; it is idempotent
}

func (d *Driver) podSource() source {
	return source{
		kind:  &corev1.Pod{},
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return d.pods().List(ctx, o) },
		watch: d.pods().Watch,
		trim:  d.listed,
	}
}

func (d *Driver) recordSource() source {
	return source{
		kind: &corev1.Secret{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return d.secrets().List(ctx, o)
		},
		watch: d.secrets().Watch,
		trim:  trimSecret,
	}
}

// indexID is the index of a mirror by the id of the sandbox.
const indexID = "id"

// newMirror returns a mirror that run fills. handler receives the changes. failed receives
// the errors of the API server before the first copy is complete; afterwards the mirror
// tries again by itself.
func (d *Driver) newMirror(from source, handler toolscache.ResourceEventHandlerFuncs, failed func(error)) *mirror {
	m := &mirror{changed: make(chan struct{})}
	lister := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = ours
			list, err := from.list(ctx, o)
			if err != nil && !m.controller.HasSynced() {
				failed(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = ours
			w, err := from.watch(ctx, o)
			if err != nil {
				if !m.controller.HasSynced() && !apierrors.IsInvalid(err) && !apierrors.IsResourceExpired(err) { // which the informer handles
					failed(err)
				}
				return nil, err
			}
			m.watching.Store(true)
			return &noticedWatch{w, func() { m.watching.Store(false); m.wake() }}, nil
		},
	}
	logger := logr.FromSlogHandler(d.config.Logger.Handler())
	store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		Logger: &logger, ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(lister, d.api), ObjectType: from.kind,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, initial bool) {
				m.wake()
				if handler.AddFunc != nil && !initial {
					handler.AddFunc(object)
				}
			},
			UpdateFunc: func(before, now any) { m.wake(); handler.OnUpdate(before, now) },
			DeleteFunc: func(object any) {
				m.wake()
				if unseen, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = unseen.Obj
				}
				handler.OnDelete(object)
			},
		},
		Indexers: toolscache.Indexers{indexID: func(object any) ([]string, error) {
			return []string{object.(metav1.Object).GetLabels()[labelID]}, nil
		}},
		Transform: from.trim,
	})
	m.store, m.controller = store.(toolscache.Indexer), controller
	return m
}

// noticedWatch calls ended at the end of a watch.
type noticedWatch struct {
	watch.Interface

	ended func()
}

// Stop is [watch.Interface]'s. The informer also calls it after the API server ended the
// watch.
func (w *noticedWatch) Stop() {
	w.ended()
	w.Interface.Stop()
}

// run keeps the mirror up to date until ctx ends.
func (m *mirror) run(ctx context.Context) { m.controller.RunWithContext(ctx) }

// ready reports whether the mirror is complete, and receives changes.
func (m *mirror) ready() bool { return m.watching.Load() && m.controller.HasSynced() }

// wake wakes callers of await.
func (m *mirror) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// seenTime bounds the wait for a mirror: slow watches must not delay a creation for long.
const seenTime = time.Second

// await returns when holds returns true, when the mirror is not ready, or after limit.
func (m *mirror) await(ctx context.Context, limit time.Duration, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		if !m.ready() || holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// mirrored returns the mirror of the Pods, or of the records, or nil if it is not ready.
func (d *Driver) mirrored(records bool) *mirror {
	all := d.mirrors.Load()
	if all == nil {
		return nil
	}
	m := all.pods
	if records {
		m = all.records
		select {
		case all.wanted <- struct{}{}:
		default: // they are known to be needed
		}
	}
	if !m.ready() {
		return nil
	}
	return m
}

// each calls do with every object of a kind, from the mirror if it is not nil, and
// otherwise page by page from the API server. do may keep the objects and must not
// change them.
func (m *mirror) each(ctx context.Context, from source, do func(any) error) error {
	if m == nil {
		return pager.New(from.list).EachListItem(ctx, metav1.ListOptions{LabelSelector: ours}, func(object runtime.Object) error {
			kept, err := from.trim(object)
			if err != nil {
				return err
			}
			return do(kept)
		})
	}
	for _, object := range m.store.List() {
		if err := do(object); err != nil {
			return err
		}
	}
	return nil
}

// podOf returns the Pod of an id, or nil unless the mirror has exactly one.
func (m *mirror) podOf(id string) *listed {
	if m == nil {
		return nil
	}
	var found *listed
	objects, _ := m.store.ByIndex(indexID, id) // the index exists
	for _, object := range objects {
		pod := object.(*listed)
		if leaving(pod.Pod) {
			continue
		}
		if found != nil {
			return nil
		}
		found = pod
	}
	return found
}

// pod returns the Pod of a name and a uid, or nil for a Pod that its node is removing.
func (m *mirror) pod(namespace, name string, uid types.UID) *listed {
	object, _, _ := m.store.GetByKey(namespace + "/" + name)
	pod, ok := object.(*listed)
	if !ok || pod.UID != uid || leaving(pod.Pod) {
		return nil
	}
	return pod
}

// seen waits until the mirror has this process's change of a Pod, so that the process reads
// its own writes.
func (d *Driver) seen(ctx context.Context, pod *corev1.Pod) {
	m := d.mirrored(false)
	if m == nil {
		return
	}
	m.await(ctx, d.seenLimit, func() bool {
		kept := m.pod(d.namespace, pod.Name, pod.UID)
		if kept == nil {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(kept.ResourceVersion, pod.ResourceVersion)
		return order >= 0 || err != nil
	})
}

// seenGone waits until the mirror no longer has a Pod that this process removed.
func (d *Driver) seenGone(ctx context.Context, name string, uid types.UID) {
	if m := d.mirrored(false); m != nil {
		m.await(ctx, d.seenLimit, func() bool { return m.pod(d.namespace, name, uid) == nil })
	}
}

// mirror runs mirrors until ctx ends, or the API server refuses the first list of Pods. It
// waits for its goroutines.
func (d *Driver) mirror(ctx context.Context, handler toolscache.ResourceEventHandlerFuncs) error {
	ctx, fail := context.WithCancelCause(klog.NewContext(ctx, logr.FromSlogHandler(d.config.Logger.Handler())))
	defer fail(nil)
	all := &mirrors{
		pods: d.newMirror(d.podSource(), handler, func(err error) {
			if ctx.Err() == nil {
				fail(apiError(ctx, "watching the sandboxes", err))
			}
		}),
		records: d.newMirror(d.recordSource(), toolscache.ResourceEventHandlerFuncs{}, func(error) {}), // Prune lists them meanwhile
		wanted:  make(chan struct{}, 1),
	}
	d.mirrors.Store(all)
	defer d.mirrors.CompareAndSwap(all, nil)
	var records sync.WaitGroup
	defer records.Wait()
	records.Go(func() {
		select {
		case <-all.wanted:
			all.records.run(ctx)
		case <-ctx.Done():
		}
	})
	all.pods.run(ctx)
	return context.Cause(ctx)
}

// listed is a Pod with the fields that the driver needs, and its sandbox.
type listed struct {
	*corev1.Pod

	instance *instance
}

// sandbox returns a copy, which the caller may change.
func (l *listed) sandbox() *sandbox.Sandbox {
	s := *l.instance.Sandbox
	l.instance.setTimes(&s) // by the current difference of the clocks
	return &s
}

// listed returns a Pod with the fields that the driver needs.
func (d *Driver) listed(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := trimPod(pod)
	return &listed{kept, d.sandbox(kept)}, nil
}

// trimPod returns a Pod with the fields that the driver needs of a listed Pod.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Labels: pod.Labels, Annotations: map[string]string{},
	}}
	for name, value := range pod.Annotations {
		if strings.HasPrefix(name, domain) {
			kept.Annotations[name] = value
		}
	}
	kept.Spec.NodeName = pod.Spec.NodeName
	kept.Status = corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, PodIP: pod.Status.PodIP}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget {
			kept.Status.Conditions = append(kept.Status.Conditions,
				corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	kept.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
	kept.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	return kept
}

func trimStatuses(all []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, c := range all {
		kept = append(kept, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: c.State})
	}
	return kept
}

// trimSecret returns a Secret without the secrets of its record. If the record cannot be read,
// the Secret has no data, which readRecord refuses.
func trimSecret(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: secret.Name, Namespace: secret.Namespace, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
		CreationTimestamp: secret.CreationTimestamp, Labels: secret.Labels,
	}}
	r, err := readRecord(secret)
	if err != nil {
		return kept, nil //nolint:nilerr // readRecord returns it
	}
	r.Key, r.Ticket, r.Token, r.Owner, r.Env = "", "", "", "", nil
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the record of sandbox %s: %w", r.ID, err)
	}
	kept.Data = map[string][]byte{recordField: data}
	return kept, nil
}

// Events is [sandbox.Watcher]'s. It reports create, start, die and destroy. While it runs,
// the driver mirrors its Pods.
func (d *Driver) Events(ctx context.Context, each func(sandbox.Event) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	report := func(object any, destroyed bool) {
		if event := podEvent(object.(*listed).Pod, destroyed); event.ID != "" && ctx.Err() == nil {
			if err := each(event); err != nil {
				end(err)
			}
		}
	}
	return d.mirror(ctx, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { report(now, false) },
		DeleteFunc: func(last any) { report(last, true) },
		UpdateFunc: func(before, now any) {
			// A claim gives a Pod of a pool another id.
			old, new := podEvent(before.(*listed).Pod, false), podEvent(now.(*listed).Pod, false)
			if old.What != new.What || old.ID != new.ID {
				report(now, false)
			}
		},
	})
}
