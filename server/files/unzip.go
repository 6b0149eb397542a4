package files

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/actiond/actiond/internal/shorten"
)

// The bounds of a zip. An archive that is inside all of them unpacks; they are
// checked against the sizes in its directory and against its real content.
const (
	// MaxMembers is several times the files of a large project with its
	// dependencies; directories count, also those that only stand in a name.
	MaxMembers = 100_000
	// maxDirectory bounds the list of members in bytes, 160 for each of the
	// most, because the list is held in memory, at several times its size,
	// before it can be counted.
	maxDirectory = 16 << 20
	// ratio is how many times larger than the archive its content may be.
	// Sources pack to a tenth and logs to a fiftieth; deflate's bombs reach
	// 1,032 and, with members that share their bytes, any number.
	ratio = 200
	// SmallContent is the size up to which contents are accepted at any ratio: a file of
	// zeros is no attack.
	SmallContent = 64 << 20
)

// member is one file or directory of an archive whose name was checked.
type member struct {
	name string // relative, clean, inside
	dir  bool
	file *zip.File
	size int64
}

// Unzip puts the content of a zip of size bytes into directory, with the
// rights of the sandbox's user. Permissions and times are not restored. An
// archive that is not in order in all its parts is refused before the first
// file is touched, and so is one that would write through a symbolic link that
// leads out of the directory. When a member cannot be written, those before it
// stay.
func (t *Trees) Unzip(ctx context.Context, archive *os.File, size int64, directory string) error {
	members, err := inspect(ctx, archive, size, t.cfg.MaxUnpacked)
	if err != nil {
		return err
	}
	incoming := make([]Incoming, len(members))
	for i, m := range members {
		incoming[i] = Incoming{Name: m.name, Dir: m.dir, Size: m.size}
		if !m.dir {
			incoming[i].Open = m.file.Open
		}
	}
	return t.Put(ctx, directory, incoming)
}

// inspect reads a whole archive and returns its members, directories first.
// Every error is a refusal, or that of ctx.
func inspect(ctx context.Context, archive io.ReaderAt, size, most int64) ([]member, error) {
	source := &limitedReader{ReaderAt: archive, left: maxDirectory}
	list, err := zip.NewReader(source, size)
	switch {
	case errors.Is(err, errDirectoryTooLarge) || err == nil && len(list.File) > MaxMembers:
		return nil, tooManyMembers()
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "The zip cannot be read: %v", err)
	}
	source.listed = true
	if size < most/ratio {
		most = min(most, max(SmallContent, size*ratio))
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
	return refuse(http.StatusRequestEntityTooLarge, "The zip has more than %d files and directories, or very long names",
		MaxMembers)
}

func tooMuchContent(most int64) error {
	return refuse(http.StatusRequestEntityTooLarge,
		"The zip unpacks to more than %d bytes, the most for an archive of its size", most)
}

// limitedReader fails once the list of an archive's members becomes too long; the
// archive may state any length.
type limitedReader struct {
	io.ReaderAt
	left   int
	listed bool // the list was read; members have limits of their own
}

var errDirectoryTooLarge = errors.New("list of members is too long")

// ReadAt reads.
func (f *limitedReader) ReadAt(p []byte, off int64) (int, error) {
	if f.left -= len(p); f.left < 0 && !f.listed {
		return 0, errDirectoryTooLarge
	}
	return f.ReaderAt.ReadAt(p, off)
}

// plan checks the headers of the members of an archive, which may have most bytes,
// and returns the members, directories first.
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
				break // the directories above were looked at, or will be
			}
			kinds[up] = true
		}
		if len(kinds) > MaxMembers {
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
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is %s; only files and directories are unpacked",
			f.Name, kind(mode))
	case mode.IsDir() && f.UncompressedSize64 != 0:
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is a directory with content", f.Name)
	case f.Flags&encrypted != 0:
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q is encrypted", f.Name)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return member{}, refuse(http.StatusBadRequest,
			"The zip's member %q uses compression method %d, which is not supported; use deflate", f.Name, f.Method)
	case name == "." && !mode.IsDir():
		return member{}, refuse(http.StatusBadRequest, "The zip's member %q has no name", f.Name)
	}
	if f.UncompressedSize64 > math.MaxInt64 {
		return member{}, tooMuchContent(most)
	}
	return member{name: name, dir: mode.IsDir(), file: f, size: int64(f.UncompressedSize64)}, nil
}

// memberName returns the clean path, relative to the destination, of a member:
// an accepted one stays inside. "." is the destination itself.
func memberName(name string) (string, error) {
	const longest, longestElement = 4095, 255 // of Linux
	const maxShownName = 200                  // a hostile name does not fill the answer
	switch {
	case name == "":
		return "", refuse(http.StatusBadRequest, "The zip has a member without a name")
	case name[0] == '/':
		return "", refuse(http.StatusBadRequest, "The zip's member %q has an absolute path", shorten.Text(name, maxShownName))
	case strings.ContainsRune(name, 0):
		return "", refuse(http.StatusBadRequest, "The name of the zip's member %q contains a NUL character",
			shorten.Text(name, maxShownName))
	case len(name) > longest:
		return "", refuse(http.StatusBadRequest, "The name of the zip's member %q is too long",
			shorten.Text(name, maxShownName))
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return "", refuse(http.StatusBadRequest, "The zip's member %q contains \"..\"", shorten.Text(name, maxShownName))
		}
		if len(element) > longestElement {
			return "", refuse(http.StatusBadRequest, "The name of the zip's member %q is too long",
				shorten.Text(name, maxShownName))
		}
	}
	return path.Clean(name), nil
}

// verify reads a member to its end. It must have the size and the checksum that the
// archive states.
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
			return refuse(http.StatusBadRequest, "The zip's member %q does not have the size that the archive states", m.name)
		case err == io.EOF:
			return nil
		case err != nil:
			return refuse(http.StatusBadRequest, "The zip's member %q cannot be read: %v", m.name, err)
		}
	}
}
