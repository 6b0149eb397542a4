package edit

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/files"
)

const (
	// keptDir has the old bytes of files that are being written in place, and new content for them. The user may write to
	// it, but only through a descriptor of this process, because the directory above is closed.
	keptDir    = "kept"
	noteSuffix = ".note"
	// maxNote is the size of a note in bytes, which holds a path.
	maxNote = 16 << 10
	// maxCopy bounds the files that are guarded by a copy in keptDir, in bytes, and maxGuarded those in memory, of which
	// many may be written at a time.
	maxCopy    = 256 << 20
	maxGuarded = 4 << 20
)

// note is the first line of a file in keptDir, and says that a file is being written in place whose old bytes follow.
// The process that writes has it locked. One that no process has locked is left from a crash.
type note struct {
	Path  []byte // real
	Inode inode
	Mode  fs.FileMode // before
	Size  int64       // of the old bytes
}

func openKeptDir(root *os.Root) (*os.File, error) {
	if err := root.Mkdir(keptDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := root.OpenFile(keptDir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := dir.Chmod(0o777); err != nil { // the one above is closed
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// openKept opens a file in the directory of kept files.
func (e *Editor) openKept(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(e.kept.Fd()), name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// fdPath is a path to an open file, whatever its names.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// inode is one file, whatever its names. Numbers are given again, and a device may have another number once it is
// mounted again: a file is the same if it was born at the same time, or is on the same device where the file system
// keeps no such time.
type inode struct {
	Number       uint64
	Born         unix.StatxTimestamp
	Major, Minor uint32
}

func inodeOf(f *os.File) (inode, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return inode{}, fmt.Errorf("looking at %q: %w", f.Name(), err)
	}
	n := inode{Number: st.Ino, Major: st.Dev_major, Minor: st.Dev_minor}
	if st.Mask&unix.STATX_BTIME != 0 {
		n.Born = st.Btime
	}
	return n, nil
}

func (n inode) is(other inode) bool {
	if n.Born != (unix.StatxTimestamp{}) {
		n.Major, n.Minor = other.Major, other.Minor
	}
	return n == other
}

// guard has the old bytes and the mode of a file that is being written in place.
type guard struct {
	e    *Editor
	mode fs.FileMode
	old  *io.SectionReader // nil where there is no copy
	note *os.File          // nil where the next editor would put nothing back
	name string            // of the note
}

// guard makes the next editor put the old bytes and the mode of a file back, should this process end while it writes to
// the open file w, which is f. The bytes are those of f, or of its descriptor for reading. A file without either has no
// copy; without a state directory, or space there, the next editor has none. The caller must call done. It runs inside
// as.
func (e *Editor) guard(w *os.File, f *file) *guard {
	g := &guard{e: e, mode: f.info.Mode()}
	var from *io.SectionReader
	switch {
	case f.data != nil:
		from = io.NewSectionReader(bytes.NewReader(f.data), 0, int64(len(f.data)))
		g.old = from
	case f.read != nil:
		from = io.NewSectionReader(f.read, 0, f.info.Size())
	default:
		return g
	}
	if e.kept != nil && from.Size() <= e.copySpace() {
		g.keep(w, f.path, from)
	}
	if g.old == nil && from.Size() <= maxGuarded {
		data := make([]byte, from.Size())
		if n, _ := f.read.ReadAt(data, 0); n == len(data) { // an error is a short read
			g.old = io.NewSectionReader(bytes.NewReader(data), 0, from.Size())
		}
	}
	return g
}

// copySpace bounds a copy: the other half of the free space is for uploads and the journal.
func (e *Editor) copySpace() int64 {
	var system unix.Statfs_t
	if unix.Fstatfs(int(e.kept.Fd()), &system) != nil {
		return 0
	}
	return min(maxCopy, int64(system.Bavail)*system.Bsize/2) //nolint:gosec // no file system has 2^63 bytes
}

// keep brings a note with a copy of the old bytes to the disk, if it can.
func (g *guard) keep(w *os.File, path string, from *io.SectionReader) {
	n := note{Path: []byte(path), Mode: g.mode, Size: from.Size()}
	var head []byte
	var err error
	if n.Inode, err = inodeOf(w); err == nil {
		head, err = json.Marshal(n)
	}
	if err != nil {
		return
	}
	name, dir := rand.Text(), int(g.e.kept.Fd())
	f, err := g.e.openKept(name+".tmp", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return
	}
	head = append(head, '\n')
	copied := int64(0)
	if _, err = f.Write(head); err == nil {
		copied, err = io.Copy(f, from)
	}
	if err == nil && copied != n.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = g.e.flush(f)
	}
	if err == nil {
		err = filelock.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = unix.Renameat(dir, name+".tmp", dir, name+noteSuffix)
	}
	if err == nil {
		err = g.e.kept.Sync()
	}
	if err != nil {
		_ = unix.Unlinkat(dir, name+".tmp", 0) // one that stays is removed at the next start
		_ = unix.Unlinkat(dir, name+noteSuffix, 0)
		_ = f.Close()
		return
	}
	g.note, g.name = f, name+noteSuffix
	g.old = io.NewSectionReader(f, int64(len(head)), n.Size)
}

// release ends the guard, and may be called again; where it fails, the next editor puts the bytes back.
func (g *guard) release() error {
	if g.note == nil {
		return nil
	}
	if err := unix.Unlinkat(int(g.e.kept.Fd()), g.name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the note of a file that was written in place: %w", err)
	}
	return g.e.kept.Sync()
}

// done frees the resources of the guard.
func (g *guard) done() {
	if g.note != nil {
		_ = g.note.Close() // it was flushed
	}
}

// putBackAll puts the old bytes of the files back that an earlier process was writing in place when it ended, reports
// each, and removes the other notes from then.
func (e *Editor) putBackAll(report func(path string, err error)) {
	if e.kept == nil {
		return
	}
	_ = eachNameIn(e.kept, func(name string) { // it is tried at the next start, otherwise
		if !strings.HasSuffix(name, noteSuffix) {
			_ = unix.Unlinkat(int(e.kept.Fd()), name, 0) // harmless if it stays
			return
		}
		var path string
		err := e.as(func() (err error) {
			path, err = e.putBackNoted(name)
			return err
		})
		if report != nil {
			report(path, err)
		}
	})
}

// putBackNoted obeys a note and removes it: once, because the file may be written again after that.
func (e *Editor) putBackNoted(name string) (path string, err error) {
	f, err := e.openKept(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := filelock.Outlast(func() error { return filelock.Flock(f, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, unix.Unlinkat(int(e.kept.Fd()), name, 0), e.kept.Sync())
	}()
	head, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	head, _, _ = bytes.Cut(head, []byte{'\n'})
	var n note
	if err := json.Unmarshal(head, &n); err != nil {
		return "", fmt.Errorf("reading the note: %w", err)
	}
	at := int64(len(head)) + 1
	if !filepath.IsAbs(string(n.Path)) || info.Size() != at+n.Size {
		return string(n.Path), errors.New("the note is damaged")
	}
	return string(n.Path), e.putBackFile(&n, &guard{e: e, mode: n.Mode, old: io.NewSectionReader(f, at, n.Size)})
}

// putBackFile opens the file that a note names and puts its old bytes back. It changes no other file, wherever the path
// leads now.
func (e *Editor) putBackFile(n *note, g *guard) error {
	named, err := os.OpenFile(string(n.Path), unix.O_PATH|unix.O_NOFOLLOW, 0) // which opens no device
	if err != nil {
		return err
	}
	defer named.Close()
	info, err := named.Stat()
	if err != nil {
		return err
	}
	if now, err := inodeOf(named); err != nil || !info.Mode().IsRegular() || !now.is(n.Inode) {
		return errors.Join(errors.New("another file has its name now"), err)
	}
	mode := n.Mode & files.ModeBits
	if info.Mode()&files.ModeBits != mode {
		_ = os.Chmod(fdPath(named), mode) // the new mode may allow no writing; only the owner can change it, which the open shows
	}
	to, err := os.OpenFile(fdPath(named), os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	return errors.Join(g.putBack(to), to.Close())
}

// putBack gives a file that was written in part its old bytes and mode, and brings them to the disk. It runs inside as.
func (g *guard) putBack(to *os.File) error {
	if g.old == nil {
		return errors.New("the file was written in part, and no copy of it was kept")
	}
	if err := takeSpace(to, g.old.Size()); err != nil {
		return err
	}
	err := copyOver(to, g.old, g.old.Size())
	if info, failed := to.Stat(); failed != nil || info.Mode()&files.ModeBits != g.mode&files.ModeBits {
		err = errors.Join(err, to.Chmod(g.mode&files.ModeBits))
	}
	return errors.Join(err, g.e.flush(to))
}

// rewrite writes the first size bytes of from over the open file w, which is f. Space for them is taken first; should a
// write fail later, or the process end, the old bytes and the mode are put back. It runs inside as.
func (e *Editor) rewrite(w *os.File, f *file, from io.ReaderAt, size int64, mode fs.FileMode) error {
	now := &file{path: f.path}
	if err := now.look(w); err != nil {
		return err
	}
	// The name may have led elsewhere while w was opened, and lead elsewhere now.
	if err := errors.Join(f.sameVersion(now.info), f.unchanged()); err != nil {
		return err
	}
	g := e.guard(w, f)
	defer g.done()
	err := g.rewrite(w, f, from, size, mode)
	if err == nil {
		if err = g.release(); err == nil {
			return nil
		}
		err = errors.Join(err, g.putBack(w))
	}
	return errors.Join(err, g.release())
}

func (g *guard) rewrite(w *os.File, f *file, from io.ReaderAt, size int64, mode fs.FileMode) error {
	before := f.info.Mode() & files.ModeBits
	if mode&files.ModeBits != before { // first: without permission for this, nothing is written
		if err := w.Chmod(mode & files.ModeBits); err != nil {
			return err
		}
	}
	if err := takeSpace(w, size); err != nil {
		return errors.Join(err, w.Truncate(f.info.Size()), w.Chmod(before))
	}
	err := copyOver(w, from, size)
	if err == nil {
		err = g.e.flush(w)
	}
	if err != nil {
		return errors.Join(err, g.putBack(w))
	}
	return nil
}

// WriteInPlace runs write, which writes over the open regular file w from its beginning, and brings the file to the
// disk. Should write fail, or the process end meanwhile, the old bytes and mode are put back: at once, or by the next
// editor. A file that its user may not read or that is larger than maxGuarded has no such protection. Calls and edits
// of one path take turns. It must run with the rights of the user.
func (e *Editor) WriteInPlace(w *os.File, write func() error) error {
	f := &file{}
	path, err := os.Readlink(fdPath(w))
	if err == nil {
		defer e.locks.lock(path)()
		f.path = path
		if f.read, err = os.OpenFile(fdPath(w), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
			defer f.read.Close()
		}
	}
	if f.info, err = w.Stat(); err != nil {
		return err
	}
	if f.info.Size() > maxGuarded {
		f.read = nil
	}
	g := e.guard(w, f)
	defer g.done()
	if err = write(); err == nil {
		err = e.flush(w)
	}
	if err == nil {
		err = g.release()
	}
	if err != nil && g.old != nil {
		err = errors.Join(err, g.putBack(w))
	}
	return errors.Join(err, g.release())
}

func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// takeSpace takes space on the disk for the first size bytes of a file. It fails where there is none, and not where the
// file system cannot do this.
func takeSpace(f *os.File, size int64) error {
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	if size == 0 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), keepSize, 0, size); noSpace(err) {
		return err
	}
	return nil
}

// copyOver gives a file the first size bytes of another one. The bytes by which the file grows are
// written first: a full disk shows before an old byte is lost.
func copyOver(to *os.File, from io.ReaderAt, size int64) error {
	info, err := to.Stat()
	if err != nil {
		return err
	}
	grown := min(info.Size(), size)
	for _, part := range [][2]int64{{grown, size}, {0, grown}} {
		at, length := part[0], part[1]-part[0]
		if _, err := io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, length)); err != nil {
			return err
		}
	}
	return to.Truncate(size)
}
