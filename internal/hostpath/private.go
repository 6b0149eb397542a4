package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OpenPrivate opens a directory that only this process's user can look into: it makes
// the directory where it does not exist and narrows it to mode 0700. A symbolic link,
// a directory of another user, and one that users share, such as /tmp or /var/lib, is
// an error.
func OpenPrivate(dir string) (*os.Root, error) {
	dir = filepath.Clean(dir) // a slash at the end would follow a link
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("it is not a directory (links are not followed)")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if err := narrow(root, info); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// narrow closes a directory to others. Info is from before it was opened.
func narrow(root *os.Root, info fs.FileInfo) error {
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	stat, ok := opened.Sys().(*syscall.Stat_t)
	switch {
	case !os.SameFile(info, opened):
		return errors.New("the directory was exchanged while it was opened")
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("it does not belong to user %d", os.Geteuid())
	case opened.Mode()&fs.ModeSticky != 0:
		return errors.New("other users share it")
	case opened.Mode().Perm()&0o077 != 0:
		if err := checkUnused(root); err != nil {
			return err
		}
	}
	return root.Chmod(".", 0o700)
}

// checkUnused refuses a directory with files that other users may use.
func checkUnused(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("other users may use %s in it; if only you did, 'chmod -R go= %s' closes it", entry.Name(), root.Name())
		}
	}
	return nil
}

// RemoveLinks removes the symbolic links of these names in a private directory, all of them where no name is given,
// and returns those that it removed. Their targets stay. Only another process of this user can have made them, to
// have this one use other files.
func RemoveLinks(root *os.Root, names ...string) (removed []string, err error) {
	if len(names) == 0 {
		entries, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	}
	for _, name := range names {
		if info, err := root.Lstat(name); err != nil || info.Mode().Type() != fs.ModeSymlink {
			continue
		}
		if err := root.Remove(name); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}
