package proctree

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
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
func KillMarked(mark string, uid int, as func(work func() error) error) {
	_ = as(func() error { // an error says that the rights could not be had, so nothing was found
		for range 8 { // what was found may have started another one before it died
			if !killMarked(mark, uid) {
				break
			}
		}
		return nil
	})
}

// killMarked tells whether there was anything.
func killMarked(mark string, uid int) (found bool) {
	environ := make([]byte, maxEnviron)
	for pid := range processes() {
		if pid != os.Getpid() && killIfMarked(pid, mark, uid, environ) {
			found = true
		}
	}
	return found
}

func killIfMarked(pid int, mark string, uid int, environ []byte) bool {
	// While the process that the descriptor means lives, the number is its own;
	// and if it does not live any more, the signal reaches nobody.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
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
	return marked(environ[:n], mark) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

func marked(environ []byte, mark string) bool {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if string(variable) == mark {
			return true
		}
	}
	return false
}
