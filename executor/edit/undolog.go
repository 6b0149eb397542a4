package edit

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
)

const (
	logName = "undo"
	// logVersion is the first byte of a record after its checksum.
	logVersion = 1
	recordSize = 120
	// maxLog bounds the log that is read, in bytes; it is written anew long before.
	maxLog = 8 << 20
)

// Kinds of records.
const (
	wasEdited    byte = iota + 1
	wasUndone         // the last edit of the path
	wasForgotten      // all edits of the path
)

// record is a line of the log. A sum of zeros says that there is no file.
type record struct {
	kind          byte
	mode          fs.FileMode // before
	dirs          int
	size          int64     // of the bytes before
	key           store.Sum // of the path
	before, after store.Sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *record) append(dst []byte) []byte {
	var b [recordSize]byte
	le := binary.LittleEndian
	b[4], b[5] = logVersion, r.kind
	le.PutUint32(b[8:], uint32(r.mode))
	le.PutUint32(b[12:], uint32(r.dirs)) //nolint:gosec // a path has fewer directories
	le.PutUint64(b[16:], uint64(r.size)) //nolint:gosec // not negative
	copy(b[24:], r.key[:])
	copy(b[56:], r.before[:])
	copy(b[88:], r.after[:])
	le.PutUint32(b[:], crc32.Checksum(b[4:], castagnoli))
	return append(dst, b[:]...)
}

// parseRecord reads a record of append, and nothing else.
func parseRecord(b []byte) (r record, ok bool) {
	le := binary.LittleEndian
	if len(b) != recordSize || le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) || b[4] != logVersion {
		return r, false
	}
	r = record{kind: b[5], mode: fs.FileMode(le.Uint32(b[8:])), dirs: int(le.Uint32(b[12:])), size: int64(le.Uint64(b[16:]))} //nolint:gosec // checked below
	copy(r.key[:], b[24:])
	copy(r.before[:], b[56:])
	copy(r.after[:], b[88:])
	return r, r.kind >= wasEdited && r.kind <= wasForgotten && r.size >= 0 && r.size <= store.MaxContent &&
		string(r.append(nil)) == string(b)
}

// readLog calls each for the records up to the first that is damaged, and returns their number.
func readLog(data []byte, each func(record)) (n int) {
	for ; len(data) >= recordSize; data = data[recordSize:] {
		r, ok := parseRecord(data[:recordSize])
		if !ok {
			break
		}
		each(r)
		n++
	}
	return n
}

// undoLog is the file in which a history outlives its process; nil keeps nothing. It is not flushed: where a power cut
// took its end, an undo of an older edit is refused, because the file differs from that edit's result.
type undoLog struct {
	root *os.Root
	file *os.File // nil before the first record
	n    int      // records
}

// openLog opens the log in a directory and calls each for its records. Anything else that has its name is removed.
func openLog(root *os.Root, each func(record)) (*undoLog, error) {
	l := &undoLog{root: root}
	f, err := root.OpenFile(logName, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return l, root.RemoveAll(logName)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || hasOtherNames(info) {
		return l, errors.Join(err, f.Close(), root.RemoveAll(logName))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLog))
	l.file, l.n = f, readLog(data, each)
	return l, errors.Join(err, f.Truncate(int64(l.n)*recordSize)) // what follows a torn record is not to come back
}

// hasOtherNames reports whether a file may be one that an agent of this user linked here: writing would damage it.
func hasOtherNames(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink > 1
}

func (l *undoLog) close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}

// add writes a record.
func (l *undoLog) add(r *record) error {
	if l == nil {
		return nil
	}
	if l.file == nil {
		return l.rewrite(r.append(nil))
	}
	_, err := l.file.WriteAt(r.append(nil), int64(l.n)*recordSize) // over one that was written in part
	if err == nil {
		l.n++
	}
	return err
}

// rewrite replaces all records.
func (l *undoLog) rewrite(data []byte) error {
	temp := logName + ".tmp"
	if err := l.root.RemoveAll(temp); err != nil {
		return err
	}
	f, err := l.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = l.root.Rename(temp, logName)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_ = l.close() // the old one
	l.file, l.n = f, len(data)/recordSize
	return nil
}
