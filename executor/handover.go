package executor

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// HandOver gives dir and what is in it to the user and the group, unless dir is
// the user's already. Links in it are not followed, and links on the way to it
// only where this process's user or root made them. What is mounted below dir belongs
// to somebody outside of the sandbox and is left alone. The error is the first
// of those met; what else could be handed over was.
func HandOver(dir string, uid, gid int) error {
	real, err := resolve(dir)
	if err != nil {
		return err
	}
	if owner, err := ownerOf(real); err != nil || owner == uid {
		return err
	}
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var first error
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if path != "." && mounts[filepath.Join(real, path)] {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil {
			err = root.Lchown(path, uid, gid)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", filepath.Join(dir, path), err)
		}
		return nil
	})
	return first
}

// MountOwner is the owner of dir if something is mounted there.
func MountOwner(dir string) (uid int, mounted bool, err error) {
	mounts, err := mountPoints()
	if err != nil {
		return 0, false, err
	}
	real, err := resolve(dir)
	if err != nil || !mounts[real] {
		return 0, false, err
	}
	uid, err = ownerOf(real)
	return uid, true, err
}

// maxLinks is how many links the kernel follows on the way to a file (path_resolution(7)).
const maxLinks = 40

// resolve is filepath.EvalSymlinks for what the rights of somebody depend on: a
// link that a user of the sandbox made before its last stop may lead anywhere, to
// /etc for one, and is an error.
func resolve(dir string) (string, error) {
	path := filepath.Clean(dir)
	for range maxLinks {
		link, owner, err := firstLink(path)
		if err != nil || link == "" {
			return filepath.Clean(path), err // it has no links left
		}
		if owner != 0 && owner != os.Geteuid() {
			return "", fmt.Errorf("%s: the link %s was made by the user %d", dir, link, owner)
		}
		before, rest := filepath.Dir(link), path[len(link):]
		if path, err = os.Readlink(link); err != nil {
			return "", err
		}
		if !filepath.IsAbs(path) {
			path = before + "/" + path
		}
		path += rest // not cleaned: what stands before a ".." may be a link
	}
	return "", &fs.PathError{Op: "resolve", Path: dir, Err: syscall.ELOOP}
}

// firstLink is the first link among path and the directories that lead to it, and
// whose it is; "" if there is none.
func firstLink(path string) (link string, owner int, err error) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		info, err := os.Lstat(path[:i])
		if err != nil {
			return "", 0, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return path[:i], int(info.Sys().(*syscall.Stat_t).Uid), nil
		}
	}
	return "", 0, nil
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

// unescape undoes what the kernel does to blanks, line ends and backslashes in
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
