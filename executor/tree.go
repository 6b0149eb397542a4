package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/files"
)

// MakeDirectory makes a directory with the user's rights, at an absolute path: with the exact
// mode where that is not nil, and with parents also those above it that are missing, where a
// directory that exists is no error. The error is an *api.Error where nothing was changed.
func (e *Executor) MakeDirectory(
	ctx context.Context, path string, parents bool, mode *fs.FileMode,
) (api.Observation, error) {
	o := api.FileObservation{Path: path, Directory: true, Created: true}
	err := e.onTree(ctx, func() (err error) {
		var made []string
		defer func() {
			if err != nil {
				files.RemoveDirs(made)
			}
		}()
		if parents {
			if made, err = files.MakeDirs(filepath.Dir(trimSlashes(path))); err != nil {
				return err
			}
		}
		n, err := files.Parent(path)
		if parents && errors.Is(err, files.ErrProtected) { // such as "/" and "a/."
			return exists(path, &o)
		}
		if err != nil {
			return err
		}
		defer n.Close()
		o.Path = n.Path
		err = n.Mkdir(mode)
		if parents && errors.Is(err, fs.ErrExist) {
			return exists(path, &o)
		}
		return err
	})
	return o, treeError(err, path)
}

// exists reports a directory that exists.
func exists(path string, o *api.FileObservation) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fs.ErrExist
	}
	o.Created = false
	return err
}

// trimSlashes removes slashes at the end of a path.
func trimSlashes(path string) string {
	for len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// MoveFile gives a file, a link or a directory another name on the same file system, with the
// user's rights. It takes the place of a file or an empty directory only where replace is set. The
// root and working directories and those above are not moved. The error is an *api.Error where
// nothing was changed.
func (e *Executor) MoveFile(ctx context.Context, from, to string, replace bool) (api.Observation, error) {
	var o api.FileObservation
	err := e.onTree(ctx, func() error {
		source, err := files.Parent(from)
		if err != nil {
			return err
		}
		defer source.Close()
		target, err := files.Parent(to)
		if err != nil {
			return err
		}
		defer target.Close()
		protected, err := files.Protect(e.cfg.WorkingDir)
		if err != nil {
			return err
		}
		stat, err := source.Guard(protected)
		if err != nil {
			return err
		}
		_, missing := target.Guard(protected)
		if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
			return missing
		}
		o = api.FileObservation{Path: target.Path, MovedFrom: source.Path, Directory: isDirectory(stat), Created: missing != nil}
		return source.Rename(target, replace)
	})
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		from = link.Old
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTDIR) {
			from = link.New
		}
	}
	return o, treeError(err, from)
}

func isDirectory(stat unix.Stat_t) bool { return stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// errRemovalCancelled ends the removal of a tree.
var errRemovalCancelled = errors.New("the action was cancelled")

// RemoveTree removes a directory with all that is in it, with the user's rights; see
// [files.Removal]. A file or a link is removed as by [Executor.RemoveFile]. Where a part was
// removed before an error, the observation says so; otherwise that is an *api.Error.
func (e *Executor) RemoveTree(
	ctx context.Context, w api.Watch, path string, c api.FileConditions,
) (api.Observation, error) {
	directory := false
	o := api.FileObservation{Path: path, Directory: true}
	r := files.Removal{Ended: func() error {
		if channel.Closed(w.Cancelled) {
			return errRemovalCancelled
		}
		return nil
	}}
	err := e.onTree(ctx, func() error {
		n, err := files.Parent(path)
		if err != nil {
			return err
		}
		defer n.Close()
		if r.Protected, err = files.Protect(e.cfg.WorkingDir); err != nil {
			return err
		}
		stat, err := n.Guard(r.Protected)
		if directory = isDirectory(stat); err != nil || !directory {
			return err
		}
		if c.Match != nil && !slices.Contains(c.Match, "*") || slices.Contains(c.NoneMatch, "*") {
			return edit.ErrCondition // it has no hash
		}
		o.Path = n.Path
		return r.Remove(n)
	})
	o.Removed = r.Removed
	switch {
	case err == nil && directory:
		return o, nil
	case err == nil:
		return e.RemoveFile(ctx, path, c)
	case errors.Is(err, errRemovalCancelled):
		return api.ErrorObservation{Content: fmt.Sprintf("The removal of %s was cancelled after %d names.", path, o.Removed), Outcome: api.OutcomeCancelled}, nil
	case o.Removed > 0:
		text := fmt.Sprintf("%d names in %s were removed, and then the removal ended: %v.", o.Removed, path, err)
		return api.ErrorObservation{Content: text, Code: files.Code(err)}, nil
	}
	return nil, treeError(err, path)
}

// onTree does work with the user's rights when it is its turn.
func (e *Executor) onTree(ctx context.Context, work func() error) error {
	release, err := e.files.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return e.cfg.User.Do(work)
}

// treeError makes an error of the system about a path a refusal, or the error of a server that broke.
func treeError(err error, path string) error {
	if _, refused := errors.AsType[*api.Error](err); refused || err == nil {
		return err
	}
	if errors.Is(err, edit.ErrCondition) {
		return fileRefusal(err, path)
	}
	if named, ok := errors.AsType[*fs.PathError](err); ok {
		path = named.Path
	}
	cause, code := err.Error(), files.Code(err)
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case ok && errno == unix.EIO, ok && errno == unix.EMFILE, ok && errno == unix.ENFILE, ok && errno == unix.ENOMEM,
		!ok && code == "command_failed":
		return fmt.Errorf("changing the directories of %q: %w", path, err)
	case ok:
		cause = files.Words(errno)
	case errors.Is(err, files.ErrProtected):
		cause = files.ErrProtected.Error()
	case errors.Is(err, files.ErrMoved):
		cause = files.ErrMoved.Error()
	}
	return api.FileError(api.Fault{Code: code, Path: path, Errno: files.Errno(err)}, fmt.Sprintf("%q: %s", path, cause))
}
