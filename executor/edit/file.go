package edit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// file is a regular file as it was read, with everything that a new version must keep.
type file struct {
	path  string // real
	data  []byte
	info  fs.FileInfo
	stat  *syscall.Stat_t
	named bool     // it has extended attributes, which a new inode would lose
	read  *os.File // instead of data, of a file that is open to be replaced or removed as a whole
}

// keepsInode reports whether the file must keep its inode, because it has other names or extended attributes.
func (f *file) keepsInode() bool { return f.stat.Nlink > 1 || f.named }

// load reads the file at a place. It never blocks on a file that is not regular: it checks the type before opening,
// because opening alone can have effects, and again on the descriptor, because the name can change in between. It fails
// with files.ErrNotRegular, with errTooLarge above limit bytes, with CodeConflict if the file does not have the wanted
// hash, and with errors of the system.
func (e *Editor) load(p place, limit int64) (f *file, err error) {
	if p.info != nil && !p.info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", kindOf(p.info.Mode()), files.ErrNotRegular)
	}
	err = e.as(func() error {
		f, err = readFile(p.real, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	if p.want != "" {
		if now := hashOf(f.data); now != p.want {
			return nil, stale(p, now)
		}
	}
	return f, nil
}

func readFile(path string, limit int64) (*file, error) {
	r, err := files.OpenNoFollow(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := &file{path: path}
	if err := f.look(r); err != nil {
		return nil, err
	}
	if f.info.Size() > limit {
		return nil, errTooLarge
	}
	f.data, err = drain(r, f.info.Size(), limit)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// drain reads a whole file of about size bytes. It fails with errTooLarge above limit, and with files.ErrNotRegular if
// reading would block.
func drain(r *os.File, size, limit int64) ([]byte, error) {
	in := files.NonBlockingReader(r)
	// One byte more than the size shows the end of the file without growing the buffer.
	data := make([]byte, 0, size+1)
	for {
		n, err := in.Read(data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil, fmt.Errorf("a file that waits for more: %w", files.ErrNotRegular)
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
		data = data[:len(data)+n]
		if int64(len(data)) > limit {
			return nil, errTooLarge
		}
		if len(data) == cap(data) { // the file grows, or does not report its size
			data = append(data, 0)[:len(data)]
		}
	}
}

// look records the properties of an open file that a new version must keep.
func (f *file) look(r *os.File) error {
	info, err := r.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", kindOf(info.Mode()), files.ErrNotRegular)
	}
	f.info, f.stat, f.named = info, stat, files.HasAttributes(r)
	return nil
}

// unchanged fails with errChanged if the name now leads to another file or another version.
func (f *file) unchanged() error {
	info, err := os.Lstat(f.path)
	if err != nil {
		return err
	}
	return f.sameVersion(info)
}

// sameVersion compares sizes and times. Inode numbers are not compared: on overlay file systems a file may get another
// one when it is first opened for writing.
func (f *file) sameVersion(now fs.FileInfo) error {
	if now.Size() != f.info.Size() || !now.ModTime().Equal(f.info.ModTime()) {
		return errChanged
	}
	return nil
}

func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "directory"
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "device"
	}
	return "special file"
}
