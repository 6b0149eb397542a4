package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// instance is a sandbox as its host sees it, and the sandbox's Access.
type instance struct {
	*sandbox.Sandbox

	host      *Host
	origin    string // the sandbox's id when it was created, the name of its directory
	transport string // "socket" or "port"
	port      uint16
	started   time.Time // as of the last refresh; zero where it never ran
}

// own returns the instance of a sandbox. It fails with ErrNotFound for one
// that this package did not return.
func (h *Host) own(s *sandbox.Sandbox) (*instance, error) {
	of, ok := s.Access.(*instance)
	if !ok {
		return nil, fmt.Errorf("%q: %w", s.ID, sandbox.ErrNotFound)
	}
	if of.Sandbox != s { // s is a copy
		copied := *of
		copied.Sandbox = s
		of = &copied
		s.Access = of
	}
	return of, nil
}

// lock returns the sandbox with its lock held, until unlock is called.
func (h *Host) lock(ctx context.Context, box *sandbox.Sandbox) (s *instance, unlock func(), err error) {
	if s, err = h.own(box); err == nil {
		unlock, err = h.state.lock(ctx, s.origin)
	}
	return s, unlock, err
}

// containerName returns the name of a sandbox's container. It has the controller's name, since
// one key gives the same id to sandboxes of two controllers.
func (h *Host) containerName(id string) string { return h.config.Prefix + id + "-" + h.controller }

// sandbox is the sandbox behind a container, or nothing if it is not ours:
// labels alone do not make it ours, since an image can bring them along and a
// container made from it by hand must never be touched.
func (h *Host) sandbox(name, containerID, image string, labels map[string]string) (*instance, bool) {
	id, ours := strings.CutPrefix(strings.TrimPrefix(name, "/"), h.config.Prefix)
	id = strings.TrimSuffix(id, "-"+h.controller) // earlier versions gave names without it
	if !ours || !sandbox.IsID(id) || !sandbox.IsID(labels[labelID]) ||
		labels[labelManaged] != "sandbox" || labels[labelController] != h.controller {
		return nil, false
	}
	created, err := time.Parse(time.RFC3339, labels[labelCreated])
	if err != nil {
		return nil, false
	}
	s := &instance{host: h, origin: labels[labelID], transport: labels[labelTransport]}
	s.Sandbox = &sandbox.Sandbox{
		ID: id, Name: labels[labelName], Owner: labels[labelOwner], Image: image, Created: created,
		Spec: labels[labelSpec], User: labels[labelUser], AllowRoot: labels[labelAllowRoot] == "true", Labels: map[string]string{}, Instance: containerID, Access: s,
	}
	s.Deadline, _ = time.Parse(time.RFC3339, labels[labelDeadline])
	s.IdleLimit, _ = time.ParseDuration(labels[labelIdle])
	s.GPUs, _ = sandbox.ParseGPUs(labels[labelGPUs])
	if s.origin == s.ID { // a claimed one was given the id of its key
		s.Pool = labels[labelPool]
		s.Outdated = s.Pool != "" && h.outdated(labels[labelBinary])
	}
	for name, value := range labels {
		if !strings.HasPrefix(name, sandbox.LabelPrefix) {
			s.Labels[name] = value
		}
	}
	return s, true
}

// settle completes the facts of the labels by those of the state file. A state file that cannot be
// read does not stop clients from listing or removing sandboxes.
func (s *instance) settle(state string) {
	n, err := s.host.state.load(s.origin)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.host.config.Logger.Warn("cannot read the state file of a sandbox", "sandbox", s.ID, "error", err)
	}
	s.Name, s.Owner = cmp.Or(n.Name, s.Name), cmp.Or(n.Owner, s.Owner)
	s.Spec, s.IdleLimit = cmp.Or(n.Spec, s.Spec), cmp.Or(n.Idle, s.IdleLimit)
	switch {
	case n.Deadline.Equal(forever):
		s.Deadline = time.Time{}
	case !n.Deadline.IsZero():
		s.Deadline = n.Deadline
	}
	s.State = stateOf(state, n.Done)
}

