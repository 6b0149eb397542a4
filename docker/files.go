package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// Stat looks at a file or directory of the sandbox, running or not. It fails
// with fs.ErrNotExist if the path does not exist.
func (h *Host) Stat(ctx context.Context, s *sandbox.Sandbox, path string) (sandbox.FileInfo, error) {
	what := "looking at " + path + " in sandbox " + s.ID
	stat, err := safely(ctx, what, func() (container.PathStat, error) {
		return h.engine.ContainerStatPath(ctx, s.Instance, path)
	})
	if isNotFound(err) {
		return sandbox.FileInfo{}, fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	}
	return sandbox.FileInfo{Name: stat.Name, Size: stat.Size, Mode: stat.Mode, LinkTarget: stat.LinkTarget}, err
}

// CopyOut reads a file or directory of the sandbox, running or not, as a tar
// archive whose entries begin with its last name. The archive is the agent's
// work: unpack it with care.
func (h *Host) CopyOut(ctx context.Context, s *sandbox.Sandbox, path string) (io.ReadCloser, error) {
	archive, _, err := h.engine.CopyFromContainer(ctx, s.Instance, path)
	if isNotFound(err) {
		return nil, fmt.Errorf("copying %s out of sandbox %s: %w: %w", path, s.ID, fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, engineError(ctx, "copying "+path+" out of sandbox "+s.ID, err)
	}
	return archive, nil
}

// CopyIn unpacks a tar archive into a directory of the sandbox.
//
// The server of a sandbox that runs does it, with the rights of the user of its
// commands, to whom the files belong then: the engine would follow, as root, links
// that the agent puts in the way. Where no server runs the engine does it, for the
// owners that the archive names, and no path in the sandbox may have a link; nor may
// it lie in a mount that another container can change meanwhile. Nothing else can be
// done to the sandbox until then. It fails with fs.ErrNotExist or ErrConflict.
func (h *Host) CopyIn(ctx context.Context, s *sandbox.Sandbox, dir string, archive io.Reader) error {
	of, err := h.own(s)
	if err != nil {
		return err
	}
	running, err := h.copyIn(ctx, of, dir, archive)
	if running {
		var key string
		if key, err = s.Key(); err == nil {
			err = h.config.Agent.Unpack(ctx, s.Dial, key, dir, archive)
		}
	}
	if err != nil {
		return fmt.Errorf("copying into %s of sandbox %s: %w", dir, s.ID, err)
	}
	return nil
}

// copyIn is CopyIn for a sandbox without processes; for others it does nothing and
// tells so.
func (h *Host) copyIn(ctx context.Context, s *instance, dir string, archive io.Reader) (running bool, err error) {
	unlock, err := h.state.lock(ctx, s.origin)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := h.refresh(ctx, s); err != nil {
		return false, err
	}
	switch s.State {
	case sandbox.Starting, sandbox.Ready, sandbox.Busy, sandbox.Idle:
		return true, nil
	case sandbox.Creating, sandbox.Paused, sandbox.Stopped:
		return false, h.copyStill(ctx, s, dir, archive)
	}
	return false, fmt.Errorf("%w: it is %s", sandbox.ErrConflict, s.State)
}

// copyStill has the engine unpack an archive, whose paths are checked first: while
// the engine unpacks, it answers no questions about the container. The lock of the
// sandbox is held.
func (h *Host) copyStill(ctx context.Context, s *instance, dir string, archive io.Reader) error {
	c, err := h.newStillCheck(ctx, s)
	if err != nil {
		return err
	}
	if _, err := c.above(path.Join("/", dir, "x")); err != nil {
		return err
	}
	checked, err := h.state.spool()
	if err != nil {
		return err
	}
	defer func() { _ = checked.Close() }()
	if err := c.members(dir, archive, checked); err != nil {
		return err
	}
	if _, err := checked.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err = h.engine.CopyToContainer(ctx, s.Instance, dir, checked, container.CopyToContainerOptions{})
	if isNotFound(err) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return engineError(ctx, "copying", err)
}

// stillCheck refuses paths in a sandbox without processes that lead through links.
type stillCheck struct {
	stat   func(path string) (sandbox.FileInfo, error)
	shared map[string]string // targets of mounts that others can change, with their sources

	known map[string]found // directories
	links map[string]bool  // that the archive brings
}

// found is what a directory of an archive was before.
type found int

const (
	absent    found = iota + 1 // it is made, with all that is in it
	directory                  // and not a link to one
)

// mostKnown bounds what stillCheck keeps.
const mostKnown = 10_000

func (h *Host) newStillCheck(ctx context.Context, s *instance) (*stillCheck, error) {
	n, err := h.state.load(s.origin)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	shared, err := h.shared(ctx, s, n.Mounts)
	if err != nil {
		return nil, err
	}
	stat := func(path string) (sandbox.FileInfo, error) { return h.Stat(ctx, s.Sandbox, path) }
	return &stillCheck{stat: stat, shared: shared, known: map[string]found{}, links: map[string]bool{}}, nil
}

// shared are the targets of those mounts of a sandbox, with their sources, that a
// container which is not stopped mounts writable too, or a part of them.
func (h *Host) shared(ctx context.Context, s *instance, mounts []sandbox.Mount) (map[string]string, error) {
	found := map[string]string{}
	if len(mounts) == 0 {
		return found, nil
	}
	others, err := safely(ctx, "listing the containers", func() ([]container.Summary, error) {
		return h.engine.ContainerList(ctx, container.ListOptions{})
	})
	if err != nil {
		return nil, err
	}
	for _, c := range others {
		for _, theirs := range c.Mounts {
			if c.ID == s.Instance || theirs.Type != mount.TypeBind || !theirs.RW {
				continue
			}
			source := theirs.Source
			if real, err := filepath.EvalSymlinks(source); err == nil {
				source = real
			}
			for _, m := range mounts {
				if m.Source == source || under(m.Source, source) || under(source, m.Source) {
					found[m.Target] = m.Source
				}
			}
		}
	}
	return found, nil
}

// above checks the directories that lead to a path, and tells what the last one was.
func (c *stillCheck) above(name string) (found, error) {
	for target, source := range c.shared {
		if name == target || under(name, target) {
			return 0, fmt.Errorf("%w: %s is %s of this host, which another sandbox can change meanwhile: copy to it there, or start this one", sandbox.ErrConflict, target, source)
		}
	}
	dir := path.Dir(name)
	switch {
	case dir == "/":
		return directory, nil
	case c.links[dir]:
		return 0, fmt.Errorf("%w: %s is a link in the archive", sandbox.ErrConflict, dir)
	}
	was, err := c.above(dir)
	if err != nil || c.known[dir] != 0 {
		return c.known[dir], err
	}
	if was == directory {
		if was, err = c.look(dir); err != nil {
			return 0, err
		}
	}
	if len(c.known) >= mostKnown {
		clear(c.known)
	}
	c.known[dir] = was
	return was, nil
}

// look finds out what is at a path, and refuses a link.
func (c *stillCheck) look(name string) (found, error) {
	info, err := c.stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return 0, err
	case info.Mode&fs.ModeSymlink != 0:
		return 0, fmt.Errorf("%w: %s is a link to %s, and nothing is copied through links while the sandbox does not run: start it, or name what the link leads to",
			sandbox.ErrConflict, name, info.LinkTarget)
	}
	return directory, nil // or a file, which is in the way or replaced
}

