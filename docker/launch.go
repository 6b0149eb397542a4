package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// StartError says why a sandbox did not come to life. Nothing is left of it.
type StartError struct {
	ID   string
	Step string // what was waited for, empty: it was not started
	Hint string // what to do, empty if that is not known
	Logs string // the container's last lines
	Err  error
}

func (e *StartError) Error() string {
	text := "sandbox " + e.ID + ": "
	if e.Step != "" {
		text += e.Step + ": "
	}
	text += e.Err.Error()
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	if e.Logs != "" {
		text += "\nits last words:\n  " + strings.ReplaceAll(e.Logs, "\n", "\n  ")
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// launch starts the container and returns when a command ran in its shell.
func (h *Host) launch(ctx context.Context, s *Sandbox, n note) error {
	limit := fmt.Errorf("nothing after %v", h.config.ReadyTimeout)
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, h.config.ReadyTimeout, limit)
	defer cancelTimeout()
	waitCtx, died := context.WithCancelCause(ctx)
	defer died(nil)
	exited, failed := h.engine.ContainerWait(waitCtx, s.Container, container.WaitConditionNextExit)

	h.config.Progress(s.ID, Creating, "the container to start")
	if err := h.start(ctx, s, n.Mounts); err != nil {
		return h.startError(ctx, s, "", err)
	}
	over := make(chan struct{})
	watching := make(chan struct{})
	defer func() { close(over); <-watching }()
	go func() { // ends with this function
		defer close(watching)
		select {
		case status := <-exited:
			died(fmt.Errorf("the server ended with status %d", status.StatusCode))
		case err := <-failed: // then only the time limit tells
			h.config.Logger.DebugContext(ctx, "cannot watch a container", "sandbox", s.ID, "error", err)
		case <-over:
		}
	}()
	for _, next := range []struct {
		step string
		do   func(context.Context) error
	}{
		{"waiting for its server to listen", func(ctx context.Context) error { return h.listening(ctx, s) }},
		{"claiming it", func(ctx context.Context) error {
			if n.Key == "" {
				return nil
			}
			return h.config.Agent.Claim(ctx, s.Dial, n.claim(s, time.Now()))
		}},
		{"waiting for the first command in its shell", func(ctx context.Context) error {
			return h.config.Agent.Ready(ctx, s.Dial, n.Key)
		}},
	} {
		h.config.Progress(s.ID, Starting, next.step)
		if err := next.do(waitCtx); err != nil {
			if waitCtx.Err() != nil {
				err = context.Cause(waitCtx)
			}
			return h.startError(ctx, s, next.step, err)
		}
	}
	return nil
}

// start starts the container and makes sure that what was mounted into it is
// what was checked; otherwise it is stopped before anybody can use it.
func (h *Host) start(ctx context.Context, s *Sandbox, mounts []Mount) error {
	learned, err := h.learn(ctx)
	if err != nil {
		return err
	}
	if !learned.socket || len(mounts) == 0 { // the host's files are elsewhere, or none are mounted
		return engineError(ctx, "starting the container", h.engine.ContainerStart(ctx, s.Container, container.StartOptions{}))
	}
	held, err := holdMounts(mounts)
	if err != nil {
		return err
	}
	defer held.release()
	if err := h.engine.ContainerStart(ctx, s.Container, container.StartOptions{}); err != nil {
		return engineError(ctx, "starting the container", err)
	}
	info, err := h.engine.ContainerInspect(ctx, s.Container)
	if err != nil {
		return engineError(ctx, "looking at the container", err)
	}
	if info.State.Pid == 0 {
		return nil // it ended already, which is told elsewhere
	}
	switch err := held.check(info.State.Pid); {
	case err == nil:
		return nil
	case errors.Is(err, ErrInvalid):
		now := 0
		stopCtx := context.WithoutCancel(ctx)
		return errors.Join(err, h.engine.ContainerStop(stopCtx, s.Container, container.StopOptions{Timeout: &now}))
	default: // a rootless engine's processes may be out of sight
		h.config.Logger.WarnContext(ctx, "cannot check the mounts of a sandbox", "sandbox", s.ID, "error", err)
		return nil
	}
}

// claim is what the server is told: what the note says, or else what the
// sandbox was born with.
func (n note) claim(s *Sandbox, now time.Time) Claim {
	c := Claim{Ticket: n.Ticket, Key: n.Key, Owner: n.Owner, Env: n.Env, Idle: orElse(n.Idle, s.IdleLimit)}
	deadline := orElse(n.Deadline, s.Deadline)
	if !deadline.IsZero() && deadline.Before(forever) {
		c.TTL = max(deadline.Sub(now), time.Second)
	}
	return c
}

// listening returns when the server takes connections.
func (h *Host) listening(ctx context.Context, s *Sandbox) error {
	if s.Transport == "port" {
		if err := h.refresh(ctx, s); err != nil {
			return err
		}
	}
	wait := time.Millisecond
	for {
		conn, err := s.Dial(ctx)
		if err == nil {
			err = settled(conn, s.Transport)
			_ = conn.Close()
		}
		if err == nil {
			return nil
		}
		if !notYet(err) {
			return err
		}
		// The kernel can tell when a socket appears but not when somebody listens
		// on it, so this looks: at first often, then every 20 ms.
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
		wait = min(2*wait, 20*time.Millisecond)
	}
}

func notYet(err error) bool {
	var timeout net.Error
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout()
}

// settled tells whether a connection that was opened leads to a server. On a
// published port the engine's proxy takes every connection, and cuts those that
// nobody in the sandbox takes; a server waits for the request.
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
func (h *Host) startError(ctx context.Context, s *Sandbox, step string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	e := &StartError{ID: s.ID, Step: step, Err: err}
	e.Logs = h.lastWords(ctx, s.Container)
	info, inspectErr := h.engine.ContainerInspect(ctx, s.Container)
	if inspectErr != nil {
		return e
	}
	e.Hint = hint(info, h.hasShell(ctx, s.Container), err)
	return e
}

// hint says what to do about a container that did not come to life for err.
func hint(info container.InspectResponse, shell bool, err error) string {
	switch state := info.State; {
	case state == nil:
		return ""
	case isNotFound(err) && info.HostConfig != nil && info.HostConfig.NetworkMode.IsUserDefined():
		return "Make the network with 'docker network create " + info.HostConfig.NetworkMode.NetworkName() + "', or take another one."
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
