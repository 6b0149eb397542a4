package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// launch starts the container and returns when a command ran in its shell.
func (h *Host) launch(ctx context.Context, s *instance, n stateFile) error {
	limit := fmt.Errorf("nothing after %v", h.config.ReadyTimeout)
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, h.config.ReadyTimeout, limit)
	defer cancelTimeout()
	waitCtx, died := context.WithCancelCause(ctx)
	defer died(nil)
	exited, failed := h.engine.ContainerWait(waitCtx, s.Instance, container.WaitConditionNextExit)

	h.config.Progress(s.ID, sandbox.Creating, "the container to start")
	mounts := n.Mounts
	if n.Egress { // the proxy, which reads what agents send, may have put a link in its place
		source, err := filepath.EvalSymlinks(h.state.path) // those above it are the controller's own
		if err != nil {
			return err
		}
		source = filepath.Join(source, "egress", "run", s.origin)
		mounts = append(slices.Clone(mounts), sandbox.Mount{Source: source, Target: insideEgress, ReadOnly: true})
	}
	release, err := h.start(ctx, s, mounts)
	if err != nil {
		return h.startError(ctx, s, "", err)
	}
	defer release()
	defer channel.Go(func(over <-chan struct{}) {
		select {
		case status := <-exited:
			died(fmt.Errorf("the server ended with status %d", status.StatusCode))
		case err := <-failed: // then only the time limit tells
			h.config.Logger.DebugContext(ctx, "cannot watch a container", "sandbox", s.ID, "error", err)
		case <-over:
		}
	})()
	for _, next := range []struct {
		step string
		do   func(context.Context) error
	}{
		{"waiting for its server to listen", func(ctx context.Context) error { return h.listening(ctx, s) }},
		{"claiming it", func(ctx context.Context) error {
			if n.Key == "" {
				return nil
			}
			// A busy engine's proxy may cut a connection later than settled waits. The same
			// key may claim again.
			return sandbox.UntilListening(ctx, func() error { return h.claimServer(ctx, s, n) }, fs.ErrNotExist)
		}},
		{"waiting for the first command in its shell", func(ctx context.Context) error {
			return h.config.Agent.Ready(ctx, s.Dial, n.Key)
		}},
	} {
		h.config.Progress(s.ID, sandbox.Starting, next.step)
		if err := next.do(waitCtx); err != nil {
			if waitCtx.Err() != nil {
				err = context.Cause(waitCtx)
			}
			return h.startError(ctx, s, next.step, err)
		}
	}
	return nil
}

// start starts the container. Where it has mounts, its server waits until they
// were compared with the checked ones: an agent may have put a link in the place
// of one meanwhile, and the server gives the working directory to the user.
// Where they differ the container is stopped. The caller calls release once the
// server listens, or is no longer waited for.
func (h *Host) start(ctx context.Context, s *instance, mounts []sandbox.Mount) (release func(), err error) {
	learned, err := h.learn(ctx)
	if err != nil {
		return nil, err
	}
	run := func() error {
		_, unlock, err := h.takeGPUs(ctx, sandbox.GPUs{Devices: s.GPUs.Devices}, s.Instance) // others may have them since it ended
		if err != nil {
			return err
		}
		defer unlock()
		return engineError(ctx, "starting the container", h.engine.ContainerStart(ctx, s.Instance, container.StartOptions{}))
	}
	if !learned.local || len(mounts) == 0 {
		return func() {}, run()
	}
	held, err := holdMounts(mounts)
	if err != nil {
		return nil, err
	}
	defer held.release()
	if !learned.socket || s.transport != "socket" {
		if err := h.uncheckable(ctx, held); err != nil {
			return nil, err
		}
		return func() {}, run()
	}
	fifo, err := h.state.startFIFO(s.origin, learned.serverUID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = fifo.Close()
		}
	}()
	if err := run(); err != nil {
		return nil, err
	}
	if err := h.checkMounts(ctx, s, held, learned.serverUID); err != nil {
		return nil, errors.Join(err, h.kill(ctx, s))
	}
	if _, err := fifo.Write([]byte{'\n'}); err != nil {
		return nil, fmt.Errorf("letting the server start: %w", err)
	}
	return func() { _ = fifo.Close() }, nil
}

// checkMounts compares the mounts of a container that was just started with the
// held ones.
func (h *Host) checkMounts(ctx context.Context, s *instance, held *heldMounts, serverUID int) error {
	info, err := h.engine.ContainerInspect(ctx, s.Instance)
	if err != nil {
		return engineError(ctx, "looking at the container", err)
	}
	if info.State.Pid == 0 {
		return nil // it ended already, which is reported elsewhere
	}
	err = held.check(info.State.Pid, serverUID)
	if err == nil || errors.Is(err, sandbox.ErrInvalid) {
		return err
	}
	// The processes of some runtimes are out of sight.
	h.config.Logger.WarnContext(ctx, "cannot check the mounts of a sandbox", "sandbox", s.ID, "error", err)
	return h.uncheckable(ctx, held)
}

