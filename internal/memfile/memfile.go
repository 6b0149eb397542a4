// Package memfile keeps a value in a file in memory, for the process that is started in the
// place of one that crashed.
package memfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"golang.org/x/sys/unix"
)

// File is a file in memory without a name, in which a process keeps a value for the one that is started in its place.
// A third process may make it, and pass both its descriptor. Its methods must not be called concurrently.
//
// The first byte says which of two places has the value; zero: none. A value is written to
// the other place, and the byte last. So a process that dies while it writes leaves the
// value before.
type File struct{ file *os.File }

const (
	// place is the size of either place, of which only the written part takes up
	// memory.
	place = 64 << 20
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
)

// New makes one without a value. The caller closes it.
func New() (*File, error) {
	file, err := create("memory")
	if err != nil {
		return nil, err
	}
	m := &File{file}
	err = file.Truncate(3 * place)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	return m, nil
}

// Open takes a descriptor over that another process made by New.
func Open(fd int) (*File, error) {
	if has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || has&^unix.F_SEAL_EXEC != seals {
		return nil, fmt.Errorf("descriptor %d is not the memory of a server", fd)
	}
	unix.CloseOnExec(fd)
	return &File{os.NewFile(uintptr(fd), "memory")}, nil
}

// OSFile is the file, for a child.
func (m *File) OSFile() *os.File { return m.file }

// Close forgets it here.
func (m *File) Close() { _ = m.file.Close() } // the content is in memory

// Written reports whether a value was stored.
func (m *File) Written() bool { return m.current() != 0 }

func (m *File) current() int64 {
	first := make([]byte, 1)
	if _, err := m.file.ReadAt(first, 0); err != nil || first[0] > 2 {
		return 0
	}
	return int64(first[0])
}

// Store replaces the value.
func (m *File) Store(value any) error {
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
func (m *File) Load(value any) error {
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

// create makes a file in memory that can be sealed and not executed. Linux 6.3 and later
// seal it with F_SEAL_EXEC for that; with vm.memfd_noexec they do so unasked, or refuse others.
func create(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// form is that of values. Names of files and values of variables need not be UTF-8, and
// JSON has no other text: a byte of a string is the character with its number.
var form = json.JoinOptions(jsonv1.DefaultOptionsV1(),
	json.WithMarshalers(json.MarshalToFunc(func(to *jsontext.Encoder, s string) error {
		characters := make([]rune, len(s))
		for i := range len(s) {
			characters[i] = rune(s[i])
		}
		return to.WriteToken(jsontext.String(string(characters)))
	})),
	json.WithUnmarshalers(json.UnmarshalFromFunc(func(from *jsontext.Decoder, s *string) error {
		token, err := from.ReadToken()
		if err != nil {
			return err
		}
		if token.Kind() != '"' {
			return fmt.Errorf("got %v, want a string", token.Kind())
		}
		characters := token.String()
		buf := make([]byte, 0, len(characters))
		for _, c := range characters {
			if c > math.MaxUint8 {
				return fmt.Errorf("the character %U is no byte", c)
			}
			buf = append(buf, byte(c))
		}
		*s = string(buf)
		return nil
	})),
)
