package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// demoModule is what the demo breaks and mends: it is small, its tests need
// nothing but itself and take a hundredth of a second, and this program is
// linked with it. So whoever built the program has its source.
const demoModule = "github.com/spf13/pflag"

// module is the source of a Go module.
type module struct {
	path, version string
	// archive is a zip of its files.
	archive []byte
	// missing says why there is no archive and how to get one; "" when there is.
	missing string
}

// name is the last element of the path.
func (m module) name() string { return path.Base(m.path) }

// String returns the path and the version.
func (m module) String() string { return strings.TrimSpace(m.path + " " + m.version) }

// findModule takes the demo's module out of the machine's module cache, in the
// version that this program was built with. It does not use the network.
func findModule(ctx context.Context) module {
	m := module{path: demoModule}
	if info, ok := debug.ReadBuildInfo(); ok {
		m.version = versionOf(info, demoModule)
	}
	if m.version == "" {
		m.missing = "this program does not know with which version of " + m.path + " it was built"
		return m
	}
	cache, err := moduleCache(ctx)
	if err != nil {
		m.missing = err.Error()
		return m
	}
	dir := filepath.Join(cache, filepath.FromSlash(m.path)+"@"+m.version)
	m.archive, err = pack(os.DirFS(dir))
	if err != nil {
		m.missing = fmt.Sprintf("its source is not in the module cache (%v): run 'go mod download %s@%s'", err, m.path, m.version)
	}
	return m
}

// versionOf returns the version of a module that a program was built with, ""
// where it was not, or with a copy of it.
func versionOf(info *debug.BuildInfo, path string) string {
	for _, dep := range info.Deps {
		if dep.Path == path && dep.Replace == nil {
			return dep.Version
		}
	}
	return ""
}

// moduleCache asks Go for its module cache.
func moduleCache(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("there is no Go on this machine, whose module cache has the source")
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOMODCACHE")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking Go for its module cache: %w", err)
	}
	dir := strings.TrimSpace(string(out))
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("asking Go for its module cache: it answers %q", dir)
	}
	return dir, nil
}

// pack makes a zip of the regular files below a directory.
func pack(dir fs.FS) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return packFile(w, dir, name)
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func packFile(w *zip.Writer, dir fs.FS, name string) error {
	file, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	member, err := w.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(member, file)
	return err
}
