// Package transfer copies files between this machine and tar archives, as docker
// cp does: the source goes into the destination if that is a directory, and
// otherwise gets its name.
//
// An archive from a sandbox may be the work of an attacker, and the user of this
// program may be root. A directory of this machine may be mounted in a sandbox, so
// an attacker may have made links in it as well.
package transfer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/actiond/actiond/internal/archive"
)

// Open opens a file or directory of this machine for reading, by an absolute path,
// and follows only links that no attacker can have made.
type Open func(path string) (*os.File, error)

// Unpacking says where an archive goes.
type Unpacking struct {
	Dest string // a path of this machine
	// Name is the new name of the archive's first member if Dest is a directory.
	Name string
	// Content unpacks the content of the archive's directory, and not that itself,
	// if Dest is a directory.
	Content bool
	Open    Open
	LeftOut func(text string)
}

// Unpack unpacks an archive that has one file, or one directory with all that is
// in it. It fails with archive.ErrExists where something else is in the way, and
// with fs.ErrNotExist where a directory is not there.
func (u Unpacking) Unpack(data io.Reader) error {
	in := tar.NewReader(data)
	first, err := in.Next()
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	isDir := first.Typeflag == tar.TypeDir
	there, err := u.openDest(isDir)
	if err != nil {
		return err
	}
	if there != nil {
		defer func() { _ = there.Close() }()
	}
	if there != nil && isDir && (u.Content || u.Name == "/") {
		return u.unpack(there, false, in, first)
	}
	parent, name := there, u.Name
	if there == nil {
		dest, err := filepath.Abs(u.Dest)
		if err != nil {
			return err
		}
		if parent, err = u.Open(filepath.Dir(dest)); err != nil {
			return err
		}
		defer func() { _ = parent.Close() }()
		name = filepath.Base(dest)
	}
	if !isDir {
		first.Name = name
		one := &archive.Unpacker{Root: parent, One: true, Spare: true, LeftOut: u.LeftOut}
		_, err := one.Unpack(in, first)
		return err
	}
	dir, made, err := archive.MakeDir(parent, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return u.unpack(dir, made, in, first)
}

func (u Unpacking) unpack(dir *os.File, made bool, in *tar.Reader, first *tar.Header) error {
	unpacker := &archive.Unpacker{Root: dir, NewRoot: made, Top: filepath.Clean(first.Name), Spare: true, LeftOut: u.LeftOut}
	_, err := unpacker.Unpack(in, first)
	return err
}

// openDest opens the destination if that is a directory.
func (u Unpacking) openDest(forDir bool) (*os.File, error) {
	dest, err := filepath.Abs(u.Dest)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dest)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !forDir && strings.HasSuffix(u.Dest, "/"):
		return nil, fmt.Errorf("directory %s: %w", u.Dest, fs.ErrNotExist)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // nothing is there
	case err != nil:
		return nil, err
	case !info.IsDir() && forDir:
		return nil, fmt.Errorf("%w: %s is not a directory", archive.ErrExists, u.Dest)
	case !info.IsDir():
		return nil, nil //nolint:nilnil // a file, which is replaced
	}
	dir, err := u.Open(dest)
	if err != nil {
		return nil, err
	}
	// The name may lead elsewhere by now: the opened file counts.
	if info, err = dir.Stat(); err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is not a directory", archive.ErrExists, u.Dest)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// IsContent reports whether a source means the content of a directory, and not the
// directory itself.
func IsContent(source string) bool {
	return source == "." || source == ".." || strings.HasSuffix(source, "/.") || strings.HasSuffix(source, "/..") ||
		filepath.Clean(source) == "/"
}

// Pack packs a file or directory of this machine under a name; "." means the entries
// of the directory. Links are packed as links.
func Pack(p *archive.Packer, source, name string, open Open) error {
	path, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	base := filepath.Base(path)
	if IsContent(source) {
		base = "."
	} else {
		path = filepath.Dir(path)
	}
	dir, err := open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return p.Pack(dir, base, name)
}
