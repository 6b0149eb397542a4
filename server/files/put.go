package files

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

// Config is what trees need. As and Overrule must not be nil.
type Config struct {
	// As runs a function, which starts no goroutines, with the rights of the sandbox's user.
	As func(func() error) error
	// Owner is the sandbox's user, where this process may write files that As may not; nil otherwise.
	Owner *Owner
	// Overrule reports whether the caller may write such files.
	Overrule func() bool
	// Temps records the temporary files; nil records nothing.
	Temps *files.Ledger
	// WriteInPlace keeps the old bytes of a file while it is written.
	WriteInPlace func(w *os.File, write func() error) error
	// MaxUnpacked bounds the content of a zip in bytes.
	MaxUnpacked int64
}

// Trees brings files into the directories of a sandbox and out of them. It may be used concurrently.
type Trees struct{ cfg Config }

// New returns trees, without any effect.
func New(cfg Config) *Trees { return &Trees{cfg: cfg} }

// Incoming is a file or a directory that is put into a directory.
type Incoming struct {
	Name   string // relative and clean
	Dir    bool
	Size   int64
	Open   func() (io.ReadCloser, error) // may be called several times
	Follow bool                          // a symbolic link of that name, also one that leads out
}

// Owner is the numeric user and group of new files.
type Owner struct{ UID, GID int }