// stateOf translates the engine's word.
func stateOf(word string, done bool) sandbox.State {
	switch word {
	case "created":
		return sandbox.Creating
	case "running", "restarting":
		if done {
			return sandbox.Ready
		}
		return sandbox.Starting
	case "paused":
		return sandbox.Paused
	case "exited", "dead":
		return sandbox.Stopped
	}
	return sandbox.Gone
}

// List looks at all sandboxes of this controller, the eldest first. A creation
// in its early steps is not among them. It fails with ErrUnknown if the engine
// cannot be reached.
func (h *Host) List(ctx context.Context) ([]*sandbox.Sandbox, error) {
	containers, err := h.containers(ctx, "sandbox")
	if err != nil {
		return nil, err
	}
	var all []*sandbox.Sandbox
	for _, c := range containers {
		s, ours := h.sandbox(nameOf(c), c.ID, c.Image, c.Labels)
		if !ours {
			continue
		}
		s.Detail = c.Status
		for _, p := range c.Ports {
			if p.PublicPort != 0 && strconv.Itoa(int(p.PrivatePort))+"/tcp" == insidePort {
				s.port = p.PublicPort
			}
		}
		s.settle(c.State)
		all = append(all, s.Sandbox)
	}
	slices.SortFunc(all, (*sandbox.Sandbox).Compare)
	return all, nil
}

func nameOf(c container.Summary) string {
	if len(c.Names) == 0 {
		return ""
	}
	return c.Names[0]
}

func (h *Host) containers(ctx context.Context, kind string) ([]container.Summary, error) {
	return h.list(ctx, "listing the sandboxes", labelManaged+"="+kind, labelController+"="+h.controller)
}

// list returns the containers of the engine that have all the labels.
func (h *Host) list(ctx context.Context, what string, labels ...string) ([]container.Summary, error) {
	options := container.ListOptions{All: true, Filters: filters.NewArgs()}
	for _, label := range labels {
		options.Filters.Add("label", label)
	}
	return safely(ctx, what, func() ([]container.Summary, error) { return h.engine.ContainerList(ctx, options) })
}

// inspect looks at a container.
func (h *Host) inspect(ctx context.Context, what, id string) (container.InspectResponse, error) {
	return safely(ctx, what, func() (container.InspectResponse, error) { return h.engine.ContainerInspect(ctx, id) })
}

// kill stops a sandbox at once, even if ctx is over.
func (h *Host) kill(ctx context.Context, s *instance) error {
	return h.engine.ContainerStop(context.WithoutCancel(ctx), s.Instance, container.StopOptions{Timeout: new(0)})
}

// Get finds a sandbox by its id, its name, or the beginning of its id. It fails
// with ErrNotFound, ErrAmbiguous or ErrUnknown.
func (h *Host) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	all, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	return sandbox.Find(all, ref)
}

// Dial is Access's. It fails with ErrUnsafeSocket if something else stands in the socket's place.
func (s *instance) Dial(ctx context.Context) (net.Conn, error) {
	learned, err := s.host.learn(ctx)
	if err != nil {
		return nil, err
	}
	if s.transport == "socket" {
		return dialSocket(ctx, s.host.state.runPath(s.origin), filepath.Base(insideSocket), learned.serverUID)
	}
	if s.port == 0 {
		return nil, fmt.Errorf("sandbox %s has no port: it is %s", s.ID, s.State)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(s.port))))
	if err != nil {
		return nil, fmt.Errorf("connecting to sandbox %s: %w", s.ID, err)
	}
	return conn, nil
}

// Key is Access's.
func (s *instance) Key() (string, error) {
	n, err := s.host.state.load(s.origin)
	if err != nil {
		return "", fmt.Errorf("finding the key of sandbox %s: %w", s.ID, err)
	}
	return n.Key, nil
}

// status asks the sandbox's server how it is.
func (s *instance) status(ctx context.Context) (sandbox.Status, error) {
	key, err := s.Key()
	if err != nil {
		return sandbox.Status{}, err
	}
	return s.host.config.Agent.Status(ctx, s.Dial, key)
}

// Delete removes the sandbox with its container and its directory, in any state. It
// succeeds if the sandbox is already gone.
func (h *Host) Delete(ctx context.Context, box *sandbox.Sandbox) error {
	s, unlock, err := h.lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	return h.destroy(ctx, s)
}

