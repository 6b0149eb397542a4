package server

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
)

// The bounds of a zip. An archive that is inside all of them unpacks; they are
// checked against what it says and against what it turns out to hold.
const (
	// maxMembers is several times the files of a large project with its
	// dependencies; directories count, also those that only stand in a name.
	maxMembers = 100_000
	// maxDirectory bounds the list of members in bytes, 160 for each of the
	// most, because the list is held in memory, at several times its size,
	// before it can be counted.
	maxDirectory = 16 << 20
	// ratio is how many times larger than the archive its content may be.
	// Sources pack to a tenth and logs to a fiftieth; deflate's bombs reach
	// 1,032 and, with members that share their bytes, any number.
	ratio = 200
	// smallContent is what any archive may hold, whatever the ratio: a file of
	// zeros is no attack.
	smallContent = 64 << 20
)

// member is one file or directory of an archive whose name was checked.
type member struct {
	name string // relative, clean, inside
	dir  bool
	file *zip.File
	size int64
}

// unpack puts the content of a zip of size bytes into directory, with the
// rights of the sandbox's user. Permissions and times are not restored. An
// archive that is not in order in all its parts is refused before the first
// file is touched, and so is one that would write through a symbolic link that
// leads out of the directory. When a member cannot be written, those before it
// stay.
func (s *Server) unpack(ctx context.Context, archive *os.File, size int64, directory string) error {
	members, err := inspect(ctx, archive, size, s.cfg.MaxUpload)
	if err != nil {
		return err
	}
	return s.cfg.As(func() error {
		if err := makeDirectory(directory); err != nil {
			return err
		}
		root, err := os.OpenRoot(directory)
		if err != nil {
			return fileError(err, directory, http.StatusBadRequest)
		}
		defer root.Close()
		if err := checkRoom(root, members); err != nil {
			return err
		}
		for _, m := range members {
			if err := m.write(root); err != nil {
				return fileError(err, m.name, http.StatusBadRequest)
			}
		}
		return nil
	})
}

// inspect reads a whole archive and returns its members, directories first.
// Every error is a refusal, or that of ctx.
func inspect(ctx context.Context, archive io.ReaderAt, size, most int64) ([]member, error) {
	source := &frugal{ReaderAt: archive, left: maxDirectory}
	list, err := zip.NewReader(source, size)
	switch {
	case errors.Is(err, errDirectoryTooLarge) || err == nil && len(list.File) > maxMembers:
		return nil, tooManyMembers()
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "The zip cannot be read: %v", err)
	}
	source.listed = true
	if size < most/ratio {
		most = min(most, max(smallContent, size*ratio))
	}
	members, err := plan(list.File, most)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 128<<10)
	for _, m := range members {
		if err := m.verify(ctx, buf); err != nil {
			return nil, err
		}
	}
	return members, nil
}

func tooManyMembers() error {
	return refuse(http.StatusRequestEntityTooLarge, "The zip has more than %d files and directories, or very long names", maxMembers)
}

func tooMuchContent(most int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "The zip unpacks to more than %d bytes, the most for an archive of its size", most)
}

// frugal ends the reading of an archive's list of members where it becomes too
// long; how long it is said to be is not to be believed.
type frugal struct {
	io.ReaderAt
	left   int
	listed bool // the list was read, and what follows has other bounds
}

var errDirectoryTooLarge = errors.New("list of members is too long")

// ReadAt reads.
func (f *frugal) ReadAt(p []byte, off int64) (int, error) {
	if f.left -= len(p); f.left < 0 && !f.listed {
		return 0, errDirectoryTooLarge
	}
	return f.ReaderAt.ReadAt(p, off)
}

// plan checks what an archive says about its members, of which most bytes are
// allowed, and returns them, directories first.
func plan(files []*zip.File, most int64) ([]member, error) {
	members := make([]member, 0, len(files))
	kinds := make(map[string]bool, len(files)) // name to: is it a directory
	left := most
	for _, f := range files {
		m, err := newMember(f, most)
		if err != nil {
			return nil, err
		}
		dir, known := kinds[m.name]
		if known && (!dir || !m.dir) {
			return nil, refuse(http.StatusBadRequest, "The zip has %q twice", m.name)
		}
		kinds[m.name] = m.dir
		if m.size > left {
			return nil, tooMuchContent(most)
		}
		left -= m.size
		members = append(members, m)
	}
	for _, m := range members {
		for up := path.Dir(m.name); up != "."; up = path.Dir(up) {
			dir, known := kinds[up]
			if known && !dir {
				return nil, refuse(http.StatusBadRequest, "The zip has %q as a file and as a directory", up)
			}
			if known {
				break // what is above was looked at, or will be
			}
			kinds[up] = true
		}
		if len(kinds) > maxMembers {
			return nil, tooManyMembers()
		}
	}
	slices.SortStableFunc(members, func(a, b member) int {
		switch {
		case a.dir == b.dir:
			return 0
		case a.dir:
			return -1
		}
		return 1
	})
	return members, nil
}

