package bash

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/random"
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
// writing cannot delay an answer.
const drainLimit = 256 << 10

// hangUpTime is how long a shell whose session ends has to end after a hang-up, and then after a kill.
const hangUpTime = 500 * time.Millisecond

// listener receives the events of a shell. Its methods are called from the shell's
// goroutines, one at a time for each goroutine.
type listener interface {
	output(*shell, []byte)
	reported(*shell, report)
	saved(*shell, string)
	ended(*shell)
}

// report is the message of the shell after a command, or when it is asked.
type report struct {
	asked      int64    // the number of the command that it was asked about
	progress   progress // of the command that it began last
	background int      // $!, -1 when there never was one
	dir        string
	flags      string
	path       string
	at         time.Duration // when it was read, as [proc.Uptime] returns it
}

// progress is the value of progressVar.
type progress struct {
	begun  int64 // -1 if the variable does not say
	status int   // unknownStatus if the variable does not say
}

// parseProgress reads the number of a command and a status. The server's lines
// append another status whenever they run; the first is the command's. Where the
// command unset the variable there is only the appended one, and that is the
// command's status if it is one.
func parseProgress(value string) progress {
	begun, statuses, _ := strings.Cut(value, " ")
	first, more, _ := strings.Cut(statuses, " ")
	p := progress{begun: -1, status: unknownStatus}
	if n, err := strconv.ParseInt(begun, 10, 64); err == nil {
		p.begun = n
	} else if begun != "" || more != "" {
		return p
	}
	if n, err := strconv.Atoi(first); err == nil && n >= 0 && n <= 255 {
		p.status = n
	}
	return p
}

// shell is one living shell process with its terminal.
//
// It owns three goroutines: one reads the terminal, one reads reports, and one
// waits for the process and then ends the other two. close waits for all three.
type shell struct {
	dialect
	program string
	user    *identity.User
	process *os.Process
	ended   *os.ProcessState // guarded by reading; nil until the process was waited for
	term    *pty
	script  *os.File // the server writes, the shell reads
	reports *os.File // the shell writes, the server reads
	begins  *os.File // the same, read without waiting; nil for a shell that another version of the server started
	input   string   // the shell's end of script, as /proc names it
	output  string   // the shell's end of reports, as /proc names it
	errors  string   // the shell's end of begins, as /proc names it; "" where the shell has none; guarded by Session.looking and mu
	token   string
	cmdline atomic.Pointer[[]byte] // of the shell itself, as /proc has it; nil until its first report

	listener  listener
	reporting sync.Mutex // held from a read of the reports until its messages are delivered
	pending   []byte     // what was read of the reports and not delivered; guarded by reporting
	known     []string   // the fields of the last report; guarded by reporting
	late      int        // how many bytes of them were read after the last moment to wait for more
	reading   sync.Mutex // held from a read of the terminal until its bytes are delivered
	buffer    [16 << 10]byte
	emptying  sync.Mutex // held while the begin pipe is read
	seen      []byte     // its bytes; guarded by emptying
	readers   sync.WaitGroup
	silent    chan struct{} // closed once no more reports can come
	gone      chan struct{} // closed once the process was waited for
	finished  chan struct{} // closed once the shell's goroutines and files are gone
}

