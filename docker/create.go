package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// Create makes a sandbox and returns when a command ran in its shell. With a
// key it gives the sandbox of that key: one that is there already, started or
// resumed if need be, or a new one. ErrConflict says that the key belongs to a
// sandbox of another specification. Whatever goes wrong, nothing is left, unless
// the engine cannot be reached or this process dies: then Prune removes it.
func (h *Host) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	if err := h.complete(ctx, &spec); err != nil {
		return nil, err
	}
	made, err := h.create(ctx, &spec, creation{key: cmp.Or(spec.Key, "\x00"+random.Hex(16))})
	if err != nil {
		return nil, err
	}
	return made.Sandbox, nil
}

// Platform is [sandbox.Driver]'s.
func (h *Host) Platform() string { return "the Docker engine" }

// Check is [sandbox.Driver]'s.
func (h *Host) Check(ctx context.Context, spec *sandbox.Spec) (hash string, err error) {
	if err := h.complete(ctx, spec); err != nil {
		return "", err
	}
	return spec.Hash(), nil
}

// complete is [sandbox.Spec.Complete] with a look at this host.
func (h *Host) complete(ctx context.Context, spec *sandbox.Spec) error {
	if err := complete(spec); err != nil {
		return err
	}
	if err := h.checkPolicy(ctx, spec); err != nil {
		return err
	}
	mounts, owner, err := resolveMounts(spec.Mounts, h.view, h.trust(ctx))
	if err != nil {
		return err
	}
	if spec.Disk > 0 {
		info, err := h.info(ctx)
		if err != nil {
			return err
		}
		if why := h.noDiskLimit(info); why != "" {
			return sandbox.Invalid("the disk of a sandbox cannot be limited here, because %s; leave the limit out", why)
		}
	}
	spec.Mounts = mounts
	writable := slices.ContainsFunc(mounts, func(m sandbox.Mount) bool { return !m.ReadOnly })
	if spec.UserID == 0 && spec.User != "root" && writable {
		spec.UserID = cmp.Or(owner, mountUserID)
	}
	return nil
}