// destroy is Delete with the lock held. The directory goes last: as long as it
// exists, Prune finds the rest.
func (h *Host) destroy(ctx context.Context, s *instance) error {
	if err := h.discard(ctx, s.Instance); err != nil {
		return err
	}
	if err := h.disconnect(ctx, s.origin); err != nil {
		return err
	}
	return h.state.remove(s.origin)
}

// Stop ends the sandbox's processes and keeps its files. grace is the time in
// which they may end by themselves, in whole seconds.
func (h *Host) Stop(ctx context.Context, box *sandbox.Sandbox, grace time.Duration) error {
	return h.change(ctx, box, "stopping", []sandbox.State{sandbox.Starting, sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Stopped}, func(s *instance) error {
		return h.engine.ContainerStop(ctx, s.Instance, container.StopOptions{Timeout: new(int(grace / time.Second))})
	})
}

// Start starts a stopped sandbox and returns when a command ran in its shell. If
// that fails it is stopped again: running, it would have no owner. One that runs
// is claimed again, in case the caller that started it died before it did so.
func (h *Host) Start(ctx context.Context, box *sandbox.Sandbox) error {
	err := h.change(ctx, box, "starting", []sandbox.State{sandbox.Stopped, sandbox.Starting, sandbox.Ready, sandbox.Busy, sandbox.Idle}, func(s *instance) error {
		n, err := h.state.load(s.origin)
		if err != nil {
			return err
		}
		return h.relaunch(ctx, s, n)
	})
	if err != nil {
		return err
	}
	box.State = sandbox.Ready
	return nil
}

// relaunch starts a finished sandbox anew. One that was stopped and does not come
// to life is stopped again.
func (h *Host) relaunch(ctx context.Context, s *instance, n stateFile) error {
	stopped := s.State == sandbox.Stopped // launch may look again
	if n.Egress {
		if err := h.applyPolicy(ctx, s.origin); err != nil {
			return err
		}
	}
	if err := h.lostSocket(s); err != nil {
		return err
	}
	if s.transport == "socket" && stopped {
		if err := h.restoreRun(ctx, s); err != nil {
			return err
		}
	}
	err := h.launch(ctx, s, n)
	if err == nil || !stopped {
		return err
	}
	return errors.Join(err, engineError(context.WithoutCancel(ctx), "stopping sandbox "+s.ID+" again", h.kill(ctx, s)))
}

// lostSocket fails where a running sandbox has no socket and has had the time to make one: its
// server listens on a socket that was removed, and only another start makes another.
func (h *Host) lostSocket(s *instance) error {
	if s.State == sandbox.Stopped || s.transport != "socket" || time.Since(s.started) < h.config.ReadyTimeout {
		return nil
	}
	path := filepath.Join(h.state.runPath(s.origin), filepath.Base(insideSocket))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // connecting reports the error
	}
	return fmt.Errorf("%w: it runs and its socket %s is gone; run 'runtimectl stop %s', then 'runtimectl start %s'", sandbox.ErrConflict, path, s.ID, s.ID)
}

// restoreRun makes the directory of the socket, which the engine mounts, where it is missing.
func (h *Host) restoreRun(ctx context.Context, s *instance) error {
	learned, err := h.learn(ctx)
	if err != nil {
		return err
	}
	if err := h.state.makeRun(s.origin); err != nil {
		return err
	}
	return h.state.give(s.origin, learned.serverUID)
}

// Pause freezes the sandbox's processes.
func (h *Host) Pause(ctx context.Context, box *sandbox.Sandbox) error {
	return h.change(ctx, box, "pausing", []sandbox.State{sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Paused}, func(s *instance) error {
		if s.State == sandbox.Paused {
			return nil
		}
		if err := h.freeze(ctx, s); err != nil {
			return err
		}
		return h.suspend(ctx, s)
	})
}

const (
	// freezeTries bounds the attempts to pause a container, and freezePause is the time between two. One may take seconds: refreezeTime
	// bounds all of them where no caller can.
	freezeTries  = 10
	freezePause  = 100 * time.Millisecond
	refreezeTime = 30 * time.Second
)

