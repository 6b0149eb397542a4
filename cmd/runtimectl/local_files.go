package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/actiond/actiond/docker"
)

// The files of a local sandbox are those of this machine.

// Stat looks at a file.
func (l *localPlace) Stat(_ context.Context, _ *sandbox, path string) (docker.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return docker.FileInfo{}, err
	}
	found := docker.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode()}
	if info.Mode()&os.ModeSymlink != 0 {
		found.LinkTarget, err = os.Readlink(path)
	}
	return found, err
}

// packing is an archive that is written as it is read. Its goroutine ends with
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
func (l *localPlace) CopyOut(_ context.Context, _ *sandbox, path string) (io.ReadCloser, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	p := packing{r, make(chan struct{})}
	go func() {
		defer close(p.done)
		pack := packer{out: tar.NewWriter(w), note: func(string) {}}
		err := pack.pack(path, filepath.Base(path))
		if err == nil {
			err = pack.out.Close()
		}
		_ = w.CloseWithError(err) // never fails
	}()
	return p, nil
}

// CopyIn unpacks an archive.
func (l *localPlace) CopyIn(_ context.Context, _ *sandbox, dir string, archive io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	u := &unpacker{in: tar.NewReader(archive), root: root, note: func(string) {}}
	if err := u.unpack(nil); err != nil {
		return fmt.Errorf("copying to %s: %w", dir, err)
	}
	return nil
}
