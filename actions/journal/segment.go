package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// segment is one file of records. The lock of the journal guards its fields.
type segment struct {
	name   string
	file   *os.File // open while it is written to, and always where it is in memory
	size   int64
	refs   int  // actions with records in it
	inText bool // it lies where texts do

	// Of a file with the output of one action: those of its first record.
	first  uint64
	offset int64

	syncing sync.Mutex
	synced  int64 // guarded by syncing
}

// dir is where the files of a journal lie: a directory, or memory where root is nil.
type dir struct {
	root *os.Root
}

// create makes a file with its header.
func (d dir) create(name string) (*segment, error) {
	file, err := d.make(name)
	if err != nil {
		return nil, err
	}
	s := &segment{name: name, file: file}
	if err := s.append(appendFileHeader(nil)); err != nil {
		_ = file.Close()
		d.remove(s)
		return nil, err
	}
	return s, nil
}

func (d dir) make(name string) (*os.File, error) {
	if d.root != nil {
		return d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making %s in memory: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// append writes at the end. The bytes of a failed write are overwritten by the next.
func (s *segment) append(p []byte) error {
	if s.file == nil {
		return fs.ErrClosed
	}
	n, err := s.file.WriteAt(p, s.size)
	if err != nil {
		if n > 0 {
			_ = s.file.Truncate(s.size) // a reader stops there in any case
		}
		return err
	}
	s.size += int64(len(p))
	return nil
}

// seal closes a file that is no longer written to.
func (d dir) seal(s *segment) {
	if d.root != nil && s.file != nil {
		_ = s.file.Close() // every write was checked, and is in the kernel
		s.file = nil
	}
}

func (d dir) remove(s *segment) {
	if s.file != nil {
		_ = s.file.Close() // it is gone in any case
		s.file = nil
	}
	if d.root != nil {
		_ = d.root.Remove(s.name) // at the next start, otherwise
	}
}

// reader is a file that is read, until Close. A file that was removed can still be read.
type reader struct {
	*os.File
	shared bool
}

func (r reader) Close() {
	if !r.shared && r.File != nil {
		_ = r.File.Close() // it was only read
	}
}

// open opens a file for reading. The caller holds the lock of the journal.
func (d dir) open(s *segment) (reader, error) {
	if d.root == nil {
		if s.file == nil {
			return reader{}, ErrForgotten
		}
		return reader{File: s.file, shared: true}, nil
	}
	file, err := d.root.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return reader{}, ErrForgotten
	}
	if err != nil {
		return reader{}, fmt.Errorf("reading the journal: %w", err)
	}
	return reader{File: file}, nil
}

// sync makes the first size bytes of a file last. Callers that come while another
// syncs share the next call.
func (s *segment) sync(file *os.File, size int64) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.synced >= size {
		return nil
	}
	info, err := file.Stat()
	if err == nil {
		var conn syscall.RawConn
		if conn, err = file.SyscallConn(); err == nil { // Fd would not keep the file open meanwhile
			var failed error
			err = errors.Join(conn.Control(func(fd uintptr) { failed = unix.Fdatasync(int(fd)) }), failed)
		}
	}
	if err != nil {
		return fmt.Errorf("making the journal last: %w", err)
	}
	s.synced = info.Size()
	return nil
}
