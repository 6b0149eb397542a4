package edit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// maxEntries bounds the names of a listing that are kept: more than maxShown characters can hold, since the shortest
// line, a name in the root directory, has three characters.
const maxEntries = 8192

// portion is how many entries of a directory are held at a time.
const portion = 512

// listing lists a directory and its subdirectories without hidden entries. It enters symbolic links to directories,
// except one that leads back to the directory itself, and leaves out unreadable entries.
func (e *Editor) listing(p place) (string, error) {
	var shown string
	err := e.as(func() error {
		l := lister{dir: p.real}
		if err := l.collect(p.info); err != nil {
			return err
		}
		shown = l.format(p.shown)
		return nil
	})
	return shown, err
}

// lister collects the first entries of a directory in the order of their paths. It holds a bounded number of names.
type lister struct {
	dir    string   // real
	names  []string // relative to the directory, not hidden
	full   bool     // names were dropped from the end
	hidden int      // hidden entries directly in the directory
}

// collect lists the directory, described by self, and its subdirectories.
func (l *lister) collect(self fs.FileInfo) error {
	err := eachName(l.dir, func(name string) {
		if strings.HasPrefix(name, ".") {
			l.hidden++
		} else {
			l.add(name)
		}
	})
	if err != nil {
		return err
	}
	l.prune(0)
	for _, name := range slices.Clone(l.names) {
		if l.full && name+"/" > l.names[len(l.names)-1] {
			break // all its entries sort after the kept ones
		}
		path := filepath.Join(l.dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || os.SameFile(info, self) {
			continue
		}
		_ = eachName(path, func(child string) { // unreadable directories are left out
			if !strings.HasPrefix(child, ".") {
				l.add(name + "/" + child)
			}
		})
		l.prune(0)
	}
	return nil
}

func (l *lister) add(name string) {
	l.names = append(l.names, name)
	l.prune(maxEntries)
}

// prune keeps the first maxEntries names once there are slack more.
func (l *lister) prune(slack int) {
	if len(l.names) <= maxEntries+slack {
		if slack == 0 {
			slices.Sort(l.names)
		}
		return
	}
	slices.Sort(l.names)
	clear(l.names[maxEntries:])
	l.names = l.names[:maxEntries]
	l.full = true
}

// format shortens the sorted paths as text, as the reference does, and then marks the directories.
func (l *lister) format(dir string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Here's the files and directories up to 2 levels deep in %s, excluding hidden items:\n%s/", dir,
		strings.TrimSuffix(dir, "/"))
	prefix, left := strings.TrimSuffix(dir, "/")+"/", maxShown-utf8.RuneCountInString(dir)
	for _, name := range l.names {
		path := printable(prefix + name)
		if left -= 1 + utf8.RuneCountInString(path); left < 0 {
			kept := []rune("\n" + path)
			out.WriteString(string(kept[:len(kept)+left]) + directoryClipped)
			break
		}
		out.WriteString("\n" + path)
		if info, err := os.Stat(filepath.Join(l.dir, name)); err == nil && info.IsDir() {
			out.WriteByte('/')
		}
	}
	if l.hidden > 0 {
		fmt.Fprintf(&out, "\n\n%d hidden files/directories in this directory are excluded. You can use 'ls -la %s' to see them.", l.hidden, dir)
	}
	return out.String()
}

// tree lists a directory for the dialects that enter no symbolic link and list the entries of a directory right after
// it: OpenHandsV1 two levels deep with absolute paths, Strands three levels deep with names relative to the directory.
func (e *Editor) tree(p place) (string, error) {
	w := walker{dialect: p.dialect, prefix: strings.TrimSuffix(p.shown, "/") + "/", left: maxShown}
	var out strings.Builder
	fmt.Fprintf(&out, "Here's the files and directories up to 2 levels deep in %s, excluding hidden items:\n", p.shown)
	levels := 3
	if p.dialect == OpenHandsV1 {
		levels = 2
		w.add(p.shown, true)
	} else {
		w.prefix = ""
	}
	err := e.as(func() error { return w.walk(p.real, "", levels) })
	if err != nil {
		return "", err
	}
	shown := strings.Join(w.lines, "\n")
	if w.left < 0 {
		shown += directoryClipped
	}
	out.WriteString(shown)
	if p.dialect != OpenHandsV1 {
		return out.String() + "\n", nil
	}
	if w.hidden > 0 {
		fmt.Fprintf(&out, "\n\n%d hidden files/directories in this directory are excluded. You can use 'ls -la %s' to see them.", w.hidden, p.shown)
	}
	return out.String(), nil
}

// walker collects the lines of a tree until they fill an answer.
type walker struct {
	dialect Dialect
	prefix  string
	lines   []string
	left    int // characters that may still be shown
	hidden  int // hidden entries directly in the directory
}

func (w *walker) add(path string, dir bool) {
	line := printable(path)
	if dir && w.dialect == OpenHandsV1 {
		line = strings.TrimSuffix(line, "/") + "/"
	}
	if w.left -= utf8.RuneCountInString(line) + 1; w.left >= 0 {
		w.lines = append(w.lines, line)
	}
}

// walk adds the entries of a directory, whose name in the listing is under.
func (w *walker) walk(dir, under string, levels int) error {
	l := lister{dir: dir}
	err := eachName(dir, func(name string) {
		switch {
		case !strings.HasPrefix(name, "."):
			l.add(name)
		case under == "":
			w.hidden++
		}
	})
	if err != nil {
		return err
	}
	l.prune(0)
	for _, name := range l.names {
		if w.left < 0 {
			return nil
		}
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		isDir := err == nil && info.IsDir()
		w.add(w.prefix+under+name, isDir)
		if isDir && levels > 1 {
			_ = w.walk(path, under+name+"/", levels-1) // unreadable directories are left out
		}
	}
	return nil
}

// eachName calls do with each name in a directory, unordered, and reads the directory in portions.
func eachName(dir string, do func(string)) error {
	d, err := files.Open(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return eachNameIn(d, do)
}

func eachNameIn(d *os.File, do func(string)) error {
	for {
		names, err := d.Readdirnames(portion)
		for _, name := range names {
			do(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