// startShell starts program in dir. The caller must call close.
func startShell(program, dir string, cfg *Config, l listener) (*shell, error) {
	term, err := openTerminal(cfg.User)
	if err != nil {
		return nil, err
	}
	sh := &shell{
		dialect: dialectOf(program), program: program, user: cfg.User, term: term, token: random.Hex(8),
		listener: l, silent: make(chan struct{}), gone: make(chan struct{}), finished: make(chan struct{}),
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
	var begins [2]int
	if err := unix.Pipe2(begins[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	beginsOut := os.NewFile(uintptr(begins[1]), "|1")
	defer func() { _ = beginsOut.Close() }()
	// A process that opened the pipe by /proc could take the messages, and commands that ran would run again.
	if err := beginsOut.Chmod(0); err != nil {
		return err
	}
	if sh.begins, err = unpolled(begins[0]); err != nil {
		return err
	}
	if err := sh.namePipes(); err != nil {
		return err
	}

	// The terminal becomes the controlling one through descriptor 3, which the
	// first line closes. No context: one that ends must not kill the shell.
	cmd := exec.Command(sh.program, sh.arguments()...) //nolint:noctx // see above
	cmd.Args[0] = strings.TrimPrefix(sh.program[strings.LastIndexByte(sh.program, '/')+1:], "-")
	cmd.Dir, cmd.Env = dir, cfg.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = scriptIn, reportsOut, beginsOut, []*os.File{sh.term.slave}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3, Credential: cfg.User.Credential()}
	if err := proc.Start(cmd); err != nil {
		return err
	}
	sh.process = cmd.Process
	// A shell that cannot open its terminal would run everything unseen.
	return sh.send("exec 3>&-; " + progressVar + "=0; " + sh.call + ": <>" + sh.term.name + " || exit 126\n")
}

// unpolled makes a file of a pipe's descriptor whose reads do not wait, and which the
// runtime's poller does not know: its bytes wake no thread.
func unpolled(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, false); err != nil { // the poller takes what is non-blocking
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "|0")
	return f, unix.SetNonblock(fd, true)
}

// namePipes notes the names of the pipes.
func (sh *shell) namePipes() (err error) {
	if sh.input, err = pipeName(sh.script); err == nil {
		sh.output, err = pipeName(sh.reports)
	}
	if err == nil && sh.begins != nil {
		sh.errors, err = pipeName(sh.begins)
	}
	return err
}

// pipeName returns the name that links in /proc have for both ends of a pipe.
func pipeName(end *os.File) (string, error) {
	var stat unix.Stat_t
	err := terminal.Control(end, func(fd int) error { return unix.Fstat(fd, &stat) })
	return fmt.Sprintf("pipe:[%d]", stat.Ino), err
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

// sendText is send for the line of a command that the shell does not begin before it has read
// it whole. A shell that prints what it reads (set -v) waits meanwhile until the begin pipe is
// read.
func (sh *shell) sendText(line string) error {
	limit, sent := time.Now().Add(sendTime), false
	for {
		now := time.Now()
		if err := sh.script.SetWriteDeadline(now.Add(min(firstLook, limit.Sub(now)))); err != nil {
			return err
		}
		n, err := io.WriteString(sh.script, line)
		line, sent = line[n:], sent || n > 0
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(limit):
			_, _, _ = sh.emptyBegins(nil)
		case !sent:
			return errNotSent
		default:
			return err
		}
	}
}

// errNotSent says that the shell has not seen a byte of the sent text.
var errNotSent = errors.New("the shell no longer reads its script")

// sendTime bounds how long the shell may take to read a command's text, which
// is about 50 ms for a megabyte.
const sendTime = 5 * time.Second

// unread returns how many bytes of its script the shell has not read, 0 where the
// kernel does not say.
func (sh *shell) unread() int { return unreadBytes(sh.script) }

// unreadBytes returns how many bytes lie in a pipe.
func unreadBytes(end *os.File) (n int) {
	_ = terminal.Control(end, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return n
}

// status returns what /proc says of the shell; the zero value where it does not say.
func (sh *shell) status() (p proc.Process) {
	_ = sh.user.Do(func() error {
		p, _ = proc.Read(sh.process.Pid)
		return nil
	})
	return p
}

// isSlow reports whether the shell can run or waits for a disk, and has used less than maxRun of processor time since it
// had used ran.
func (sh *shell) isSlow(ran time.Duration) bool {
	p := sh.status()
	return (p.State == 'R' || p.State == 'D') && p.Ran-ran < maxRun
}

// A place is how far the shell's process is with its script.
type place int

const (
	atScript   place = iota // its standard input is the script: it reads it, reports, or is at a prompt
	inCommand               // it is not, or /proc does not say: it evaluates a command
	cutOff                  // the same, but it can never read its script again, or never report
	isReplaced              // it became another program, by exec
)

func (sh *shell) place() place {
	own := sh.cmdline.Load()
	now, err := readCmdline(sh.process.Pid)
	if err == nil && own != nil && !bytes.Equal(now, *own) {
		return isReplaced
	}
	if sh.standardFile(0) == sh.input {
		return atScript
	}
	if sh.inForeground() && (!sh.holdsPipes() || sh.maxDescriptors() < 3) {
		return cutOff
	}
	return inCommand
}

// maxDescriptors is the shell's limit. It cannot put its standard files back where
// they do not lie below it.
func (sh *shell) maxDescriptors() int {
	limits, err := os.ReadFile(sh.proc("limits"))
	if err != nil {
		return math.MaxInt
	}
	_, files, _ := strings.Cut(string(limits), "Max open files")
	most := math.MaxInt
	_, _ = fmt.Sscan(files, &most) // not a number where there is no limit
	return most
}

// standardFile returns the file of the shell's descriptor fd, 0 to 2: the name of the
// terminal while it evaluates a command, that of a pipe while it reads its script, ""
// where it is closed or /proc does not say.
func (sh *shell) standardFile(fd int) (target string) {
	_ = sh.user.Do(func() (err error) {
		target, err = os.Readlink(sh.proc("fd/" + strconv.Itoa(fd)))
		return err
	})
	return target
}

// holdsPipes reports whether descriptors of the shell are its script, its reports
// and its begin pipe. It is true where /proc does not say.
//
// Bash, when it cannot put one of its standard files back after a command, leaves
// the others as they are too: it then reads the terminal in place of its script.
func (sh *shell) holdsPipes() bool {
	input, output, errors := false, false, sh.errors == ""
	err := sh.user.Do(func() error {
		descriptors, err := os.ReadDir(sh.proc("fd"))
		for _, d := range descriptors {
			switch target, _ := os.Readlink(sh.proc("fd/" + d.Name())); target {
			case sh.input:
				input = true
			case sh.output:
				output = true
			case sh.errors:
				errors = true
			}
		}
		return err
	})
	return input && output && errors || err != nil
}

// directory is the shell's working directory, "" where /proc does not say or it
// was removed.
func (sh *shell) directory() (dir string) {
	_ = sh.user.Do(func() (err error) {
		dir, err = os.Readlink(sh.proc("cwd"))
		return err
	})
	if !filepath.IsAbs(dir) || strings.HasSuffix(dir, " (deleted)") {
		return ""
	}
	return dir
}

// awaitBegin returns once the shell evaluates a command, or done is closed. A
// signal before that would hit the shell while it reads the command's line, and
// the rest of the line would be taken for a command of its own.
//
// It rarely waits at all, for a shell reads a line within microseconds.
func (sh *shell) awaitBegin(done <-chan struct{}) {
	limit := time.NewTimer(beginTime)
	defer limit.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for sh.standardFile(0) != sh.term.name {
		select {
		case <-look.C:
		case <-done:
			return
		case <-limit.C:
			return
		}
	}
}

// beginTime is long for reading a line of any length, and short for a person
// who interrupts where there is no /proc to look at.
const beginTime = time.Second

// proc is the path of a file about the shell's process.
func (sh *shell) proc(name string) string {
	return fmt.Sprintf("/proc/%d/%s", sh.process.Pid, name)
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

// wake continues a shell that was stopped, by suspend or a signal. A shell that
// runs gets no signal, for which it may have a trap.
func (sh *shell) wake() {
	var stop unix.Siginfo
	err := unix.Waitid(unix.P_PID, sh.process.Pid, &stop, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && stop.Signo != 0 {
		_ = sh.process.Signal(syscall.SIGCONT)
	}
}

// inForeground reports whether keys reach the shell itself and not a program.
func (sh *shell) inForeground() bool { return sh.foreground() == sh.process.Pid }

// foreground returns the process group that keys reach, 0 without a terminal.
func (sh *shell) foreground() (group int) {
	_ = terminal.Control(sh.term.master, func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return group
}

// hasProgram reports whether keys reach a program: neither the shell nor a copy of it
// that may be about to become a program.
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
	_, err := sh.term.master.Write(keys)
	return err
}

// pressTime bounds how long a program may leave its input unread before typing
// is given up: the kernel buffers 4 KiB of it.
const pressTime = 2 * time.Second

// readTerminal delivers output until the terminal is closed or hung up. It ends with the shell
// also where a process that outlives it writes without a pause.
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
			if channel.Closed(sh.gone) {
				return true
			}
		}
	})
}

