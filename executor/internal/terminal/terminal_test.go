package terminal_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/internal/terminal"
)

// The runtime's poller is not told of the slave, and wakes a reader of the master.
func TestOpenPolls(t *testing.T) {
	t.Parallel()
	master, slave, err := terminal.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = master.Close(), slave.Close() }()
	if err := slave.SetReadDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("the slave: got %v, want %v", err, os.ErrNoDeadline)
	}
	if err := master.SetReadDeadline(time.Now()); err != nil {
		t.Errorf("the master: %v", err)
	}
	if _, err := master.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of the master: got %v, want %v", err, os.ErrDeadlineExceeded)
	}
}
