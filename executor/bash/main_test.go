package bash_test

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/mark"
)

// treeMark is in the environment of each shell that the tests start.
var treeMark = proc.NewMark()

// TestMain keeps descriptors that the caller of go test left open from the shells,
// as the server does: which numbers a shell uses depends on them.
func TestMain(m *testing.M) {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	code := m.Run()
	// Programs that ignore the end of their shell, and those of killed shells, live on.
	for _, uid := range []int{os.Geteuid(), nobody} {
		mark.Kill(treeMark, uid)
	}
	os.Exit(code)
}