// drain delivers the bytes that are in the terminal now.
func (sh *shell) drain() {
	_ = terminal.Control(sh.term.master, func(fd int) error {
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
	sh.reporting.Lock()
	defer sh.reporting.Unlock()
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(sh.pending)), reportReader{sh}))
	report, state := reportHeader+sh.token, stateHeader+sh.token
	field, err := readField(in, report)
	for err == nil {
		switch field {
		case report:
			field, err = sh.readMessage(in, reportFields, sh.deliverReport)
		case state:
			field, err = sh.readMessage(in, stateFields, func(f []string) { sh.listener.saved(sh, strings.Join(f, "\n")) })
		default: // the rest of a message that a signal cut short
			field, err = sh.nextMessage(in)
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
	for i := range n {
		known := ""
		if n == reportFields && i < len(sh.known) {
			known = sh.known[i]
		}
		field, err := readField(in, known)
		if err != nil || len(field) == 1+len(sh.token) && field[1:] == sh.token {
			return field, err
		}
		fields = append(fields, field)
	}
	deliver(fields)
	if n == reportFields {
		sh.known = fields
		if slices.ContainsFunc(fields, func(f string) bool { return len(f) > maxKept }) {
			sh.known = nil
		}
	}
	return sh.nextMessage(in)
}

// nextMessage reads the first field of a message, the one before which was delivered.
func (sh *shell) nextMessage(in *bufio.Reader) (string, error) {
	rest := sh.pending[len(sh.pending)-in.Buffered():]
	if cap(sh.pending) > maxKept { // one large message does not make the shell large
		sh.pending = nil
	}
	sh.pending = append(sh.pending[:0], rest...)
	return readField(in, reportHeader+sh.token)
}

// reportReader reads reports. It gives the lock of their reader back before each read, and has
// it while it reads.
type reportReader struct{ sh *shell }

func (r reportReader) Read(p []byte) (n int, err error) {
	raw, err := r.sh.reports.SyscallConn()
	if err != nil {
		return 0, err
	}
	r.sh.reporting.Unlock()
	locked := false
	over := raw.Read(func(fd uintptr) bool {
		if !locked {
			r.sh.reporting.Lock()
			locked = true
		}
		n, err = files.Read(fd, p)
		if errors.Is(err, unix.EAGAIN) {
			r.sh.reporting.Unlock()
			locked = false
			return false
		}
		return true
	})
	if !locked {
		r.sh.reporting.Lock()
	}
	if errors.Is(over, os.ErrDeadlineExceeded) && r.sh.late < maxPipe { // what lies in the pipe is read however late it is
		n, err = files.ReadNow(r.sh.reports, p)
		r.sh.late, over = r.sh.late+n, nil
	}
	if err = cmp.Or(over, err); err != nil {
		return 0, err
	}
	r.sh.pending = append(r.sh.pending, p[:n]...)
	return n, nil
}

// mayHaveReported reports whether a report of the shell's may lie in its pipe, or is being delivered. After false all
// that the shell sent before the call was delivered.
func (sh *shell) mayHaveReported() bool {
	if !sh.reporting.TryLock() {
		return true
	}
	defer sh.reporting.Unlock()
	return unreadBytes(sh.reports) > 0
}

// readBegins empties the begin pipe. begun reports whether command number seq began by the messages
// in it, or may have; full, whether the shell may wait until the pipe takes more. The caller
// holds the session's mu, so that no other reads at the same time.
func (sh *shell) readBegins(seq int64) (begun, full bool) {
	if sh.errors == "" {
		return true, false
	}
	n, begun, err := sh.emptyBegins(beginMessage(sh.token, seq))
	failed := err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, io.EOF)
	return begun || failed || n >= maxPipe, n >= pipeBuffer
}

