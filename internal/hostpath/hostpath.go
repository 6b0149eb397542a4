// Package hostpath opens files of this machine by paths on which an agent may
// have put symbolic links, for instance in a directory that a sandbox mounts.
//
// Each link on the way is shown to the caller before it is followed, and is
// read from the same descriptor that it was judged by. The result is an open
// file, which stays the same file whatever is renamed or replaced afterwards.
package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// maxLinks is how many links are followed on the way to a file, as by the kernel
// (path_resolution(7)).
const maxLinks = 40

// ErrLink says that there is a link on the way that must not be followed.
var ErrLink = errors.New("there is a symbolic link on the way")

// Link is a symbolic link on the way to a file.
type Link struct {
	Path   string // absolute, without a link before its last element
	UID    int    // its owner
	Target string
	// Kernel says that it is in procfs, where no agent makes links. The owner of
	// /proc/self is that of whatever process looked last.
	Kernel bool

	above []id
}

// Below reports whether the link lies below a directory, by whatever path that was
// found.
func (l Link) Below(dir fs.FileInfo) bool { return contains(l.above, dir) }

// NoLinks refuses every link with [ErrLink].
func NoLinks(l Link) error { return fmt.Errorf("%w: %s", ErrLink, l.Path) }

// OwnLinks refuses links that neither root nor the user of this process owns,
// with [ErrLink].
func OwnLinks(l Link) error {
	if l.Kernel || l.UID == 0 || l.UID == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("%w: %s belongs to user %d and leads to %s", ErrLink, l.Path, l.UID, l.Target)
}

// File is an open file or directory, without permission to read or write it.
type File struct {
	file  *os.File
	path  string
	above []id
}

// Path returns the path of the file, without links, as it was when it was opened.
func (f *File) Path() string { return f.path }

// Stat returns the present attributes of the file.
func (f *File) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Below reports whether the file lay below a directory when it was opened.
func (f *File) Below(dir fs.FileInfo) bool { return contains(f.above, dir) }

// Reader opens the file for reading. It refuses FIFOs and devices of users other
// than root and that of this process: opening one may wait forever.
func (f *File) Reader() (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if own := ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()); !own && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: f.path, Err: errors.New("it is not a regular file, and another user's")}
	}
	return f.reopen()
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// id distinguishes a file from all others of this machine.
type id struct{ dev, ino uint64 }

func idOf(stat *syscall.Stat_t) id {
	return id{uint64(stat.Dev), stat.Ino} //nolint:unconvert // a Dev has another type on other systems
}

// contains reports whether dir is one of the directories above.
func contains(above []id, dir fs.FileInfo) bool {
	stat, ok := dir.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	return slices.Contains(above, idOf(stat))
}
