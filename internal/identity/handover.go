package identity

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/hostpath"
)

// HandOver gives dir and its content to the user and the group, unless dir is
// the user's already. Where dir is mounted, or lies below a mount, what belongs to
// another user than dir stays as it is, with all that is in it. Links in it are not followed, and links on the way to it
// only where this process's user or root made them: a link that a user of the
// sandbox made before its last stop may lead anywhere, to /etc for one. Mounts
// below dir belong to the host and are left alone. The error is the first one; all
// other files were handed over.
func HandOver(dir string, uid, gid int) error {
	opened, owner, err := open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	if owner == uid {
		return nil
	}
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	root, err := opened.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	shared := mountAbove(opened.Path(), mounts) != "/"
	var first error
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if path != "." && mounts[filepath.Join(opened.Path(), path)] {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		others := false
		if err == nil {
			others, err = chown(root, path, uid, gid, owner, shared)
		}
		if others && entry.IsDir() {
			return fs.SkipDir
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", filepath.Join(dir, path), err)
		}
		return nil
	})
	return first
}

// chown gives a file, or a link itself, to a user, unless it is shared and belongs to another user than
// owner. It looks at the file that it changes: others may replace it meanwhile.
func chown(root *os.Root, path string, uid, gid, owner int, shared bool) (others bool, err error) {
	f, err := root.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if shared && int(info.Sys().(*syscall.Stat_t).Uid) != owner {
		return true, nil
	}
	return false, unix.Fchownat(int(f.Fd()), "", uid, gid, unix.AT_EMPTY_PATH)
}

// MountOwner returns the user outside of the sandbox to whom dir belongs, if it is
// mounted or lies below a mount: the owner of the mounted directory, or where that
// is root the owner of dir.
func MountOwner(dir string) (uid int, mounted bool, err error) {
	mounts, err := mountPoints()
	if err != nil {
		return 0, false, err
	}
	opened, uid, err := open(dir)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = opened.Close() }()
	point := mountAbove(opened.Path(), mounts)
	switch point {
	case "/":
		return 0, false, nil
	case opened.Path():
		return uid, true, nil
	}
	owner, err := ownerOf(point)
	if err != nil {
		return 0, false, err
	}
	return cmp.Or(owner, uid), true, nil
}

// mountAbove returns the mount in which a path lies.
func mountAbove(path string, mounts map[string]bool) string {
	for path != "/" && !mounts[path] {
		path = filepath.Dir(path)
	}
	return path
}

// MakeDir makes a directory and those above it, also the targets of links that
// lead nowhere. It follows links as HandOver. made says that it was missing.
func MakeDir(dir string, mode os.FileMode) (made bool, err error) {
	opened, made, err := hostpath.MakeDir(dir, uint32(mode.Perm()), hostpath.OwnLinks)
	if err != nil {
		return false, err
	}
	return made, opened.Close()
}

// open opens a directory without following links of other users, and returns its
// owner.
func open(dir string) (opened *hostpath.File, owner int, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, 0, err
	}
	if opened, err = hostpath.Open(dir, hostpath.OwnLinks); err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err != nil {
		_ = opened.Close()
		return nil, 0, err
	}
	return opened, int(info.Sys().(*syscall.Stat_t).Uid), nil
}

func ownerOf(path string) (uid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), nil
}

// mountPoints are the paths at which something is mounted. Device numbers would
// not do: two directories of one file system can be mounted inside each other,
// and the files of an overlay have other numbers than its directories.
func mountPoints() (map[string]bool, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("finding out what is mounted: %w", err)
	}
	points := map[string]bool{}
	for line := range bytes.Lines(data) {
		if fields := bytes.Fields(line); len(fields) > 4 {
			points[unescape(string(fields[4]))] = true
		}
	}
	return points, nil
}

// unescape undoes the kernel's escapes of blanks, line ends and backslashes in
// the paths it lists: a backslash and three octal digits (proc(5), mangle_path).
func unescape(path string) string {
	var out []byte
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+4 <= len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(code))
				i += 3
				continue
			}
		}
		out = append(out, path[i])
	}
	return string(out)
}
