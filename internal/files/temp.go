//go:build linux

package files

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is where a temporary file is made: an [*os.Root], or [System].
type Dir interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Rename(oldname, newname string) error
	Remove(name string) error
}

// System is the [Dir] of absolute paths.
type System struct{}

// OpenFile is [os.OpenFile].
func (System) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

// Rename is [os.Rename].
func (System) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Remove is [os.Remove].
func (System) Remove(name string) error { return os.Remove(name) }

// Temp is a new file under a temporary name. It must be discarded in the end, which
// has no effect on a file that was renamed.
type Temp struct {
	*os.File
	dir    Dir
	name   string // "" once it was renamed
	forget func()
}

// Name returns the temporary name in the file's [Dir].
func (f *Temp) Name() string { return f.name }

// Create makes a file in a directory of d, for reading and writing. Above is the absolute path of
// d, "" for [System]. A nil Ledger records nothing.
func (l *Ledger) Create(d Dir, above, dir string, mode fs.FileMode) (*Temp, error) {
	return l.create(d, above, dir, mode, byUser)
}

// CreateOwn is Create for a directory that the user may not write to: a file that a crash
// leaves is removed with the rights of this process.
func (l *Ledger) CreateOwn(d Dir, above, dir string, mode fs.FileMode) (*Temp, error) {
	return l.create(d, above, dir, mode, byServer)
}

func (l *Ledger) create(d Dir, above, dir string, mode fs.FileMode, maker byte) (*Temp, error) {
	name := filepath.Join(dir, ".actiond-"+rand.Text()+".tmp")
	forget := l.record(maker, filepath.Join(above, name))
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		forget()
		return nil, err
	}
	return &Temp{File: f, dir: d, name: name, forget: forget}, nil
}

// Rename gives the file its name, and replaces the file of that name.
func (f *Temp) Rename(name string) error {
	if err := f.dir.Rename(f.name, name); err != nil {
		return err
	}
	f.renamed()
	return nil
}

// renamed notes that the file has its name.
func (f *Temp) renamed() {
	f.name = ""
	f.forget()
}

// Discard closes the file, and removes it unless it was renamed.
func (f *Temp) Discard() {
	_ = f.Close() // a second close; an error of the first one counted
	if f.name == "" {
		return
	}
	// A file that cannot be removed now stays recorded for the next start.
	if err := f.dir.Remove(f.name); err == nil || errors.Is(err, fs.ErrNotExist) {
		f.forget()
	}
}
