package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Packer writes files into a tar archive, as those of one account. What is no
// file, directory or link is left out, and so are set-uid bits.
type Packer struct {
	Out   *tar.Writer
	Owner Owner
	// LeftOut is told what is left out, and why. Default: nothing is.
	LeftOut func(text string)
}

func (p *Packer) leaveOut(text string) {
	if p.LeftOut != nil {
		p.LeftOut(text)
	}
}

// Pack adds what has the name base in dir, with all that is in it, under another
// name. Links are packed as links. "." names dir itself.
func (p *Packer) Pack(dir *os.File, base, name string) error {
	return p.add(dir, base, path.Clean(name))
}

// add packs a file or directory.
func (p *Packer) add(dir *os.File, base, name string) error {
	stat, err := statAt(dir, base)
	if err != nil {
		return named(name, err)
	}
	if len(name) > maxName {
		p.leaveOut(fmt.Sprintf("%s...: its path has %d bytes, and %d are the most", name[:100], len(name), maxName))
		return nil
	}
	switch {
	case isType(&stat, unix.S_IFDIR):
		return p.directory(dir, base, name)
	case isType(&stat, unix.S_IFREG):
		err = p.file(dir, base, name)
	case isType(&stat, unix.S_IFLNK):
		err = p.symlink(dir, base, name, &stat)
	default:
		p.leaveOut(name + " is neither file nor directory nor link")
	}
	return named(name, err)
}

// header is what all members have.
func (p *Packer) header(kind byte, name string, mode fs.FileMode, mtime time.Time) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(mode.Perm()), ModTime: mtime,
		Uid: p.Owner.UID, Gid: p.Owner.GID, Format: tar.FormatPAX,
	}
}

func (p *Packer) symlink(dir *os.File, base, name string, stat *unix.Stat_t) error {
	target := make([]byte, maxName+1)
	n, err := unix.Readlinkat(int(dir.Fd()), base, target)
	if err != nil {
		return err
	}
	h := p.header(tar.TypeSymlink, name, 0o777, time.Unix(stat.Mtim.Unix()))
	h.Linkname = string(target[:n])
	return p.Out.WriteHeader(h)
}

func (p *Packer) directory(dir *os.File, base, name string) error {
	f, err := openDirAt(dir, base)
	if err != nil {
		return named(name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return named(name, err)
	}
	if err := p.Out.WriteHeader(p.header(tar.TypeDir, name+"/", info.Mode(), info.ModTime())); err != nil {
		return named(name, err)
	}
	for {
		// In portions: an agent can make directories that do not fit into memory.
		// Names alone, because the kind is looked up at a path otherwise.
		entries, err := f.Readdirnames(1024)
		for _, e := range entries {
			err := p.add(f, e, path.Join(name, e))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // then it was removed meanwhile
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return named(name, err)
		}
	}
}

func (p *Packer) file(dir *os.File, base, name string) error {
	f, err := openAt(dir, base, unix.O_RDONLY|unix.O_NONBLOCK, 0)
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
	h := p.header(tar.TypeReg, name, info.Mode(), info.ModTime())
	h.Size = info.Size()
	if err := p.Out.WriteHeader(h); err != nil {
		return err
	}
	switch n, err := io.Copy(p.Out, io.LimitReader(f, h.Size)); {
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
		clean := p.header(header.Typeflag, header.Name, header.FileInfo().Mode(), header.ModTime)
		clean.Linkname, clean.Size = header.Linkname, header.Size
		if err := p.Out.WriteHeader(clean); err != nil {
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
		if _, err := io.Copy(p.Out, in); err != nil { //nolint:gosec // it is the caller's own, and not unpacked here
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
	}
}
