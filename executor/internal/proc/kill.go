package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KillTree kills a process and all that descends from it or is of its session.
// The caller makes sure that the process was not waited for. A process that left
// the session and lost its parents is found by KillMarked only.
//
// All are stopped before the first is killed: a stopped process starts no other
// and keeps its parent, and so the next round finds the processes that escaped the one before.
func KillTree(root int) {
	_ = unix.Kill(root, unix.SIGSTOP)
	stopped := map[int]Process{}
	for range 8 {
		if !stopDescendants(root, stopped) {
			break
		}
	}
	for pid, seen := range stopped {
		signal(pid, seen, unix.SIGKILL)
	}
	_ = unix.Kill(root, unix.SIGKILL)
}

// SignalTree sends a signal to a process and all that descends from it or is of its
// session, and returns their numbers. The caller makes sure that the process was not
// waited for.
func SignalTree(root int, what unix.Signal) (reached map[int]bool) {
	reached = map[int]bool{root: true}
	all := processes()
	_ = unix.Kill(root, what) // first, so that it does not see its children end
	for pid, seen := range all {
		if pid != root && descends(all, pid, root) && signal(pid, seen, what) {
			reached[pid] = true
		}
	}
	return reached
}

// stopDescendants stops the descendants of root that are not stopped yet, and tells
// whether there was anything.
func stopDescendants(root int, stopped map[int]Process) (found bool) {
	all := processes()
	for pid, seen := range all {
		if pid == root || stopped[pid].Begun == seen.Begun || !descends(all, pid, root) {
			continue
		}
		if signal(pid, seen, unix.SIGSTOP) {
			stopped[pid], found = seen, true
		}
	}
	return found
}

// KillYounger kills the processes in the process group of a leader that were
// started at since or later, but not the leader. since is a time as [Uptime]
// returns it.
func KillYounger(leader int, since time.Duration) {
	for pid, seen := range processes() {
		if pid != leader && seen.Group == leader && seen.startedSince(since) {
			signal(pid, seen, unix.SIGKILL)
		}
	}
}

// tick is the unit of times in /proc/PID/stat, on all that Go runs on.
const tick = 10 * time.Millisecond

// SignalYounger sends a signal to the processes that descend from root, or are of its
// session, and are in one of the process groups or were started later than since, but not to
// root, and reports whether there was one.
// since is a time as [Uptime] returns it; of a process that was started in the same
// hundredth of a second nothing is known. The caller makes sure that root was not waited
// for.
func SignalYounger(root int, groups []int, since time.Duration, what unix.Signal) (reached bool) {
	all := processes()
	for pid, seen := range all {
		if pid != root && (slices.Contains(groups, seen.Group) || seen.startedSince(since+tick)) && descends(all, pid, root) {
			reached = signal(pid, seen, what) || reached
		}
	}
	return reached
}

// Uptime returns how long ago the system started, suspended time included.
func Uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // fails for an unknown clock only
	return time.Duration(now.Nano())
}

// Never is a time, as [Uptime] returns them, that does not come.
const Never = time.Duration(-1)

// Deadline returns the time, as [Uptime] returns it, when a limit from a time on is over; Never
// where the limit is negative, or the time does not fit.
func Deadline(from, limit time.Duration) time.Duration {
	if until := from + limit; limit >= 0 && until >= 0 {
		return until
	}
	return Never
}

// Process describes a living process, from /proc. Its number and Begun together belong to
// no other.
type Process struct {
	Parent, Group, Session int
	Terminal               int           // the device number of its controlling terminal, 0 for none
	Foreground             int           // the process group in the foreground of that
	State                  byte          // such as 'S', as in proc_pid_stat(5)
	Begun                  string        // in ticks since the system started
	Ran                    time.Duration // on processors, all threads together
}

// startedSince reports whether the process was started at a time or later.
func (p Process) startedSince(since time.Duration) bool {
	ticks, err := strconv.ParseInt(p.Begun, 10, 64)
	return err == nil && time.Duration(ticks)*tick >= since.Truncate(tick)
}

// Age is for how long the process has lived; 0 where that is not known.
func (p Process) Age() time.Duration {
	begun := p.BegunAt()
	if begun == 0 {
		return 0
	}
	return Uptime() - begun
}

// Read returns what /proc says about a process; false where it is gone or dead.
func Read(pid int) (Process, bool) { return readProcess(pid) }

// Snapshot returns the living processes by their numbers. It is not of one moment.
func Snapshot() map[int]Process { return processes() }

// Descends reports whether a process of a snapshot descends from root or is of its session.
func Descends(all map[int]Process, pid, root int) bool { return descends(all, pid, root) }

func descends(all map[int]Process, pid, root int) bool {
	for range len(all) { // the snapshot is of no one moment and may hold a circle
		p, ok := all[pid]
		if !ok {
			return false
		}
		if p.Parent == root || p.Session == root {
			return true
		}
		pid = p.Parent
	}
	return false
}

// signal reaches a process if it still is the one that was seen.
func signal(pid int, seen Process, what unix.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProcess(pid); !ok || now.Begun != seen.Begun {
		return false
	}
	return unix.PidfdSendSignal(fd, what, nil, 0) == nil
}

// processes lists the living.
func processes() map[int]Process {
	all := map[int]Process{}
	for pid := range numbers() {
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	return all
}

// numbers yields the processes, and the inodes of their directories in /proc.
func numbers() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer func() { _ = unix.Close(dir) }()
		buf := make([]byte, 16<<10)
		for {
			n, err := unix.Getdents(dir, buf)
			if err != nil && !errors.Is(err, unix.EINTR) || err == nil && n == 0 {
				return
			}
			for left := buf[:max(n, 0)]; len(left) > 0; {
				inode := binary.NativeEndian.Uint64(left[unsafe.Offsetof(unix.Dirent{}.Ino):])
				length := binary.NativeEndian.Uint16(left[unsafe.Offsetof(unix.Dirent{}.Reclen):])
				name, _, _ := bytes.Cut(left[unsafe.Offsetof(unix.Dirent{}.Name):length], []byte{0})
				left = left[length:]
				if len(name) == 0 || name[0] < '0' || name[0] > '9' {
					continue
				}
				if pid, err := strconv.Atoi(string(name)); err == nil && !yield(pid, inode) {
					return
				}
			}
		}
	}
}

// maxStat is more than /proc/PID/stat has: 52 numbers and a name.
const maxStat = 2048

// readProcess reads /proc/PID/stat; false where the process is gone or dead.
func readProcess(pid int) (Process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	var buf [maxStat]byte
	n, err := unix.Read(fd, buf[:]) // which is all of it
	_ = unix.Close(fd)
	if err != nil {
		return Process{}, false
	}
	// The name, in parentheses, may hold anything.
	data := buf[:n]
	const needed = 20
	_, data, ok := bytes.Cut(data[max(bytes.LastIndexByte(data, ')'), 0):], []byte(" "))
	fields := bytes.SplitN(data, []byte(" "), needed+1)
	if !ok || len(fields) < needed || len(fields[0]) != 1 || bytes.ContainsAny(fields[0], "ZX") {
		return Process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	session, err3 := strconv.Atoi(string(fields[3]))
	terminal, _ := strconv.Atoi(string(fields[4]))
	foreground, _ := strconv.Atoi(string(fields[5]))
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	ran := time.Duration(user+system) * tick
	return Process{parent, group, session, terminal, foreground, fields[0][0], string(fields[needed-1]), ran}, err1 == nil && err2 == nil && err3 == nil
}
