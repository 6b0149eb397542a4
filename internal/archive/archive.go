// Package archive packs files into tar archives, and unpacks archives that may be
// the work of an attacker, into directories that an attacker may change
// meanwhile.
//
// All work is done below directories that are held open, one element of a name at
// a time. No link is followed, so nothing outside is read or written; and the time
// it takes grows with the archive's size, however deep its directories are. Memory
// does not grow with the number of files, but for hard links.
package archive

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrExists reports that something which is not to be replaced has the name of a
// member: a directory that of a file, or anything else that of a directory.
var ErrExists = errors.New("it exists")

// ErrHostile reports an archive that no program makes of honest files.
var ErrHostile = errors.New("the archive is not to be trusted")

// ErrFormat reports something that is not a tar archive, or ends too early.
var ErrFormat = errors.New("this is not a whole tar archive")

// ErrFull reports that a file is larger than the free space.
var ErrFull = errors.New("there is not enough space")

// maxName bounds the names in archives, in bytes: PATH_MAX of Linux.
const maxName = 4096

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openAt opens name in dir without following a link.
func openAt(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, mode)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openDirAt opens a directory in dir, and no link to one.
func openDirAt(dir *os.File, name string) (*os.File, error) {
	return openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// statAt looks at name in dir, and at a link itself.
func statAt(dir *os.File, name string) (stat unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		err = &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return stat, err
}

// MakeDir makes a directory in dir, for this process's user alone, unless it is
// there, and opens it. A link to a directory is ErrExists.
func MakeDir(dir *os.File, name string) (made *os.File, isNew bool, err error) {
	if isNew, err = makeDir(dir, name, 0o700); err != nil {
		return nil, false, err
	}
	made, err = openDirAt(dir, name)
	return made, isNew, err
}

func isType(stat *unix.Stat_t, kind uint32) bool { return uint32(stat.Mode)&unix.S_IFMT == kind } //nolint:unconvert // a Mode has another type on other systems

// checkSpace fails with ErrFull where size more bytes, or one more file, are not
// to be put on the file system of dir. spare leaves some to others: a sandbox must
// not fill this machine's disk.
func checkSpace(dir *os.File, size int64, spare bool) error {
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(dir.Fd()), &fs) }); err != nil {
		return fmt.Errorf("finding out how much space is left: %w", err)
	}
	block := uint64(fs.Bsize) //nolint:gosec // it is positive
	free, files := fs.Bavail*block, fs.Ffree
	if spare {
		const sparedBytes, sparedFiles, part = 256 << 20, 10_000, 20
		free -= min(free, sparedBytes, fs.Blocks*block/part)
		files -= min(files, sparedFiles, fs.Files/part)
	}
	if size > 0 && uint64(size) > free {
		return fmt.Errorf("%w: it has %d bytes and %d are free", ErrFull, size, free)
	}
	if fs.Files > 0 && files == 0 {
		return fmt.Errorf("%w: no more files can be made", ErrFull)
	}
	return nil
}
