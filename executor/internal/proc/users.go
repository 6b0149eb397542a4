package proc

import (
	"os"
	"syscall"

	"github.com/actiond/actiond/internal/identity"
)

// Users returns the users and groups that processes of this system have now. A process
// that has more rights than its user counts as root's.
func Users() []*identity.User {
	type ids struct{ user, group uint32 }
	known := map[ids]bool{}
	var users []*identity.User
	entries, _ := os.ReadDir("/proc") // as many as it can
	for _, entry := range entries {
		if entry.Name()[0] < '1' || entry.Name()[0] > '9' {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		if of := (ids{stat.Uid, stat.Gid}); !known[of] {
			known[of] = true
			users = append(users, &identity.User{UID: of.user, GID: of.group, Groups: []uint32{of.group}})
		}
	}
	return users
}
