package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/files"
)

// ErrCondition reports a file that does not meet its [Conditions]. Nothing was changed.
var ErrCondition = errors.New("the file does not meet the condition")

// Conditions are the contents that a file must have, or not have, for a change, as in If-Match and If-None-Match of
// RFC 9110: hashes in hexadecimal, or "*" for any file. A nil list allows everything.
type Conditions struct{ Match, NoneMatch []string }

// Incoming is the new content of a whole file, of any size: a temporary file beside the one that it is to replace. It
// must be discarded in the end. It is not safe for concurrent use.
type Incoming struct {
	// SHA256 and Size are those of the content, after [Incoming.Fill].
	SHA256 string
	Size   int64

	e     *Editor
	shown string
	real  string // where the path led
	temp  temp
	old   bool     // a file was there, whose mode the content is to get
	made  []string // directories
}

// Stage makes the temporary file for a new content of the file at an absolute path, and the directories that are
// missing above it.
func (e *Editor) Stage(path string) (in *Incoming, err error) {
	p, leave, err := e.enter(cleanPath(path))
	leave()
	if err == nil {
		err = p.isFile()
	}
	if err == nil && !p.exists() && strings.HasSuffix(path, "/") {
		err = directoryName(p.shown)
	}
	if err != nil {
		return nil, err
	}
	in = &Incoming{e: e, shown: p.shown, real: p.real, old: p.exists()}
	err = e.as(func() error { return in.open() })
	if err != nil {
		in.Discard()
		return nil, unwritable(p.shown, err)
	}
	return in, nil
}

// isFile refuses a place that can have no file, or has something else.
func (p place) isFile() error {
	switch {
	case p.err != nil:
		return unwritable(p.shown, p.err)
	case p.isDir():
		return refuse(CodeIsDirectory, "The path %s is a directory, and not a file.", p.shown)
	case p.exists() && !p.info.Mode().IsRegular():
		return notRegular(p)
	}
	return nil
}

func (in *Incoming) open() (err error) {
	dir, mode := filepath.Dir(in.real), fs.FileMode(0o666)
	if in.old {
		mode = 0o600
	}
	if in.made, err = files.MakeDirs(dir); err != nil {
		return err
	}
	in.temp, err = in.e.newTemp(dir, mode)
	if in.old && errors.Is(files.InPlace(err), files.ErrInPlace) && in.e.kept != nil {
		in.temp, err = in.e.newTemp(fdPath(in.e.kept), mode) // for writing in place
	}
	return err
}

// Fill writes the whole content, brings it to the disk and hashes it. The error is that of reading from content, or of
// the file.
func (in *Incoming) Fill(content io.Reader) error {
	sum, size, err := copyHashed(in.temp, content)
	if err == nil {
		err = in.e.flush(in.temp.File) // while the last bytes are hashed
	}
	in.SHA256, in.Size = string(sum()), size
	return err
}

// copyBuffers are the buffers of copies.
var copyBuffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// maxUnhashed is how many buffers of a copy may wait for their hash: the copy and the flush of a file below a megabyte
// do not wait for it, because hashing takes about as long as both.
const maxUnhashed = 8

// unhashed has an element for each such buffer of all copies, which take 8 MiB at most.
var unhashed = make(chan struct{}, 64)

// copyHashed copies while another goroutine hashes. sum waits for that and must be called.
func copyHashed(to io.Writer, from io.Reader) (sum func() hash, size int64, err error) {
	type part struct {
		buffer *[128 << 10]byte
		length int
	}
	parts := make(chan part, maxUnhashed)
	digest := sha256.New()
	var hashing sync.WaitGroup
	hashing.Go(func() {
		for p := range parts {
			_, _ = digest.Write(p.buffer[:p.length]) // never fails
			copyBuffers.Put(p.buffer)
			<-unhashed
		}
	})
	sum = func() hash {
		hashing.Wait()
		return hash(hex.EncodeToString(digest.Sum(nil)))
	}
	defer close(parts)
	for {
		b := copyBuffers.Get().(*[128 << 10]byte) //nolint:forcetypeassert // the pool has nothing else
		n, failed := readUp(from, b[:])
		if _, err = to.Write(b[:n]); err != nil {
			return sum, size, err
		}
		size += int64(n)
		unhashed <- struct{}{} // hashing waits for nothing
		parts <- part{b, n}
		if errors.Is(failed, io.EOF) {
			return sum, size, nil
		}
		if failed != nil {
			return sum, size, failed
		}
	}
}

// readUp reads until b is full. Unlike io.ReadFull it distinguishes the end from a body that
// was cut.
func readUp(from io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = from.Read(b[n:])
		n += m
	}
	return n, err
}

