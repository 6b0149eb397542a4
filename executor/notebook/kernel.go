package notebook

import (
	"crypto/rand"
	"encoding/hex"
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

	"github.com/actiond/actiond/executor/proctree"
	"github.com/actiond/actiond/executor/spawn"
	"github.com/actiond/actiond/executor/tail"
)

const (
	// startTime bounds the start of a kernel, which takes half a second on a
	// quiet machine.
	startTime = 60 * time.Second
	// beatTime bounds the answer to a heartbeat. A thread of its own gives it.
	beatTime = 10 * time.Second
	// drainTime is how long what a kernel wrote before its death is read for.
	drainTime = 300 * time.Millisecond
	// shutdownTime is how long an idle kernel has to end by itself.
	shutdownTime = 2 * time.Second
	// exitTime bounds the wait for output of the process itself, which a
	// grandchild may keep open.
	exitTime = 200 * time.Millisecond
	// maxComplaint is how much is kept of what the process writes as errors.
	maxComplaint = 2 << 10
)

var errEnded = errors.New("the kernel ended")

// absentError says that an interpreter has no ipykernel, or is none.
type absentError struct{ program, reason string }

func (e *absentError) Error() string { return e.program + ": " + e.reason }

// kernel is one living kernel process. It owns four goroutines: one waits for
// the process, one connects and ends then, one reads the answers, and one the
// output. The process's end ends the others; stop waits for all.
type kernel struct {
	cfg    *Config
	python string // as the kernel calls itself
	dir    string // holds the sockets and the connection file
	signer
	cmd       *exec.Cmd
	tree      *proctree.Tree
	link      *os.File // see kernel.py
	complaint *tail.Buffer
	shell     *peer
	iopub     *peer
	control   *peer
	heartbeat *peer
	readers   sync.WaitGroup

	died time.Time
	dead chan struct{} // closed once the process has ended, at died
	gone chan struct{} // closed once its output was read too, and nothing of it is left

	mu      sync.Mutex
	current *cell
}

// startKernel starts a kernel in program. abort ends the wait for it. The
// caller must call stop. An *absentError says that program has no ipykernel.
func startKernel(cfg *Config, program string, abort <-chan struct{}) (*kernel, error) {
	k := &kernel{cfg: cfg, signer: signer{make([]byte, 32)}, complaint: tail.New(maxComplaint), dead: make(chan struct{}), gone: make(chan struct{})}
	_, _ = rand.Read(k.key) // never fails
	k.key = []byte(hex.EncodeToString(k.key))
	if err := cfg.As(k.writeConnection); err != nil {
		k.removeDir()
		return nil, fmt.Errorf("preparing a kernel: %w", err)
	}
	if err := k.startProcess(program); err != nil {
		k.removeDir()
		return nil, &absentError{program, err.Error()}
	}
	if err := k.awaitReady(program, abort); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *kernel) startProcess(program string) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	// No context: one that ends must not kill the kernel.
	k.cmd = exec.Command(program, "-c", launcher, k.connectionFile()) //nolint:noctx // see above
	k.cmd.Dir, k.cmd.Env = "/", k.cfg.Env
	k.cmd.ExtraFiles = []*os.File{theirs}
	k.cmd.Stderr, k.cmd.WaitDelay = k.complaint, exitTime
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: k.cfg.User}
	if err := spawn.Start(k.cmd); err != nil {
		_ = ours.Close()
		return err
	}
	k.link, k.tree = ours, proctree.New(k.cmd.Process.Pid)
	proctree.Offer(k.cmd.Process.Pid, k.cfg.As)
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
func (k *kernel) awaitReady(program string, abort <-chan struct{}) error {
	ready := make(chan error, 1)
	k.readers.Go(func() { ready <- k.connect(program) })
	go k.wait()
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	var err error
	select {
	case err = <-ready:
	case <-abort:
		err = ErrClosed
	case <-limit.C:
		err = fmt.Errorf("%s has no kernel ready within %v", program, startTime)
	}
	if err == nil {
		return nil
	}
	k.tree.Kill()
	<-k.gone
	if complaint := k.complaint.String(); complaint != "" && !errors.As(err, new(*absentError)) && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w; it said: %s", err, complaint)
	}
	return err
}

// wait waits for the process's end and then ends everything else.
func (k *kernel) wait() {
	k.tree.Await()
	_ = k.cmd.Wait() // how it ended is asked of ProcessState
	k.died = time.Now()
	close(k.dead)
	// What it wrote is there already, such as why it is no kernel; a child may hold
	// the sockets open.
	drained := time.Now().Add(drainTime)
	_ = k.link.SetReadDeadline(drained)
	for _, p := range k.peers() {
		_ = p.conn.SetReadDeadline(drained)
	}
	k.readers.Wait()
	_ = k.link.Close()
	for _, p := range k.peers() {
		_ = p.conn.Close()
	}
	k.removeDir()
	close(k.gone)
}

// removeDir removes the directory and what belongs there, with the user's
// rights, who may have put anything in its place. What else the user put there
// stays: it may be a tree that takes all descriptors to remove.
func (k *kernel) removeDir() {
	if k.dir == "" {
		return
	}
	_ = k.cfg.As(func() error {
		for port := portShell; port <= portHeartbeat; port++ {
			_ = os.Remove(k.socket(port))
		}
		_ = os.Remove(k.connectionFile())
		return os.Remove(k.dir)
	})
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

// signal sends a signal to the kernel's process group, where what a cell
// started is too.
func (k *kernel) signal(s syscall.Signal) {
	k.tree.Do(func(pid int) { _ = unix.Kill(-pid, s) })
}

// bury ends a kernel that has closed a socket, which it does at its end only.
func (k *kernel) bury() {
	limit := time.NewTimer(shutdownTime)
	defer limit.Stop()
	select {
	case <-k.dead:
	case <-limit.C:
		k.tree.Kill()
	}
}

// stop ends the kernel, by asking first if politely, and returns when its
// process and goroutines are gone.
func (k *kernel) stop(politely bool) {
	if politely {
		if _, frames, err := k.request("shutdown_request", shutdownRequest{}); err == nil && k.control.send(frames...) == nil {
			limit := time.NewTimer(shutdownTime)
			defer limit.Stop()
			select {
			case <-k.gone:
			case <-limit.C:
			}
		}
	}
	k.tree.Kill()
	<-k.gone
}

// end says how the process ended. It may be called once gone is closed.
func (k *kernel) end() string {
	status, ok := k.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%s)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("ended with status %d", k.cmd.ProcessState.ExitCode())
}

// over tells whether the process has ended.
func (k *kernel) over() bool {
	select {
	case <-k.dead:
		return true
	default:
		return false
	}
}

// homeless tells whether the directory that the kernel is in was removed, which
// another one of the same name does not mend.
func (k *kernel) homeless() bool {
	var dir string
	err := k.cfg.As(func() (err error) {
		dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", k.cmd.Process.Pid))
		return err
	})
	return err == nil && strings.HasSuffix(dir, " (deleted)")
}