// members checks where the members of an archive go, and copies it to out.
func (c *stillCheck) members(dir string, archive io.Reader, out io.Writer) error {
	in, w := tar.NewReader(archive), tar.NewWriter(out)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return w.Close()
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if err := c.member(dir, header); err != nil {
			return err
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
		if _, err := io.Copy(w, in); err != nil { //nolint:gosec // it is the caller's own, and not unpacked here
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
	}
}

func (c *stillCheck) member(dir string, h *tar.Header) error {
	names := []string{h.Name}
	if h.Typeflag == tar.TypeLink { // the engine gives what it leads to to the owner
		names = append(names, h.Linkname)
	}
	for _, name := range names {
		if strings.Contains("/"+name+"/", "/../") {
			return fmt.Errorf("%w: the archive has %q, which leads out of it", sandbox.ErrInvalid, name)
		}
		full := path.Join("/", dir, name)
		if full == path.Join("/", dir) {
			continue // which was checked
		}
		was, err := c.above(full)
		if err == nil && was == directory && c.known[full] == 0 {
			_, err = c.look(full)
		}
		if err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		c.links[path.Join("/", dir, h.Name)] = true //nolint:gosec // nothing is written there
	}
	return nil
}

// spool is a new file without a name.
func (s *stateDir) spool() (*os.File, error) {
	name := "spool." + random.Hex(8)
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = s.root.Remove(name)
	}
	if err != nil {
		return nil, fmt.Errorf("making a temporary file: %w", err)
	}
	return f, nil
}
