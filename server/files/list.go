package files

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
)

// Bounds of one directory's list, which is held in memory as a whole to be sorted.
const (
	maxListed      = 100_000 // names
	maxListedBytes = 4 << 20
)

// Names returns the entries of a directory: directories with a slash at their
// end, then everything else, each in the order of their lower-case letters.
// Symbolic links count as their targets, and not at all when that is
// missing. A directory that cannot be read has no entries. The error is an
// *api.Error, with status 413 for a directory beyond the bounds.
func (t *Trees) Names(dir string) ([]string, error) {
	directories, others := []string{}, []string{}
	count, size := 0, 0
	err := t.cfg.As(func() error {
		return eachEntry(dir, func(e fs.DirEntry) error {
			isDir := e.IsDir()
			if e.Type()&os.ModeSymlink != 0 {
				target, err := os.Stat(filepath.Join(dir, e.Name()))
				if err != nil {
					return nil //nolint:nilerr // it leads nowhere
				}
				isDir = target.IsDir()
			}
			count++
			if size += len(e.Name()); count > maxListed || size > maxListedBytes {
				return refuse(http.StatusRequestEntityTooLarge,
					"The directory has more than %d names, or very long ones: list it with a command", maxListed)
			}
			if isDir {
				directories = append(directories, e.Name()+"/")
			} else {
				others = append(others, e.Name())
			}
			return nil
		})
	})
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return nil, refusal
	}
	slices.SortFunc(directories, compareFolded)
	slices.SortFunc(others, compareFolded)
	return append(directories, others...), nil
}

// compareFolded orders without regard to case, and by it where only it differs.
func compareFolded(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}
