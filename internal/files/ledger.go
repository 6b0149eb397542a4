//go:build linux

package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/hostpath"
)

// A ledger is a file of slots, each of which has the length of a path, its maker and
// the path, or zeros. It is not flushed to the disk: it outlives the process, and
// files left by a power cut are not worth half a millisecond of each edit.
const (
	ledgerName = "temporary"
	slotSize   = 4352 // more than a path and its head
	slotHead   = 3
	// firstSlots are allocated at the start, so that names can be recorded where the
	// file system is full.
	firstSlots = 16
	maxSlots   = 4096
)

// The makers of files, whose rights remove them.
const (
	byUser   = 'u'
	byServer = 's'
)

// Ledger records the names of temporary files in a state directory. A nil Ledger
// records nothing. Its methods may be called concurrently.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	free []int64 // slots before end
	end  int64
}

// OpenLedger opens the ledger in a state directory, see [hostpath.OpenPrivate], and removes the
// files that an earlier process recorded there and left: with the rights that as
// gives, and never a directory. Left are those that could not be removed.
//
// The ledger is locked until this process ends, so that two servers with one state
// directory do not remove each other's files.
func OpenLedger(dir string, as func(func() error) error) (l *Ledger, left []error, err error) {
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the state directory %q: %w", dir, err)
	}
	defer root.Close()
	file, err := root.OpenFile(ledgerName, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the list of temporary files: %w", err)
	}
	if err := filelock.Outlast(func() error { return filelock.Flock(file, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("locking the list of temporary files in %q: %w", dir, err), file.Close())
	}
	l = &Ledger{file: file}
	if left, err = l.recover(as); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading the list of temporary files: %w", err), file.Close())
	}
	return l, left, nil
}

// recover removes the recorded files and empties the ledger.
func (l *Ledger) recover(as func(func() error) error) (left []error, err error) {
	slot := make([]byte, slotSize)
	for at := range int64(maxSlots) {
		n, err := l.file.ReadAt(slot, at*slotSize)
		if n < slotHead {
			if errors.Is(err, io.EOF) {
				break
			}
			return left, err
		}
		maker, path, ok := parseSlot(slot[:n])
		if !ok {
			continue
		}
		remove := func() error { return unlink(path) }
		if maker == byServer {
			err = UnlinkNoFollow(path, 0)
		} else {
			err = as(remove)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			left = append(left, fmt.Errorf("removing the temporary file %q: %w", path, err))
		}
	}
	if err := l.file.Truncate(0); err != nil {
		return left, err
	}
	// On a full file system there are no slots, and files are made unrecorded.
	if _, err := l.file.WriteAt(make([]byte, firstSlots*slotSize), 0); err == nil {
		for at := range int64(firstSlots) {
			l.free = append(l.free, at)
		}
		l.end = firstSlots
	}
	return left, nil
}

// parseSlot returns the path in a slot. It accepts only the form that record writes.
func parseSlot(slot []byte) (maker byte, path string, ok bool) {
	length := int(binary.LittleEndian.Uint16(slot))
	if length == 0 || slotHead+length > len(slot) {
		return 0, "", false
	}
	maker, path = slot[2], string(slot[slotHead:slotHead+length])
	base := filepath.Base(path)
	ok = (maker == byUser || maker == byServer) && filepath.IsAbs(path) && filepath.Clean(path) == path &&
		strings.HasPrefix(base, ".actiond-") && strings.HasSuffix(base, ".tmp")
	return maker, path, ok
}

// unlink is unlink(2), which fails for a directory.
func unlink(path string) error {
	if err := unix.Unlink(path); err != nil {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// record writes a path into a free slot; forget gives the slot back.
func (l *Ledger) record(maker byte, path string) (forget func()) {
	if l == nil || slotHead+len(path) > slotSize {
		return func() {}
	}
	at := l.take()
	if at < 0 {
		return func() {}
	}
	slot := make([]byte, slotHead+len(path))
	binary.LittleEndian.PutUint16(slot, uint16(len(path))) //nolint:gosec // it is below slotSize
	slot[2] = maker
	copy(slot[slotHead:], path)
	if _, err := l.file.WriteAt(slot, at*slotSize); err != nil {
		slot = nil // a full file system: the file is made unrecorded
	}
	return func() {
		if slot != nil {
			_, _ = l.file.WriteAt(make([]byte, slotHead), at*slotSize) // the name is random and does not come again
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free = append(l.free, at)
	}
}

func (l *Ledger) take() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		at := l.free[n-1]
		l.free = l.free[:n-1]
		return at
	}
	if l.end == maxSlots {
		return -1
	}
	l.end++
	return l.end - 1
}

// Close releases the ledger. Files that are still recorded are removed at the next
// start.
func (l *Ledger) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
