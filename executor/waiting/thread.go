package waiting

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
)

// state is the activity of a thread, or of a process.
type state struct {
	reason Reason
	on     string
	or     []Reason
	timer  bool
	holder int
	gone   bool // it has ended
	denied bool // the kernel does not let this user see more
}

// maxFile bounds the part of a file of /proc about a thread that is read.
const maxFile = 64 << 10

// thread is one that is looked at.
type thread struct {
	pid, tid int
	process  proc.Process
	target   Target
	until    time.Time // nothing more is looked at then
}

// attempts bounds how often a thread is looked at that runs between the reads of a look.
const attempts = 3

// look returns the state of the thread. Its files are of one moment, because it
// has not run in between.
func (t thread) look() state {
	for range attempts {
		before, ok := t.status()
		if !ok {
			return state{gone: true}
		}
		switch before.state {
		case 'R':
			return state{reason: Busy}
		case 'D':
			return state{reason: Disk, on: t.function()}
		case 'T', 't':
			return state{reason: Stopped}
		case 'Z', 'X':
			return state{gone: true}
		}
		call, err := t.call()
		var now state
		switch {
		case errors.Is(err, fs.ErrPermission):
			now = t.guarded()
		case err != nil:
			now = state{reason: Unknown, on: "the kernel does not say in which system call it is"}
		case call.running:
			return state{reason: Busy}
		default:
			now = t.explain(call)
		}
		if after, ok := t.status(); ok && after == before {
			return now
		}
	}
	return state{reason: Busy}
}

// status has the counters of a thread's times on a processor. Two equal ones that are asleep
// say that it has not run in between.
type status struct {
	state    byte
	switches string
}

func (t thread) status() (s status, ok bool) {
	data, err := t.read("status")
	if err != nil {
		return status{}, false
	}
	for line := range bytes.Lines(data) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "State":
			if len(value) > 0 {
				s.state = value[0]
			}
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			s.switches += string(value) + " "
		}
	}
	return s, s.state != 0
}

// path is that of a file about the thread.
func (t thread) path(name string) string {
	return fmt.Sprintf("/proc/%d/task/%d/%s", t.pid, t.tid, name)
}

// read reads the beginning of a file about the thread.
func (t thread) read(name string) ([]byte, error) { return readStart(t.path(name), maxFile) }

func readStart(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, most))
}

// call is a system call that has not returned.
type call struct {
	running bool
	number  int64 // -1 outside of one
	args    [6]uint64
	wide    bool // it is one of 64 bits
}

// call reads the system call that the thread is in (proc_pid_syscall(5)).
func (t thread) call() (c call, err error) {
	data, err := t.read("syscall")
	if err != nil {
		return c, err
	}
	return parseCall(string(data))
}

var errForm = errors.New("a file of the kernel has another form")

func parseCall(line string) (c call, err error) {
	fields := strings.Fields(line)
	if len(fields) == 1 && fields[0] == "running" {
		return call{running: true}, nil
	}
	if len(fields) != 3 && len(fields) != 9 {
		return c, errForm
	}
	if c.number, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return c, err
	}
	for i := range fields[1 : len(fields)-2] {
		if c.args[i], err = strconv.ParseUint(fields[1+i], 0, 64); err != nil {
			return c, err
		}
	}
	stack, err := strconv.ParseUint(fields[len(fields)-2], 0, 64)
	// A program of 32 bits has other numbers, and its stack below 4 GiB.
	c.wide = stack > 1<<32
	return c, err
}

// function returns the function of the kernel in which the thread sleeps, "" where the
// kernel does not say.
func (t thread) function() string {
	data, err := t.read("wchan")
	if name := string(data); err == nil && name != "0" {
		name, _, _ = strings.Cut(name, ".") // a compiler's suffix
		return proc.Printable(name)
	}
	return ""
}

// guarded returns the state by the function of the kernel, where the system call may not be
// seen: the program has rights of another user, or the system lets only tracers see it.
func (t thread) guarded() state {
	switch t.function() {
	case "do_wait":
		return state{reason: Child}
	case "hrtimer_nanosleep", "do_nanosleep":
		return state{reason: Sleeping}
	case "locks_lock_inode_wait", "flock_lock_inode_wait", "posix_lock_inode_wait", "fcntl_setlk":
		return t.lock("a file", state{reason: Lock})
	case "pipe_read", "anon_pipe_read", "pipe_write", "anon_pipe_write", "pipe_wait_readable", "pipe_wait_writable":
		return state{reason: Pipe}
	case "inet_csk_accept":
		return state{reason: Connection}
	}
	return state{reason: Unknown, on: "the kernel does not let the sandbox's user see it", denied: true}
}

// callStates are the states of system calls whose arguments do not matter.
var callStates = map[callKind]state{
	callSleep: {reason: Sleeping}, callWait: {reason: Child},
	callFutex:  {reason: Mutex, on: "another thread or process (futex)"},
	callSignal: {reason: Other, on: "a signal"}, callOpen: {reason: Other, on: "the opening of a file"},
	callQueue: {reason: Other, on: "a message or a semaphore of another process"},
}

// explain returns the state of a thread in a system call.
func (t thread) explain(c call) state {
	switch {
	case c.number < 0:
		return state{reason: Unknown, on: "it sleeps outside of a system call"}
	case !c.wide:
		return state{reason: Unknown, on: "it is a program of 32 bits"}
	}
	fd := int32(c.args[0]) //nolint:gosec // as the kernel takes it
	kind := kindOf(c.number)
	switch kind {
	case callRead:
		return t.descriptor(fd, unix.POLLIN)
	case callWrite, callConnect:
		return t.descriptor(fd, unix.POLLOUT)
	case callPoll:
		return t.poll(c.args[0], c.args[1], int64(c.args[2]) >= 0 && int32(c.args[2]) >= 0) //nolint:gosec // as the kernel takes it
	case callPpoll:
		return t.poll(c.args[0], c.args[1], c.args[2] != 0)
	case callSelect:
		return t.selects(c.args)
	case callEpoll:
		return t.epoll(fd, int32(c.args[3]) >= 0) //nolint:gosec // as the kernel takes it
	case callEpoll2:
		return t.epoll(fd, c.args[3] != 0)
	case callFlock:
		return t.lock(t.link(fd), state{reason: Lock})
	case callFcntl:
		if c.args[1] == unix.F_SETLKW || c.args[1] == unix.F_OFD_SETLKW {
			return t.lock(t.link(fd), state{reason: Lock})
		}
	case callDisk:
		return state{reason: Disk, on: t.function()}
	case callRestart:
		if t.function() == "hrtimer_nanosleep" {
			return state{reason: Sleeping}
		}
		return state{reason: Unknown, on: "it was stopped meanwhile, and the kernel no longer says in which system call it is"}
	}
	now, known := callStates[kind]
	if !known {
		return state{reason: Unknown, on: fmt.Sprintf("system call %d", c.number)}
	}
	return now
}
