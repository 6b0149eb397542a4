package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/sandbox"
)

// remotePath is a path in a sandbox, as it is and what it leads to when links
// are followed there.
type remotePath struct {
	path  string // absolute and clean
	real  string
	info  sandbox.FileInfo // of real
	found bool
	// content tells that the path ended with "/.", slash that it ended with "/".
	content, slash bool
}

// mostLinks is how many links of a path are followed, one after another.
const mostLinks = 16

// look finds out what is at a path of a sandbox.
func look(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string) (remotePath, error) {
	r := remotePath{content: given == "." || strings.HasSuffix(given, "/."), slash: strings.HasSuffix(given, "/")}
	if !path.IsAbs(given) {
		dir, err := files.WorkDir(ctx, s)
		if err != nil {
			return r, err
		}
		given = path.Join(dir, given)
	}
	r.path = path.Clean(given)
	r.real = r.path
	for range mostLinks {
		info, err := files.Stat(ctx, s, r.real)
		if errors.Is(err, fs.ErrNotExist) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if info.Mode&fs.ModeSymlink == 0 {
			r.info, r.found = info, true
			return r, nil
		}
		target := info.LinkTarget
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(r.real), target)
		}
		r.real = path.Clean(target)
	}
	return r, fmt.Errorf("%w: there are too many links at %s in sandbox %s", errConflict, r.path, s.ID)
}

// direct refuses a link as the place to write to in a sandbox that does not run:
// the engine writes there as root, and the agent may have made it.
func (r remotePath) direct(s *sandbox.Sandbox) error {
	if serves(s) || r.real == r.path {
		return nil
	}
	return fmt.Errorf("%w: %s in sandbox %s is a link to %s, and nothing is written through links while it is %s; %s, or name what the link leads to",
		errConflict, r.path, s.ID, r.real, s.State, advice(s))
}

// ownerOf is the account that the commands of a sandbox run as. Its own list of
// accounts knows its ids, whether it runs or not; the list is root's.
func ownerOf(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox) (archive.Owner, error) {
	name, number, _ := strings.Cut(s.User, ":")
	uid, err := strconv.Atoi(number)
	if err != nil { // a local one: files belong to the user who makes them
		return archive.Owner{}, nil
	}
	data, err := files.CopyOut(ctx, s, "/etc/passwd")
	if errors.Is(err, fs.ErrNotExist) {
		return archive.Owner{UID: uid, GID: uid}, nil
	}
	if err != nil {
		return archive.Owner{}, err
	}
	defer func() { _ = data.Close() }()
	in := tar.NewReader(data)
	if h, err := in.Next(); err != nil || h.Typeflag != tar.TypeReg {
		return archive.Owner{UID: uid, GID: uid}, err
	}
	lines := bufio.NewScanner(io.LimitReader(in, 1<<20))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		u, err1 := strconv.Atoi(fields[2])
		g, err2 := strconv.Atoi(fields[3])
		if err1 == nil && err2 == nil {
			return archive.Owner{UID: u, GID: g}, nil
		}
	}
	return archive.Owner{UID: uid, GID: uid}, lines.Err()
}

// readFile gives a file of a sandbox to use, with what the archive says of it.
func readFile(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string, use func(h *tar.Header, content io.Reader) error) error {
	from, err := look(ctx, files, s, given)
	if err != nil {
		return err
	}
	switch {
	case !from.found:
		return fmt.Errorf("%s in sandbox %s: %w", from.path, s.ID, errNotFound)
	case !from.info.Mode.IsRegular():
		return fmt.Errorf("%w: %s in sandbox %s is no file", errConflict, from.path, s.ID)
	}
	archive, err := files.CopyOut(ctx, s, from.real)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	in := tar.NewReader(archive)
	h, err := in.Next()
	if err == nil && h.Typeflag != tar.TypeReg {
		err = errors.New("it is no file any more")
	}
	if err == nil {
		err = use(h, in)
	}
	if err != nil {
		return fmt.Errorf("reading %s in sandbox %s: %w", from.path, s.ID, err)
	}
	return nil
}
