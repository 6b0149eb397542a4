//go:build !linux

package hostpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Open opens the file at an absolute path. follow is asked before each link on
// the way, the last element's included; its error is returned as it is.
//
// Without O_PATH a link is judged and read in two steps, so an agent that is
// fast enough can replace it in between.
func Open(name string, follow func(Link) error) (*File, error) {
	if !filepath.IsAbs(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("the path is not absolute")}
	}
	name = filepath.Clean(name)
	var above []id
	for i, links := 1, 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if i > 1 {
			dir, err := os.Lstat(filepath.Dir(name[:i]))
			if err != nil {
				return nil, err
			}
			above = append(above, idOf(dir.Sys().(*syscall.Stat_t)))
		}
		info, err := os.Lstat(name[:i])
		if err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(name[:i])
		if err != nil {
			return nil, err
		}
		if err := follow(Link{name[:i], int(info.Sys().(*syscall.Stat_t).Uid), target, false, above}); err != nil {
			return nil, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(name[:i]), target)
		}
		name, i, above = filepath.Join(target, name[i:]), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &File{file, name, above}, nil
}

func (f *File) reopen() (*os.File, error) { return os.Open(f.path) }

// OpenRoot opens the directory for work in it.
func (f *File) OpenRoot() (*os.Root, error) { return os.OpenRoot(f.path) }
