package notebook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/shorten"
	"github.com/actiond/actiond/internal/tail"
)

const (
	// startTime bounds the start of a kernel, which takes half a second on a
	// quiet machine.
	startTime = 60 * time.Second
	// beatTime bounds the answer to a heartbeat. A thread of its own gives it.
	beatTime = 10 * time.Second
	// drainTime bounds the reading of messages that a kernel wrote before its death.
	drainTime = 300 * time.Millisecond
	// shutdownTime is how long an idle kernel has to end by itself.
	shutdownTime = 2 * time.Second
	// exitTime bounds the wait for output of the process itself, which a
	// grandchild may keep open.
	exitTime = 200 * time.Millisecond
	// maxReason bounds the reason why Init failed.
	maxReason = 500
	// maxComplaint is how much is kept of the standard error of the process.
	maxComplaint = 2 << 10
)

var errEnded = errors.New("the kernel ended")

// absentError says that a program is no Python interpreter, or has no ipykernel.
type absentError struct{ program, reason string }

func (e *absentError) Error() string { return e.program + ": " + e.reason }

// kernel is one living kernel process. It owns five goroutines: one waits for
// the process, one reads its errors, one connects and ends then, one reads the answers, and
// one the output. The process's end ends the others; stop waits for all.
type kernel struct {
	cfg    *Config
	python string // as the kernel calls itself
	dir    string // holds the sockets and the connection file
	signer
	process   *os.Process
	state     *os.ProcessState // how the process ended
	tree      *proc.Tree
	link      *os.File // see kernel.py
	errors    *os.File // the standard error of the process
	complaint *tail.Buffer
	shell     *peer
	iopub     *peer
	control   *peer
	heartbeat *peer
	readers   sync.WaitGroup

	cwd        string // where the kernel was sent last, the shell's directory
	initFailed string // why Init failed, until a cell reports it

	died time.Time
	dead chan struct{} // closed once the process has ended, at died
	gone chan struct{} // closed once its output was read too, and nothing of it is left

	mu      sync.Mutex
	current *cell
}

// startKernel starts a kernel in program and runs Init in it. ctx ends that. The
// caller must call stop. An *absentError says that program has no ipykernel.
func startKernel(ctx context.Context, cfg *Config, program string) (*kernel, error) {
	k, err := launch(ctx, cfg, program)
	if err != nil || cfg.Init == "" {
		return k, err
	}
	failed := k.initialize(ctx)
	if k.over() { // Init took the kernel with it: better one without it than none
		k.stop(false)
		if k, err = launch(ctx, cfg, program); err != nil {
			return nil, err
		}
	}
	k.initFailed = failed
	return k, nil
}

// initialize runs Init, for as long as a start may take, and says why it failed.
func (k *kernel) initialize(ctx context.Context) (failed string) {
	stop := context.AfterFunc(ctx, k.tree.Kill)
	defer stop()
	out, done := k.hidden(k.cfg.Init, startTime)
	switch {
	case done && !out.raised:
		return ""
	case done:
		lines := strings.Split(strings.TrimSpace(out.text()), "\n")
		return shorten.Text(lines[len(lines)-1], maxReason)
	case k.over():
		return "the kernel " + k.end()
	}
	return fmt.Sprintf("it did not end within %v", startTime)
}

// launch starts a kernel in program. ctx ends that.
func launch(ctx context.Context, cfg *Config, program string) (*kernel, error) {
	k := &kernel{cfg: cfg, signer: signer{[]byte(random.Hex(32))}, complaint: tail.New(maxComplaint), dead: make(chan struct{}), gone: make(chan struct{})}
	if err := cfg.User.Do(k.writeConnection); err != nil {
		k.removeDir()
		return nil, fmt.Errorf("preparing a kernel: %w", err)
	}
	if err := k.startProcess(program); err != nil {
		k.removeDir()
		return nil, &absentError{program, err.Error()}
	}
	if err := k.awaitReady(ctx, program); err != nil {
		return nil, err
	}
	k.hidden("%colors nocolor", hiddenTime)
	return k, nil
}

func (k *kernel) startProcess(program string) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	complaints, stderr, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return err
	}
	defer func() { _ = stderr.Close() }()
	// No context: one that ends must not kill the kernel.
	cmd := exec.Command(program, "-c", launcher, k.connectionFile()) //nolint:noctx // see above
	cmd.Dir, cmd.Env = "/", k.cfg.Env
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: k.cfg.User.Credential()}
	if err := proc.Start(cmd); err != nil {
		_, _ = ours.Close(), complaints.Close()
		return err
	}
	k.link, k.errors, k.process, k.tree = ours, complaints, cmd.Process, proc.NewTree(cmd.Process.Pid)
	return nil
}

