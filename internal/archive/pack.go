package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Packer writes files into a tar archive, without their owners: they belong to the user that
// unpacks them. It leaves out everything but files, directories and links, and set-uid bits.
type Packer struct {
	Out *tar.Writer
	// LeftOut is called with the name of each file that is left out, and why. Default: nothing is.
	LeftOut func(text string)
	// As does file work with the rights of an account. Files keep their owners then, and
	// those that the account may not read are left out. Default: with this process's.
	As func(work func() error) error
	// Exclude reports whether an open file, or the content of an open directory, is left
	// out, as a file of the kernel. Default: nothing is.
	Exclude func(f *os.File) bool

	denied bool          // a file was left out because the account may not read it
	buf    [4 << 10]byte // of entries of a directory; each takes less than 300 bytes
}

// Files of the kernel, such as /proc/version, say a size of 0 or of a page, and are read to their end.
const (
	maxUntold  = 4 << 10  // size that may not be that of the content
	maxUnsized = 16 << 20 // bytes of such a content, which are in memory
)

// leftOutRecord is the record of an archive's global headers that names the files left
// out.
const leftOutRecord = "ACTIOND.leftout"

// unreadableRecord is beside it in an archive that lacks files because they may not be read.
const unreadableRecord = "ACTIOND.unreadable"

// NoteLeftOut writes a text for LeftOut of the [Unpacker] at the other end. Other
// programs skip it.
func (p *Packer) NoteLeftOut(text string) error {
	records := map[string]string{leftOutRecord: text}
	if p.denied {
		records[unreadableRecord] = "1"
	}
	return p.Out.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: records})
}

func (p *Packer) as(work func() error) error {
	if p.As == nil {
		return work()
	}
	return p.As(work)
}

// unreadable leaves out files that the account may not read, and reports them.
func (p *Packer) unreadable(name string, err error) bool {
	if p.As == nil || !errors.Is(err, fs.ErrPermission) {
		return false
	}
	p.denied = true
	p.leaveOut(name + " may not be read by the user of the commands")
	return true
}

func (p *Packer) leaveOut(text string) {
	if p.LeftOut != nil {
		p.LeftOut(text)
	}
}

// Pack adds the file or directory base in dir, with all that is in it, under another
// name. Links are packed as links. "." names dir itself.
func (p *Packer) Pack(dir *os.File, base, name string) error {
	at := &dirs{root: dir, as: p.as}
	defer at.abandon()
	return p.add(at, base, path.Clean(name))
}

// add packs a file or directory of the current directory.
func (p *Packer) add(at *dirs, base, name string) error {
	var stat unix.Stat_t
	dir, err := at.current()
	if err == nil {
		err = p.as(func() (err error) { stat, err = statAt(dir, base); return err })
	}
	if err != nil {
		return named(name, err)
	}
	if len(name) > maxName {
		p.leaveOut(fmt.Sprintf("%s...: its path has %d bytes, and %d are the most", name[:100], len(name), maxName))
		return nil
	}
	switch {
	case isType(&stat, unix.S_IFDIR):
		return p.directory(at, base, name, &stat)
	case isType(&stat, unix.S_IFREG):
		err = p.file(dir, base, name, &stat)
	case isType(&stat, unix.S_IFLNK):
		err = p.symlink(dir, base, name, &stat)
	default:
		p.leaveOut(name + " is neither file nor directory nor link")
	}
	return named(name, err)
}

// header returns the header of a member; stat is its file's, or nil.
func (p *Packer) header(kind byte, name string, mode fs.FileMode, mtime time.Time, stat *unix.Stat_t) *tar.Header {
	h := &tar.Header{Typeflag: kind, Name: name, Mode: int64(mode.Perm()), ModTime: mtime, Format: tar.FormatPAX}
	if p.As != nil && stat != nil {
		h.Uid, h.Gid = int(stat.Uid), int(stat.Gid)
	}
	return h
}

func (p *Packer) symlink(dir *os.File, base, name string, stat *unix.Stat_t) error {
	target := make([]byte, maxName+1)
	n := 0
	err := p.as(func() (err error) { n, err = unix.Readlinkat(int(dir.Fd()), base, target); return err })
	if err != nil {
		return err
	}
	h := p.header(tar.TypeSymlink, name, 0o777, time.Unix(stat.Mtim.Unix()), stat)
	h.Linkname = string(target[:n])
	return p.Out.WriteHeader(h)
}

