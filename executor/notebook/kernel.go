package notebook

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/proctree"
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

// The ports of a kernel's connection file; with Unix sockets they number paths.
const (
	portShell = iota + 1
	portIOPub
	portStdin
	portControl
	portHeartbeat
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

// cell is a request that runs.
type cell struct {
	id            string
	out           *output
	replied, idle bool
	interrupted   bool          // its traceback is our doing
	exits         bool          // it called exit
	done          chan struct{} // closed once the reply and the idle status came
}

func (c *cell) over() bool { return c.replied && c.idle }

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

// writeConnection makes the directory and the connection file, which holds the
// key. It runs with the user's rights.
func (k *kernel) writeConnection() (err error) {
	if k.dir, err = os.MkdirTemp("", "actiond-kernel-"); err != nil {
		return err
	}
	if len(k.socket(portHeartbeat)) >= len(unix.RawSockaddrUnix{}.Path) {
		return fmt.Errorf("the directory for temporary files, %s, has too long a name for sockets", os.TempDir())
	}
	data, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": filepath.Join(k.dir, "k"), "key": string(k.key), "signature_scheme": "hmac-sha256",
		"shell_port": portShell, "iopub_port": portIOPub, "stdin_port": portStdin, "control_port": portControl, "hb_port": portHeartbeat,
	})
	if err != nil {
		return err
	}
	return writeNew(k.connectionFile(), data)
}

// writeNew writes a file that must not be there: in a directory of the user's
// there may be a link, or a pipe that nobody reads.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (k *kernel) connectionFile() string { return filepath.Join(k.dir, "connection.json") }
func (k *kernel) socket(port int) string {
	return fmt.Sprintf("%s-%d", filepath.Join(k.dir, "k"), port)
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
	if err := k.cmd.Start(); err != nil {
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

// peers lists the connections that were made.
func (k *kernel) peers() []*peer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc([]*peer{k.shell, k.iopub, k.control, k.heartbeat}, func(p *peer) bool { return p == nil })
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

// connect runs until the kernel has answered. The kernel's end ends it.
func (k *kernel) connect(program string) error {
	line, err := bufio.NewReader(io.LimitReader(k.link, 4<<10)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("starting a kernel in %s: %w", program, errEnded)
	}
	word, detail, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch word {
	case "ready":
	case "broken":
		return fmt.Errorf("starting a kernel in %s: %s", program, detail)
	default:
		return &absentError{program, detail}
	}
	k.python = detail
	for _, to := range []struct {
		peer **peer
		kind string
		port int
	}{
		{&k.shell, "DEALER", portShell},
		{&k.iopub, "SUB", portIOPub},
		{&k.control, "DEALER", portControl},
		{&k.heartbeat, "DEALER", portHeartbeat},
	} {
		p, err := k.dial(to.kind, to.port)
		if err != nil {
			return fmt.Errorf("connecting to the kernel: %w", err)
		}
		k.mu.Lock()
		*to.peer = p
		k.mu.Unlock()
		if k.over() { // else wait will see the peer, and end what is read from it
			return errEnded
		}
	}
	if err := k.iopub.send([]byte{1}); err != nil { // subscribes to everything
		return err
	}
	k.readers.Go(func() { k.read(k.shell) })
	k.readers.Go(func() { k.read(k.iopub) })
	return k.awaitOutput()
}

// dial connects with the user's rights and looks who is there.
func (k *kernel) dial(kind string, port int) (*peer, error) {
	var conn *net.UnixConn
	err := k.cfg.As(func() (err error) {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: k.socket(port)})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := k.checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newPeer(conn, kind)
}

// checkPeer makes sure that the user's own process listens.
func (k *kernel) checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return err
	}
	want := uint32(os.Geteuid()) //nolint:gosec // an id is never negative
	if k.cfg.User != nil {
		want = k.cfg.User.Uid
	}
	if peer.Uid != want {
		return fmt.Errorf("%w: user %d listens there, and not %d", errProtocol, peer.Uid, want)
	}
	return nil
}

