package proc

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
)

// maxEnviron is how far into an environment a mark is looked for.
const maxEnviron = 256 << 10

// NewMark returns a variable for the environment of a process that is to be
// started. All that descends from it has the variable too, whatever session it is
// in and whoever its parent is by now, and KillMarked finds it by that.
func NewMark() string { return "ACTIOND_TREE=" + rand.Text() }

// KillMarked kills the processes of a user that have a mark. as gives a function
// the user's rights to files, without which environments cannot be read.
//
// A process can take the mark off itself, so this is for what was left behind and
// not against what hides. It can also put the mark on, and then brings death upon
// itself: nobody's process is looked at but the user's own, and never this one.
func KillMarked(mark string, user *identity.User) {
	for range 8 { // what was found may have started another one before it died
		if !SignalMarked(mark, user, unix.SIGKILL, nil) {
			break
		}
	}
}

// SignalMarked sends a signal to the processes that KillMarked kills, but for those with
// the excepted numbers, and tells whether there was one. Signal 0 does nothing else.
func SignalMarked(mark string, user *identity.User, what unix.Signal, except map[int]bool) (found bool) {
	_ = user.Do(func() error { // an error says that the rights could not be had, so nothing was found
		found = signalMarked(mark, user.EffectiveUID(), what, except)
		return nil
	})
	return found
}

// signalMarked is SignalMarked for the processes of a user id, with the rights of
// this thread.
func signalMarked(mark string, uid int, what unix.Signal, except map[int]bool) (found bool) {
	environ := make([]byte, maxEnviron)
	for pid := range processes() {
		if pid != os.Getpid() && !except[pid] && signalIfMarked(pid, mark, uid, environ, what) {
			found = true
		}
	}
	return found
}

func signalIfMarked(pid int, mark string, uid int, environ []byte, what unix.Signal) bool {
	// While the process that the descriptor means lives, the number is its own;
	// and if it does not live any more, the signal reaches nobody.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return hasMark(pid, mark, uid, environ) && unix.PidfdSendSignal(fd, what, nil, 0) == nil
}

// hasMark tells whether the environment of a process of a user has a mark. environ
// takes the environment.
func hasMark(pid int, mark string, uid int, environ []byte) bool {
	file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return false
	}
	// The owner is root's where the process was given more rights than its user's.
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != uid {
		return false
	}
	n, _ := io.ReadFull(file, environ)
	return marked(environ[:n], mark)
}

func marked(environ []byte, mark string) bool {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if string(variable) == mark {
			return true
		}
	}
	return false
}
