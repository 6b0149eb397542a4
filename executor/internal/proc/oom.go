package proc

import (
	"fmt"
	"os"

	"github.com/actiond/actiond/executor/internal/proc/reexec"
	"github.com/actiond/actiond/internal/identity"
)

// RaiseOOMScore sets the score as [Start] does, for a process that changes its score
// itself: it goes before this one when memory runs out (proc(5), oom_score_adj). Where it
// cannot be done the kernel goes by size alone.
func RaiseOOMScore(pid int, user *identity.User) {
	_ = user.Do(func() error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(reexec.OOMScore), 0)
	})
}
