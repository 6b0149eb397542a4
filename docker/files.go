package docker

import (
	"context"
	"fmt"
	"io"
	"io/fs"

	"github.com/docker/docker/api/types/container"

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

// CopyIn unpacks a tar archive into a directory of a sandbox whose server runs. The
// server does it, with the rights of the user of its commands, to whom the files belong
// then: the engine would follow, as root, links that the agent puts in the way. It fails
// with fs.ErrNotExist or ErrConflict.
func (h *Host) CopyIn(ctx context.Context, s *sandbox.Sandbox, dir string, archive io.Reader) error {
	err := h.copyIn(ctx, s, dir, archive)
	if err != nil {
		return fmt.Errorf("copying into %s of sandbox %s: %w", dir, s.ID, err)
	}
	return nil
}

func (h *Host) copyIn(ctx context.Context, s *sandbox.Sandbox, dir string, archive io.Reader) error {
	of, err := h.own(s)
	if err != nil {
		return err
	}
	if err := h.refresh(ctx, of); err != nil {
		return err
	}
	switch s.State {
	case sandbox.Starting, sandbox.Ready, sandbox.Busy, sandbox.Idle:
	case sandbox.Paused:
		return fmt.Errorf("%w: it is paused: resume it with 'runtimectl resume %s'", sandbox.ErrConflict, s.ID)
	case sandbox.Stopped:
		return fmt.Errorf("%w: it is stopped: start it with 'runtimectl start %s'", sandbox.ErrConflict, s.ID)
	default:
		return fmt.Errorf("%w: it is %s", sandbox.ErrConflict, s.State)
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	return h.config.Agent.Unpack(ctx, s.Dial, key, dir, archive)
}
