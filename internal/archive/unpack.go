package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/random"
)

// Unpacker makes the files of tar archives below a directory. A member that is no file,
// directory or link is left out; no file keeps an owner or a set-uid bit; and files
// and links that are in the way are replaced.
type Unpacker struct {
	// Root is the directory; nothing is written outside of it.
	Root *os.File
	// Top is the beginning of all names, which is Root itself; "" for none, "/" for
	// names that begin with a slash.
	Top string
	// NewRoot says that Root gets the mode and time that the archive has for it.
	NewRoot bool
	// One refuses archives of more than one member.
	One bool
	// AllLinks makes links that lead out of Root, which otherwise are left out.
	AllLinks bool
	// Spare leaves a part of the file system free.
	Spare bool
	// DirMode is for directories that the archive has no entry for. Default 0700.
	DirMode fs.FileMode
	// As does file work with the rights of an account. Default: with this process's.
	As func(work func() error) error
	// LeftOut is called with the name of each member that is left out, and why. Default: nothing is.
	LeftOut func(text string)

	dirs    dirs
	sources dirs // the directories that hard links lead to
	seed    maphash.Seed
	files   map[uint64]struct{} // hashes of the names of the files that were made
	buf     []byte
}

// maxLinkable bounds the files that are remembered for hard links to them: 40 MB.
const maxLinkable = 1 << 20

// Unpack makes all that is in the archive, beginning with first where that was
// read already, and returns how many entries that were. The files made before an
// error stay.
func (u *Unpacker) Unpack(in *tar.Reader, first *tar.Header) (entries int, err error) {
	if u.As == nil {
		u.As = func(work func() error) error { return work() }
	}
	if u.LeftOut == nil {
		u.LeftOut = func(string) {}
	}
	if u.DirMode == 0 {
		u.DirMode = 0o700
	}
	u.seed, u.files, u.buf = maphash.MakeSeed(), map[uint64]struct{}{}, make([]byte, 128<<10)
	u.dirs = dirs{root: u.Root, as: u.As, make: &u.DirMode}
	u.sources = dirs{root: u.Root, as: u.As}
	defer u.dirs.abandon()
	defer u.sources.abandon()
	var rootAttributes *attributes
	for header := first; ; header = nil {
		if header == nil {
			header, err = in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return entries, readError(err)
			}
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			if text, ok := header.PAXRecords[leftOutRecord]; ok {
				u.LeftOut(text)
			}
			continue
		}
		if u.One && entries > 0 {
			return entries, fmt.Errorf("%w: it has %q behind the only file", ErrHostile, header.Name)
		}
		name, err := u.relative(header.Name)
		if err == nil && name == "." {
			err = u.root(header, &rootAttributes)
		} else if err == nil {
			err = u.entry(header, name, in)
		}
		if err != nil {
			return entries, err
		}
		entries++
	}
	if err := u.dirs.close(); err != nil {
		return entries, err
	}
	if rootAttributes != nil {
		return entries, u.As(func() error { return rootAttributes.apply(u.Root) })
	}
	return entries, nil
}

// readError returns ErrFormat for errors of the archive's form.
func readError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return fmt.Errorf("reading the archive: %w", err)
}

// root is an entry for the root directory.
func (u *Unpacker) root(h *tar.Header, attributes **attributes) error {
	if h.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: %s is the directory to unpack in", ErrExists, h.Name)
	}
	if u.NewRoot {
		*attributes = attributesOf(h)
	}
	return nil
}

func attributesOf(h *tar.Header) *attributes {
	return &attributes{h.FileInfo().Mode().Perm(), h.ModTime}
}

// relative is the path below Root of a name in the archive.
func (u *Unpacker) relative(name string) (string, error) {
	if u.Top == "/" {
		name = strings.TrimPrefix(name, "/")
	}
	clean := path.Clean(strings.TrimSuffix(name, "/"))
	switch {
	case len(name) > maxName:
		return "", fmt.Errorf("%w: it has a file whose name has %d bytes; %d are the most", ErrHostile, len(name), maxName)
	case strings.HasPrefix(name, "/"), strings.Contains("/"+name+"/", "/../"), strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%w: it has a file %q, which leads out of it", ErrHostile, name)
	case u.Top == "", u.Top == ".", u.Top == "/":
		return clean, nil
	}
	top, rest, _ := strings.Cut(clean, "/")
	if top != u.Top {
		return "", fmt.Errorf("%w: it has a file %q, which does not lie in %q", ErrHostile, name, u.Top)
	}
	if rest == "" {
		return ".", nil
	}
	return rest, nil
}

// entry makes one file, directory or link.
func (u *Unpacker) entry(h *tar.Header, name string, content io.Reader) error {
	if isSparse(h) {
		return fmt.Errorf("%w: it has a file %q with holes, whose size says nothing", ErrHostile, h.Name)
	}
	dir, err := u.dirs.enter(path.Dir(name))
	if err != nil {
		return named(h.Name, err)
	}
	if err := checkSpace(dir, h.Size, u.Spare); err != nil {
		return named(h.Name, err)
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.directory(dir, base, h)
	case tar.TypeReg:
		err = u.file(dir, base, h, content)
		u.remember(name)
	case tar.TypeLink:
		err = u.link(dir, name, h.Linkname)
	case tar.TypeSymlink:
		err = u.symlink(dir, name, h.Linkname)
	default:
		u.LeftOut(h.Name + " is neither file nor directory nor link")
	}
	return named(h.Name, err)
}

// MemberError is an error of the file system about a member.
type MemberError struct {
	Name string // in the archive
	Err  error
}

