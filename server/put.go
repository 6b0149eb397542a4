package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// incomingFile is a file or a directory that is put into a directory.
type incomingFile struct {
	name   string // relative and clean
	dir    bool
	size   int64
	open   func() (io.ReadCloser, error) // may be called several times
	follow bool                          // a symbolic link of that name, also one that leads out
}

// Owner is the numeric user and group of new files.
type Owner struct{ UID, GID int }

// put writes files into a directory, which is made where it is missing, with the
// rights of the sandbox's user. A file that is there is replaced by a complete one
// and keeps its mode and owner; one that has other names or attributes is written in
// place.
//
// A server with a key writes files itself where the user may not, because the key
// shows that the controller sent them: see putAsServer.
func (s *Server) put(ctx context.Context, directory string, incoming []incomingFile) error {
	var root *os.Root
	denied, err := s.asUser(func() (err error) {
		if err := os.MkdirAll(directory, newDirectory); err != nil {
			return err
		}
		if root, err = os.OpenRoot(directory); err != nil {
			return err
		}
		return checkRoom(root, incoming)
	})
	if root != nil {
		defer root.Close()
	}
	if err != nil {
		return err
	}
	if denied != nil && !s.mayOverrule(denied) {
		return legacyFileError(denied, directory, http.StatusBadRequest)
	}
	for _, a := range incoming {
		if ctx.Err() != nil {
			return fmt.Errorf("writing %q: %w", a.name, ctx.Err())
		}
		refusal := denied
		if refusal == nil {
			if refusal, err = s.asUser(func() error { return s.putAsUser(root, directory, a) }); err != nil {
				return err
			}
		}
		if s.mayOverrule(refusal) {
			refusal = s.putAsServer(directory, a)
		}
		if refusal != nil {
			return legacyFileError(refusal, directory+"/"+a.name, http.StatusBadRequest)
		}
	}
	return nil
}

// asUser runs work with the user's rights and returns its error. Where the rights could
// not be taken on, work did not run and err says why.
func (s *Server) asUser(work func() error) (refusal, err error) {
	ran := false
	err = s.cfg.As(func() error {
		ran = true
		return work()
	})
	if ran {
		return err, nil
	}
	return nil, err
}

// mayOverrule reports whether err is the refusal of a right that the server may use
// instead. A server without a key is reached by the agent too.
func (s *Server) mayOverrule(err error) bool {
	return s.cfg.Owner != nil && s.locked() && errors.Is(err, fs.ErrPermission)
}

// putAsUser writes a file below root, whose path is directory.
func (s *Server) putAsUser(root *os.Root, directory string, a incomingFile) error {
	if a.dir {
		return root.MkdirAll(a.name, newDirectory)
	}
	if a.follow {
		// The user could follow the link as well.
		return s.putFollowing(directory, a)
	}
	if err := root.MkdirAll(path.Dir(a.name), newDirectory); err != nil {
		return err
	}
	return s.replace(root, directory, a)
}

// putFollowing is putAsUser where the last component of the path may be a symbolic
// link to a file anywhere.
func (s *Server) putFollowing(directory string, a incomingFile) error {
	full := directory + "/" + a.name // not cleaned: only the kernel knows what .. means
	if info, err := os.Lstat(full); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if full, err = filepath.EvalSymlinks(full); errors.Is(err, fs.ErrNotExist) {
			return errDangling
		} else if _, known := errors.AsType[syscall.Errno](err); err != nil && !known {
			return unix.ELOOP // it has no error of its own for that
		} else if err != nil {
			return err
		}
	}
	dir, name := path.Split(full)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	a.name = name
	return s.replace(root, dir, a)
}

var errDangling = refuse(http.StatusBadRequest, "The file to be written is a symbolic link that points to nothing")

// replace writes a file below root, whose path is above.
func (s *Server) replace(root *os.Root, above string, a incomingFile) error {
	old, err := openOld(root, a.name)
	if err != nil {
		return err
	}
	r := files.Replacement{
		Dir: root, Above: above, Name: a.name, Mode: newFile,
		Fill: func(f *os.File) error { return fillFrom(f, a) },
	}
	if old == nil {
		return s.cfg.Temps.Replace(r)
	}
	defer old.Close()
	if r.Old, err = old.Stat(); err != nil {
		return err
	}
	if r.Mode = r.Old.Mode(); !r.Mode.IsRegular() {
		return refuse(http.StatusBadRequest, "The file to be written exists and is not a regular file but %s",
			fileKind(r.Mode))
	}
	r.KeepInode = keepsInode(root, a.name, old, r.Old)
	r.InPlace = func() error { return s.overwrite(old, r.Old, a) }
	return s.cfg.Temps.Replace(r)
}

// openOld opens the file that is to be written, which also finds out whether it may
// be; nil if it does not exist.
func openOld(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_WRONLY|unixFlags, 0)
	if err == nil {
		if err = files.Check(f, os.O_WRONLY); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if _, err := root.Lstat(name); err == nil {
		return nil, errDangling
	}
	return nil, nil //nolint:nilnil // it does not exist
}

// keepsInode reports whether a file is more than its bytes: other names lead to it,
// attributes hang on it, or the name is a link to it.
func keepsInode(root *os.Root, name string, f *os.File, info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink != 1 {
		return true
	}
	if named, err := root.Lstat(name); err != nil || !named.Mode().IsRegular() {
		return true
	}
	return files.HasAttributes(f)
}

// fillFrom writes the content of a new file.
func fillFrom(f *os.File, a incomingFile) error {
	if err := checkSpace(f, a.size); err != nil {
		return err
	}
	if err := reserve(f, a.size); err != nil {
		return err
	}
	return copyTo(f, a)
}

