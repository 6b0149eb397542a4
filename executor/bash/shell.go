package bash

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/proctree"
	"github.com/actiond/actiond/executor/spawn"
)

// maxField bounds one field of a message of the shell. It is far more than an
// environment can hold (the kernel's limit is 128 KiB a string, 2 MiB in all).
const maxField = 8 << 20

// maxPath bounds the PATH and the directory that a shell reports: sixteen times
// the kernel's limit for one name.
const maxPath = 64 << 10

// drainLimit bounds how much is read from the terminal in one go. A terminal
// holds at most 64 KiB (TTYB_DEFAULT_MEM_LIMIT of the kernel), so everything
// written before a moment is read, and a background job that never stops
// writing cannot hold up an answer.
const drainLimit = 256 << 10

// hangUpTime is how long a shell has to end after it was hung up on.
const hangUpTime = 500 * time.Millisecond

// listener is told what a shell does. Its methods are called from the shell's
// goroutines, one at a time for each kind.
type listener interface {
	output(*shell, []byte)
	reported(*shell, report)
	saved(*shell, string)
	ended(*shell)
}

// report is what the shell says after a command.
type report struct {
	seq        uint64
	status     int
	background int // $!, -1 when there never was one
	dir        string
	flags      string
	path       string
}

// shell is one living shell process with its terminal.
//
// It owns three goroutines: one reads the terminal, one reads reports, and one
// waits for the process and then ends the other two. close waits for all three.
type shell struct {
	dialect
	program string
	cmd     *exec.Cmd
	term    *terminal
	script  *os.File // the server writes, the shell reads
	reports *os.File // the shell writes, the server reads
	token   string
	started time.Time
	cmdline atomic.Pointer[[]byte] // of the shell itself, as /proc has it; nil until its first report

	pressed  atomic.Bool // something was typed since the last command was given
	listener listener
	reading  sync.Mutex // held from a read of the terminal until its bytes are delivered
	buffer   [16 << 10]byte
	readers  sync.WaitGroup
	silent   chan struct{} // closed once no report can come any more
	gone     chan struct{} // closed once the process was waited for
	finished chan struct{} // closed once nothing of the shell's is left in this process
}

// startShell starts program in dir. The caller must call close.
func startShell(program, dir string, cfg *Config, l listener) (*shell, error) {
	term, err := openTerminal(cfg.As)
	if err != nil {
		return nil, err
	}
	token := make([]byte, 8)
	_, _ = rand.Read(token) // never fails
	sh := &shell{
		dialect: dialectOf(program), program: program, term: term, token: hex.EncodeToString(token),
		listener: l, silent: make(chan struct{}), gone: make(chan struct{}),
		finished: make(chan struct{}), started: time.Now(),
	}
	if err := sh.start(dir, cfg); err != nil {
		sh.closeFiles()
		return nil, fmt.Errorf("starting %s in %s: %w", program, dir, err)
	}
	sh.readers.Go(sh.readTerminal)
	sh.readers.Go(sh.readReports)
	go sh.wait()
	return sh, nil
}

func (sh *shell) start(dir string, cfg *Config) error {
	scriptIn, script, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = scriptIn.Close() }()
	sh.script = script
	reports, reportsOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = reportsOut.Close() }()
	sh.reports = reports

	// The terminal becomes the controlling one through descriptor 3, which the
	// first line closes.
	files := make([]*os.File, reportFD-2)
	files[0], files[reportFD-3] = sh.term.slave, reportsOut
	// No context: one that ends must not kill the shell.
	sh.cmd = exec.Command(sh.program, sh.arguments()...) //nolint:noctx // see above
	sh.cmd.Args[0] = strings.TrimPrefix(sh.program[strings.LastIndexByte(sh.program, '/')+1:], "-")
	sh.cmd.Dir, sh.cmd.Env = dir, cfg.Env
	sh.cmd.Stdin, sh.cmd.ExtraFiles = scriptIn, files
	sh.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	if cfg.User != nil {
		sh.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: cfg.User.UID, Gid: cfg.User.GID, Groups: cfg.User.Groups}
	}
	if err := spawn.Start(sh.cmd); err != nil {
		return err
	}
	proctree.Offer(sh.cmd.Process.Pid, cfg.As)
	_ = sh.term.slave.Close()
	sh.term.slave = nil
	// A shell that cannot open its terminal would run everything unseen.
	return sh.send("exec 3>&-; " + sh.call + ": <>" + sh.term.name + " || exit 126\n")
}

// send gives the shell lines to run. It waits only for the pipe to take them;
// after an error the shell must be killed, for it may have read half a line.
func (sh *shell) send(lines string) error {
	if err := sh.script.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	n, err := io.WriteString(sh.script, lines)
	if err != nil && n == 0 {
		return errNotSent
	}
	return err
}

// errNotSent says that the shell has not seen a byte of what was sent.
var errNotSent = errors.New("the shell does not read its script any more")

