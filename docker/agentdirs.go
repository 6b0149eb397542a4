package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/mount"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/sandbox"
)

// An agentDir is a directory of this host in which agents can make links, or
// could.
type agentDir struct {
	path string
	info fs.FileInfo
}

// agentDirs are the directories that containers of this engine mount writable,
// and those that this controller's sandboxes have mounted so: links stay when
// the sandbox is gone.
func (h *Host) agentDirs(ctx context.Context) ([]agentDir, error) {
	containers, err := h.list(ctx, "listing the containers")
	if err != nil {
		return nil, err
	}
	paths, err := h.state.mounted()
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		for _, m := range c.Mounts {
			if m.Type == mount.TypeBind && m.RW && m.Destination != insideRun {
				paths = append(paths, m.Source)
			}
		}
	}
	slices.Sort(paths)
	return openAgentDirs(slices.Compact(paths)), nil
}

// openAgentDirs returns the directories at paths; one that is gone holds no links. A
// link that an agent put in the place of its directory is not followed: all links of
// this host would be refused where it leads to the root directory.
func openAgentDirs(paths []string) []agentDir {
	var dirs, moved []agentDir
	var linked []string
	for _, path := range paths {
		info, err := statDir(path, hostpath.NoLinks)
		switch {
		case err == nil:
			dirs = append(dirs, agentDir{path, info})
		case errors.Is(err, hostpath.ErrLink):
			linked = append(linked, path)
		}
	}
	for _, path := range linked {
		if info, err := statDir(path, func(l hostpath.Link) error { return outside(l, dirs) }); err == nil {
			moved = append(moved, agentDir{path, info})
		}
	}
	return append(dirs, moved...)
}

// statDir describes a directory, on the way to which it follows the links that
// follow admits.
func statDir(path string, follow func(hostpath.Link) error) (fs.FileInfo, error) {
	f, err := hostpath.Open(path, follow)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return info, err
}

// outside refuses links that an agent may have made: those of other users than root and
// that of this process, and those in dirs, whatever their owner.
func outside(l hostpath.Link, dirs []agentDir) error {
	if err := hostpath.OwnLinks(l); err != nil {
		return err
	}
	for _, d := range dirs {
		if l.Below(d.info) {
			return fmt.Errorf("%w: %s, which leads to %s, lies in %s, where a sandbox could make it: give the path that it leads to",
				hostpath.ErrLink, l.Path, l.Target, d.path)
		}
	}
	return nil
}

// lookTime bounds how long the engine is asked for other sandboxes' mounts.
const lookTime = 30 * time.Second

// trust returns a function that refuses links on a path of this host which an
// agent may have made: those that belong neither to root nor to this process's
// user, and those in a directory that sandboxes can write, whatever their owner.
func (h *Host) trust(ctx context.Context) func(hostpath.Link) error {
	var dirs []agentDir
	asked := false
	return func(l hostpath.Link) error {
		if err := hostpath.OwnLinks(l); err != nil {
			return err
		}
		if !asked {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			var err error
			if dirs, err = h.agentDirs(ctx); err != nil {
				return err
			}
			asked = true
		}
		return outside(l, dirs)
	}
}

// Open opens a file of this host for reading, on behalf of a specification. It
// refuses links that an agent may have made on the way, with ErrInvalid.
func (h *Host) Open(ctx context.Context, name string) (*os.File, error) {
	file, err := hostpath.Open(name, h.trust(ctx))
	if errors.Is(err, hostpath.ErrLink) {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return file.Reader()
}

// mostMounted bounds the list of directories that sandboxes have mounted; those
// that no longer exist are dropped first.
const mostMounted = 10_000

// mounted are the directories that this controller's sandboxes have mounted
// writable.
func (s *stateDir) mounted() ([]string, error) {
	data, err := s.root.ReadFile("mounted")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var paths []string
	if err == nil {
		err = json.Unmarshal(data, &paths)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which directories were mounted: %w", err)
	}
	return paths, nil
}

// addMounted records the writable ones of the mounts.
func (s *stateDir) addMounted(mounts []sandbox.Mount) error {
	var add []string
	for _, m := range mounts {
		if !m.ReadOnly {
			add = append(add, m.Source)
		}
	}
	if len(add) == 0 {
		return nil
	}
	unlock, err := filelock.LockBriefly(s.root, "locks/mounted")
	if err != nil {
		return err
	}
	defer unlock()
	paths, err := s.mounted()
	if err != nil {
		return err
	}
	add = slices.DeleteFunc(add, func(path string) bool { return slices.Contains(paths, path) })
	if len(add) == 0 {
		return nil
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { _, err := os.Lstat(path); return err != nil })
	paths = append(paths, add...)
	data, err := json.Marshal(paths[max(0, len(paths)-mostMounted):])
	if err != nil {
		return err
	}
	return s.write("mounted", data)
}
