package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/identity"
	marks "github.com/actiond/actiond/internal/mark"
)

// Living returns the living processes that descend from one of sessions or are of its session, have the mark, or are those of a user
// that is not the user of this process, and when they were started, in the unit of the kernel, as [Uptime] returns it.
// Sessions, this process, what was started before it, and idle with all that descends from it are left out.
func Living(sessions, idle []int, mark string, user *identity.User) map[int]time.Duration {
	all := processes()
	other := user.Credential() != nil
	self := begunAt(all[os.Getpid()])
	below := func(pid int, roots []int) bool {
		return slices.ContainsFunc(roots, func(root int) bool { return descends(all, pid, root) })
	}
	living := map[int]time.Duration{}
	var unmarked []int
	for pid, p := range all {
		begun := begunAt(p)
		switch {
		case pid == os.Getpid(), begun < self, slices.Contains(sessions, pid), slices.Contains(idle, pid), below(pid, idle):
		case other && ownerOf(pid) == user.EffectiveUID(), below(pid, sessions):
			living[pid] = begun
		default:
			unmarked = append(unmarked, pid)
		}
	}
	_ = user.Do(func() error { // an error says that no environment could be read
		for _, pid := range unmarked {
			if marks.Has(pid, mark, user.EffectiveUID()) {
				living[pid] = begunAt(all[pid])
			}
		}
		return nil
	})
	return living
}

// begunAt returns when a process was started; 0 where that is unknown.
func begunAt(p Process) time.Duration {
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