// Error returns the name and the error.
func (e *MemberError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the error of the file system.
func (e *MemberError) Unwrap() error { return e.Err }

// named adds the name of the member to an error of the file system.
func named(name string, err error) error {
	if err == nil || errors.Is(err, ErrHostile) {
		return err
	}
	return &MemberError{name, err}
}

// isSparse reports whether a file has holes: a few bytes of archive could fill a disk.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// directory makes a directory and enters it. One that was there keeps its mode.
func (u *Unpacker) directory(dir *os.File, name string, h *tar.Header) error {
	var made bool
	var file *os.File
	err := u.As(func() (err error) {
		if made, err = makeDir(dir, name, 0o700); err == nil && made {
			file, err = openDirAt(dir, name)
		}
		return err
	})
	if err != nil || !made {
		return err
	}
	u.dirs.push(level{name, file, attributesOf(h)})
	return nil
}

// file makes a file.
func (u *Unpacker) file(dir *os.File, name string, h *tar.Header, content io.Reader) error {
	temp := ".actiond-" + random.Hex(8)
	var f *os.File
	err := u.As(func() (err error) {
		if _, err = replaceable(dir, name); err == nil {
			f, err = openAt(dir, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = u.fill(f, content, h.Size)
	return errors.Join(u.As(func() error {
		if err == nil {
			err = errors.Join(f.Chmod(h.FileInfo().Mode().Perm()), setTime(dir, temp, h.ModTime))
		}
		if err == nil {
			err = retry(func() error { return unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), name) })
		}
		if err != nil { // half a file is of no use, and the one before stays
			return errors.Join(err, unix.Unlinkat(int(dir.Fd()), temp, 0))
		}
		return nil
	}), f.Close())
}

// zeros is the content of a block of a hole.
var zeros [4096]byte

// fill writes size bytes of content to a new file. Blocks of zeros become holes: a
// file of the sandbox may have had them, and be larger than any disk.
func (u *Unpacker) fill(f *os.File, content io.Reader, size int64) error {
	for left := size; left > 0; {
		n, err := io.ReadFull(content, u.buf[:min(left, int64(len(u.buf)))])
		left -= int64(n)
		if err != nil {
			return readError(err)
		}
		for block := u.buf[:n]; len(block) > 0; {
			part := block[:min(len(block), len(zeros))]
			hole := bytes.Equal(part, zeros[:len(part)])
			// The longest run of blocks that are alike.
			for end := len(part); end < len(block); end += len(zeros) {
				next := block[end:min(len(block), end+len(zeros))]
				if bytes.Equal(next, zeros[:len(next)]) != hole {
					break
				}
				part = block[:end+len(next)]
			}
			if hole {
				_, err = f.Seek(int64(len(part)), io.SeekCurrent)
			} else {
				_, err = f.Write(part)
			}
			if err != nil {
				return err
			}
			block = block[len(part):]
		}
	}
	return f.Truncate(size)
}

// replaceable reports whether a file or link is at a name. Anything else there is an error.
func replaceable(dir *os.File, name string) (there bool, err error) {
	stat, err := statAt(dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !isType(&stat, unix.S_IFREG) && !isType(&stat, unix.S_IFLNK):
		return false, fmt.Errorf("%w: it is not a file", ErrExists)
	}
	return true, nil
}

// removeFile removes a file or link that is in the way. Anything else stays.
func removeFile(dir *os.File, name string) error {
	there, err := replaceable(dir, name)
	if err != nil || !there {
		return err
	}
	return retry(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
}

// stays reports whether a link in a directory so deep below the root leads to a place below it, whatever
// links it passes: a .. behind one of them does not lead back.
func stays(target string, depth int) bool {
	if path.IsAbs(target) {
		return false
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
			if down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// symlink makes a symbolic link.
func (u *Unpacker) symlink(dir *os.File, name, target string) error {
	if !u.AllLinks && !stays(target, strings.Count(name, "/")) {
		u.LeftOut(fmt.Sprintf("%s is a link to %s, which is not copied", name, target))
		return nil
	}
	base := path.Base(name)
	return u.As(func() error {
		if err := removeFile(dir, base); err != nil {
			return err
		}
		return retry(func() error { return unix.Symlinkat(target, int(dir.Fd()), base) })
	})
}

// remember notes that the archive has brought a file, for links to it.
func (u *Unpacker) remember(name string) {
	if len(u.files) < maxLinkable {
		u.files[maphash.String(u.seed, name)] = struct{}{}
	}
}

// link makes a hard link to a file that the archive has brought. Any other would
// give the archive's name to a file that was there.
func (u *Unpacker) link(dir *os.File, name, target string) error {
	to, err := u.relative(target)
	if err != nil {
		return err
	}
	if _, brought := u.files[maphash.String(u.seed, to)]; !brought {
		if len(u.files) < maxLinkable {
			return fmt.Errorf("%w: it has a link %q to %q, which it did not bring", ErrHostile, name, target)
		}
		u.LeftOut(fmt.Sprintf("%s is a link to one of too many files, %s", name, target))
		return nil
	}
	if to == name {
		return nil
	}
	source, err := u.sources.enter(path.Dir(to))
	if err != nil {
		return err
	}
	base := path.Base(name)
	return u.As(func() error {
		stat, err := statAt(source, path.Base(to))
		if err != nil {
			return err
		}
		if !isType(&stat, unix.S_IFREG) { // another member has taken its place
			return fmt.Errorf("%w: it has a link %q to %q, which is not a file", ErrHostile, name, target)
		}
		if err := removeFile(dir, base); err != nil {
			return err
		}
		return retry(func() error { return unix.Linkat(int(source.Fd()), path.Base(to), int(dir.Fd()), base, 0) })
	})
}
