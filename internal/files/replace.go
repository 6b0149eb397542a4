//go:build linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// Replacement is the new content of a file.
type Replacement struct {
	Dir   Dir    // has the file
	Above string // the absolute path of Dir, "" for [System]
	Name  string
	// Old is the file that is replaced, whose owner the new one gets; nil if it does not exist.
	Old fs.FileInfo
	// Mode is the mode of the file after that. A new one has it less the umask.
	Mode fs.FileMode
	// KeepInode says that the file has more than its bytes, such as other names.
	KeepInode bool
	// Temp has the content already. Without it, Fill writes the content to an empty file.
	Temp *Temp
	Fill func(*os.File) error
	// Flush brings the complete file to the disk, and Check looks at the old one just before it is replaced; nil does
	// nothing.
	Flush func(*os.File) error
	Check func() error
	// InPlace writes the content over the old file.
	InPlace func() error
}

// Replace replaces a file by a temporary one beside it that takes its name, so that there
// is the old file or the new one at any moment; and in place where that would lose a link,
// an owner or an attribute, or where the directory refuses.
func (l *Ledger) Replace(r Replacement) error {
	if !r.KeepInode {
		if err := l.swap(r); r.Old == nil || !errors.Is(InPlace(err), ErrInPlace) {
			return err
		}
	}
	return r.InPlace()
}

// swap gives a new file the name of the old one.
func (l *Ledger) swap(r Replacement) (err error) {
	t := r.Temp
	if t == nil {
		mode := r.Mode
		if r.Old != nil {
			mode = 0o600 // until it has its owner
		}
		if t, err = l.Create(r.Dir, r.Above, filepath.Dir(r.Name), mode); err != nil {
			return err
		}
		defer t.Discard()
	}
	if r.Old != nil {
		stat, ok := r.Old.Sys().(*syscall.Stat_t)
		if !ok || Give(t.File, int(stat.Uid), int(stat.Gid)) != nil {
			return ErrInPlace // without the right to give files away, only the file itself keeps its owner
		}
	}
	if r.Temp == nil {
		if err := r.Fill(t.File); err != nil {
			return err
		}
	}
	if r.Old != nil { // after writing, which takes the setuid bit
		if err := t.Chmod(r.Mode & ModeBits); err != nil {
			return err
		}
	}
	if r.Flush != nil {
		if err := r.Flush(t.File); err != nil {
			return err
		}
	}
	if r.Temp == nil {
		if err := t.Close(); err != nil {
			return err
		}
	}
	if r.Check != nil {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return t.Rename(r.Name) // which fails in a sticky directory, and for a file that is mounted by itself
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
		f.renamed()
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
