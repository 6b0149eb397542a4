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
	noteSuffix = ".note"
	// maxNote is the size of a note in bytes, which holds a path.
	maxNote = 16 << 10
)

// note says that a file is being written in place, and where its old bytes are kept. It is a file beside them, locked by
// the process that writes. One that no process has locked is left from a crash.
type note struct {
	Path    []byte // real
	Inode   inode
	Mode    fs.FileMode // before
	Kept    string      // the name of the copy
	Version hash        // of the copy
}

// inode is one file, whatever its names. Numbers are given again, and a device may have another number once it is mounted
// again: a file is the same if it was born at the same time, or is on the same device where the file system keeps no such time.
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

// guard makes the next editor put the old bytes and the mode of a file back, should this process end while it writes to the
// open file w. old has the bytes, or where they are kept. The file is not guarded where it has neither, or the disk is full.
// release ends that, and may be called again; where it fails, the next editor puts the bytes back. Both run inside as.
func (e *Editor) guard(w *os.File, path string, old *entry) (release func() error) {
	h := e.history
	unguarded := func() error { return nil }
	if h.kept == nil || old.before == "" || old.kept == "" && int64(len(old.data))+entryOverhead > h.budget {
		return unguarded
	}
	kept := old
	if old.kept == "" {
		kept = &entry{mode: old.mode}
		if h.keepCopy(kept, bytes.NewReader(old.data), rand.Text()+".tmp") != nil {
			return unguarded
		}
	}
	drop := func() {
		if kept != old {
			h.discard(kept)
		}
	}
	f, name, err := e.writeNote(w, path, kept)
	if err != nil {
		drop()
		return unguarded
	}
	return func() error {
		defer drop()
		defer f.Close()
		if err := unix.Unlinkat(int(h.kept.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the note of a file that was written in place: %w", err)
		}
		return h.kept.Sync()
	}
}

// writeNote brings a note and the kept copy that it names to the disk. It returns the note, which is locked while it is open.
func (e *Editor) writeNote(w *os.File, path string, kept *entry) (f *os.File, name string, err error) {
	h := e.history
	n := note{Path: []byte(path), Mode: kept.mode, Kept: kept.kept, Version: kept.before}
	if n.Inode, err = inodeOf(w); err != nil {
		return nil, "", err
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return nil, "", err
	}
	saved, _, err := h.openKept(kept)
	if err == nil {
		err = errors.Join(e.flush(saved), saved.Close())
	}
	if err != nil {
		return nil, "", err
	}
	name = rand.Text()
	temp := name + ".tmp"
	if f, err = h.openAt(temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL); err != nil {
		return nil, "", err
	}
	name += noteSuffix
	_, err = f.Write(raw)
	if err == nil {
		err = e.flush(f)
	}
	if err == nil {
		err = filelock.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	dir := int(h.kept.Fd())
	if err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if err == nil {
		err = h.kept.Sync()
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0) // one that stays is removed at the next start
		_ = unix.Unlinkat(dir, name, 0)
		return nil, "", errors.Join(err, f.Close())
	}
	return f, name, nil
}

// putBackAll puts the old bytes of the files back that an earlier process was writing in place when it ended, and reports each.
func (e *Editor) putBackAll(report func(path string, err error)) {
	h := e.history
	if h.kept == nil {
		return
	}
	_ = eachNameIn(h.kept, func(name string) {
		if !strings.HasSuffix(name, noteSuffix) {
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
	_, _ = h.kept.Seek(0, io.SeekStart) // for findKept
}

// putBackNoted obeys a note and removes it: once, because the file may be written again after that.
func (e *Editor) putBackNoted(name string) (path string, err error) {
	h := e.history
	f, err := h.openAt(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := filelock.Outlast(func() error { return filelock.Flock(f, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, unix.Unlinkat(int(h.kept.Fd()), name, 0), h.kept.Sync())
	}()
	raw, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err != nil {
		return "", err
	}
	var n note
	if err := json.Unmarshal(raw, &n); err != nil {
		return "", fmt.Errorf("reading the note: %w", err)
	}
	if n.Kept != filepath.Base(n.Kept) || !filepath.IsAbs(string(n.Path)) {
		return "", errors.New("the note is damaged")
	}
	return string(n.Path), e.putBackFile(&n)
}

// putBackFile opens the file that a note names and puts its old bytes back. It changes no other file, wherever the path
// leads now.
func (e *Editor) putBackFile(n *note) error {
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
	err = e.putBack(to, &entry{before: n.Version, kept: n.Kept, mode: n.Mode})
	return errors.Join(err, to.Close())
}

// putBack gives a file that was written in part the bytes and the mode that an entry has kept, and brings them to the disk.
// It runs inside as.
func (e *Editor) putBack(to *os.File, en *entry) error {
	var from io.ReaderAt
	var size int64
	switch {
	case en.before == "":
		return errors.New("the file was written in part, and no copy of it was kept")
	case en.kept != "":
		kept, length, err := e.history.openKept(en)
		if err != nil {
			return err
		}
		defer kept.Close()
		from, size = kept, length
	default:
		from, size = bytes.NewReader(en.data), int64(len(en.data))
	}
	if err := takeSpace(to, size); err != nil {
		return err
	}
	err := copyOver(to, from, size)
	if info, failed := to.Stat(); failed != nil || info.Mode()&files.ModeBits != en.mode&files.ModeBits {
		err = errors.Join(err, to.Chmod(en.mode&files.ModeBits))
	}
	return errors.Join(err, e.flush(to))
}

// rewrite writes the first size bytes of from over the open file w, which is f. Space for them is taken first; should a
// write fail later, or the process end, the bytes and the mode that the entry has kept are put back. It runs inside as.
func (e *Editor) rewrite(w *os.File, f *file, from io.ReaderAt, size int64, mode fs.FileMode, en *entry) error {
	now := &file{path: f.path}
	if err := now.look(w); err != nil {
		return err
	}
	// The name may have led elsewhere while w was opened, and lead elsewhere now.
	if err := errors.Join(f.sameVersion(now.info), f.unchanged()); err != nil {
		return err
	}
	release := e.guard(w, f.path, en)
	err := e.rewriteGuarded(w, f, from, size, mode, en)
	if err == nil {
		if err = release(); err == nil {
			return nil
		}
		err = errors.Join(err, e.putBack(w, en))
	}
	return errors.Join(err, release())
}

func (e *Editor) rewriteGuarded(w *os.File, f *file, from io.ReaderAt, size int64, mode fs.FileMode, en *entry) error {
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
		err = e.flush(w)
	}
	if err != nil {
		return errors.Join(err, e.putBack(w, en))
	}
	return nil
}

// WriteInPlace runs write, which writes over the open regular file w from its beginning, and brings the file to the disk.
// Should write fail, or the process end meanwhile, the old bytes and mode are put back: at once, or by the next editor. A
// file that its user may not read or that is larger than maxGuarded has no such protection. Calls and edits of one path take
// turns. It must run with the rights of the user.
func (e *Editor) WriteInPlace(w *os.File, write func() error) error {
	en := &entry{}
	path, err := os.Readlink(fdPath(w))
	if err == nil {
		defer e.locks.lock(path)()
		e.keepOpen(w, en)
	}
	defer e.history.discard(en)
	release := e.guard(w, path, en)
	if err = write(); err == nil {
		err = e.flush(w)
	}
	if err == nil {
		err = release()
	}
	if err != nil && en.before != "" {
		err = errors.Join(err, e.putBack(w, en))
	}
	return errors.Join(err, release())
}

// maxGuarded bounds the files of which WriteInPlace keeps a copy, in bytes: many may be written at a time, and their copies
// are not counted by the history. Without a state directory they are in memory.
const maxGuarded = 4 << 20

// keepOpen makes the history keep the bytes of a file that is open for writing, if it can.
func (e *Editor) keepOpen(w *os.File, en *entry) {
	r, err := os.OpenFile(fdPath(w), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer r.Close()
	if info, err := r.Stat(); err == nil && info.Size() <= maxGuarded {
		en.mode = info.Mode()
		_ = e.history.keep(en, r, info, false) // without a copy, the entry has no version
	}
}

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

// copyOver gives a file the first size bytes of another one. What the file grows by is written first: a full disk shows
// before an old byte is lost.
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
