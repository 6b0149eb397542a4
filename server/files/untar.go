package files

import (
	"archive/tar"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/files"
)

// Untar unpacks an archive and returns how many entries of it are there. A directory that it
// made goes where none is.
func (t *Trees) Untar(name string, create bool, archived io.Reader) (entries int, err error) {
	var dir *os.File
	var made []string
	err = t.cfg.As(func() (err error) {
		if create {
			if made, err = files.MakeDirs(name); err != nil {
				return err
			}
		}
		dir, err = files.Open(name, os.O_RDONLY|unix.O_DIRECTORY|unixFlags, 0)
		return err
	})
	if err == nil {
		defer dir.Close()
		u := &archive.Unpacker{Root: dir, AllLinks: true, DirMode: newDirectory, As: t.cfg.As}
		entries, err = u.Unpack(tar.NewReader(archived), nil)
	}
	if err != nil && entries == 0 && made != nil {
		_ = t.cfg.As(func() error { files.RemoveDirs(made); return nil }) // those that are empty
	}
	return entries, err
}
