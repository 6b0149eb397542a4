package bash_test

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain keeps descriptors that the caller of go test left open from the shells,
// as the server does: which numbers a shell uses depends on them.
func TestMain(m *testing.M) {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	os.Exit(m.Run())
}
