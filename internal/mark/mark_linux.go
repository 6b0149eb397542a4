package mark

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxEnviron is how far into an environment a mark is looked for.
const maxEnviron = 256 << 10

// Signal sends a signal to the processes of a user that have the mark, but to none
// with an excepted number and never to this process, and reports whether it found
// one. Signal 0 does nothing else. It reads environments with the rights of the
// calling thread.
func Signal(mark string, uid int, what syscall.Signal, except map[int]bool) (found bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	names, _ := dir.Readdirnames(-1) // as many as it can
	_ = dir.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err == nil && pid != os.Getpid() && !except[pid] && signalOne(pid, mark, uid, what) {
			found = true
		}
	}
	return found
}

func signalOne(pid int, mark string, uid int, what syscall.Signal) bool {
	// The descriptor keeps the number from meaning another process. If the process has
	// ended by then, the signal reaches no process.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return Has(pid, mark, uid) && unix.PidfdSendSignal(fd, what, nil, 0) == nil
}

// Has reports whether the environment of a process of a user has the mark.
func Has(pid int, mark string, uid int) bool {
	file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return false
	}
	// The owner is root if the process has more rights than its user.
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != uid {
		return false
	}
	environ, _ := io.ReadAll(io.LimitReader(file, maxEnviron))
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if string(variable) == mark {
			return true
		}
	}
	return false
}
