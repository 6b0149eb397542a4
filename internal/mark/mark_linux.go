package mark

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxEnviron is how far into an environment a mark is looked for, firstEnviron the memory for the first part.
const (
	maxEnviron   = 256 << 10
	firstEnviron = 8 << 10
)

// execTime bounds how long processes are waited for that are just executing a program, and
// have no environment meanwhile; on a loaded machine they may be interrupted there.
const execTime = time.Second

// Signal sends a signal to the processes of a user that have the mark, but to none
// with an excepted number and never to this process, and reports whether it found
// one. Signal 0 does nothing else. It reads environments with the rights of the
// calling thread.
func Signal(mark string, uid int, what syscall.Signal, except map[int]bool) (found bool) {
	return SignalAny(map[string]bool{mark: true}, uid, what, except)
}

// SignalAny is Signal for the processes that have one of the marks.
func SignalAny(marks map[string]bool, uid int, what syscall.Signal, except map[int]bool) (found bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	names, _ := dir.Readdirnames(-1) // as many as it can
	_ = dir.Close()
	limit := time.Now().Add(execTime)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err == nil && pid != os.Getpid() && !except[pid] && signalOne(pid, marks, uid, what, limit) {
			found = true
		}
	}
	return found
}

func signalOne(pid int, marks map[string]bool, uid int, what syscall.Signal, limit time.Time) bool {
	// The descriptor keeps the number from meaning another process. If the process has
	// ended by then, the signal reaches no process.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return has(pid, marks, uid, limit) && unix.PidfdSendSignal(fd, what, nil, 0) == nil
}

// Has reports whether the environment of a process of a user has the mark.
func Has(pid int, mark string, uid int) bool {
	return has(pid, map[string]bool{mark: true}, uid, time.Time{})
}

// has is Has that waits until limit for a process that is executing a program.
func has(pid int, marks map[string]bool, uid int, limit time.Time) bool {
	environ, err := environOf(pid, uid)
	for err == nil && len(environ) == 0 && time.Now().Before(limit) && executing(pid) {
		<-time.After(time.Millisecond)
		environ, err = environOf(pid, uid)
	}
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if marks[string(variable)] {
			return true
		}
	}
	return false
}

// environOf returns the environment of a process of a user, in as few calls as possible: many may be read after an
// action.
func environOf(pid, uid int) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/environ", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	// The owner is root if the process has more rights than its user.
	if int(st.Uid) != uid {
		return nil, fs.ErrPermission
	}
	environ := make([]byte, 0, firstEnviron)
	for len(environ) < maxEnviron {
		environ = slices.Grow(environ, 1)
		n, err := unix.Read(fd, environ[len(environ):min(cap(environ), maxEnviron)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return environ, nil
		default:
			environ = environ[:len(environ)+n]
		}
	}
	return environ, nil
}

// executing reports whether a process has memory and no place for an environment in it
// (vsize and env_end of proc_pid_stat(5)), as between two programs.
func executing(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // from the third on
	return len(fields) > 48 && string(fields[20]) != "0" && string(fields[48]) == "0"
}
