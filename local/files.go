package local

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/tail"
	"github.com/actiond/actiond/sandbox"
)

// The files of a local sandbox are those of this machine.

// Stat looks at a file.
func (d *Driver) Stat(_ context.Context, _ *sandbox.Sandbox, path string) (sandbox.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	found := sandbox.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode()}
	if info.Mode()&os.ModeSymlink != 0 {
		found.LinkTarget, err = os.Readlink(path)
	}
	return found, err
}

// packing is an archive that is written while it is read. Its goroutine ends with
// Close.
type packing struct {
	*io.PipeReader
	done chan struct{}
}

// Close ends the reading.
func (p packing) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}

// CopyOut packs a file or directory.
func (d *Driver) CopyOut(_ context.Context, _ *sandbox.Sandbox, path string) (io.ReadCloser, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	p := packing{r, make(chan struct{})}
	go func() {
		defer close(p.done)
		pack := &archive.Packer{Out: tar.NewWriter(w)}
		dir, err := os.Open(filepath.Dir(path))
		if err == nil {
			err = pack.Pack(dir, filepath.Base(path), filepath.Base(path))
			_ = dir.Close()
		}
		if err == nil {
			err = pack.Out.Close()
		}
		_ = w.CloseWithError(err) // never fails
	}()
	return p, nil
}

// CopyIn unpacks an archive.
func (d *Driver) CopyIn(_ context.Context, _ *sandbox.Sandbox, dir string, data io.Reader) error {
	root, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	u := &archive.Unpacker{Root: root, AllLinks: true, DirMode: 0o755}
	if _, err := u.Unpack(tar.NewReader(data), nil); err != nil {
		return fmt.Errorf("copying to %s: %w", dir, err)
	}
	return nil
}

// WorkDir returns the working directory of the shells of a sandbox.
func (d *Driver) WorkDir(_ context.Context, s *sandbox.Sandbox) (string, error) {
	f, err := d.load(s.ID)
	return d.workDir(s.ID, f), err
}

// Logs writes the log of the server. It supports the options Follow and Tail; the lines
// always begin with their time.
func (d *Driver) Logs(ctx context.Context, s *sandbox.Sandbox, o sandbox.LogOptions, _, stderr io.Writer) error {
	file, err := os.Open(d.path(s.ID, "log"))
	if err != nil {
		return fmt.Errorf("reading the log of sandbox %s: %w", s.ID, err)
	}
	defer func() { _ = file.Close() }()
	if o.Tail != nil {
		if err := seekLines(file, *o.Tail); err != nil {
			return fmt.Errorf("reading the log of sandbox %s: %w", s.ID, err)
		}
	}
	pause := time.NewTicker(10 * readyPause)
	defer pause.Stop()
	for {
		over := !o.Follow || !d.alive(s.ID)
		if _, err := io.Copy(stderr, file); err != nil {
			return fmt.Errorf("copying the log of sandbox %s: %w", s.ID, err)
		}
		if over {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seekLines seeks to the beginning of the last n lines of a file.
func seekLines(file *os.File, n int) error {
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	lines := slices.Collect(bytes.Lines(data))
	last := bytes.Join(lines[max(0, len(lines)-n):], nil)
	_, err = file.Seek(-int64(len(last)), io.SeekCurrent)
	return err
}

// lastWords returns the last lines of a server's log.
func (d *Driver) lastWords(id string) string {
	log, err := os.Open(d.path(id, "log"))
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	_, _ = log.Seek(-wordsBytes, io.SeekEnd)              // fails if the log is shorter
	end, _ := io.ReadAll(io.LimitReader(log, wordsBytes)) // a part is enough
	lines := strings.Split(tail.Text(string(end)), "\n")
	return strings.Join(lines[max(0, len(lines)-wordsLines):], "\n")
}

const (
	wordsBytes = 8 << 10
	wordsLines = 10
)

// Address is [sandbox.Addresser]'s.
func (d *Driver) Address(s *sandbox.Sandbox) (string, error) {
	path, err := filepath.Abs(d.path(s.ID, "socket"))
	return (&url.URL{Scheme: "unix", Path: path}).String(), err
}

// Inspect is [sandbox.Inspector]'s.
func (d *Driver) Inspect(ctx context.Context, s *sandbox.Sandbox) (*sandbox.Details, error) {
	dir, err := d.WorkDir(ctx, s)
	return &sandbox.Details{
		WorkDir: dir, LostProtection: []string{"everything: this is a process of this machine, with all rights of its user"},
	}, err
}

// Examine is [sandbox.Doctor]'s.
func (d *Driver) Examine(context.Context) ([]sandbox.Finding, error) {
	return []sandbox.Finding{{
		Status: "weaker", About: "local", Text: "--on local isolates nothing", So: "commands run on this machine with all rights of your user",
	}}, nil
}