// skipped reports whether the shell, which has reported, never said that command number seq
// begins, and would have. The rest of a line whose beginning a trap read can set
// progressVar and not run the text. The caller holds the session's mu.
func (sh *shell) skipped(seq int64) bool {
	begun, _ := sh.readBegins(seq)
	return !begun && sh.standardFile(2) == sh.errors
}

// isRobbable reports whether a process that an earlier command left can open the begin pipe by
// /proc, as root's can whatever its mode: a message that did not come may have been sent.
func (sh *shell) isRobbable() bool { return sh.user.EffectiveUID() == 0 }

// saysBegins empties the begin pipe, and reports whether the shell still has it. The caller
// holds the session's looking and mu.
//
// A trap, or a prompt, can make another file the shell's standard error: exec 2>FILE there
// is not undone, as it is in a command.
func (sh *shell) saysBegins() bool {
	if sh.errors == "" {
		return false
	}
	if _, _, err := sh.emptyBegins(nil); errors.Is(err, io.EOF) {
		if now := sh.standardFile(2); now != "" && now != sh.errors {
			sh.errors = ""
		}
	}
	return sh.errors != ""
}

// emptyBegins reads the begin pipe until that would wait, which is EAGAIN, or maxPipe came. It
// returns how many bytes it read, and whether message is among them.
func (sh *shell) emptyBegins(message []byte) (n int, found bool, err error) {
	sh.emptying.Lock()
	defer sh.emptying.Unlock()
	data := sh.seen[:0]
	err = terminal.Control(sh.begins, func(fd int) (err error) {
		for err == nil && len(data) < maxPipe {
			data = slices.Grow(data, 512)
			var n int
			n, err = files.Read(uintptr(fd), data[len(data):cap(data)])
			data = data[:len(data)+n]
		}
		return err
	})
	sh.seen = data
	if cap(data) > maxKept {
		sh.seen = nil
	}
	return len(data), message != nil && bytes.Contains(data, message), err
}

