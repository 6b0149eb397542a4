package changes

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// opened are the directory that was opened last and the one above it, since the next is mostly close to them.
type opened struct {
	up, at     *dir
	upFD, atFD int
}

var nothingOpen = opened{upFD: -1, atFD: -1}

func (o *opened) close() {
	for _, fd := range []int{o.upFD, o.atFD} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	*o = nothingOpen
}

// open opens a directory to list it. The caller does not close it, and checks that it is the right one.
func (o *opened) open(root int, d *dir) (int, error) {
	switch {
	case o.at == d:
		_, err := unix.Seek(o.atFD, 0, io.SeekStart) // it may have been listed
		return o.atFD, err
	case d.up == nil:
		o.close()
		fd, err := files.OpenBeneath(root, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			o.at, o.atFD = d, fd
		}
		return fd, err
	case d.up.up == nil: // the root is open
		o.close()
		fd, err := files.OpenBeneath(root, d.name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			o.at, o.atFD = d, fd
		}
		return fd, err
	case o.at == d.up:
		if o.upFD >= 0 {
			_ = unix.Close(o.upFD)
		}
		o.up, o.upFD, o.at, o.atFD = o.at, o.atFD, nil, -1
	case o.up != d.up:
		o.close()
		fd, err := files.OpenBeneath(root, d.up.path(), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return -1, err
		}
		o.up, o.upFD = d.up, fd
	case o.atFD >= 0:
		_ = unix.Close(o.atFD)
		o.at, o.atFD = nil, -1
	}
	fd, err := files.OpenBeneath(o.upFD, d.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		o.at, o.atFD = d, fd
	}
	return fd, err
}
