// Package search finds files by patterns and lines by expressions below a
// directory: newest first, without the files that .gitignore and similar files
// exclude, and bounded in results and time. It knows no actions.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/identity"
)

// Config says how a Searcher searches.
type Config struct {
	// User reads the files; nil means the user of this process.
	User *identity.User
	// Ripgrep is the path of the program; empty means none. It makes a search
	// in many files faster, with the same results.
	Ripgrep string
}

// Bounds of one search, for any query.
const (
	// maxTime is the time limit of the agents' original tools.
	maxTime = 30 * time.Second
	// maxEntries bounds the directory entries that are visited. A million is
	// ten large monorepos, and takes some seconds.
	maxEntries = 2_000_000
	// maxFiles and maxPaths bound the files to search: their number, and the
	// bytes of their paths, each of which may have 4 KiB.
	maxFiles = 500_000
	maxPaths = 16 << 20
	// maxDepth bounds the nesting of directories, and so the open files.
	maxDepth = 256
)

// Searcher searches. It may be used concurrently and owns no goroutine.
type Searcher struct {
	cfg Config
}

// New returns a searcher.
func New(cfg Config) *Searcher {
	return &Searcher{cfg: cfg}
}

// Error says why nothing was searched.
type Error struct {
	// Code is a word for programs, such as "file_not_found".
	Code string
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

func refuse(code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// pathError turns an error of the system into an *Error.
func pathError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("file_not_found", "There is no file or directory %s.", path)
	case errors.Is(err, fs.ErrPermission):
		return refuse("permission_denied", "No permission to read %s.", path)
	case errors.Is(err, syscall.ENOTDIR):
		return refuse("invalid_argument", "%s is not a directory.", path)
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err // without the path, which is there already
	}
	return refuse("invalid_argument", "%s cannot be read: %v.", path, err)
}

// file is a regular file to search.
type file struct {
	path  string // absolute
	size  int64
	mtime int64 // in ns
}

// newer orders files: the newest first, files of the same age by name.
func newer(a, b file) int {
	if a.mtime != b.mtime {
		return cmp.Compare(b.mtime, a.mtime)
	}
	return strings.Compare(a.path, b.path)
}

// directory checks that a path is a directory that can be opened.
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

// absolute joins a relative path to a directory.
func absolute(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}

// limited bounds ctx by maxTime.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, maxTime)
}