// maxKept bounds the buffers that are kept between commands.
const maxKept = 4 << 10

// pipeBuffer is the least that a pipe holds (PIPE_BUF in pipe(7)).
const pipeBuffer = 4096

func (sh *shell) deliverReport(f []string) {
	r := report{progress: parseProgress(f[1]), flags: f[3], path: f[4], dir: f[5], background: -1, at: proc.Uptime()}
	if !sh.isBash {
		r.dir = strings.TrimSuffix(r.dir, "\n") // from pwd
	}
	if !filepath.IsAbs(r.dir) || len(r.dir) > maxPath { // a trap printed something, or there is no pwd
		r.dir = sh.directory()
	}
	if len(r.path) > maxPath {
		r.path = "" // to look a program up there would take seconds
	}
	var err error
	if r.asked, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return
	}
	if pid, err := strconv.Atoi(f[2]); err == nil {
		r.background = pid
	}
	if sh.cmdline.Load() == nil { // right after the start it would still be empty
		if own, err := readCmdline(sh.process.Pid); err == nil {
			sh.cmdline.Store(&own)
		}
	}
	sh.listener.reported(sh, r)
}

var errFieldTooLong = errors.New("a field of the shell's report is too long")

// readField reads a field. Where that equals known, it returns known, which takes no memory:
// most fields of a report are those of the one before.
func readField(in *bufio.Reader, known string) (string, error) {
	part, err := in.ReadSlice(0)
	if err == nil {
		if part = part[:len(part)-1]; string(part) == known {
			return known, nil
		}
		return string(part), nil
	}
	field := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(field) > maxField {
			return "", errFieldTooLong
		}
		part, err = in.ReadSlice(0)
		field = append(field, part...)
	}
	if err != nil {
		return "", err
	}
	return string(field[:len(field)-1]), nil
}

// lastReportTime is how long reports are waited for once the shell is gone: they
// lie in the pipe, and only a process that a trap left behind keeps it open.
const lastReportTime = 200 * time.Millisecond

// maxPipe is how much a pipe holds at most (pipe(7)), where its user is not root.
const maxPipe = 1 << 20

// wait is the one place where the process is waited for. Its reports and its
// output are delivered before its end is.
func (sh *shell) wait() {
	proc.AwaitExit(sh.process.Pid)
	sh.reading.Lock()
	sh.ended, _ = sh.process.Wait()
	sh.reading.Unlock()
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
	if sh.ended == nil { // it could not be waited for
		return unknownStatus, 0
	}
	if ws, ok := sh.ended.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return sh.ended.ExitCode(), 0
}

// kill ends the shell at once; its jobs are hung up by the kernel.
func (sh *shell) kill() { _ = sh.process.Kill() }

// close hangs up, as closing a terminal window does: the shell passes it on to
// its jobs, and a process that has detached itself lives on. A shell that does not end
// is killed. close returns when nothing of the shell's is left in this process,
// unless the shell cannot be killed.
func (sh *shell) close() {
	_ = sh.process.Signal(syscall.SIGHUP)
	sh.wake()
	_ = sh.script.Close()
	if channel.ClosedWithin(sh.finished, hangUpTime) {
		return
	}
	sh.kill()
	if !channel.ClosedWithin(sh.finished, hangUpTime) {
		// This process may not kill the shell, which without its terminal and its script
		// can do nothing for the session.
		sh.closeFiles()
	}
}

func (sh *shell) closeFiles() {
	sh.term.close()
	for _, f := range []*os.File{sh.script, sh.reports, sh.begins} {
		if f != nil {
			_ = f.Close()
		}
	}
}