// awaitOutput runs empty cells until the idle status of one arrives: a
// publisher drops what it has before it knows of a subscription.
func (k *kernel) awaitOutput() error {
	for {
		c, err := k.begin("", true, &output{})
		if err != nil {
			return err
		}
		again := time.NewTimer(time.Second)
		select {
		case <-c.done:
			again.Stop()
			return nil
		case <-k.dead:
			again.Stop()
			return errEnded
		case <-again.C:
		}
	}
}

// begin sends a cell. Only one runs at a time.
func (k *kernel) begin(code string, silent bool, out *output) (*cell, error) {
	id, frames, err := k.request("execute_request", executeRequest{Code: code, Silent: silent, UserExpressions: map[string]string{}})
	if err != nil {
		return nil, err
	}
	c := &cell{id: id, out: out, done: make(chan struct{})}
	k.mu.Lock()
	k.current = c
	k.mu.Unlock()
	return c, k.shell.send(frames...)
}

// forget says that nobody looks at the current cell's output any more.
func (k *kernel) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
}

// read takes what comes from one socket until it ends.
func (k *kernel) read(p *peer) {
	for {
		m, err := k.receive(p)
		switch {
		case errors.Is(err, errForeign):
			continue
		case errors.Is(err, errProtocol):
			k.tree.Kill() // whatever that is, it is no kernel
			return
		case err != nil:
			k.bury()
			return
		}
		k.deliver(m)
	}
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

func (k *kernel) deliver(m message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.current
	if c == nil || m.Parent != c.id || c.over() {
		return
	}
	switch {
	case m.Type == "execute_reply":
		c.replied, c.exits = true, m.asksExit()
	case c.interrupted && m.tellsInterrupt():
	case m.addTo(c.out):
		c.idle = true
	}
	if c.over() {
		close(c.done)
	}
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

// interrupt interrupts a cell, as C-c does.
func (k *kernel) interrupt(c *cell) {
	k.mu.Lock()
	c.interrupted = true
	k.mu.Unlock()
	k.signal(unix.SIGINT)
	k.signal(unix.SIGCONT) // it may have stopped itself
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

// hiddenTime bounds a cell of the server's own.
const hiddenTime = 30 * time.Second

// hidden runs a cell of the server's own, whose output and errors are nobody's.
func (k *kernel) hidden(code string) {
	defer k.forget()
	c, err := k.begin(code, true, &output{})
	if err != nil {
		return
	}
	limit := time.NewTimer(hiddenTime)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-k.gone:
	case <-limit.C:
		k.finish(c)
	}
}

// run runs a cell until it is over, one way or another.
func (k *kernel) run(cell Cell) Result {
	defer k.forget()
	out := &output{}
	c, err := k.begin(cell.Code, false, out)
	if err != nil {
		k.tree.Kill() // it may have read half a message
	}
	var limit <-chan time.Time
	if cell.Timeout >= 0 {
		timer := time.NewTimer(cell.Timeout)
		defer timer.Stop()
		limit = timer.C
	}
	result := Result{Python: k.python}
	killed := false
	select {
	case <-c.done:
	case <-k.gone:
	case <-limit:
		result.TimedOut, killed = true, k.finish(c)
	}
	select {
	case <-c.done:
		if c.exits {
			// It would take a moment to do so, and begin another cell meanwhile.
			k.stop(true)
			result.Ended = "was ended by exit"
		}
	default:
		if result.Ended = k.end(); killed {
			result.Ended = "did not heed the interrupt and was killed"
		}
	}
	result.Text, result.Images, result.Raised = out.text(), out.images, out.raised
	return result
}

// finish interrupts a cell, and kills the kernel if that does not end it. When
// it returns the cell is done or the kernel gone.
func (k *kernel) finish(c *cell) (killed bool) {
	again := time.NewTicker(interruptTime)
	defer again.Stop()
	grace := time.NewTimer(graceTime)
	defer grace.Stop()
	for {
		k.interrupt(c)
		select {
		case <-c.done:
			return false
		case <-k.gone:
			return false
		case <-again.C:
		case <-grace.C:
			k.tree.Kill()
			<-k.gone
			return true
		}
	}
}
