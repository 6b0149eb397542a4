// Package handover receives a new program for this process, checks it, and executes it in
// the place of the old one.
package handover

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/internal/random"
)

const (
	// MaxProgram is the most bytes that a caller should receive: many times the server's.
	MaxProgram = 256 << 20
	// checkTime is how long a program has to say its version, or whether it can go on.
	checkTime = 5 * time.Second
	// maxAnswer bounds the bytes that are read of its answers.
	maxAnswer = 4 << 10
	// busyTime is how long a descriptor that could write the program may outlive its close,
	// in a child that is about to execute another program.
	busyTime = time.Second

	ownPath = "/proc/self/fd/"
)

// Command and one of the other words begin the arguments of a program that an upgrade starts. The
// arguments of the program before follow the descriptors.
const (
	Command = "upgrade"
	Check   = "check"  // and the descriptor of the memory: say whether you can go on, and end
	Resume  = "resume" // and the descriptors of the memory and of the listener: go on
)

// UnfitError says why a program does not take this one's place.
type UnfitError struct{ Reason string }

func (e *UnfitError) Error() string { return e.Reason }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// Program is a program that can be executed. It has no name in the file system.
type Program struct {
	file *os.File
	// Version is the version that the program reports.
	Version string
}

// Receive writes the program that r has, which the caller bounds, into a private directory,
// see [hostpath.OpenPrivate], and checks it: it is for this machine, and says its version. The
// error is an *UnfitError where the program is wrong. The caller must call Close.
func Receive(ctx context.Context, dir string, r io.Reader) (*Program, error) {
	file, err := store(dir, r)
	if err != nil {
		return nil, err
	}
	p := &Program{file: file}
	if err := p.check(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// store writes a file without a name, which no other process can open to write.
func store(dir string, r io.Reader) (*os.File, error) {
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory %q: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	name := "server-" + random.Hex(8)
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file for the program: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := root.Remove(name); err != nil {
		return nil, fmt.Errorf("making a file for the program: %w", err)
	}
	if _, err := io.Copy(file, r); err != nil {
		return nil, fmt.Errorf("receiving the program: %w", err)
	}
	if err := file.Chmod(0o500); err != nil {
		return nil, fmt.Errorf("making the program executable: %w", err)
	}
	again, err := os.Open(fmt.Sprint(ownPath, file.Fd())) // the file itself, whatever names there are
	if err != nil {
		return nil, fmt.Errorf("opening the program: %w", err)
	}
	return again, nil
}

// Close forgets the program.
func (p *Program) Close() { _ = p.file.Close() } // it was only read

// machines are the names of architectures in ELF.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func (p *Program) check(ctx context.Context) error {
	file, err := elf.NewFile(p.file)
	if err != nil {
		return unfit("the program is not an ELF file: %v", err)
	}
	if want := machines[runtime.GOARCH]; file.Machine != want || file.Type != elf.ET_EXEC && file.Type != elf.ET_DYN {
		return unfit("the program is a %v for %v, and this server runs on %v", file.Type, file.Machine, want)
	}
	said, err := p.run(ctx, nil, nil, "version")
	if failed, ok := errors.AsType[*UnfitError](err); ok {
		return unfit("it is not an Actiond server: %s", failed.Reason)
	}
	if err != nil {
		return err
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(said), "actiond server ")
	if !ok || strings.ContainsAny(version, "\n\r") {
		return unfit("the program is not a server: asked for its version it said %.100q", said)
	}
	p.Version = version
	return nil
}

// Accepts asks the program whether it can go on with a memory and the arguments and
// environment of this one. The error is an *UnfitError where it cannot.
func (p *Program) Accepts(ctx context.Context, memory *os.File, args, env []string) error {
	_, err := p.run(ctx, memory, env, append([]string{Command, Check, "4"}, args...)...)
	return err
}

// run runs the program as a child and returns its output.
func (p *Program) run(ctx context.Context, memory *os.File, env []string, args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	for until := time.Now().Add(busyTime); ; {
		var out, wrong bytes.Buffer
		cmd := exec.CommandContext(ctx, ownPath+"3", args...)
		cmd.Dir, cmd.Env = "/", append([]string{}, env...)
		cmd.Stdout, cmd.Stderr = &limitedWriter{&out}, &limitedWriter{&wrong}
		cmd.ExtraFiles = []*os.File{p.file}
		if memory != nil {
			cmd.ExtraFiles = append(cmd.ExtraFiles, memory)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		err = cmd.Run()
		switch {
		case errors.Is(err, syscall.ETXTBSY) && time.Now().Before(until):
			<-time.After(time.Millisecond)
			continue
		case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return "", context.Cause(ctx)
		case ctx.Err() != nil:
			return "", unfit("the program did not answer %q within %v", strings.Join(args[:min(2, len(args))], " "), checkTime)
		case errors.Is(err, syscall.EACCES):
			return "", unfit("the program cannot be executed: the file system of the state directory may be mounted noexec")
		case err != nil:
			return "", unfit("the program failed when asked for %q: %v: %s", strings.Join(args[:min(2, len(args))], " "), err, strings.TrimSpace(wrong.String()))
		}
		return out.String(), nil
	}
}

// limitedWriter keeps the beginning of the written bytes.
type limitedWriter struct{ to *bytes.Buffer }

func (w *limitedWriter) Write(p []byte) (int, error) {
	_, _ = w.to.Write(p[:min(len(p), maxAnswer-w.to.Len())])
	return len(p), nil
}

// Exec replaces this program by the other one, with the arguments of this one. It passes two
// descriptors on. It returns only where that fails, and then this program is as it was.
func (p *Program) Exec(args []string, memory, listener int) error {
	descriptors := []int{memory, listener}
	argv := append([]string{os.Args[0], Command, Resume, fmt.Sprint(memory), fmt.Sprint(listener)}, args...)
	syscall.ForkLock.Lock() // a child must not have the descriptors
	defer syscall.ForkLock.Unlock()
	inherit := func(flags int) (err error) {
		for _, fd := range descriptors {
			if _, set := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); set != nil {
				err = errors.Join(err, fmt.Errorf("descriptor %d: %w", fd, set))
			}
		}
		return err
	}
	defer func() { _ = inherit(unix.FD_CLOEXEC) }() // those that are open have it again
	if err := inherit(0); err != nil {
		return err
	}
	var files unix.Rlimit
	limited := unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil
	err := syscall.Exec(fmt.Sprint(ownPath, p.file.Fd()), argv, os.Environ()) //nolint:gosec // the program is what was received
	if limited {                                                              // which Exec lowered to the limit that this program began with
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	}
	return fmt.Errorf("executing the program: %w", err)
}
