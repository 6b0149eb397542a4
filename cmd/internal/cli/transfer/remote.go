package transfer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/sandbox"
)

// RemotePath is a path in a sandbox, as given and with its links followed.
type RemotePath struct {
	Path  string // absolute and clean
	Real  string
	Info  sandbox.FileInfo // of real
	Found bool
	// content tells that the path ended with "/.", slash that it ended with "/".
	Content, Slash bool
}

// mostLinks is how many links of a path are followed, one after another.
const mostLinks = 16

// Look describes the file at a path of a sandbox, and follows links.
func Look(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string) (RemotePath, error) {
	r := RemotePath{Content: given == "." || strings.HasSuffix(given, "/."), Slash: strings.HasSuffix(given, "/")}
	if !path.IsAbs(given) {
		dir, err := files.WorkDir(ctx, s)
		if err != nil {
			return r, err
		}
		given = path.Join(dir, given)
	}
	r.Path = path.Clean(given)
	r.Real = r.Path
	for range mostLinks {
		info, err := files.Stat(ctx, s, r.Real)
		if errors.Is(err, fs.ErrNotExist) {
			return r, nil
		}
		if err != nil && belowFile(ctx, files, s, r.Real) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if info.Mode&fs.ModeSymlink == 0 {
			r.Info, r.Found = info, true
			return r, nil
		}
		target := info.LinkTarget
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(r.Real), target)
		}
		r.Real = path.Clean(target)
	}
	return r, command.Conflict("there are too many links at %s in sandbox %s", r.Path, s.ID)
}

// belowFile reports whether something above path is a file: an engine breaks at such a
// path and does not say why.
func belowFile(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, name string) bool {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if info, err := files.Stat(ctx, s, dir); err == nil {
			return info.Mode.IsRegular()
		}
	}
	return false
}

// HasDir refuses a path that is not there where it cannot be made either: its directory
// does not exist, or is not a directory.
func (r RemotePath) HasDir(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox) error {
	if r.Found {
		return nil
	}
	dir, err := Look(ctx, files, s, path.Dir(r.Real))
	switch {
	case err != nil:
		return err
	case !dir.Found:
		return fmt.Errorf("directory %s in sandbox %s: %w", dir.Path, s.ID, command.ErrNotFound)
	case !dir.Info.Mode.IsDir():
		return command.Conflict("%s in sandbox %s is not a directory", dir.Path, s.ID)
	}
	return nil
}

// NotFound is the error for a path that was not found.
func (r RemotePath) NotFound(s *sandbox.Sandbox) error {
	for _, dir := range []string{"/proc/", "/sys/"} {
		if strings.HasPrefix(r.Real, dir) { // an engine does not see them
			return fmt.Errorf("%s in sandbox %s: files of the kernel are read by a command, 'runtimectl exec %s -- cat %s': %w", r.Path, s.ID, s.ID, r.Path, command.ErrNotFound)
		}
	}
	return fmt.Errorf("%s in sandbox %s: %w", r.Path, s.ID, command.ErrNotFound)
}

// ReadFile passes the header and the content of a file of a sandbox to use.
func ReadFile(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string, use func(h *tar.Header, content io.Reader) error) error {
	from, err := Look(ctx, files, s, given)
	if err != nil {
		return err
	}
	switch {
	case !from.Found:
		return from.NotFound(s)
	case !from.Info.Mode.IsRegular():
		return command.Conflict("%s in sandbox %s is not a file", from.Path, s.ID)
	}
	archive, err := files.CopyOut(ctx, s, from.Real)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	in := tar.NewReader(archive)
	h, err := in.Next()
	if err == nil && h.Typeflag != tar.TypeReg {
		err = errors.New("it is no longer a file")
	}
	if err == nil {
		err = use(h, in)
	}
	if err != nil {
		return fmt.Errorf("reading %s in sandbox %s: %w", from.Path, s.ID, err)
	}
	return nil
}