// sendTime bounds how long the shell may take to read a command's text, which
// is about 50 ms for a megabyte.
const sendTime = 5 * time.Second

// hasReadAll tells whether the shell has read all of its script, as far as the
// kernel says.
func (sh *shell) hasReadAll() bool {
	raw, err := sh.script.SyscallConn()
	if err != nil {
		return false
	}
	all := false
	_ = raw.Control(func(fd uintptr) {
		unread, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		all = err == nil && unread == 0
	})
	return all
}

// awaitBegin returns once the shell evaluates a command, or done is closed. A
// signal before that would hit the shell while it reads the command's line, and
// what is left of the line would be taken for a command of its own. The moment
// shows in what the shell's standard input is: its script, or the terminal.
//
// It rarely waits at all, for a shell reads a line within microseconds.
func (sh *shell) awaitBegin(as func(func() error) error, done <-chan struct{}) {
	limit := time.NewTimer(beginTime)
	defer limit.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for sh.input(as) != sh.term.name {
		select {
		case <-look.C:
		case <-done:
			return
		case <-limit.C:
			return
		}
	}
}

// input tells what the shell's input is: the name of the terminal while it
// evaluates a command, "pipe:" and more while it reads its script, "" where
// nobody may know.
func (sh *shell) input(as func(func() error) error) (target string) {
	_ = as(func() (err error) {
		target, err = os.Readlink(sh.proc("fd/0"))
		return err
	})
	return target
}

// beginTime is long for reading a line of any length, and short for a person
// who wants to interrupt where there is no /proc to look at.
const beginTime = time.Second

// proc is the path of a file about the shell's process.
func (sh *shell) proc(name string) string {
	return fmt.Sprintf("/proc/%d/%s", sh.cmd.Process.Pid, name)
}

// replaced tells whether a command put another program into the shell's place,
// by exec. It is a command like any other, and its end is the shell's.
func (sh *shell) replaced() bool {
	own := sh.cmdline.Load()
	now, err := readCmdline(sh.cmd.Process.Pid)
	return err == nil && own != nil && !bytes.Equal(now, *own)
}

// readCmdline reads the beginning of a process's command line. The process says
// itself where in its memory that lies and how long it is (prctl(2),
// PR_SET_MM_MAP), and it may be more than this one has memory.
func readCmdline(pid int) ([]byte, error) {
	const most = 4 << 10
	f, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, most))
}

