package edit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func openKeptDir(root *os.Root) (*os.File, error) {
	if err := root.Mkdir(keptDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := root.OpenFile(keptDir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := dir.Chmod(0o777); err != nil { // the one above is closed
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// findKept notes which entries have a kept file, and removes the kept files without an entry.
func (h *history) findKept() {
	entries := make(map[string]*saved)
	for key, list := range h.paths {
		for _, s := range list {
			entries[entryName(key, s)] = s
		}
	}
	_ = eachNameIn(h.kept, func(name string) { // it is tried at the next start, otherwise
		if s := entries[name]; s != nil {
			s.kept = true
		} else {
			_ = h.root.Remove(keptDir + "/" + name) // harmless if it stays
		}
	})
}

// keep puts the bytes of a file into the directory of kept files and notes in the entry where.
func (h *history) keep(en *entry, f *os.File, info fs.FileInfo, link bool) error {
	size := info.Size()
	switch {
	case size+entryOverhead > h.budget:
		return fmt.Errorf("a file of %d bytes is larger than the whole history may be", size)
	case h.kept == nil: // the history is in memory
		data := make([]byte, size)
		if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		en.before, en.data = hashOf(data), data
		return nil
	}
	name := rand.Text() + ".tmp"
	if link {
		err := unix.Linkat(unix.AT_FDCWD, fdPath(f), int(h.kept.Fd()), name, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			en.before, en.kept, en.size = versionOf(info), name, size
			return nil
		}
	}
	return h.keepCopy(en, io.NewSectionReader(f, 0, h.budget), name)
}

func (h *history) keepCopy(en *entry, from io.Reader, name string) error {
	to, err := h.openAt(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return fmt.Errorf("keeping a copy: %w", err)
	}
	en.kept = name
	n, err := io.Copy(to, from)
	info, failed := to.Stat()
	if err = errors.Join(err, failed, to.Close()); err != nil {
		h.discard(en)
		return fmt.Errorf("keeping a copy: %w", err)
	}
	en.before, en.size = versionOf(info), n
	return nil
}

// openKept opens the kept bytes of an entry and returns their size. It runs inside as.
func (h *history) openKept(en *entry) (f *os.File, size int64, err error) {
	if f, err = h.openAt(en.kept, unix.O_RDONLY); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || versionOf(info) != en.before) {
		err = syscall.ESTALE
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// openAt opens a file in the directory of kept files.
func (h *history) openAt(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(h.kept.Fd()), name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// discard removes the kept file of an entry that was not pushed.
func (h *history) discard(en *entry) {
	if en != nil && en.kept != "" {
		_ = unix.Unlinkat(int(h.kept.Fd()), en.kept, 0)
		en.kept = ""
	}
}

// versionOf tells one version of a kept file from another. The agent may still write to a file that was linked: it changes
// only text that it could have written itself.
func versionOf(info fs.FileInfo) hash {
	return hash(fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano()))
}

// fdPath is a path to an open file, whatever its names.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