func (h *Host) create(ctx context.Context, spec *sandbox.Spec, c creation) (*instance, error) {
	unlockName, err := h.lockName(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlockName()
	c.id = sandbox.ID(c.key)
	h.config.Progress(c.id, sandbox.Pending, "another creation of the same sandbox")
	unlock, err := h.state.lock(ctx, c.id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if found, err := h.existing(ctx, spec, c.id); found != nil || err != nil {
		return found, err
	}
	if err := sandbox.NameIsFree(ctx, h, spec.Name); err != nil {
		return nil, err
	}
	h.config.Progress(c.id, sandbox.Pending, fmt.Sprintf("one of %d places for creations", cap(h.slots)))
	release, err := h.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	for try := 1; ; try++ {
		made, err := h.make(ctx, spec, c)
		if try == createTries || !errors.Is(err, errTaken) {
			return made, err
		}
		if found, err := h.existing(ctx, spec, c.id); found != nil || err != nil {
			return found, err
		}
		_ = channel.Sleep(ctx, createPause) // the next try fails then
	}
}

// lockName waits until no other creation, in this process or another, uses the
// name. An empty name needs no lock. Callers take it before the lock of an id.
func (h *Host) lockName(ctx context.Context, name string) (unlock func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	unlock, err = h.state.lock(ctx, "name-"+name)
	if err != nil {
		return nil, fmt.Errorf("waiting for another creation of the name %s: %w", name, err)
	}
	return unlock, nil
}

// The engine finishes the creation of a client that died: for some tenths of a second
// a container that cannot be seen yet has the name.
const (
	createTries = 20
	createPause = 100 * time.Millisecond
)

// errTaken: the engine has a container of the name already.
var errTaken = fmt.Errorf("%w: the engine has a container of this name already", sandbox.ErrConflict)

// existing returns the sandbox of that id, running, or nil. The unfinished one of a
// creator that died is removed.
func (h *Host) existing(ctx context.Context, spec *sandbox.Spec, id string) (*instance, error) {
	s, err := h.named(ctx, h.containerName(id))
	if errors.Is(err, sandbox.ErrNotFound) { // earlier versions did not name the controller
		s, err = h.named(ctx, h.config.Prefix+id)
		if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrConflict) {
			return nil, nil //nolint:nilnil // nothing is what was looked for
		}
	}
	if err != nil {
		return nil, err
	}
	if s.origin != id { // claimed from a pool: its lock has the id it was created with
		unlock, err := h.state.lock(ctx, s.origin)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	n, err := h.state.load(s.origin)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !n.Done {
		return nil, h.destroy(ctx, s)
	}
	if err := h.refresh(ctx, s); err != nil {
		if errors.Is(err, sandbox.ErrNotFound) {
			return nil, nil //nolint:nilnil // it was removed just now
		}
		return nil, err
	}
	if s.Spec != spec.Hash() {
		return nil, fmt.Errorf("%w: sandbox %s has this key and another specification", sandbox.ErrConflict, id)
	}
	return s, h.wake(ctx, s, n)
}

// named returns the sandbox whose container has a name. It fails with ErrNotFound or, where
// the container is not one of this controller's sandboxes, with ErrConflict.
func (h *Host) named(ctx context.Context, name string) (*instance, error) {
	info, err := h.inspect(ctx, "looking for container "+name, name)
	if isNotFound(err) {
		return nil, sandbox.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	s, ours := h.sandbox(info.Name, info.ID, info.Config.Image, info.Config.Labels)
	if !ours {
		return nil, fmt.Errorf("%w: container %s is not a sandbox of this state directory; remove or rename it", sandbox.ErrConflict, name)
	}
	return s, nil
}

// wake brings a finished sandbox to life again.
func (h *Host) wake(ctx context.Context, s *instance, n stateFile) error {
	if n.Egress && s.State != sandbox.Stopped { // relaunch does it for a stopped one
		if err := h.applyPolicy(ctx, s.origin); err != nil {
			return err
		}
	}
	switch s.State {
	case sandbox.Stopped:
		if err := h.relaunch(ctx, s, n); err != nil {
			return err
		}
	case sandbox.Ready: // the caller that started it again may have died before the claim
		if err := h.lostSocket(s); err != nil {
			return err
		}
		if err := h.claimServer(ctx, s, n); err != nil {
			return fmt.Errorf("claiming sandbox %s again: %w", s.ID, err)
		}
	case sandbox.Paused:
		if err := h.engine.ContainerUnpause(ctx, s.Instance); err != nil {
			return engineError(ctx, "resuming sandbox "+s.ID, err)
		}
	}
	return h.refresh(ctx, s)
}

// make makes the sandbox of c; its lock is held. It leaves all or nothing.
func (h *Host) make(ctx context.Context, spec *sandbox.Spec, c creation) (made *instance, err error) {
	learned, err := h.learn(ctx)
	if err != nil {
		return nil, err
	}
	binary, err := h.gather(ctx, spec, learned, &c)
	if err != nil {
		return nil, err
	}
	h.config.Progress(c.id, sandbox.Creating, "its directory")
	defer func() {
		if err != nil {
			err = errors.Join(err, h.undo(ctx, c.id, made))
			made = nil
		}
	}()
	n, err := h.prepare(ctx, spec, learned, &c)
	if err != nil {
		return nil, err
	}
	applied, err := h.connectPolicy(ctx, c.id, spec)
	if err != nil {
		return nil, err
	}
	made, err = h.container(ctx, spec, c)
	if err = errors.Join(err, applied()); err != nil {
		return made, err
	}
	if c.volume == "" {
		h.config.Progress(c.id, sandbox.Creating, "the server to be copied")
		if err := h.copyServer(ctx, made.Instance, binary); err != nil {
			return made, err
		}
		if err := h.checkServer(ctx, made.Instance, binary); err != nil {
			return made, err
		}
	}
	if err := h.launch(ctx, made, n); err != nil {
		return made, err
	}
	n.Done = true
	h.config.Progress(c.id, sandbox.Starting, "the state file to be written")
	if err := h.state.save(c.id, n); err != nil {
		return made, err
	}
	made.State = sandbox.Ready
	h.config.Progress(c.id, sandbox.Ready, "")
	return made, nil
}

// prepare makes the directory of the sandbox and fills in c. It returns the state file, which is not written yet.
func (h *Host) prepare(ctx context.Context, spec *sandbox.Spec, learned *facts, c *creation) (n stateFile, err error) {
	c.ticket = random.Hex(32)
	n = stateFile{
		Ticket: c.ticket, Key: cmp.Or(spec.Secret, random.Hex(32)), Owner: spec.Owner, Name: spec.Name, Env: spec.Env, Mounts: spec.Mounts,
		Egress: spec.Policy != nil, Names: spec.Policy != nil && !spec.NoNames,
	}
	if c.pool != "" {
		n.Key = "" // the claimer brings it
	}
	runDir, err := h.state.prepare(c.id)
	if err != nil {
		return n, err
	}
	if learned.socket {
		c.runDir = runDir
		if err := h.state.give(c.id, learned.serverUID); err != nil {
			return n, err
		}
	}
	if err := h.pickUserID(ctx, spec, c.id, &n); err != nil {
		return n, err
	}
	c.userID = n.UserID
	return n, h.state.addMounted(spec.Mounts)
}

// gather finds or makes the parts of a creation that other sandboxes use too: the network, the image, and the server,
// which it returns.
func (h *Host) gather(ctx context.Context, spec *sandbox.Spec, learned *facts, c *creation) (binary server, err error) {
	if err := h.network(ctx, spec.Network); err != nil {
		return binary, err
	}
	h.config.Progress(c.id, sandbox.Pending, "the image "+spec.Image)
	arch, err := h.image(ctx, spec)
	if err != nil {
		return binary, err
	}
	if binary, err = h.serverFor(arch); err != nil {
		return binary, err
	}
	h.config.Progress(c.id, sandbox.Pending, "the server for "+arch)
	c.binary, c.name, c.controller, c.created, c.cpus = binary.sum, spec.Name, h.controller, time.Now(), learned.cpus
	c.remapped, c.terminals = learned.remapped, learned.terminals
	if c.volume, err = h.delivery(ctx, binary, spec.Image); err != nil {
		return binary, err
	}
	if spec.Network == "none" && !learned.socket {
		return binary, sandbox.Invalid("without a network the sandbox is reached by a socket, and this engine does not support one")
	}
	if spec.Policy != nil {
		if err := h.keepsPolicies(learned, spec.Runtime); err != nil {
			return binary, err
		}
		c.egressDir = h.state.egressRun(c.id)
	}
	return binary, nil
}

// delivery is the volume that holds the server, or nothing where it has to be
// copied.
func (h *Host) delivery(ctx context.Context, binary server, image string) (volume string, err error) {
	if h.config.CopyServer {
		return "", nil
	}
	volume, err = h.volumeWith(ctx, binary, image)
	if err == nil || ctx.Err() != nil || errors.Is(err, sandbox.ErrUnknown) {
		return volume, err
	}
	h.config.Logger.WarnContext(ctx, "cannot keep the server in a volume and copies it instead", "error", err)
	return "", nil
}

// undo removes the container and the directory of a failed creation.
func (h *Host) undo(ctx context.Context, id string, made *instance) error {
	target := h.containerName(id)
	if made != nil {
		target = made.Instance
	} else if info, err := h.engine.ContainerInspect(context.WithoutCancel(ctx), target); err == nil {
		// The engine may have made it although its answer did not arrive. A container of
		// another owner with this name stays.
		if _, ours := h.sandbox(info.Name, info.ID, "", info.Config.Labels); !ours {
			return errors.Join(h.disconnect(ctx, id), h.state.remove(id))
		}
	}
	if err := h.discard(ctx, target); err != nil {
		return err
	}
	if err := h.disconnect(ctx, id); err != nil {
		return err
	}
	return h.state.remove(id)
}

// container makes the container and does not start it.
func (h *Host) container(ctx context.Context, spec *sandbox.Spec, c creation) (*instance, error) {
	gpus, unlock, err := h.takeGPUs(ctx, spec.GPUs, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.gpus = gpus
	config, host := plan(spec, c)
	name := h.containerName(c.id)
	h.config.Progress(c.id, sandbox.Creating, "the container "+name)
	response, err := h.createContainer(ctx, config, host, name)
	switch {
	case isConflict(err):
		return nil, fmt.Errorf("making container %s: %w", name, errTaken)
	case isNotFound(err):
		return nil, fmt.Errorf("making container %s: %w: %w", name, sandbox.ErrNoImage, err)
	case isInvalid(err):
		return nil, fmt.Errorf("%w: making container %s: %w", sandbox.ErrInvalid, name, err)
	case err != nil:
		return nil, engineError(ctx, "making container "+name, err)
	}
	s, ours := h.sandbox(name, response.ID, spec.Image, config.Labels)
	if !ours {
		return nil, fmt.Errorf("making container %s: it does not look like ours", name)
	}
	s.State = sandbox.Creating
	return s, nil
}

// createTime bounds a call that makes a container; it takes some tenths of a
// second.
const createTime = time.Minute

// createContainer has the engine make a container. The engine makes it even if the
// client hangs up, and possibly after undo has looked for it. So the answer is waited
// for, even if ctx ends meanwhile.
func (h *Host) createContainer(ctx context.Context, config *container.Config, host *container.HostConfig, name string) (container.CreateResponse, error) {
	if ctx.Err() != nil {
		return container.CreateResponse{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	return h.engine.ContainerCreate(ctx, config, host, nil, nil, name)
}

// network makes sure that the network is there: the engine would say so only when the
// container starts.
func (h *Host) network(ctx context.Context, name string) error {
	if name == "none" || name == "bridge" || name == "default" {
		return nil
	}
	_, err := safely(ctx, "looking for network "+name, func() (network.Inspect, error) {
		return h.engine.NetworkInspect(ctx, name, network.InspectOptions{})
	})
	if isNotFound(err) {
		return fmt.Errorf("%w: %s; make it with 'docker network create %s', or take another one", sandbox.ErrNoNetwork, name, name)
	}
	return err
}

// image makes sure that the image is there and returns its architecture.
func (h *Host) image(ctx context.Context, spec *sandbox.Spec) (arch string, err error) {
	look := func() (image.InspectResponse, error) {
		return safely(ctx, "looking for image "+spec.Image, func() (image.InspectResponse, error) {
			return h.engine.ImageInspect(ctx, spec.Image)
		})
	}
	info, err := look()
	absent := isNotFound(err)
	switch {
	case isInvalid(err):
		return "", fmt.Errorf("%w: %w", sandbox.ErrInvalid, err)
	case err != nil && !absent:
		return "", err
	case absent && spec.Pull == sandbox.PullNever:
		return "", fmt.Errorf("%w: %s is not on this host, and pull is \"never\"", sandbox.ErrNoImage, spec.Image)
	case absent || spec.Pull == sandbox.PullAlways:
		if err := h.pull(ctx, spec.Image, absent); err != nil {
			return "", err
		}
		if info, err = look(); err != nil {
			return "", err
		}
	}
	return info.Architecture, nil
}

// pull gets an image that is absent, or a newer one.
func (h *Host) pull(ctx context.Context, name string, absent bool) error {
	report, err := h.engine.ImagePull(ctx, name, image.PullOptions{})
	if err != nil {
		if unreachable(err) || ctx.Err() != nil {
			return engineError(ctx, "pulling "+name, err)
		}
		if absent {
			name += " is not on this host and"
		}
		return fmt.Errorf("%w: %s cannot be pulled: %w", sandbox.ErrNoImage, name, err)
	}
	err = errors.Join(readReport(report, pullProgress(h.config.Pulling)), report.Close())
	if err != nil {
		return fmt.Errorf("%w: pulling %s: %w", sandbox.ErrNoImage, name, err)
	}
	return nil
}