// uncheckable refuses mounts below a directory that sandboxes can write, where the
// engine's mounts cannot be compared.
func (h *Host) uncheckable(ctx context.Context, held *heldMounts) error {
	dirs, err := h.agentDirs(ctx)
	if err != nil {
		return err
	}
	if source, dir := held.below(dirs); source != "" {
		return sandbox.Invalid("mount %s lies in %s, which a sandbox can change, and the engine's mounts cannot be checked here: run this program as root, or mount %s itself",
			source, dir, dir)
	}
	return nil
}

// claimServer claims the server of a sandbox: by the values of the state file, or else by those that
// the sandbox was created with.
func (h *Host) claimServer(ctx context.Context, s *instance, n stateFile) error {
	c := sandbox.Claim{Ticket: n.Ticket, Key: n.Key, Owner: n.Owner, Env: n.Env, Idle: cmp.Or(n.Idle, s.IdleLimit)}
	if n.Egress {
		conf, err := h.state.loadConf(s.origin)
		if err != nil {
			return err
		}
		c.Egress, c.CA, c.Placeholders, c.Names = egressAddress, conf.CA.Certificate, conf.Policy.Placeholders(), n.Names
	}
	deadline := cmp.Or(n.Deadline, s.Deadline)
	if !deadline.IsZero() && deadline.Before(forever) {
		c.TTL = max(time.Until(deadline), time.Second)
	}
	return h.config.Agent.Claim(ctx, s.Dial, c)
}

// listening returns when the server takes connections.
func (h *Host) listening(ctx context.Context, s *instance) error {
	if s.transport == "port" {
		if err := h.refresh(ctx, s); err != nil {
			return err
		}
	}
	return sandbox.UntilListening(ctx, func() error {
		conn, err := s.Dial(ctx)
		if err == nil {
			err = settled(conn, s.transport)
			_ = conn.Close()
		}
		return err
	}, fs.ErrNotExist)
}

// settled reports whether a connection that was opened leads to a server. On a
// published port the engine's proxy accepts every connection, and closes those that
// no process in the sandbox accepts; a server waits for the request.
func settled(conn net.Conn, transport string) error {
	if transport == "socket" {
		return nil
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// startError collects why a container did not come to life, while it is there.
func (h *Host) startError(ctx context.Context, s *instance, step string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	e := &sandbox.StartError{ID: s.ID, Step: step, Err: err}
	e.Logs = h.lastWords(ctx, s.Instance)
	info, inspectErr := h.engine.ContainerInspect(ctx, s.Instance)
	if inspectErr != nil {
		return e
	}
	e.Hint = hint(info, h.hasShell(ctx, s.Instance), err)
	return e
}

// hint returns advice about a container that did not start because of err.
func hint(info container.InspectResponse, shell bool, err error) string {
	switch state := info.State; {
	case state == nil:
		return ""
	case isNotFound(err) && info.HostConfig != nil && info.HostConfig.NetworkMode.IsUserDefined():
		return "Make the network with 'docker network create " + info.HostConfig.NetworkMode.NetworkName() + "', or take another one."
	case gpuHint(err) != "":
		return gpuHint(err)
	case !shell:
		return "The image has no shell: there is neither /bin/bash nor /bin/sh in it. " +
			"Commands run in a shell, so put one into the image (a static busybox is enough), or take another image."
	case state.OOMKilled:
		return "Its memory limit was reached before it was ready: give it more memory."
	case strings.Contains(state.Error, "exec format error"):
		return "The image is for another processor than this host's."
	case state.Error != "" && !strings.Contains(err.Error(), state.Error):
		return "The engine says: " + state.Error
	}
	return ""
}

func (h *Host) hasShell(ctx context.Context, id string) bool {
	for _, shell := range []string{"/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/sh"} {
		if _, err := h.engine.ContainerStatPath(ctx, id, shell); err == nil || !isNotFound(err) {
			return true
		}
	}
	return false
}

// lastWords are the last lines of a container's logs.
func (h *Host) lastWords(ctx context.Context, id string) string {
	logs, err := h.engine.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return ""
	}
	defer func() { _ = logs.Close() }()
	var text bytes.Buffer
	_, _ = stdcopy.StdCopy(&text, &text, io.LimitReader(logs, 64<<10)) // as far as it goes
	return strings.TrimSpace(text.String())
}
