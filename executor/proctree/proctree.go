// Package proctree ends a process with all that it started.
package proctree

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kill kills a process and all that descends from it or is of its session.
// The caller makes sure that the process was not waited for. What left the
// session and lost its parents cannot be found; the end of the sandbox ends it.
//
// Each round kills what the one before let escape: a process that was found
// cannot start another one any more.
func Kill(root int) {
	_ = unix.Kill(root, unix.SIGSTOP) // no more children, and those there keep their parent
	for range 8 {
		if !killDescendants(root) {
			break
		}
	}
	_ = unix.Kill(root, unix.SIGKILL)
}

// process is what /proc says of a process.
type process struct{ parent, session int }

// killDescendants kills what descends from root, and tells whether there was
// anything.
func killDescendants(root int) (found bool) {
	all := processes()
	for pid := range all {
		if pid != root && descends(all, pid, root) && killPID(pid, all[pid]) {
			found = true
		}
	}
	return found
}

func descends(all map[int]process, pid, root int) bool {
	for range len(all) { // the snapshot is of no one moment and may hold a circle
		p, ok := all[pid]
		if !ok {
			return false
		}
		if p.parent == root || p.session == root {
			return true
		}
		pid = p.parent
	}
	return false
}

// killPID kills a process if it still is the one that was seen.
func killPID(pid int, seen process) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProcess(pid); !ok || now != seen {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes lists the living.
func processes() map[int]process {
	all := map[int]process{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// readProcess reads /proc/PID/stat; false where the process is gone or dead.
func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 4 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return process{parent, session}, err1 == nil && err2 == nil
}