func (p *Packer) directory(at *dirs, base, name string, stat *unix.Stat_t) error {
	depth := len(at.at)
	err := at.down(base)
	if p.unreadable(name, err) {
		return nil
	}
	if err != nil {
		return named(name, err)
	}
	defer func() { _ = at.leave(depth) }() // nothing is to be done there
	f, err := at.current()
	if err != nil {
		return named(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return named(name, err)
	}
	if err := p.Out.WriteHeader(p.header(tar.TypeDir, name+"/", info.Mode(), info.ModTime(), stat)); err != nil {
		return named(name, err)
	}
	if p.Exclude != nil && p.Exclude(f) {
		p.leaveOut(name + " has files of the kernel")
		return nil
	}
	for from := int64(0); ; {
		var entries []string
		f, err := at.current()
		if err == nil {
			entries, from, err = p.entries(f, from)
		}
		if err != nil || len(entries) == 0 {
			return named(name, err)
		}
		for _, e := range entries {
			inside := path.Join(name, e)
			err := p.add(at, e, inside)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !p.unreadable(inside, err) { // the first: it was removed meanwhile
				return err
			}
		}
	}
}

// entries reads names in a directory from a position on, and returns the next one; none at
// the end. They come in small portions: an agent can make directories that do not fit into
// memory, and one in each of two thousand above.
func (p *Packer) entries(dir *os.File, from int64) (names []string, next int64, err error) {
	for len(names) == 0 && err == nil { // "." and ".." may be alone in a portion
		n := 0
		err = retry(func() error {
			if _, err := unix.Seek(int(dir.Fd()), from, io.SeekStart); err != nil {
				return err
			}
			n, err = unix.ReadDirent(int(dir.Fd()), p.buf[:])
			return err
		})
		if n <= 0 || err != nil {
			break
		}
		_, _, names = unix.ParseDirent(p.buf[:n], -1, nil)
		from, err = unix.Seek(int(dir.Fd()), 0, io.SeekCurrent)
	}
	return names, from, err
}

func (p *Packer) file(dir *os.File, base, name string, stat *unix.Stat_t) error {
	var f *os.File
	err := p.as(func() (err error) { f, err = openAt(dir, base, unix.O_RDONLY|unix.O_NONBLOCK, 0); return err })
	if p.unreadable(name, err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		p.leaveOut(name + " was replaced by something that is not a file")
		return nil
	}
	if p.Exclude != nil && p.Exclude(f) {
		p.leaveOut(name + " is a file of the kernel")
		return nil
	}
	h := p.header(tar.TypeReg, name, info.Mode(), info.ModTime(), stat)
	h.Size = info.Size()
	content := io.Reader(f)
	if h.Size <= maxUntold && p.Exclude == nil {
		data, err := io.ReadAll(io.LimitReader(f, maxUnsized+1))
		switch {
		case err != nil:
			return err
		case len(data) > maxUnsized:
			return fmt.Errorf("its size is said to be %d bytes, and it has more than %d", h.Size, maxUnsized)
		}
		h.Size, content = int64(len(data)), bytes.NewReader(data)
	}
	if err := p.Out.WriteHeader(h); err != nil {
		return err
	}
	switch n, err := io.Copy(p.Out, io.LimitReader(content, h.Size)); {
	case err != nil:
		return err
	case n < h.Size:
		return errors.New("it became shorter while it was read")
	}
	return nil
}

// Pass copies an archive, and gives all that is in it to the owner.
func (p *Packer) Pass(archive io.Reader) error {
	in := tar.NewReader(archive)
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return readError(err)
		}
		switch header.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		case tar.TypeGNUSparse:
			header.Typeflag = tar.TypeReg // it is passed on with its zeros
		default:
			p.leaveOut(header.Name + " is neither file nor directory nor link")
			continue
		}
		clean := p.header(header.Typeflag, header.Name, header.FileInfo().Mode(), header.ModTime, nil)
		clean.Linkname, clean.Size = header.Linkname, header.Size
		if err := p.Out.WriteHeader(clean); err != nil {
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
		if _, err := io.Copy(p.Out, in); err != nil { //nolint:gosec // it is the caller's own, and not unpacked here
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
	}
}
