package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ModeBits are the bits of a mode that chmod sets.
const ModeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// ErrInPlace says that a file cannot be replaced by a new one, and can perhaps be
// written where it is.
var ErrInPlace = errors.New("the file can only be written in place")

// InPlace returns ErrInPlace instead of an error that writing in place may avoid: of a
// directory that refuses a new file, or of a file that is mounted by itself.
func InPlace(err error) error {
	for _, refusal := range []error{unix.EACCES, unix.EPERM, unix.EROFS, unix.EBUSY, unix.EXDEV, unix.ENAMETOOLONG} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %w", ErrInPlace, err)
		}
	}
	return err
}

// HasAttributes reports whether a file has extended attributes that a new file would not
// get by itself. The system gives every file a security label. It is true in doubt.
func HasAttributes(f *os.File) bool {
	conn, err := f.SyscallConn() // Fd would make reads block, which some files of /proc do
	if err != nil {
		return true
	}
	var names [256]byte
	n := 0
	if failed := conn.Control(func(fd uintptr) { n, err = unix.Flistxattr(int(fd), names[:]) }); failed != nil {
		return true
	}
	if errors.Is(err, unix.ERANGE) {
		return true
	}
	return err == nil && n > 0 && string(names[:n]) != "security.selinux\x00"
}

// Give gives a file to a user and a group where it is not theirs already.
func Give(f *os.File, uid, gid int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid && int(stat.Gid) == gid {
		return nil
	}
	return f.Chown(uid, gid)
}

// Take gives the file its name in the directory with the descriptor dir, in which its
// temporary name is too, unless another file has it.
func (f *Temp) Take(dir int, name string) error {
	err := unix.Renameat2(dir, f.name, dir, name, unix.RENAME_NOREPLACE)
	if err == nil {
		f.Renamed()
		return nil
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("naming %q: %w", name, err)
	}
	// This file system cannot rename without replacing. A link does not replace either, and Discard removes the old name.
	if err := unix.Linkat(dir, f.name, dir, name, 0); err != nil {
		return fmt.Errorf("naming %q: %w", name, err)
	}
	return nil
}
