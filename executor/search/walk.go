package search

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// walk visits the tree below a directory. It does not follow links, and skips
// entries that cannot be opened: the tree belongs to the user and may change
// meanwhile.
type walk struct {
	// ended returns why the search is over, nil while it is not.
	ended func() error
	// ignore is nil if no file is ignored.
	ignore *ignore
	// wants reports whether to find a regular file, by its path below the root.
	wants func(rel string) bool
	// depth is the number of levels to visit, 0 for all.
	depth int
	// found gets each file that wants accepts.
	found func(file)

	entries int
	// cut is set when a bound ended the walk.
	cut bool
}

// portion is the number of entries of a directory that are in memory at a time,
// on each of maxDepth levels.
const portion = 64

// run visits root, which is absolute and clean. A bound that ends the walk is
// not an error.
func (w *walk) run(root string) error {
	dir, err := openDir(root)
	if err != nil {
		return pathError(root, err)
	}
	w.dir(dir, root, "", 1)
	return nil
}

// dir visits one directory and closes it. rel is its path below the root, with
// a slash at its end unless it is empty.
func (w *walk) dir(dir *os.File, path, rel string, level int) {
	defer func() { _ = dir.Close() }()
	leave := w.ignore.enter(path)
	defer leave()
	for !w.over() {
		entries, err := dir.ReadDir(portion)
		for _, e := range entries {
			w.entries++
			name := e.Name()
			isDir := e.IsDir()
			if !isDir && !e.Type().IsRegular() || name == ".git" || w.ignore.skips(path, name, isDir) {
				continue
			}
			switch {
			case !isDir:
				w.file(dir, path, rel, name)
			case level != w.depth && level < maxDepth:
				if sub, err := openDir(join(path, name)); err == nil {
					w.dir(sub, join(path, name), rel+name+"/", level+1)
				}
			}
			if w.cut {
				return
			}
		}
		if err != nil { // or io.EOF
			return
		}
	}
}

// over reports whether a bound is reached.
func (w *walk) over() bool {
	if w.entries > maxEntries || w.ended() != nil {
		w.cut = true
	}
	return w.cut
}

func (w *walk) file(dir *os.File, path, rel, name string) {
	if w.wants != nil && !w.wants(rel+name) {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return
	}
	w.found(file{path: join(path, name), size: st.Size, mtime: st.Mtim.Nano()})
}

// openDir opens a directory and no other file: a named pipe would block.
func openDir(path string) (*os.File, error) {
	return files.Open(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// join is filepath.Join for a clean directory and a name.
func join(dir, name string) string {
	if dir == string(filepath.Separator) {
		return dir + name
	}
	return dir + string(filepath.Separator) + name
}
