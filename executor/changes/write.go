package changes

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/channel"
)

const (
	// recentWrite is how old the time of a change is at which no write is under way any more: a call takes less.
	recentWrite = time.Minute
	// maxWriteLooks of writeLook bound the time that is waited for a write, and maxAwaited the waits at a time. A busy machine
	// takes tens of milliseconds for nothing. A look that comes late counts once, so that a time without a processor is
	// not taken for a write that hangs.
	writeLook     = 10 * time.Millisecond
	maxWriteLooks = 20
	maxAwaited    = 8
)

var awaited atomic.Int32

// awaitWrite waits for the end of a write(2) to an open file with the attributes a, for maxWriteLooks at most, and then
// fails with errChanged. A write sets the file's times when it begins, and its bytes come later: between two looks at the attributes
// that are equal, a reader may find half of it. It has the inode's lock all the time, which looking for a hole takes too
// (ext4, tmpfs, Btrfs, overlayfs on them), as reading does on XFS. So a write that began before is over, and one that
// begins afterwards has another time.
func awaitWrite(fd int, a *attr) error {
	if time.Now().UnixNano()-a.ctime > int64(recentWrite) {
		return nil
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if awaited.Add(1) > maxAwaited {
		awaited.Add(-1)
		_ = unix.Close(own)
		return errChanged
	}
	over := make(chan struct{})
	// Whoever holds the lock decides how long this takes, such as a program whose bytes come from a file system that hangs;
	// the kernel knows no way to give up. So nothing waits for it after maxWriteLooks.
	go func() {
		defer close(over)
		defer awaited.Add(-1)
		var b [1]byte
		_, _ = unix.Seek(own, 0, unix.SEEK_HOLE) // one that fails has waited too
		_, _ = unix.Pread(own, b[:], 0)
		_ = unix.Close(own)
	}()
	for range maxWriteLooks {
		if channel.ClosedWithin(over, writeLook) {
			return nil
		}
	}
	return errChanged
}