// Discard removes the temporary file, and the directories that were made for it, unless the content took its place.
func (in *Incoming) Discard() {
	if in.temp.Temp == nil && in.made == nil {
		return
	}
	_ = in.e.as(func() error {
		if in.temp.Temp != nil {
			in.temp.Discard()
		}
		files.RemoveDirs(in.made)
		return nil
	})
	in.temp, in.made = temp{}, nil
}

// Put gives the file the content, and the mode where that is not nil: at once and as a whole, unless the file has other
// names or attributes, which writing in place keeps. undo_edit restores the file that was there. The error is an
// *Error, or ErrCondition. Result.Text is empty.
func (e *Editor) Put(in *Incoming, c Conditions, mode *fs.FileMode) (Result, error) {
	p, leave, err := e.enter(in.shown)
	defer leave()
	if err == nil {
		err = p.isFile()
	}
	if err != nil {
		return Result{}, err
	}
	if p.real != in.real {
		return Result{}, refuse(CodeConflict, "The path %s leads to another file than when its content began to arrive. Nothing was changed.", p.shown)
	}
	w := &openFile{e: e, place: p}
	defer w.close()
	if err := e.as(func() error { return w.open(true) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	if err := w.check(c); err != nil {
		return Result{}, err
	}
	en := &entry{}
	err = e.settle(in, w, mode, en)
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, refuse(CodeConflict, "A forced restore or another process removed %s or its directory while the upload arrived. "+
			"Nothing was changed: send it again.", p.shown)
	}
	if err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	r := Result{Path: p.shown, SHA256: in.SHA256, Existed: p.exists()}
	en.after = hash(in.SHA256)
	r.HistoryErr = w.record(e, en)
	return r, nil
}

// settle puts the content in its place, after the history has kept the file that was there.
func (e *Editor) settle(in *Incoming, w *openFile, mode *fs.FileMode, en *entry) error {
	err := e.as(func() error {
		if w.file == nil {
			en.dirs = len(in.made)
			return in.take(mode)
		}
		want := w.file.info.Mode()
		if mode != nil {
			want = *mode
		}
		r := w.file.replacement(want)
		r.Temp = in.temp.Temp
		r.Check = func() error {
			w.keep(en)
			return w.file.unchanged()
		}
		r.InPlace = func() error {
			if w.write == nil {
				return unix.ETXTBSY
			}
			w.keep(en)
			return e.rewrite(w.write, w.file, in.temp, in.Size, want)
		}
		return e.temps.Replace(r)
	})
	if err == nil {
		in.made = nil
	}
	return err
}

// take gives a new file its name.
func (in *Incoming) take(mode *fs.FileMode) error {
	if mode == nil && in.old { // another process removed the file whose mode this was to get
		mode = new(fs.FileMode(0o644))
	}
	if mode != nil {
		if err := in.temp.Chmod(*mode & files.ModeBits); err != nil {
			return err
		}
	}
	return in.temp.Take(unix.AT_FDCWD, in.real)
}

// Remove removes a file or a symbolic link, which undo_edit restores. The error is an *Error, or ErrCondition.
func (e *Editor) Remove(path string, c Conditions) (Result, error) {
	path = cleanPath(path)
	if l, err := e.linkAt("/", path); err != nil {
		return Result{}, err
	} else if l != nil {
		return e.removeLink(path, l, c)
	}
	p, leave, err := e.enter(path)
	defer leave()
	switch {
	case err != nil:
		return Result{}, err
	case p.err == nil && !p.exists():
		if len(c.Match) > 0 {
			return Result{}, ErrCondition
		}
		return Result{}, notFound(path)
	}
	if err := p.isFile(); err != nil {
		return Result{}, err
	}
	w, en := &openFile{e: e, place: p}, &entry{}
	defer w.close()
	if err := e.as(func() error { return w.open(false) }); err != nil {
		return Result{}, unreadable(path, err)
	}
	if err := w.check(c); err != nil {
		return Result{}, err
	}
	err = e.as(func() error {
		if w.file == nil { // it may not be read
			return os.Remove(p.real)
		}
		w.keep(en)
		return w.file.remove(0)
	})
	if err != nil {
		return Result{}, systemError(path, "remove", err)
	}
	return Result{Path: path, Existed: true, HistoryErr: w.record(e, en)}, nil
}

// removeLink removes a symbolic link, which has no hash.
func (e *Editor) removeLink(path string, l *link, c Conditions) (Result, error) {
	defer e.locks.lock(l.path)()
	if c.NoneMatch != nil || c.Match != nil && !slices.Contains(c.Match, "*") {
		return Result{}, ErrCondition
	}
	if err := e.as(l.remove); err != nil {
		return Result{}, systemError(path, "remove", err)
	}
	return Result{Path: path, Existed: true, HistoryErr: e.history.push(l.path, l.entry())}, nil
}

// openFile is the file at a place, open to be replaced or removed as a whole.
type openFile struct {
	place
	e      *Editor
	file   *file    // without its data; nil where no file exists, or may be read
	read   *os.File // nil where it may not be read
	write  *os.File // nil where it is being executed
	unkept error    // why the history does not have its bytes
	sum    hash     // once it was needed
	large  bool     // it has an element in [Editor.large]
}

// open opens the file, and checks that the user may write it where writes is set. It runs inside as.
func (w *openFile) open(writes bool) (err error) {
	if !w.exists() {
		return nil
	}
	if writes {
		w.write, err = files.OpenNoFollow(w.real, os.O_WRONLY)
		if err != nil && !errors.Is(err, unix.ETXTBSY) {
			return err
		}
	}
	if w.read, w.unkept = files.OpenNoFollow(w.real, os.O_RDONLY); w.unkept != nil && w.write == nil {
		return nil // a removal needs no right to read
	}
	w.file = &file{path: w.real}
	if w.read == nil {
		return w.file.look(w.write)
	}
	w.file.read = w.read
	return w.file.look(w.read)
}

func (w *openFile) close() {
	if w.large {
		<-w.e.large
	}
	for _, f := range []*os.File{w.read, w.write} {
		if f != nil {
			_ = f.Close() // the content was flushed
		}
	}
}

// check returns ErrCondition where the file does not meet the conditions. It reads the file where they name a hash.
func (w *openFile) check(c Conditions) error {
	for i, hashes := range [][]string{c.Match, c.NoneMatch} {
		if hashes == nil {
			continue
		}
		if ok, err := w.isOne(hashes); err != nil {
			return err
		} else if ok != (i == 0) {
			return ErrCondition
		}
	}
	return nil
}

// isOne reports whether the file exists and has one of the hashes.
func (w *openFile) isOne(hashes []string) (bool, error) {
	switch {
	case !w.exists():
		return false, nil
	case slices.Contains(hashes, "*"):
		return true, nil
	case w.read == nil:
		return false, unreadable(w.shown, w.unkept)
	}
	if w.sum == "" {
		if w.file.info.Size() > w.e.maxScan {
			return false, w.e.tooLong(w.place)
		}
		if err := w.hash(); err != nil {
			return false, unreadable(w.shown, err)
		}
	}
	return slices.Contains(hashes, string(w.sum)), nil
}

// hash sets the hash of the file.
func (w *openFile) hash() error {
	sum, err := files.SHA256(w.read, w.file.info.Size(), nil)
	w.sum = hash(sum)
	return err
}

// keep reads the file's bytes for the history, unless it has them. It runs inside as.
func (w *openFile) keep(en *entry) {
	if w.read == nil || en.data != nil {
		return
	}
	size := w.file.info.Size()
	if most := min(w.e.maxRead, store.MaxContent); size > most {
		w.unkept = fmt.Errorf("%w: the history keeps files of %d bytes at most, and this one has %d", store.ErrTooLarge, most,
			size)
		return
	}
	if size > 1<<20 && !w.large {
		w.e.large <- struct{}{}
		w.large = true
	}
	data := make([]byte, size+1) // one more shows the end
	n, err := w.read.ReadAt(data, 0)
	if n != int(size) {
		w.unkept = errors.Join(errChanged, err)
		return
	}
	en.mode, en.data = w.file.info.Mode(), data[:n]
	w.file.data = en.data
}

// record puts the entry into the history.
func (w *openFile) record(e *Editor, en *entry) error {
	if w.exists() && w.unkept != nil {
		e.history.forget(w.real)
		return w.unkept
	}
	return e.history.push(w.real, en)
}

// restoreLarge undoes an edit of a file, or to one, that is too large to be shown.
func (e *Editor) restoreLarge(p place, en *entry) (Result, error) {
	w := &openFile{e: e, place: p}
	defer w.close()
	if err := p.isFile(); err != nil {
		return Result{}, err
	}
	if err := e.as(func() error { return w.open(true) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	if err := w.check(Conditions{Match: []string{string(en.after)}}); errors.Is(err, ErrCondition) {
		return Result{}, changedSince(p)
	} else if err != nil {
		return Result{}, err
	}
	if en.data == nil {
		return e.undoCreation(p, w.file, "", en)
	}
	if err := e.as(func() error { return e.overwrite(w.file, en.data, en.mode) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	return e.undone(p, en, nil, ""), nil
}
