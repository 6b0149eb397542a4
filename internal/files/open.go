//go:build linux

// Package files opens, makes and replaces files in directories that an agent may change.
//
// [Open] opens a file that a client or the agent named. The rights of the calling
// thread decide which; but every thread of this process may read the files of procfs
// that describe the process itself, whatever its user, and procfs lets a thread with
// root's effective user id change settings of the kernel. Both are refused with
// EACCES, by the open file and not by its name.
//
// [Ledger.Create] makes a file under a temporary name, which takes the place of
// another file once it is complete. The names are recorded before the files are made,
// so that the next process removes those that a crash left. A file that merely has
// such a name is never removed: the agent may have made it, or a link of that name.
//
// [OpenNonBlocking] and [NonBlockingReader] never wait. A limit in time does not help
// against blocking calls: a name may become a FIFO at any moment, and some files of
// the kernel, such as /proc/kmsg, are regular by their mode and block like a pipe.
package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Open opens a file as [os.OpenFile] does. It follows no link of procfs that stands
// for an open file, such as /proc/self/fd/0 and /dev/stdin, which leads past the
// permissions of directories; Linux before 5.6 does follow those.
func Open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return openat(unix.AT_FDCWD, name, name, flag, perm)
}

// OpenNoFollow is [Open] of a file that exists, whose name is no symbolic link. It waits
// neither for the other end of a FIFO nor for the holder of a lease, and a terminal does
// not become that of this process. The caller checks the type of the file.
func OpenNoFollow(name string, flag int) (*os.File, error) {
	return Open(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// OpenAt is [Open] of a file in an open directory, to read it.
func OpenAt(dir *os.File, name string, flag int) (*os.File, error) {
	return openat(int(dir.Fd()), name, filepath.Join(dir.Name(), name), flag, 0)
}

func openat(dir int, name, shown string, flag int, perm fs.FileMode) (*os.File, error) {
	fd, err := open(dir, name, flag, perm)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: shown, Err: err}
	}
	if err := check(fd, flag); err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: shown, Err: err}
	}
	return os.NewFile(uintptr(fd), shown), nil
}

// Check is the check of [Open] for a file that was opened otherwise, with flag.
func Check(f *os.File, flag int) error {
	conn, err := f.SyscallConn() // Fd would make reads block
	if err != nil {
		return err
	}
	var refused error
	if err := conn.Control(func(fd uintptr) { refused = check(int(fd), flag) }); err != nil {
		return err
	}
	if refused != nil {
		return &fs.PathError{Op: "open", Path: f.Name(), Err: refused}
	}
	return nil
}

// SHA256 returns the hash of the first size bytes of a file, which may grow meanwhile, in
// hexadecimal. It stops with the error that ended returns; nil never ends it.
func SHA256(f *os.File, size int64, ended func() error) (string, error) {
	digest, in := sha256.New(), io.NewSectionReader(f, 0, size)
	buf := make([]byte, min(size+1, 32<<10)) // one byte more shows the end; larger ones leave the cache
	for at := int64(0); ; {
		n, err := in.ReadAt(buf, at)
		_, _ = digest.Write(buf[:n]) // never fails
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(digest.Sum(nil)), nil
		case err == nil && ended != nil:
			err = ended()
		}
		if err != nil {
			return "", err
		}
	}
}

// hasOpenat2 reports whether the kernel, and the sandbox's filter of system calls, has
// openat2.
var hasOpenat2 = sync.OnceValue(func() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
})

func open(dir int, name string, flag int, perm fs.FileMode) (fd int, err error) {
	flag |= unix.O_CLOEXEC | unix.O_LARGEFILE
	how := &unix.OpenHow{Flags: uint64(flag), Resolve: unix.RESOLVE_NO_MAGICLINKS} //nolint:gosec // flags are not negative
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(perm.Perm())
	}
	for {
		if hasOpenat2() {
			fd, err = unix.Openat2(dir, name, how)
		} else {
			fd, err = unix.Openat(dir, name, flag, uint32(perm.Perm()))
		}
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// check refuses a file of procfs that is open for writing or describes this process.
func check(fd, flag int) error {
	if on, err := onProcfs(func(st *unix.Statfs_t) error { return unix.Fstatfs(fd, st) }); err != nil || !on {
		return err
	}
	if flag&unix.O_ACCMODE != unix.O_RDONLY {
		return unix.EACCES
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || describesSelf(path) {
		return unix.EACCES
	}
	return nil
}

func onProcfs(statfs func(*unix.Statfs_t) error) (bool, error) {
	var st unix.Statfs_t
	if err := statfs(&st); err != nil {
		return false, err
	}
	return st.Type == unix.PROC_SUPER_MAGIC, nil
}

// describesSelf reports whether a path on procfs, which has no links, leads to this
// process or one of its threads. It is true in doubt.
func describesSelf(path string) bool {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		mount := path[:end]
		on, err := onProcfs(func(st *unix.Statfs_t) error { return unix.Statfs(mount, st) })
		if err != nil {
			return true
		}
		if !on {
			continue
		}
		if info, err := os.Lstat(mount + "/self"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return true // a part of procfs that is mounted by itself
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(path[end:], "/"), "/")
		if first == "" || strings.Trim(first, "0123456789") != "" {
			return false // not of a process
		}
		// By the numbers of that mount, which may belong to another namespace.
		_, err = os.Lstat(mount + "/self/task/" + first)
		return !errors.Is(err, fs.ErrNotExist)
	}
	return true // it cannot be reached from the root directory
}
