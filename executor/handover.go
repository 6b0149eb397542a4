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
// the user's already. Links are not followed. What is mounted below dir belongs
// to somebody outside of the sandbox and is left alone. The error is the first
// of those met; what else could be handed over was.
func HandOver(dir string, uid, gid int) error {
	if owner, err := ownerOf(dir); err != nil || owner == uid {
		return err
	}
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(dir)
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
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || !mounts[real] {
		return 0, false, err
	}
	uid, err = ownerOf(real)
	return uid, true, err
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
