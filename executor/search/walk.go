package search

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// walk goes through the tree below a directory. Links are not followed, and
// what cannot be opened is passed over: it is the user's tree, and it may
// change meanwhile.
type walk struct {
	// ended returns why the search is over, nil while it is not.
	ended func() error
	// ignore is nil where nothing is ignored.
	ignore *ignore
	// wants tells whether a regular file is wanted, by its path below the root.
	wants func(rel string) bool
	// depth is how many levels there are to look at, 0 for all.
	depth int
	// found takes what is wanted.
	found func(file)

	entries int
	// cut is set when a bound ended the walk.
	cut bool
}

// run goes through root, which is absolute and clean. A walk that a bound ends
// is no error.
func (w *walk) run(root string) error {
	dir, err := openDir(root)
	if err != nil {
		return pathError(root, err)
	}
	w.dir(dir, root, "", 1)
	return nil
}

// dir goes through one directory and closes it. rel is its path below the root,
// with a slash at its end unless it is empty.
func (w *walk) dir(dir *os.File, path, rel string, level int) {
	defer func() { _ = dir.Close() }()
	leave := w.ignore.enter(path)
	defer leave()
	for !w.over() {
		entries, err := dir.ReadDir(1024)
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
		if err != nil { // the end is one too
			return
		}
	}
}

// over tells whether a bound is reached.
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

// openDir opens a directory and nothing else: a pipe of that name would block.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// join is filepath.Join for a clean directory and a name.
func join(dir, name string) string {
	if dir == string(filepath.Separator) {
		return dir + name
	}
	return dir + string(filepath.Separator) + name
}