func copyTo(f *os.File, a incomingFile) error {
	content, err := a.open()
	if err != nil {
		return err
	}
	defer content.Close()
	n, err := io.Copy(f, io.LimitReader(content, a.size))
	if err != nil {
		return err
	}
	if n != a.size {
		return fmt.Errorf("content ended after %d of %d bytes", n, a.size)
	}
	return nil
}

// overwrite writes an open file in place. Its old bytes are kept where there is no
// space for the new ones.
func (s *Server) overwrite(f *os.File, old fs.FileInfo, a incomingFile) error {
	if err := checkSpace(f, a.size-occupied(old)); err != nil {
		return err
	}
	if err := reserve(f, a.size); err != nil {
		_ = f.Truncate(old.Size()) // gives back the reserved space
		return err
	}
	return s.cfg.WriteInPlace(f, func() error {
		if err := copyTo(f, a); err != nil {
			return err
		}
		return f.Truncate(a.size)
	})
}

// putAsServer writes a file that the user may not write, with the rights of this
// process: the controller of a sandbox may put files where the agent may not. No
// component of the path may be a link, a file that is there must be the user's, and
// the file and the directories above it that were made become the user's.
func (s *Server) putAsServer(directory string, a incomingFile) (err error) {
	if slices.Contains(strings.Split(directory, "/"), "..") {
		return refuse(http.StatusBadRequest, "%q: permission denied; the server could write it, but follows no \"..\"",
			directory)
	}
	full := path.Join(directory, a.name)
	dir := full
	if !a.dir {
		dir = path.Dir(full)
	}
	made, at, err := files.MkdirNoFollow(dir)
	defer func() {
		for _, d := range slices.Backward(made) { // the user reaches none before all are done
			if err == nil {
				err = errors.Join(d.Chmod(0o755), files.Give(d, s.cfg.Owner.UID, s.cfg.Owner.GID))
			} else {
				_ = files.UnlinkNoFollow(d.Name(), unix.AT_REMOVEDIR) // a directory that is left is empty
			}
			_ = d.Close()
		}
		if at != nil {
			_ = at.Close()
		}
	}()
	if err == nil && kernelFiles(at) {
		err = unix.EPERM
	}
	if err != nil || a.dir {
		return err
	}
	return s.replaceAsServer(at, full, a)
}

// replaceAsServer writes a file into an open directory with the rights of this process. full is
// its path.
func (s *Server) replaceAsServer(dir *os.File, full string, a incomingFile) error {
	// A path through the descriptor leads nowhere else.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return err
	}
	defer root.Close()
	base := path.Base(full)
	mode := fs.FileMode(0o644)
	old, err := root.Lstat(base)
	switch {
	case err == nil:
		stat, ok := old.Sys().(*syscall.Stat_t)
		if !ok || !old.Mode().IsRegular() || int(stat.Uid) != s.cfg.Owner.UID {
			return refuse(http.StatusBadRequest, "%q exists and is not a file of the sandbox's user", full)
		}
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	t, err := s.cfg.Temps.CreateOwn(root, path.Dir(full), ".", 0o600)
	if err != nil {
		return err
	}
	defer t.Discard()
	if err := fillFrom(t.File, a); err != nil {
		return err
	}
	if err := errors.Join(t.Chmod(mode), files.Give(t.File, s.cfg.Owner.UID, s.cfg.Owner.GID), t.Close()); err != nil {
		return err
	}
	if old == nil { // and still nothing
		return t.Take(int(dir.Fd()), base)
	}
	return t.Rename(base)
}

// kernelFiles reports whether a directory is on a file system that configures the
// kernel.
func kernelFiles(dir *os.File) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return true
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
		unix.TRACEFS_MAGIC:
		return true
	}
	return false
}

// checkRoom finds out before anything is written whether every member can be:
// that no symbolic link leads it out of root, that nothing else is in its way,
// and that there is space for all. This is an early check: root enforces it during
// the write.
func checkRoom(root *os.Root, incoming []incomingFile) error {
	var need int64
	seen := map[string]bool{}
	for _, m := range incoming {
		if m.follow {
			continue
		}
		if err := checkParents(root, m, seen); err != nil {
			return err
		}
		info, err := lookupTarget(root, m.name)
		switch {
		case err != nil:
			return err
		case info == nil:
			need += m.size
		case m.dir != info.IsDir() || !m.dir && !info.Mode().IsRegular():
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", m.name, fileKind(info.Mode()))
		case !m.dir:
			need += max(0, m.size-occupied(info))
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		return legacyFileError(err, root.Name(), http.StatusBadRequest)
	}
	defer dir.Close()
	return legacyFileError(checkSpace(dir, need), root.Name(), http.StatusBadRequest)
}

// checkParents looks at the directories above a member; seen holds those that
// were looked at.
func checkParents(root *os.Root, m incomingFile, seen map[string]bool) error {
	for dir := path.Dir(m.name); dir != "." && !seen[dir]; dir = path.Dir(dir) {
		seen[dir] = true
		info, err := lookupTarget(root, dir)
		if err != nil {
			return err
		}
		if info != nil && !info.IsDir() {
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", dir, fileKind(info.Mode()))
		}
	}
	return nil
}

// lookupTarget returns the file at a name below root, nil when there is none. A
// symbolic link to nothing is refused: the upload would make a file
// where it points.
func lookupTarget(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := root.Lstat(name); err == nil {
			return nil, refuse(http.StatusBadRequest, "%q is in the way: it is a symbolic link to nothing", name)
		}
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, err // put may know better
	}
	return info, legacyFileError(err, name, http.StatusBadRequest)
}
