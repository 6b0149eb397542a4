package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// State is where a sandbox is in its life.
type State string

// The states in their order. A caller sees Ready, Busy and Idle only after the
// first command ran.
const (
	Pending  State = "pending"  // waits for its turn, its image or the server
	Creating State = "creating" // the container is being made
	Starting State = "starting" // the container runs, the first command has not run yet
	Ready    State = "ready"    // takes actions; how busy it is was not asked
	Busy     State = "busy"     // runs an action
	Idle     State = "idle"     // waits for one
	Paused   State = "paused"   // frozen in memory; Resume goes on
	Stopped  State = "stopped"  // no processes, the files are there; Start goes on
	Gone     State = "gone"     // removed, or being removed
)

// Sandbox is a sandbox as it was when it was looked at.
type Sandbox struct {
	ID        string    // 12 hexadecimal digits
	Name      string    // for people; the id if none was given
	Owner     string    // a word for people and filters
	Image     string    // as it was asked for
	State     State     //
	Detail    string    // the engine's words, such as "Up 3 minutes"
	Created   time.Time //
	Deadline  time.Time // zero: none
	IdleLimit time.Duration
	Spec      string            // hash of the specification
	Pool      string            // the warm pool it waits in, empty once it is claimed
	User      string            // NAME:UID of the commands
	Labels    map[string]string // the caller's own
	Container string            // the container's id, for what else the engine can do
	Transport string            // "socket" or "port"

	host  *Host
	birth string // id at birth, the name of the directory
	port  uint16
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{12}$`)

// sandbox is the sandbox behind a container, or nothing if it is none of ours:
// labels alone do not make it ours, since an image can bring them along and a
// container made from it by hand must never be touched.
func (h *Host) sandbox(name, containerID, image string, labels map[string]string) (*Sandbox, bool) {
	id, ours := strings.CutPrefix(strings.TrimPrefix(name, "/"), h.config.Prefix)
	if !ours || !idPattern.MatchString(id) || !idPattern.MatchString(labels[labelID]) ||
		labels[labelManaged] != "sandbox" || labels[labelController] != h.controller {
		return nil, false
	}
	created, err := time.Parse(time.RFC3339, labels[labelCreated])
	if err != nil {
		return nil, false
	}
	s := &Sandbox{
		ID: id, Name: labels[labelName], Owner: labels[labelOwner], Image: image, Created: created,
		Spec: labels[labelSpec], User: labels[labelUser], Labels: map[string]string{}, Container: containerID,
		Transport: labels[labelTransport], host: h, birth: labels[labelID],
	}
	s.Deadline, _ = time.Parse(time.RFC3339, labels[labelDeadline])
	s.IdleLimit, _ = time.ParseDuration(labels[labelIdle])
	if s.birth == s.ID { // a claimed one was given the id of its key
		s.Pool = labels[labelPool]
	}
	for name, value := range labels {
		if !strings.HasPrefix(name, labelPrefix) {
			s.Labels[name] = value
		}
	}
	return s, true
}

// settle adds what the note says to what the labels say.
func (s *Sandbox) settle(state string) error {
	n, err := s.host.state.load(s.birth)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.Name, s.Owner = orElse(n.Name, s.Name), orElse(n.Owner, s.Owner)
	s.Spec, s.IdleLimit = orElse(n.Spec, s.Spec), orElse(n.Idle, s.IdleLimit)
	switch {
	case n.Deadline.Equal(forever):
		s.Deadline = time.Time{}
	case !n.Deadline.IsZero():
		s.Deadline = n.Deadline
	}
	s.State = stateOf(state, n.Done)
	return nil
}

// stateOf translates the engine's word.
func stateOf(word string, done bool) State {
	switch word {
	case "created":
		return Creating
	case "running", "restarting":
		if done {
			return Ready
		}
		return Starting
	case "paused":
		return Paused
	case "exited", "dead":
		return Stopped
	}
	return Gone
}

// List looks at all sandboxes of this controller, the eldest first. A creation
// in its early steps is not among them. It fails with ErrUnknown if the engine
// cannot be reached.
func (h *Host) List(ctx context.Context) ([]*Sandbox, error) {
	containers, err := h.containers(ctx, "sandbox")
	if err != nil {
		return nil, err
	}
	var all []*Sandbox
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
		if err := s.settle(c.State); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

func nameOf(c container.Summary) string {
	if len(c.Names) == 0 {
		return ""
	}
	return c.Names[0]
}

func (h *Host) containers(ctx context.Context, kind string) ([]container.Summary, error) {
	options := container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelManaged+"="+kind), filters.Arg("label", labelController+"="+h.controller),
	)}
	return safely(ctx, "listing the sandboxes", func() ([]container.Summary, error) {
		return h.engine.ContainerList(ctx, options)
	})
}

// Get finds a sandbox by its id, its name, or the beginning of its id. It fails
// with ErrNotFound, ErrAmbiguous or ErrUnknown.
func (h *Host) Get(ctx context.Context, ref string) (*Sandbox, error) {
	all, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	return Find(all, ref)
}

// Find is the one of all that ref names: by its id, its name, or the beginning
// of its id, in this order. It fails with ErrNotFound or ErrAmbiguous.
func Find(all []*Sandbox, ref string) (*Sandbox, error) {
	var found []*Sandbox
	for _, match := range []func(s *Sandbox) bool{
		func(s *Sandbox) bool { return s.ID == ref },
		func(s *Sandbox) bool { return s.Name == ref },
		func(s *Sandbox) bool { return strings.HasPrefix(s.ID, ref) },
	} {
		for _, s := range all {
			if ref != "" && match(s) {
				found = append(found, s)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return nil, fmt.Errorf("%q is %w: %d sandboxes answer to it", ref, ErrAmbiguous, len(found))
	}
	return nil, fmt.Errorf("%q: %w", ref, ErrNotFound)
}

// Dial opens a connection to the server in the sandbox. ctx bounds the opening.
// It fails with ErrUnsafeSocket if something else stands in the socket's place.
func (s *Sandbox) Dial(ctx context.Context) (net.Conn, error) {
	learned, err := s.host.learn(ctx)
	if err != nil {
		return nil, err
	}
	if s.Transport == "socket" {
		return dialSocket(ctx, s.host.state.runPath(s.birth), learned.serverUID)
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

// Key is what requests to the sandbox's server are signed with. It must not be
// printed. It fails with fs.ErrNotExist for a sandbox that nobody claimed yet.
func (s *Sandbox) Key() (string, error) {
	n, err := s.host.state.load(s.birth)
	if err != nil {
		return "", fmt.Errorf("finding the key of sandbox %s: %w", s.ID, err)
	}
	return n.Key, nil
}

// Status asks the sandbox's server how it is.
func (s *Sandbox) Status(ctx context.Context) (Status, error) {
	key, err := s.Key()
	if err != nil {
		return Status{}, err
	}
	return s.host.config.Agent.Status(ctx, s.Dial, key)
}

// Delete removes the sandbox and what belongs to it, whatever state it is in.
// That it is gone already is fine.
func (h *Host) Delete(ctx context.Context, s *Sandbox) error {
	unlock, err := h.state.lock(ctx, s.birth)
	if err != nil {
		return err
	}
	defer unlock()
	return h.destroy(ctx, s)
}

// destroy is Delete with the lock held. The directory goes last: as long as it
// is there, a reconciliation finds what is left.
func (h *Host) destroy(ctx context.Context, s *Sandbox) error {
	if err := h.discard(ctx, s.Container); err != nil {
		return err
	}
	return h.state.remove(s.birth)
}

// Stop ends the sandbox's processes and keeps its files. grace is what they get
// to end by themselves, in whole seconds.
func (h *Host) Stop(ctx context.Context, s *Sandbox, grace time.Duration) error {
	return h.change(ctx, s, "stopping", []State{Starting, Ready, Busy, Idle, Stopped}, func() error {
		seconds := int(grace / time.Second)
		return h.engine.ContainerStop(ctx, s.Container, container.StopOptions{Timeout: &seconds})
	})
}

// Start starts a stopped sandbox and returns when a command ran in its shell. If
// that fails it is stopped again: running, it would be nobody's. One that runs
// is claimed again, in case whoever started it died before.
func (h *Host) Start(ctx context.Context, s *Sandbox) error {
	var started *Sandbox
	err := h.change(ctx, s, "starting", []State{Stopped, Starting, Ready, Busy, Idle}, func() error {
		n, err := h.state.load(s.birth)
		if err != nil {
			return err
		}
		started = s
		return h.relaunch(ctx, s, n)
	})
	if err != nil || started == nil {
		return err
	}
	s.State = Ready
	return nil
}

// relaunch starts a finished sandbox anew. One that was stopped and does not come
// to life is stopped again.
func (h *Host) relaunch(ctx context.Context, s *Sandbox, n note) error {
	stopped := s.State == Stopped // launch may look again
	err := h.launch(ctx, s, n)
	if err == nil || !stopped {
		return err
	}
	now := 0
	stopErr := h.engine.ContainerStop(context.WithoutCancel(ctx), s.Container, container.StopOptions{Timeout: &now})
	return errors.Join(err, engineError(context.WithoutCancel(ctx), "stopping sandbox "+s.ID+" again", stopErr))
}

// Pause freezes the sandbox's processes.
func (h *Host) Pause(ctx context.Context, s *Sandbox) error {
	return h.change(ctx, s, "pausing", []State{Ready, Busy, Idle, Paused}, func() error {
		if s.State == Paused {
			return nil
		}
		return h.engine.ContainerPause(ctx, s.Container)
	})
}

// Resume lets the processes of a paused sandbox go on.
func (h *Host) Resume(ctx context.Context, s *Sandbox) error {
	return h.change(ctx, s, "resuming", []State{Paused, Ready, Busy, Idle}, func() error {
		if s.State != Paused {
			return nil
		}
		return h.engine.ContainerUnpause(ctx, s.Container)
	})
}

// Renew gives the sandbox another deadline; the zero time takes it away. A
// paused one goes on for the moment in which its server is told, a stopped one
// learns it when it starts.
func (h *Host) Renew(ctx context.Context, s *Sandbox, deadline time.Time) error {
	unlock, err := h.state.lock(ctx, s.birth)
	if err != nil {
		return err
	}
	defer unlock()
	n, err := h.state.load(s.birth)
	if err != nil {
		return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
	}
	ttl := time.Duration(0)
	n.Deadline = forever
	if !deadline.IsZero() {
		n.Deadline, ttl = deadline, max(time.Until(deadline), time.Second)
	}
	// The server first: otherwise the note would be wrong when this fails.
	if err := h.tellDeadline(ctx, s, n.Key, ttl); err != nil {
		return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
	}
	if err := h.state.save(s.birth, n); err != nil {
		return err
	}
	s.Deadline = deadline
	return nil
}

func (h *Host) tellDeadline(ctx context.Context, s *Sandbox, key string, ttl time.Duration) (err error) {
	if err := h.refresh(ctx, s); err != nil {
		return err
	}
	switch s.State {
	case Ready, Starting:
	case Paused:
		if err := h.engine.ContainerUnpause(ctx, s.Container); err != nil {
			return engineError(ctx, "resuming it", err)
		}
		defer func() {
			again := h.engine.ContainerPause(context.WithoutCancel(ctx), s.Container)
			err = errors.Join(err, engineError(ctx, "pausing it again", again))
		}()
	default:
		return nil
	}
	return h.config.Agent.Renew(ctx, s.Dial, key, ttl)
}

// change does work on a sandbox that is in one of the states from, looked at
// anew under its lock. s is up to date afterwards.
func (h *Host) change(ctx context.Context, s *Sandbox, what string, from []State, work func() error) error {
	unlock, err := h.state.lock(ctx, s.birth)
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.refresh(ctx, s); err != nil {
		return err
	}
	if !slices.Contains(from, s.State) {
		return fmt.Errorf("%s sandbox %s: %w: it is %s", what, s.ID, ErrConflict, s.State)
	}
	if err := work(); err != nil {
		return engineError(ctx, what+" sandbox "+s.ID, err)
	}
	return h.refresh(ctx, s)
}

// refresh looks at the sandbox again. It fails with ErrNotFound if it is gone.
func (h *Host) refresh(ctx context.Context, s *Sandbox) error {
	info, err := safely(ctx, "looking at sandbox "+s.ID, func() (container.InspectResponse, error) {
		return h.engine.ContainerInspect(ctx, s.Container)
	})
	if isNotFound(err) {
		s.State = Gone
		return fmt.Errorf("sandbox %s: %w", s.ID, ErrNotFound)
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
	return s.settle(info.State.Status)
}
