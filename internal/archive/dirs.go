package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpen bounds how many directories are open at a time. Those above are opened
// again, from the root down, once the work goes up that far.
const maxOpen = 128

// dirs goes from directory to directory below a root, by the shortest way.
type dirs struct {
	root *os.File
	as   func(func() error) error // does file work with the rights of a user
	// make makes directories that are not there, with this mode; nil fails.
	make *fs.FileMode

	at []level // from below the root to the current directory
}

// level is a directory on the way to the current one.
type level struct {
	name   string
	file   *os.File // nil: too many others are open
	finish *attributes
}

// attributes are set on a directory when it is left, because its mode may
// forbid to make files in it, and files change its time.
type attributes struct {
	mode  fs.FileMode
	mtime time.Time
}

// enter makes a directory, by its path below the root, the current one, and
// returns it. The caller must not close it.
func (d *dirs) enter(path string) (*os.File, error) {
	rest := ""
	if path != "." {
		rest = path
	}
	for i := range d.at {
		name, below, _ := strings.Cut(rest, "/")
		if d.at[i].name != name {
			if err := d.leave(i); err != nil {
				return nil, err
			}
			break
		}
		rest = below
	}
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if err := d.down(name); err != nil {
			return nil, err
		}
	}
	return d.current()
}

// leave goes up until only depth levels are left.
func (d *dirs) leave(depth int) error {
	for len(d.at) > depth {
		last := &d.at[len(d.at)-1]
		if last.finish != nil {
			file, err := d.current()
			if err == nil {
				err = d.as(func() error { return last.finish.apply(file) })
			}
			if err != nil {
				return fmt.Errorf("finishing directory %s: %w", last.name, err)
			}
		}
		if last.file != nil {
			_ = last.file.Close() // nothing is buffered
		}
		d.at = d.at[:len(d.at)-1]
	}
	return nil
}

func (a *attributes) apply(dir *os.File) error {
	if err := setTime(dir, ".", a.mtime); err != nil {
		return err
	}
	return dir.Chmod(a.mode)
}

// setTime sets the modification time of name in dir, or of a link itself.
func setTime(dir *os.File, name string, mtime time.Time) error {
	t := unix.Timespec{}
	if !mtime.IsZero() {
		var err error
		if t, err = unix.TimeToTimespec(mtime); err != nil {
			return err
		}
	}
	return retry(func() error {
		return unix.UtimesNanoAt(int(dir.Fd()), name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// current opens the current directory again if it was closed.
func (d *dirs) current() (*os.File, error) {
	if len(d.at) == 0 {
		return d.root, nil
	}
	if last := &d.at[len(d.at)-1]; last.file != nil {
		return last.file, nil
	}
	// No open directory is close: begin at the root.
	above := d.root
	for i := range d.at {
		var file *os.File
		err := d.as(func() (err error) { file, err = openDirAt(above, d.at[i].name); return err })
		if i > 0 && i <= len(d.at)-maxOpen {
			_ = above.Close()
			d.at[i-1].file = nil
		}
		if err != nil {
			return nil, err
		}
		d.at[i].file, above = file, file
	}
	return above, nil
}

// down goes into a directory of the current one.
func (d *dirs) down(name string) error {
	above, err := d.current()
	if err != nil {
		return err
	}
	var file *os.File
	err = d.as(func() error {
		if d.make != nil {
			if _, err := makeDir(above, name, *d.make); err != nil {
				return err
			}
		}
		file, err = openDirAt(above, name)
		return err
	})
	if err != nil {
		return err
	}
	d.push(level{name: name, file: file})
	return nil
}

func (d *dirs) push(l level) {
	d.at = append(d.at, l)
	if i := len(d.at) - 1 - maxOpen; i >= 0 && d.at[i].file != nil {
		_ = d.at[i].file.Close()
		d.at[i].file = nil
	}
}

// makeDir makes a directory unless it is there.
func makeDir(above *os.File, name string, mode fs.FileMode) (made bool, err error) {
	err = retry(func() error { return unix.Mkdirat(int(above.Fd()), name, uint32(mode.Perm())) })
	if !errors.Is(err, fs.ErrExist) {
		if err != nil {
			err = &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		return err == nil, err
	}
	stat, err := statAt(above, name)
	if err == nil && !isType(&stat, unix.S_IFDIR) {
		err = fmt.Errorf("%w: %s is not a directory", ErrExists, name)
	}
	return false, err
}

// close leaves all directories, which get their modes and times.
func (d *dirs) close() error { return d.leave(0) }

// abandon closes the open directories and changes nothing more.
func (d *dirs) abandon() {
	for _, l := range d.at {
		if l.file != nil {
			_ = l.file.Close()
		}
	}
	d.at = nil
}
