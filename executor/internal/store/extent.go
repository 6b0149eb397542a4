package store

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extents are those of a file from a position on, see FS_IOC_FIEMAP in linux/fiemap.h.
type extents struct {
	start, length                  uint64 // in bytes
	flags, mapped, count, reserved uint32
	extents                        [128]extent
}

type extent struct {
	logical, physical, length, _, _ uint64
	flags, _, _, _                  uint32
}

const (
	ioctlFiemap = 0xc020660b
	// The flags of extents: the last one of the file, one that reads as zeros, one that others have too.
	extentLast      = 0x1
	extentUnwritten = 0x800
	extentShared    = 0x2000
)

func (e *extents) read(f *os.File, start uint64) bool {
	*e = extents{start: start, length: ^uint64(0) - start, count: uint32(len(e.extents))}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlFiemap, uintptr(unsafe.Pointer(e))) //nolint:gosec // the kernel fills it
	return errno == 0
}

// shareAll reports whether two clones of one size have the same blocks at the same places, and so the same content: nothing writes to clones, and
// blocks that files share are never overwritten. Compressed blocks and those that the file system keeps elsewhere count as others, since
// their numbers do not tell all.
func shareAll(a, b *os.File) bool {
	var x, y, again extents
	for start := uint64(0); ; {
		// Both look the same also if the first file is moved on the disk and the second one to its place, and then the first one
		// does no longer.
		if !x.read(a, start) || !y.read(b, start) || !again.read(a, start) || x != y || x != again {
			return false
		}
		all := x.extents[:x.mapped]
		for _, e := range all {
			end := e.logical + e.length
			if e.flags&^(extentLast|extentUnwritten) != extentShared || end <= start {
				return false
			}
			start = end
		}
		if len(all) == 0 || all[len(all)-1].flags&extentLast != 0 {
			return true
		}
	}
}