// newMember checks one member by itself; most is for the message. Symbolic links are refused rather
// than skipped: the caller should know that they did not arrive.
func newMember(f *zip.File, most int64) (member, error) {
	name, err := memberName(f.Name)
	if err != nil {
		return member{}, err
	}
	mode := f.Mode()
	const encrypted = 1
	switch {
	case mode.Type() != 0 && !mode.IsDir():
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is %s; only files and directories are unpacked", f.Name, fileKind(mode))
	case mode.IsDir() && f.UncompressedSize64 != 0:
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is a directory with content", f.Name)
	case f.Flags&encrypted != 0:
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is encrypted", f.Name)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is packed in a way (%d) that is not known here; use deflate", f.Name, f.Method)
	case name == "." && !mode.IsDir():
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q has no name", f.Name)
	}
	if f.UncompressedSize64 > math.MaxInt64 {
		return member{}, tooMuchContent(most)
	}
	return member{name: name, dir: mode.IsDir(), file: f, size: int64(f.UncompressedSize64)}, nil
}

// memberName returns the clean path, relative to the destination, of a member:
// an accepted one stays inside. "." stands for the destination itself.
func memberName(name string) (string, error) {
	const longest, longestElement = 4095, 255 // of Linux
	switch {
	case name == "":
		return "", refuse(http.StatusBadRequest, "The zip has a member without a name")
	case name[0] == '/':
		return "", refuse(http.StatusBadRequest, "The zip's member %q has an absolute path", shorten(name))
	case strings.ContainsRune(name, 0):
		return "", refuse(http.StatusBadRequest, "The zip's member %q has a NUL character in its name", shorten(name))
	case len(name) > longest:
		return "", refuse(http.StatusBadRequest, "The zip's member %q has too long a name", shorten(name))
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return "", refuse(http.StatusBadRequest, "The zip's member %q leads upwards", shorten(name))
		}
		if len(element) > longestElement {
			return "", refuse(http.StatusBadRequest, "The zip's member %q has too long a name", shorten(name))
		}
	}
	return path.Clean(name), nil
}

// shorten keeps a hostile name from filling the answer.
func shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return name[:most] + "…"
}

// verify unpacks a member to nowhere: it must have the size and the checksum
// that it says.
func (m member) verify(ctx context.Context, buf []byte) error {
	r, err := m.file.Open()
	if err != nil {
		return refuse(http.StatusBadRequest, "The zip's member %q cannot be read: %v", m.name, err)
	}
	defer r.Close()
	for left := m.size; ; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading zip: %w", err)
		}
		n, err := r.Read(buf)
		left -= int64(n)
		switch {
		case left < 0 || err == io.EOF && left > 0:
			return refuse(http.StatusBadRequest, "The zip's member %q has not the size it should have", m.name)
		case err == io.EOF:
			return nil
		case err != nil:
			return refuse(http.StatusBadRequest, "The zip's member %q cannot be read: %v", m.name, err)
		}
	}
}

// checkRoom finds out before anything is written whether every member can be:
// that no symbolic link leads it out of root, that nothing else is in its way,
// and that there is space for all. It does not guard: root does, while writing.
func checkRoom(root *os.Root, members []member) error {
	var need int64
	seen := map[string]bool{}
	for _, m := range members {
		if err := checkParents(root, m, seen); err != nil {
			return err
		}
		info, err := inTheWay(root, m.name)
		switch {
		case err != nil:
			return err
		case info == nil:
			need += m.size
		case m.dir != info.IsDir() || !m.dir && !info.Mode().IsRegular():
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", m.name, fileKind(info.Mode()))
		case !m.dir:
			need += max(0, m.size-occupied(info))
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		return fileError(err, root.Name(), http.StatusBadRequest)
	}
	defer dir.Close()
	return fileError(checkSpace(dir, need), root.Name(), http.StatusBadRequest)
}

// checkParents looks at the directories above a member; seen holds those that
// were looked at.
func checkParents(root *os.Root, m member, seen map[string]bool) error {
	for dir := path.Dir(m.name); dir != "." && !seen[dir]; dir = path.Dir(dir) {
		seen[dir] = true
		info, err := inTheWay(root, dir)
		if err != nil {
			return err
		}
		if info != nil && !info.IsDir() {
			return refuse(http.StatusBadRequest, "%q is in the way: it is %s", dir, fileKind(info.Mode()))
		}
	}
	return nil
}

// inTheWay returns what is at a name below root, nil when nothing is. A
// symbolic link to nothing is refused: what is written there would be made
// where it points.
func inTheWay(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := root.Lstat(name); err == nil {
			return nil, refuse(http.StatusBadRequest, "%q is in the way: it is a symbolic link to nothing", name)
		}
		return nil, nil
	}
	return info, fileError(err, name, http.StatusBadRequest)
}

// write puts a member into its place below root.
func (m member) write(root *os.Root) error {
	if m.dir {
		return root.MkdirAll(m.name, newDirectory)
	}
	if err := root.MkdirAll(path.Dir(m.name), newDirectory); err != nil {
		return err
	}
	content, err := m.file.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	return overwrite(target{
		open:   func(flag int) (*os.File, error) { return root.OpenFile(m.name, flag|unixFlags, newFile) },
		remove: func() error { return root.Remove(m.name) },
	}, content, m.size)
}