// wake lets a shell go on that was stopped, by suspend or a signal: nobody else
// would. One that runs gets no signal, for which it may have a trap.
func (sh *shell) wake() {
	var stop unix.Siginfo
	err := unix.Waitid(unix.P_PID, sh.cmd.Process.Pid, &stop, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && stop.Signo != 0 {
		_ = sh.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// isMute tells whether a shell that runs no program may not have the descriptors
// any more that it needs to report, or to come back to its script.
func (sh *shell) isMute() bool {
	limits, err := os.ReadFile(sh.proc("limits"))
	if err != nil {
		return false
	}
	_, files, _ := strings.Cut(string(limits), "Max open files")
	var most int
	if _, err := fmt.Sscan(files, &most); err != nil {
		return false
	}
	return most <= reportFD && sh.inForeground()
}

// inForeground tells whether keys reach the shell itself, and no program of it.
func (sh *shell) inForeground() bool { return sh.foreground() == sh.cmd.Process.Pid }

// foreground returns the process group that keys reach, 0 where there is none.
func (sh *shell) foreground() (group int) {
	_ = sh.term.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return group
}

// hasProgram tells whether keys reach a program, and neither the shell, nor a
// copy of it that may be about to become one, nor nobody.
func (sh *shell) hasProgram() bool {
	own := sh.cmdline.Load()
	now, err := readCmdline(sh.foreground())
	return err == nil && own != nil && len(now) > 0 && !bytes.Equal(now, *own)
}

// press writes to the terminal as a keyboard would.
func (sh *shell) press(keys []byte) error {
	if err := sh.term.master.SetWriteDeadline(time.Now().Add(pressTime)); err != nil {
		return err
	}
	sh.pressed.Store(true)
	_, err := sh.term.master.Write(keys)
	return err
}

// pressTime bounds how long a program may leave its input unread before typing
// is given up: the kernel buffers 4 KiB of it.
const pressTime = 2 * time.Second

// readTerminal delivers output until the terminal is closed or hung up.
func (sh *shell) readTerminal() {
	raw, err := sh.term.master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		for {
			if _, over := sh.readOnce(int(fd)); over != nil {
				return !errors.Is(over, unix.EAGAIN)
			}
		}
	})
}

// drain delivers what lies in the terminal now.
func (sh *shell) drain() {
	_ = sh.term.control(func(fd int) error {
		for total, more := 0, true; more && total < drainLimit; {
			n, over := sh.readOnce(fd)
			total, more = total+n, over == nil
		}
		return nil
	})
}

// readOnce makes one read that does not block and delivers its bytes. An error
// says that there is nothing to read: EAGAIN for now, any other for good.
func (sh *shell) readOnce(fd int) (int, error) {
	sh.reading.Lock()
	defer sh.reading.Unlock()
	for {
		n, err := unix.Read(fd, sh.buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		sh.listener.output(sh, sh.buffer[:n])
		return n, nil
	}
}

// readReports delivers messages until the pipe ends.
func (sh *shell) readReports() {
	defer close(sh.silent)
	in := bufio.NewReader(sh.reports)
	field, err := readField(in)
	for err == nil {
		switch field {
		case reportHeader + sh.token:
			field, err = sh.readMessage(in, reportFields, sh.deliverReport)
		case stateHeader + sh.token:
			field, err = sh.readMessage(in, stateFields, sh.deliverState)
		default: // the rest of a message that a signal cut short
			field, err = readField(in)
		}
	}
	if errors.Is(err, errFieldTooLong) {
		sh.kill()
	}
}

// readMessage reads the fields of one message, delivers them and reads on. A
// header among the fields means that the message was cut short by a signal.
func (sh *shell) readMessage(in *bufio.Reader, n int, deliver func([]string)) (next string, err error) {
	fields := make([]string, 0, n)
	for range n {
		field, err := readField(in)
		if err != nil || field == reportHeader+sh.token || field == stateHeader+sh.token {
			return field, err
		}
		fields = append(fields, field)
	}
	deliver(fields)
	return readField(in)
}

func (sh *shell) deliverReport(f []string) {
	r := report{flags: f[3], path: f[4], dir: strings.TrimSuffix(f[5], "\n"), background: -1}
	if len(r.dir) > maxPath { // no directory has such a name
		return
	}
	if len(r.path) > maxPath {
		r.path = "" // to look a program up there would take seconds
	}
	var err error
	if r.seq, err = strconv.ParseUint(f[0], 10, 64); err != nil {
		return
	}
	if r.status, err = strconv.Atoi(f[1]); err != nil {
		return
	}
	if pid, err := strconv.Atoi(f[2]); err == nil {
		r.background = pid
	}
	sh.drain()
	sh.term.restore(sh.pressed.Load())
	if sh.cmdline.Load() == nil { // right after the start it would still be empty
		if own, err := readCmdline(sh.cmd.Process.Pid); err == nil {
			sh.cmdline.Store(&own)
		}
	}
	sh.listener.reported(sh, r)
}

func (sh *shell) deliverState(f []string) {
	sh.listener.saved(sh, strings.Join(f, "\n"))
}

var errFieldTooLong = errors.New("a field of the shell's report is too long")

func readField(in *bufio.Reader) (string, error) {
	var field []byte
	for {
		part, err := in.ReadSlice(0)
		field = append(field, part...)
		switch {
		case err == nil:
			return string(field[:len(field)-1]), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		case len(field) > maxField:
			return "", errFieldTooLong
		}
	}
}

// lastReportTime is how long reports are waited for once the shell is gone: they
// lie in the pipe, and only a process that a trap left behind keeps it open.
const lastReportTime = 200 * time.Millisecond

// wait is the one place where the process is waited for. What it reported and
// wrote before its end is delivered before its end is.
func (sh *shell) wait() {
	proctree.Await(sh.cmd.Process.Pid)
	_ = sh.cmd.Wait()
	_ = sh.reports.SetReadDeadline(time.Now().Add(lastReportTime))
	<-sh.silent
	sh.drain()
	close(sh.gone)
	sh.listener.ended(sh)
	sh.closeFiles()
	sh.readers.Wait()
	close(sh.finished)
}

// exitStatus is how the process ended, as a shell would say it in $?. It may
// be called once gone is closed.
func (sh *shell) exitStatus() (status int, signal syscall.Signal) {
	ws, ok := sh.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return sh.cmd.ProcessState.ExitCode(), 0
}

// kill ends the shell at once; its jobs are hung up by the kernel.
func (sh *shell) kill() { _ = sh.cmd.Process.Kill() }

// close hangs up, as closing a terminal window does: the shell passes it on to
// its jobs, and what has detached itself lives on. A shell that does not end
// is killed. close returns when nothing of the shell's is left in this process,
// unless the shell cannot be killed.
func (sh *shell) close() {
	_ = sh.cmd.Process.Signal(syscall.SIGHUP)
	sh.wake()
	_ = sh.script.Close()
	if closes(sh.finished, hangUpTime) {
		return
	}
	sh.kill()
	if !closes(sh.finished, hangUpTime) {
		// It runs as somebody whom this process may not kill. Without its
		// terminal it is on its own.
		sh.closeFiles()
	}
}

// closes tells whether a channel is closed before limit is over.
func closes(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

func (sh *shell) closeFiles() {
	sh.term.close()
	for _, f := range []*os.File{sh.script, sh.reports} {
		if f != nil {
			_ = f.Close()
		}
	}
}
