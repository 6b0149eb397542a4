package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Children returns the processes whose parent is this one, which may have ended.
func Children() (list []int) {
	own := os.Getpid()
	for pid, p := range processes() {
		if p.Parent == own {
			list = append(list, pid)
		}
	}
	return list
}

// Reap waits for a child of this process that no other function waits for.
func Reap(pid int) {
	AwaitExit(pid)
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
