package kubernetes

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// The server of a sandbox reads and writes its files, with the rights of the user of the
// commands: the agent's links lead only to files that the agent can reach itself.

// WorkDir is [sandbox.Files]'.
func (d *Driver) WorkDir(ctx context.Context, s *sandbox.Sandbox) (string, error) {
	details, err := d.Inspect(ctx, s)
	if err != nil {
		return "", err
	}
	return details.WorkDir, nil
}

// Stat is [sandbox.Files]'.
func (d *Driver) Stat(ctx context.Context, s *sandbox.Sandbox, name string) (sandbox.FileInfo, error) {
	archive, err := d.pack(ctx, s, name)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	defer func() { _ = archive.Close() }() // the rest is not read
	h, err := tar.NewReader(archive).Next()
	switch {
	case errors.Is(err, io.EOF): // removed meanwhile
		return sandbox.FileInfo{}, fmt.Errorf("looking at %s in sandbox %s: %w", name, s.ID, fs.ErrNotExist)
	case err != nil:
		return sandbox.FileInfo{}, fmt.Errorf("looking at %s in sandbox %s: %w", name, s.ID, err)
	}
	return sandbox.FileInfo{Name: path.Base(path.Clean(name)), Size: h.Size, Mode: h.FileInfo().Mode(), LinkTarget: h.Linkname}, nil
}

// CopyOut is [sandbox.Files]'. It leaves out files that the user of the commands may not read.
func (d *Driver) CopyOut(ctx context.Context, s *sandbox.Sandbox, name string) (io.ReadCloser, error) {
	return d.pack(ctx, s, name)
}

// CopyIn is [sandbox.Files]'.
func (d *Driver) CopyIn(ctx context.Context, s *sandbox.Sandbox, dir string, archive io.Reader) error {
	of, key, err := d.serving(ctx, s)
	if err == nil {
		err = d.config.Agent.Unpack(ctx, of.Dial, key, dir, archive)
	}
	if err != nil {
		return fmt.Errorf("copying into %s of sandbox %s: %w", dir, s.ID, err)
	}
	return nil
}

func (d *Driver) pack(ctx context.Context, s *sandbox.Sandbox, name string) (io.ReadCloser, error) {
	of, key, err := d.serving(ctx, s)
	if err != nil {
		return nil, err
	}
	archive, err := d.config.Agent.Pack(ctx, of.Dial, key, name)
	if err != nil {
		return nil, fmt.Errorf("reading %s in sandbox %s: %w", name, s.ID, err)
	}
	return archive, nil
}

// serving returns the instance and the key of a sandbox. It fails with ErrConflict if the
// server does not run.
func (d *Driver) serving(ctx context.Context, s *sandbox.Sandbox) (of *instance, key string, err error) {
	if of, err = instanceOf(s); err != nil {
		return nil, "", err
	}
	if s.State == sandbox.Gone {
		return nil, "", fmt.Errorf("%w: sandbox %s is gone, and so are its files: %s", sandbox.ErrConflict, s.ID,
			strings.TrimSpace(s.Detail))
	}
	key, err = of.readKey(ctx)
	return of, key, err
}

// statsPause is the time between two measurements.
const statsPause = time.Second

// Stats is [sandbox.Meter]'s. It asks the sandbox's server, because not every cluster has a
// metrics API.
func (d *Driver) Stats(ctx context.Context, s *sandbox.Sandbox, stream bool, each func(sandbox.Stats) error) error {
	of, key, err := d.serving(ctx, s)
	if err != nil {
		return err
	}
	var last sandbox.Stats // with the reported processor time
	for {
		now, err := d.config.Agent.Usage(ctx, of.Dial, key)
		if err != nil {
			return fmt.Errorf("measuring sandbox %s: %w", s.ID, err)
		}
		reported := now
		now.CPU = 0
		if span := now.Time.Sub(last.Time).Seconds(); !last.Time.IsZero() && span > 0 {
			now.CPU = max(reported.CPU-last.CPU, 0) / span
		}
		last = reported
		if err := each(now); err != nil || !stream {
			return err
		}
		if err := channel.Sleep(ctx, statsPause); err != nil {
			return err
		}
	}
}