// Put writes files into a directory, which is made where it is missing, with the
// rights of the sandbox's user. A file that is there is replaced by a complete one
// and keeps its mode and owner; one that has other names or attributes is written in
// place.
//
// A server with a key writes files itself where the user may not, because the key
// shows that the controller sent them: see putAsServer.
func (t *Trees) Put(ctx context.Context, directory string, incoming []Incoming) error {
	var root *os.Root
	denied, err := t.asUser(func() (err error) {
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
	if denied != nil && !t.mayOverrule(denied) {
		return LegacyError(denied, directory, http.StatusBadRequest)
	}
	for _, a := range incoming {
		if ctx.Err() != nil {
			return fmt.Errorf("writing %q: %w", a.Name, ctx.Err())
		}
		refusal := denied
		if refusal == nil {
			if refusal, err = t.asUser(func() error { return t.putAsUser(root, directory, a) }); err != nil {
				return err
			}
		}
		if t.mayOverrule(refusal) {
			refusal = t.putAsServer(directory, a)
		}
		if refusal != nil {
			return LegacyError(refusal, directory+"/"+a.Name, http.StatusBadRequest)
		}
	}
	return nil
}

// asUser runs work with the user's rights and returns its error. Where the rights could
// not be taken on, work did not run and err says why.
func (t *Trees) asUser(work func() error) (refusal, err error) {
	ran := false
	err = t.cfg.As(func() error {
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
func (t *Trees) mayOverrule(err error) bool {
	return t.cfg.Owner != nil && t.cfg.Overrule() && errors.Is(err, fs.ErrPermission)
}

// putAsUser writes a file below root, whose path is directory.
func (t *Trees) putAsUser(root *os.Root, directory string, a Incoming) error {
	if a.Dir {
		return root.MkdirAll(a.Name, newDirectory)
	}
	if a.Follow {
		// The user could follow the link as well.
		return t.putFollowing(directory, a)
	}
	if err := root.MkdirAll(path.Dir(a.Name), newDirectory); err != nil {
		return err
	}
	return t.replace(root, directory, a)
}

// putFollowing is putAsUser where the last component of the path may be a symbolic
// link to a file anywhere.
func (t *Trees) putFollowing(directory string, a Incoming) error {
	full := directory + "/" + a.Name // not cleaned: only the kernel knows what .. means
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
	a.Name = name
	return t.replace(root, dir, a)
}

var errDangling = refuse(http.StatusBadRequest, "The file to be written is a symbolic link that points to nothing")

// replace writes a file below root, whose path is above.
func (t *Trees) replace(root *os.Root, above string, a Incoming) error {
	old, err := openOld(root, a.Name)
	if err != nil {
		return err
	}
	r := files.Replacement{
		Dir: root, Above: above, Name: a.Name, Mode: newFile,
		Fill: func(f *os.File) error { return fillFrom(f, a) },
	}
	if old == nil {
		return t.cfg.Temps.Replace(r)
	}
	defer old.Close()
	if r.Old, err = old.Stat(); err != nil {
		return err
	}
	if r.Mode = r.Old.Mode(); !r.Mode.IsRegular() {
		return refuse(http.StatusBadRequest, "The file to be written exists and is not a regular file but %s",
			kind(r.Mode))
	}
	r.KeepInode = keepsInode(root, a.Name, old, r.Old)
	r.InPlace = func() error { return t.overwrite(old, r.Old, a) }
	return t.cfg.Temps.Replace(r)
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
func fillFrom(f *os.File, a Incoming) error {
	if err := checkSpace(f, a.Size); err != nil {
		return err
	}
	if err := reserve(f, a.Size); err != nil {
		return err
	}
	return copyTo(f, a)
}

func copyTo(f *os.File, a Incoming) error {
	content, err := a.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	n, err := io.Copy(f, io.LimitReader(content, a.Size))
	if err != nil {
		return err
	}
	if n != a.Size {
		return fmt.Errorf("content ended after %d of %d bytes", n, a.Size)
	}
	return nil
}

// overwrite writes an open file in place. Its old bytes are kept where there is no
// space for the new ones.
func (t *Trees) overwrite(f *os.File, old fs.FileInfo, a Incoming) error {
	if err := checkSpace(f, a.Size-occupied(old)); err != nil {
		return err
	}
	if err := reserve(f, a.Size); err != nil {
		_ = f.Truncate(old.Size()) // gives back the reserved space
		return err
	}
	return t.cfg.WriteInPlace(f, func() error {
		if err := copyTo(f, a); err != nil {
			return err
		}
		return f.Truncate(a.Size)
	})
}

// putAsServer writes a file that the user may not write, with the rights of this
// process: the controller of a sandbox may put files where the agent may not. No
// component of the path may be a link, a file that is there must be the user's, and
// the file and the directories above it that were made become the user's.
func (t *Trees) putAsServer(directory string, a Incoming) (err error) {
	if slices.Contains(strings.Split(directory, "/"), "..") {
		return refuse(http.StatusBadRequest, "%q: permission denied; the server could write it, but follows no \"..\"",
			directory)
	}
	full := path.Join(directory, a.Name)
	dir := full
	if !a.Dir {
		dir = path.Dir(full)
	}
	made, at, err := files.MkdirNoFollow(dir)
	defer func() {
		for _, d := range slices.Backward(made) { // the user reaches none before all are done
			if err == nil {
				err = errors.Join(d.Chmod(0o755), files.Give(d, t.cfg.Owner.UID, t.cfg.Owner.GID))
			} else {
				_ = files.UnlinkNoFollow(d.Name(), unix.AT_REMOVEDIR) // a directory that is left is empty
			}
			_ = d.Close()
		}
		if at != nil {
			_ = at.Close()
		}
	}()
	if err == nil && KernelFiles(at) {
		err = unix.EPERM
	}
	if err != nil || a.Dir {
		return err
	}
	return t.replaceAsServer(at, full, a)
}

// replaceAsServer writes a file into an open directory with the rights of this process. full is
// its path.
func (t *Trees) replaceAsServer(dir *os.File, full string, a Incoming) error {
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
		if !ok || !old.Mode().IsRegular() || int(stat.Uid) != t.cfg.Owner.UID {
			return refuse(http.StatusBadRequest, "%q exists and is not a file of the sandbox's user", full)
		}
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temp, err := t.cfg.Temps.CreateOwn(root, path.Dir(full), ".", 0o600)
	if err != nil {
		return err
	}
	defer temp.Discard()
	if err := fillFrom(temp.File, a); err != nil {
		return err
	}
	if err := errors.Join(temp.Chmod(mode), files.Give(temp.File, t.cfg.Owner.UID, t.cfg.Owner.GID), temp.Close()); err != nil {
		return err
	}
	if old == nil { // and still nothing
		return temp.Take(int(dir.Fd()), base)
	}
	return temp.Rename(base)
}

// KernelFiles reports whether a directory is on a file system that configures the
// kernel.
func KernelFiles(dir *os.File) bool {
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
func checkRoom(root *os.Root, incoming []Incoming) error {
	var need int64
	seen := map[string]bool{}
	for _, m := range incoming {
		if m.Follow {
			continue
		}
		if err := checkParents(root, m, seen); err != nil {
			return err
		}
		info, err := lookupTarget(root, m.Name)
		switch {
		case err != nil:
			return err
		case info == nil:
			need += m.Size
		case m.Dir != info.IsDir() || !m.Dir && !info.Mode().IsRegular():
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", m.Name, kind(info.Mode()))
		case !m.Dir:
			need += max(0, m.Size-occupied(info))
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		return LegacyError(err, root.Name(), http.StatusBadRequest)
	}
	defer dir.Close()
	return LegacyError(checkSpace(dir, need), root.Name(), http.StatusBadRequest)
}

// checkParents looks at the directories above a member; seen holds those that
// were looked at.
func checkParents(root *os.Root, m Incoming, seen map[string]bool) error {
	for dir := path.Dir(m.Name); dir != "." && !seen[dir]; dir = path.Dir(dir) {
		seen[dir] = true
		info, err := lookupTarget(root, dir)
		if err != nil {
			return err
		}
		if info != nil && !info.IsDir() {
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", dir, kind(info.Mode()))
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
	return info, LegacyError(err, name, http.StatusBadRequest)
}
