// Package search finds files by patterns, and lines by expressions, below a
// directory: newest first, without what .gitignore and its like leave out, and
// bounded in results and in time. It knows nothing of actions.
package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Config says on whose behalf a Searcher looks around.
type Config struct {
	// As runs a function, which starts no goroutines, with the rights of the
	// sandbox's user; nil runs it as is.
	As func(func() error) error
	// Credential is the user that ripgrep runs as, nil for this process's.
	Credential *syscall.Credential
	// Ripgrep is the path of the program; empty means that there is none. It
	// makes a search through many files faster and finds nothing else.
	Ripgrep string
}

// Bounds of one search, whatever is asked for.
const (
	// maxTime is as long as the originals search.
	maxTime = 30 * time.Second
	// maxEntries bounds the directory entries that are looked at. A million is
	// ten large monorepos, and takes some seconds.
	maxEntries = 2_000_000
	// maxFiles bounds the candidates that are kept to be searched, at about 100
	// bytes each.
	maxFiles = 500_000
	// maxDepth bounds the nesting of directories, and with it open files.
	maxDepth = 256
)

// Searcher searches. It may be used concurrently and owns no goroutine.
type Searcher struct {
	cfg Config
}

// New returns a searcher.
func New(cfg Config) *Searcher {
	if cfg.As == nil {
		cfg.As = func(work func() error) error { return work() }
	}
	return &Searcher{cfg: cfg}
}

// Error says that nothing was searched, and why.
type Error struct {
	// Code is a machine word such as "file_not_found".
	Code string
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

func refuse(code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// pathError puts an error of the system into words.
func pathError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("file_not_found", "There is no file or directory %s.", path)
	case errors.Is(err, fs.ErrPermission):
		return refuse("permission_denied", "No permission to read %s.", path)
	case errors.Is(err, syscall.ENOTDIR):
		return refuse("invalid_argument", "%s is not a directory.", path)
	}
	return refuse("invalid_argument", "%s cannot be read: %v.", path, err)
}

// file is a regular file that was found.
type file struct {
	path  string // absolute
	size  int64
	mtime int64 // in ns
}

// newer orders files: the newest first, equally old ones by name.
func newer(a, b file) int {
	switch {
	case a.mtime > b.mtime:
		return -1
	case a.mtime < b.mtime:
		return 1
	case a.path < b.path:
		return -1
	case a.path > b.path:
		return 1
	}
	return 0
}

// directory makes sure that a path is a directory that can be opened.
func directory(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError(path, err)
	}
	return nil
}

// absolute joins a path to the directory that relative ones start from.
func absolute(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}

// limited bounds ctx by the time that a search may take.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, maxTime)
}
