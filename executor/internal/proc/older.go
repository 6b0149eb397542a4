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

// Older returns the living processes that were started before a time as [Uptime] returns it, or in the same hundredth of
// a second, and that descend from one of roots or are of its session, have the mark, or are those of a user that is not the
// user of this process. Roots, this process and what was started before it are left out.
func Older(roots []int, mark string, user *identity.User, since time.Duration) []int {
	all := processes()
	other := user.Credential() != nil
	self := ticksOf(all[os.Getpid()])
	var older, unmarked []int
	for pid, p := range all {
		begun := ticksOf(p)
		switch {
		case slices.Contains(roots, pid), pid == os.Getpid(), begun < self, time.Duration(begun)*tick > since:
		case other && ownerOf(pid) == user.EffectiveUID(),
			slices.ContainsFunc(roots, func(root int) bool { return descends(all, pid, root) }):
			older = append(older, pid)
		default:
			unmarked = append(unmarked, pid)
		}
	}
	_ = user.Do(func() error { // an error says that no environment could be read
		for _, pid := range unmarked {
			if marks.Has(pid, mark, user.EffectiveUID()) {
				older = append(older, pid)
			}
		}
		return nil
	})
	slices.Sort(older)
	return older
}

// ticksOf returns when a process was started; 0 where that is unknown.
func ticksOf(p Process) int64 {
	ticks, _ := strconv.ParseInt(p.Begun, 10, 64)
	return ticks
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
