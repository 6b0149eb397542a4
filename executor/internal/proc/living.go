package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
	marks "github.com/actiond/actiond/internal/mark"
)

// Scan finds the processes of the agent, again and again. Its zero value is ready; its methods may not be called
// concurrently.
type Scan struct {
	// others are processes that never become the agent's, since they were started before this one, by their numbers:
	// the inodes of their directories in /proc. Another process with the number has another inode, and so has the
	// same one after the kernel forgot the directory.
	others map[int]uint64
	// begun is when this process was started; nil before the first scan.
	begun *time.Duration
}

// Living returns the living processes that descend from one of sessions or are of its session, have the mark, or are
// those of a user that is not the user of this process, and when they were started, in the unit of the kernel, as
// [Uptime] returns it. Sessions, this process, those that were started before it, and idle with all that descends
// from it are left out.
func (s *Scan) Living(sessions, idle []int, mark string, user *identity.User) map[int]time.Duration {
	self := os.Getpid()
	all := s.younger(self)
	other := user.Credential() != nil
	belowIdle, belowSessions := descendants(all, idle), descendants(all, sessions)
	living := map[int]time.Duration{}
	var unmarked []int
	for pid, p := range all {
		switch {
		case slices.Contains(sessions, pid), slices.Contains(idle, pid), belowIdle[pid]:
		case other && ownerOf(pid) == user.EffectiveUID(), belowSessions[pid]:
			living[pid] = p.BegunAt()
		default:
			unmarked = append(unmarked, pid)
		}
	}
	_ = user.Do(func() error { // an error says that no environment could be read
		for _, pid := range unmarked {
			if marks.Has(pid, mark, user.EffectiveUID()) {
				living[pid] = all[pid].BegunAt()
			}
		}
		return nil
	})
	return living
}

// younger returns the living processes that were started after this one.
func (s *Scan) younger(self int) map[int]Process {
	if s.begun == nil {
		own, _ := readProcess(self)
		s.begun = new(own.BegunAt())
	}
	others := make(map[int]uint64, len(s.others))
	younger := map[int]Process{}
	for pid, inode := range numbers() {
		if pid == self {
			continue
		}
		if known, ok := s.others[pid]; ok && known == inode {
			others[pid] = inode
			continue
		}
		p, ok := readProcess(pid)
		switch {
		case !ok:
		case p.BegunAt() < *s.begun:
			others[pid] = inode
		default:
			younger[pid] = p
		}
	}
	s.others = others
	return younger
}

// descendants returns the processes that descend from one of roots or are of its session, in time proportional to all:
// there may be many, in long chains.
func descendants(all map[int]Process, roots []int) map[int]bool {
	below := make(map[int]bool, len(all)) // of those that were looked at
	if len(roots) == 0 {
		return below
	}
	isRoot := make(map[int]bool, len(roots))
	for _, root := range roots {
		isRoot[root] = true
	}
	for pid := range all {
		var chain []int
		var found bool
		for {
			p, ok := all[pid]
			known, seen := below[pid]
			if found = seen && known || ok && (isRoot[p.Parent] || isRoot[p.Session]); found || seen || !ok {
				break
			}
			below[pid] = false // ends a circle, which a snapshot of no one moment may hold
			chain = append(chain, pid)
			pid = p.Parent
		}
		if found {
			below[pid] = true
			for _, child := range chain {
				below[child] = true
			}
		}
	}
	return below
}

// BegunAt returns when the process was started, as [Uptime] does; 0 where that is unknown.
func (p Process) BegunAt() time.Duration {
	ticks, _ := strconv.ParseInt(p.Begun, 10, 64)
	return time.Duration(ticks) * tick
}

// ownerOf returns the effective user of a process, -1 where it is unknown.
func ownerOf(pid int) int {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return -1
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// Starts tells whether processes were started. Its methods may not be called concurrently.
type Starts struct {
	loads     *os.File // nil where the kernel does not tell
	last, buf [64]byte
}

// NewStarts returns a Starts, which the caller closes.
func NewStarts() *Starts {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return &Starts{}
	}
	var system unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &system) != nil || int64(system.Type) != unix.PROC_SUPER_MAGIC { //nolint:unconvert // of another size elsewhere
		_ = f.Close() // it is that of lxcfs, say, which is late
		return &Starts{}
	}
	return &Starts{loads: f}
}

// Close releases the descriptor. Since returns true then.
func (s *Starts) Close() {
	if s.loads != nil {
		_ = s.loads.Close() // it was only read
		s.loads = nil
	}
}

// Since reports whether a process may have been started since the last call: a process or a thread, in the namespace of
// this one. It takes one system call.
func (s *Starts) Since() bool {
	if s.loads == nil {
		return true
	}
	n, _ := s.loads.ReadAt(s.buf[:], 0) // an error is the end of the file
	// 0.20 0.18 0.12 1/80 11206 (proc_loadavg(5)): the last number is that of the process
	number := bytes.TrimSuffix(s.buf[bytes.LastIndexByte(s.buf[:n], ' ')+1:n], []byte("\n"))
	if len(number) == 0 || string(number) == "0" { // as gVisor has it
		return true
	}
	var now [64]byte
	copy(now[:], number)
	started := now != s.last
	s.last = now
	return started
}
