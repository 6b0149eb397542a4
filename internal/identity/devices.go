package identity

import (
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// overflowGID is the group that the kernel shows where a user namespace lacks the real one (user_namespaces(7)).
const overflowGID = 65534

// AddDeviceGroups adds the groups by which the user may read and write the character devices below a
// directory, where not every user may. Root's group is not added. It looks into directories of root that no
// other user can write, and follows no links, so that an agent chooses no group. u must not be in use yet.
func (u *User) AddDeviceGroups(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil && path == dir {
			return err
		}
		info, unread := entry.Info()
		if err != nil || unread != nil { // it was removed meanwhile, or may not be looked into
			return nil //nolint:nilerr // the user gets no group of it
		}
		stat, _ := info.Sys().(*syscall.Stat_t)
		perm := info.Mode().Perm()
		switch {
		case stat == nil:
		case entry.IsDir() && (stat.Uid != 0 || perm&0o022 != 0):
			return fs.SkipDir
		case info.Mode()&fs.ModeCharDevice == 0, perm&0o006 == 0o006, perm&0o060 != 0o060:
		case stat.Gid == 0, stat.Gid == overflowGID, slices.Contains(u.Groups, stat.Gid):
		default:
			u.Groups = append(u.Groups, stat.Gid)
		}
		return nil
	})
}
