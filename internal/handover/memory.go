package handover

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"
)

// Memory is a file in memory without a name, in which a process keeps a value for the one
// that is started in its place when it crashed. A third process makes it, and both get its
// descriptor. Its methods must not be called concurrently.
//
// The first byte says which of two places has the value; zero: none. A value is written to
// the other place, and the byte last. So a process that dies while it writes leaves the
// value before.
type Memory struct{ file *os.File }

const (
	// place is the size of either place, of which only what is written takes up memory.
	place       = 64 << 20
	memorySeals = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
)

// NewMemory makes one without a value. The caller closes it.
func NewMemory() (*Memory, error) {
	file, err := memoryFile("memory")
	if err != nil {
		return nil, err
	}
	m := &Memory{file}
	err = file.Truncate(3 * place)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, memorySeals)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	return m, nil
}

// OpenMemory takes a descriptor over that another process made by NewMemory.
func OpenMemory(fd int) (*Memory, error) {
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&^unix.F_SEAL_EXEC != memorySeals {
		return nil, fmt.Errorf("descriptor %d is not the memory of a server", fd)
	}
	unix.CloseOnExec(fd)
	return &Memory{os.NewFile(uintptr(fd), "memory")}, nil
}

// File is what it is kept in, for a child.
func (m *Memory) File() *os.File { return m.file }

// Close forgets it here.
func (m *Memory) Close() { _ = m.file.Close() } // what was written is there

// Written reports whether a value was stored.
func (m *Memory) Written() bool { return m.current() != 0 }

func (m *Memory) current() int64 {
	first := make([]byte, 1)
	if _, err := m.file.ReadAt(first, 0); err != nil || first[0] > 2 {
		return 0
	}
	return int64(first[0])
}

// Store replaces the value.
func (m *Memory) Store(value any) error {
	data, err := json.Marshal(value, form)
	if err != nil {
		return fmt.Errorf("writing to the memory: %w", err)
	}
	if len(data) > place {
		return fmt.Errorf("writing to the memory: %d bytes are too many", len(data))
	}
	next := 1 + m.current()%2
	_, err = m.file.WriteAt(data, next*place)
	if err == nil {
		_, err = m.file.WriteAt([]byte{byte(next)}, 0)
	}
	if err != nil {
		return fmt.Errorf("writing to the memory: %w", err)
	}
	return nil
}

// Load reads the value that was stored last. Members that value does not have are left out.
func (m *Memory) Load(value any) error {
	at := m.current()
	if at == 0 {
		return errors.New("reading the memory: there is nothing")
	}
	// A longer value may have been there before, so the file goes on behind this one.
	written := jsontext.NewDecoder(io.NewSectionReader(m.file, at*place, place))
	if err := json.UnmarshalDecode(written, value, form); err != nil {
		return fmt.Errorf("reading the memory: %w", err)
	}
	return nil
}
