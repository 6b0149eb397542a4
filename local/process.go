package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/mark"
	"github.com/actiond/actiond/sandbox"
)

// launch starts the server of a sandbox, whose lock is held, and returns when a
// command ran. The server keeps running after this process.
func (d *Driver) launch(ctx context.Context, id string, f facts) (err error) {
	program, err := d.config.Server()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.path(id, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	alive, err := d.lockAlive(ctx, id)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }() // the server has it too
	f.Ticket = cmp.Or(f.Ticket, rand.Text())
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program,
		"--addr", "unix:"+d.path(id, "socket"), "--working-dir", d.workDir(id, f),
		"--session-key-file", d.path(id, "key"), "--claim-hash", sandbox.TicketHash(f.Ticket), "--state-dir", d.path(id, "state"))
	if !f.Deadline.IsZero() {
		cmd.Args = append(cmd.Args, "--ttl", max(time.Until(f.Deadline), time.Second).String())
	}
	if f.Idle > 0 {
		cmd.Args = append(cmd.Args, "--idle-limit", f.Idle.String())
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+d.path(id, "tmp"), d.treeMark(id))
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		cmd.Env = append(cmd.Env, name+"="+f.Env[name])
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.path(id, "work"), log, log
	cmd.ExtraFiles = []*os.File{alive}
	// A session of its own, so that it does not end with this terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	ended := make(chan struct{})
	go func() { // ends with the server, or with this program
		_ = cmd.Wait() // cmd.ProcessState has the same
		close(ended)
	}()
	f.PID = cmd.Process.Pid
	if err = d.save(id, f); err == nil {
		err = d.waitReady(ctx, id, cmd, ended)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-ended // it no longer writes
		mark.Kill(d.treeMark(id), os.Geteuid())
	}
	return err
}

// waitReady waits until the server of a sandbox runs commands.
func (d *Driver) waitReady(ctx context.Context, id string, cmd *exec.Cmd, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.config.ReadyTimeout, fmt.Errorf("nothing after %v", d.config.ReadyTimeout))
	defer cancel()
	server := access{d, id}
	key, err := server.Key()
	if err != nil {
		return err
	}
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		err := d.config.Agent.Ready(ctx, server.Dial, key)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			err := fmt.Errorf("the server ended by itself (%v)", cmd.ProcessState)
			return &sandbox.StartError{ID: id, Err: err, Logs: d.lastWords(id)}
		case <-ctx.Done():
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			return &sandbox.StartError{ID: id, Step: "waiting for the first command", Err: err, Logs: d.lastWords(id)}
		case <-pause.C:
		}
	}
}

// lockedFile opens or creates a file, and locks it. It does not wait.
func lockedFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Flock(file, how|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}

// lockAlive locks the file that a server keeps locked while it runs. The caller holds the
// lock of the sandbox, which has no server: only [Driver.alive] can have locked the file,
// for a moment.
func (d *Driver) lockAlive(ctx context.Context, id string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.ReadyTimeout)
	defer cancel()
	for {
		file, err := lockedFile(d.path(id, "alive"), syscall.LOCK_EX)
		if !errors.Is(err, filelock.ErrLocked) {
			return file, err
		}
		if channel.Sleep(ctx, readyPause) != nil {
			return nil, err
		}
	}
}

// alive reports whether the server of a sandbox runs.
func (d *Driver) alive(id string) bool {
	file, err := lockedFile(d.path(id, "alive"), syscall.LOCK_SH)
	if err == nil {
		_ = file.Close()
	}
	return errors.Is(err, filelock.ErrLocked)
}

// treeMark is in the environment of all processes of a sandbox. Its name has the id,
// because a sandbox that was created inside another one has both marks, and a hash of the
// directory: the same key gives the same id in another one.
func (d *Driver) treeMark(id string) string {
	return "ACTIOND_LOCAL_" + id + "_" + sandbox.ID(d.dir) + "=1"
}

// end terminates the server, kills it after grace, and then kills the remaining processes
// of commands, which may have sessions of their own. While the server holds its lock, the
// recorded process is the server.
func (d *Driver) end(ctx context.Context, id string, grace time.Duration) error {
	f, err := d.load(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if f.PID > 1 { // kill(2) takes 0 and less for groups of processes
		err = d.endServer(ctx, id, f.PID, grace)
	} else if !mark.Kill(d.treeMark(id), os.Geteuid()) && d.alive(id) {
		return fmt.Errorf("ending the server of sandbox %s: its process is unknown: %w", id, cmp.Or(err, errNoProcess))
	} else {
		err = d.endServer(ctx, id, 0, grace)
	}
	if err == nil {
		mark.Kill(d.treeMark(id), os.Geteuid())
	}
	return err
}

// errNoProcess reports facts without the id of a process.
var errNoProcess = errors.New("the recorded facts have no process id")

// endServer waits until the server has ended. pid is its process, or 0 if that is unknown.
func (d *Driver) endServer(ctx context.Context, id string, pid int, grace time.Duration) error {
	kill := time.NewTimer(grace)
	defer kill.Stop()
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	sent := pid == 0
	for d.alive(id) {
		if !sent {
			_ = syscall.Kill(pid, syscall.SIGTERM) // if it has ended, the next check finds out
			sent = true
		}
		select {
		case <-kill.C:
			if pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server of sandbox %s to end: %w", id, context.Cause(ctx))
		}
	}
	return nil
}