// freeze pauses a container. On a busy machine runc gives up before the kernel has stopped all processes, lets them go on, and
// leaves it to its caller to try again (github.com/opencontainers/runc/pull/4388).
func (h *Host) freeze(ctx context.Context, s *instance) error {
	for try := 1; ; try++ {
		err := h.engine.ContainerPause(ctx, s.Instance)
		if err == nil || try == freezeTries || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
		_ = channel.Sleep(ctx, freezePause) // the next try fails then
	}
}

// suspend ends the connections of a paused sandbox: the clients at their other ends would wait.
func (h *Host) suspend(ctx context.Context, s *instance) error {
	if has, err := h.state.hasConf(s.origin); !has || err != nil {
		return err
	}
	err := h.askEgress(ctx, http.MethodPost, "/disconnect/"+s.origin, nil)
	if errors.Is(err, errDown) || errors.Is(err, errUnapplied) {
		return nil
	}
	return err
}

// Resume lets the processes of a paused sandbox go on.
func (h *Host) Resume(ctx context.Context, box *sandbox.Sandbox) error {
	return h.change(ctx, box, "resuming", []sandbox.State{sandbox.Paused, sandbox.Ready, sandbox.Busy, sandbox.Idle}, func(s *instance) error {
		if s.State != sandbox.Paused {
			return nil
		}
		return h.engine.ContainerUnpause(ctx, s.Instance)
	})
}

// Renew gives the sandbox another deadline; the zero time takes it away. A
// paused one goes on for the moment in which its server is told, a stopped one
// learns it when it starts.
func (h *Host) Renew(ctx context.Context, box *sandbox.Sandbox, deadline time.Time) error {
	s, unlock, err := h.lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	n, err := h.state.load(s.origin)
	if err != nil {
		return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
	}
	ttl := time.Duration(0)
	n.Deadline = forever
	if !deadline.IsZero() {
		n.Deadline, ttl = deadline, max(time.Until(deadline), time.Second)
	}
	// The server first: otherwise the state file would be wrong when this fails.
	if err := h.tellDeadline(ctx, s, n, ttl); err != nil {
		return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
	}
	if err := h.state.save(s.origin, n); err != nil {
		return err
	}
	s.Deadline = deadline
	return nil
}

func (h *Host) tellDeadline(ctx context.Context, s *instance, n stateFile, ttl time.Duration) (err error) {
	if err := h.refresh(ctx, s); err != nil {
		return err
	}
	switch s.State {
	case sandbox.Ready, sandbox.Starting:
	case sandbox.Paused:
		if err := h.engine.ContainerUnpause(ctx, s.Instance); err != nil {
			return engineError(ctx, "resuming it", err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreezeTime)
			defer cancel()
			err = errors.Join(err, engineError(ctx, "pausing it again", h.freeze(ctx, s)))
		}()
	default:
		return nil
	}
	return h.config.Agent.Renew(ctx, s.Dial, n.Key, n.Ticket, ttl)
}

// change does work on a sandbox that is in one of the states from, looked at
// anew under its lock. s is up to date afterwards.
func (h *Host) change(ctx context.Context, box *sandbox.Sandbox, what string, from []sandbox.State, work func(s *instance) error) error {
	s, unlock, err := h.lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.refresh(ctx, s); err != nil {
		return err
	}
	if !slices.Contains(from, s.State) {
		return fmt.Errorf("%s sandbox %s: %w: it is %s", what, s.ID, sandbox.ErrConflict, s.State)
	}
	if err := work(s); err != nil {
		return engineError(ctx, what+" sandbox "+s.ID, err)
	}
	return h.refresh(ctx, s)
}

// refresh looks at the sandbox again. It fails with ErrNotFound if it is gone.
func (h *Host) refresh(ctx context.Context, s *instance) error {
	info, err := h.inspect(ctx, "looking at sandbox "+s.ID, s.Instance)
	if isNotFound(err) {
		s.State = sandbox.Gone
		return fmt.Errorf("sandbox %s: %w", s.ID, sandbox.ErrNotFound)
	}
	if err != nil {
		return err
	}
	s.port = 0
	if info.NetworkSettings != nil {
		for _, b := range info.NetworkSettings.Ports[insidePort] {
			if port, err := strconv.ParseUint(b.HostPort, 10, 16); err == nil {
				s.port = uint16(port)
			}
		}
	}
	s.started = when(info.State.StartedAt)
	s.settle(info.State.Status)
	return nil
}
