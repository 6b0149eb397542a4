package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"time"
)

// file is a file of an artefact. Its owner is root.
type file struct {
	name string // relative, with slashes
	mode int64
	data []byte
	link string // where a symbolic link points to; it has no data
}

// sorted returns the files in the order of their names, each below dir if dir is not empty.
func sorted(dir string, files ...file) []file {
	files = slices.Clone(files)
	for i := range files {
		if dir != "" {
			files[i].name = dir + "/" + files[i].name
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// tarball packs files in their order. Nothing in it depends on the machine.
func tarball(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return out.Bytes(), nil
}

// compressed is gzip without a name and a time.
func compressed(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return out.Bytes(), nil
}

// tarGz packs and compresses files.
func tarGz(files []file, at time.Time) ([]byte, error) {
	data, err := tarball(files, at)
	if err != nil {
		return nil, err
	}
	return compressed(data)
}
