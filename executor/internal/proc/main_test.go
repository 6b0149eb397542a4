package proc_test

import (
	"os"
	"syscall"
	"testing"
)

// TestMain lets other users read what tests write, whatever umask the caller has.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	os.Exit(m.Run())
}