// socketPair returns two connected sockets, the first of which knows deadlines.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), nil
}

// awaitReady waits until the kernel listens, connects, and waits until its
// output arrives.
func (k *kernel) awaitReady(ctx context.Context, program string) error {
	ready := make(chan error, 1)
	k.readers.Go(func() { ready <- k.connect(program) })
	k.readers.Go(func() { _, _ = io.Copy(k.complaint, k.errors) }) // the end of a pipe is no error
	go k.wait()
	var err error
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(startTime):
		err = fmt.Errorf("%s has no kernel ready within %v", program, startTime)
	}
	if err == nil {
		return nil
	}
	k.tree.Kill()
	<-k.gone
	if complaint := k.complaint.String(); complaint != "" && !errors.As(err, new(*absentError)) && ctx.Err() == nil {
		err = fmt.Errorf("%w; it wrote: %s", err, complaint)
	}
	return err
}

// wait waits for the process's end and then ends everything else.
func (k *kernel) wait() {
	k.tree.Await()
	k.state, _ = k.process.Wait() // an error leaves no state
	k.died = time.Now()
	close(k.dead)
	// The last words of the process, such as why it is no kernel, are there already; a child may hold
	// the sockets open.
	drained := time.Now().Add(drainTime)
	_ = k.link.SetReadDeadline(drained)
	_ = k.errors.SetReadDeadline(time.Now().Add(exitTime))
	for _, p := range k.peers() {
		_ = p.conn.SetReadDeadline(drained)
	}
	k.readers.Wait()
	_, _ = k.link.Close(), k.errors.Close()
	for _, p := range k.peers() {
		_ = p.conn.Close()
	}
	k.removeDir()
	close(k.gone)
}

// removeDir removes the directory and the kernel's files, with the user's
// rights, who may have put anything in their place. Other entries of the user
// stay: it may be a tree that takes all descriptors to remove.
func (k *kernel) removeDir() {
	if k.dir == "" {
		return
	}
	_ = k.cfg.User.Do(func() error {
		for port := portShell; port <= portHeartbeat; port++ {
			_ = os.Remove(k.socket(port))
		}
		_ = os.Remove(k.connectionFile())
		return os.Remove(k.dir)
	})
}

// check says how the kernel ended, "" where it answers.
func (k *kernel) check() (lost string) {
	if !k.over() {
		err := k.beat()
		if err == nil {
			return ""
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			k.bury() // it has ended, though that may not have been seen yet
		}
	}
	if k.over() {
		return k.end()
	}
	return "did not answer its heartbeat and was killed"
}

// beat returns nil once the kernel has answered its heartbeat.
func (k *kernel) beat() error {
	k.signal(unix.SIGCONT) // a cell may have stopped its own process
	if err := k.heartbeat.send([]byte("beat")); err != nil {
		return err
	}
	if err := k.heartbeat.conn.SetReadDeadline(time.Now().Add(beatTime)); err != nil {
		return err
	}
	return k.heartbeat.frames(func(int, *io.LimitedReader) error { return nil })
}

// signal sends a signal to the kernel's process group, which has
// the programs of cells too.
func (k *kernel) signal(s syscall.Signal) {
	k.tree.Do(func(pid int) { _ = unix.Kill(-pid, s) })
}

// bury ends a kernel that has closed a socket, which it does at its end only.
func (k *kernel) bury() {
	if !channel.ClosedWithin(k.dead, shutdownTime) {
		k.tree.Kill()
	}
}

// stop ends the kernel, by a request first if graceful, and returns when its
// process and goroutines are gone.
func (k *kernel) stop(graceful bool) {
	if graceful && k.control != nil {
		if _, frames, err := k.request("shutdown_request", shutdownRequest{}); err == nil && k.control.send(frames...) == nil {
			channel.ClosedWithin(k.gone, shutdownTime)
		}
	}
	k.tree.Kill()
	<-k.gone
}

// end says how the process ended. It may be called once gone is closed.
func (k *kernel) end() string {
	if k.state == nil {
		return "ended"
	}
	status, ok := k.state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%s)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("ended with status %d", k.state.ExitCode())
}

// over reports whether the process has ended.
func (k *kernel) over() bool { return channel.Closed(k.dead) }

// homeless reports whether the directory that the kernel is in was removed. Another
// one of the same name does not fix that.
func (k *kernel) homeless() bool {
	var dir string
	err := k.cfg.User.Do(func() (err error) {
		dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", k.process.Pid))
		return err
	})
	return err == nil && strings.HasSuffix(dir, " (deleted)")
}
