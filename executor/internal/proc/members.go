package proc

import (
	"slices"

	"github.com/actiond/actiond/internal/identity"
	marks "github.com/actiond/actiond/internal/mark"
)

// Members returns the processes that descend from root or are of its session, and
// those of the user that have the mark unless that is "", but not root, in ascending order. As with
// [KillMarked], a process decides for itself whether it has the mark.
func Members(root int, mark string, user *identity.User) []int {
	all := processes()
	var members, others []int
	for pid := range all {
		switch {
		case pid == root:
		case descends(all, pid, root):
			members = append(members, pid)
		default:
			others = append(others, pid)
		}
	}
	if mark == "" {
		others = nil
	}
	_ = user.Do(func() error { // an error says that no environment could be read
		for _, pid := range others {
			if marks.Has(pid, mark, user.EffectiveUID()) {
				members = append(members, pid)
			}
		}
		return nil
	})
	slices.Sort(members)
	return members
}
