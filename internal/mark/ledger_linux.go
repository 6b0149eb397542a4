package mark

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/hostpath"
)

const (
	ledgerName = "marks"
	// slotSize is more than a mark; a slot holds one and zeros.
	slotSize = 64
	// firstSlots are allocated at the start, so that marks can be recorded where the disk is full.
	firstSlots = 64
	// maxLedger bounds how many bytes of a file are read.
	maxLedger = 1 << 20
)

// recordable reports whether a ledger accepts a mark, ACTIOND_ and letters with 26 digits of
// base 32: no other variable ends a process.
func recordable(mark string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	name, value, _ := strings.Cut(mark, "=")
	name, ok := strings.CutPrefix(name, "ACTIOND_")
	return ok && name != "" && len(value) == 26 && strings.Trim(name, letters) == "" && strings.Trim(value, letters+"234567") == ""
}

// Ledger records marks in a file before processes with them are started, so that the next
// server finds the processes of one that died. A nil Ledger records nothing. Its methods may be called
// concurrently.
type Ledger struct {
	mu    sync.Mutex
	file  *os.File
	slots map[string]int64
	free  []int64
	end   int64
}

// OpenLedger opens the ledger in a directory that one server uses at a time, see
// [hostpath.OpenPrivate].
func OpenLedger(dir string) (*Ledger, error) {
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the list of marks: %w", err)
	}
	defer root.Close()
	file, err := root.OpenFile(ledgerName, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the list of marks: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	l := &Ledger{file: file, slots: map[string]int64{}}
	if err == nil && info.Size() < firstSlots*slotSize {
		_, _ = file.WriteAt(make([]byte, firstSlots*slotSize-info.Size()), info.Size()) // a full disk leaves fewer slots
	}
	if err == nil {
		err = l.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the list of marks: %w", err), file.Close())
	}
	return l, nil
}

func (l *Ledger) load() error {
	data, err := io.ReadAll(io.LimitReader(l.file, maxLedger))
	for l.end = 0; (l.end+1)*slotSize <= int64(len(data)); l.end++ {
		mark := string(bytes.TrimRight(data[l.end*slotSize:(l.end+1)*slotSize], "\x00"))
		if recordable(mark) {
			l.slots[mark] = l.end
		} else {
			l.free = append(l.free, l.end)
		}
	}
	return err
}

// Marks returns those that are recorded.
func (l *Ledger) Marks() map[string]bool {
	marks := map[string]bool{}
	if l == nil {
		return marks
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark := range maps.Keys(l.slots) {
		marks[mark] = true
	}
	return marks
}

// Add records a mark.
func (l *Ledger) Add(mark string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.slots[mark]; ok || !recordable(mark) {
		return nil
	}
	at := l.end
	if n := len(l.free); n > 0 {
		at = l.free[n-1]
	}
	if err := l.write(at, mark); err != nil {
		return fmt.Errorf("recording a mark: %w", err)
	}
	if at == l.end {
		l.end++
	} else {
		l.free = l.free[:len(l.free)-1]
	}
	l.slots[mark] = at
	return nil
}

// Remove takes a mark out.
func (l *Ledger) Remove(mark string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.slots[mark]; ok && l.write(at, "") == nil { // otherwise no process has it by then
		delete(l.slots, mark)
		l.free = append(l.free, at)
	}
}

func (l *Ledger) write(at int64, mark string) error {
	_, err := l.file.WriteAt(append([]byte(mark), make([]byte, slotSize-len(mark))...), at*slotSize)
	return err
}

// Close closes the file, which keeps its records.
func (l *Ledger) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
