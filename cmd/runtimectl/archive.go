package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What comes out of a sandbox is the agent's work, and whoever unpacks it may be
// root on this host. So an archive is unpacked below one directory, held open
// as an os.Root; nothing goes through a link, nothing that is no file, directory
// or link is made, links must lead to somewhere below that directory, and no
// file keeps an owner or a set-uid bit.

// account owns what is packed.
type account struct{ uid, gid int }

// packer writes a tar archive of files of this machine.
type packer struct {
	out   *tar.Writer
	owner account
	// note is told what is left out.
	note func(text string)
}

// pack adds a file, or a directory with all that is in it, under another name.
// Links are packed as links.
func (p *packer) pack(source, name string) error {
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return p.add(file, path.Join(name, filepath.ToSlash(rel)), info)
	})
}

func (p *packer) add(file, name string, info fs.FileInfo) error {
	link := ""
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
	case mode&fs.ModeSymlink != 0:
		var err error
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	default:
		p.note(fmt.Sprintf("%s is neither file nor directory nor link", file))
		return nil
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("packing %s: %w", file, err)
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, p.owner.uid, p.owner.gid, "", ""
	header.Mode &= 0o777
	header.Format = tar.FormatPAX
	if info.IsDir() {
		header.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return p.out.WriteHeader(header)
	}
	return p.addFile(file, header)
}

func (p *packer) addFile(file string, header *tar.Header) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := p.out.WriteHeader(header); err != nil {
		return err
	}
	switch n, err := io.Copy(p.out, io.LimitReader(f, header.Size)); {
	case err != nil:
		return fmt.Errorf("packing %s: %w", file, err)
	case n < header.Size:
		return fmt.Errorf("packing %s: it became shorter meanwhile", file)
	}
	return nil
}

// chown copies an archive and gives all that is in it to an account.
func (p *packer) chown(archive io.Reader) error {
	in := tar.NewReader(archive)
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("standard input is no tar archive: %w", err)
		}
		switch header.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		case tar.TypeGNUSparse:
			header.Typeflag = tar.TypeReg
		default:
			p.note(fmt.Sprintf("%s is neither file nor directory nor link", header.Name))
			continue
		}
		clean := &tar.Header{
			Typeflag: header.Typeflag, Name: header.Name, Linkname: header.Linkname, Size: header.Size,
			Mode: header.Mode & 0o777, Uid: p.owner.uid, Gid: p.owner.gid, ModTime: header.ModTime, Format: tar.FormatPAX,
		}
		if err := p.out.WriteHeader(clean); err != nil {
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
		if _, err := io.Copy(p.out, in); err != nil { //nolint:gosec // it is the caller's own, and not unpacked here
			return fmt.Errorf("passing %s on: %w", header.Name, err)
		}
	}
}

// unpacker makes the files of a tar archive below a directory.
type unpacker struct {
	in   *tar.Reader
	root *os.Root // nothing is written outside of it
	// top is what all names begin with, "" for nothing; it stands for root itself.
	top string
	// rootIsNew tells that root gets the mode that the archive says.
	rootIsNew bool
	// note is told what is left out.
	note func(text string)

	parent string          // known to be a directory, and no link
	files  map[string]bool // that the archive has brought: hard links may lead to them
	dirs   []dirState
}

// dirState is what a directory gets once it is complete.
type dirState struct {
	name  string
	mode  fs.FileMode
	mtime time.Time
}

// unpack makes all that is in the archive, beginning with header where that was
// read already.
func (u *unpacker) unpack(header *tar.Header) (err error) {
	u.files = map[string]bool{}
	for ; err == nil; header, err = u.in.Next() {
		if header == nil {
			continue
		}
		if err := u.entry(header); err != nil {
			return err
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the archive: %w", err)
	}
	return u.finish()
}

// finish gives directories their modes and times, now that nothing is made in
// them any more; those inside come first.
func (u *unpacker) finish() error {
	for _, d := range slices.Backward(u.dirs) {
		if err := errors.Join(u.root.Chtimes(d.name, d.mtime, d.mtime), u.root.Chmod(d.name, d.mode)); err != nil {
			return fmt.Errorf("finishing directory %s: %w", d.name, err)
		}
	}
	return nil
}

// longestName is PATH_MAX of Linux. Each element of a name costs a look at it.
const longestName = 4096

// relative is a name of the archive below root.
func (u *unpacker) relative(name string) (string, error) {
	if u.top == "/" { // the engine's name for everything
		name = strings.TrimPrefix(name, "/")
	}
	if len(name) > longestName {
		return "", fmt.Errorf("the archive has a file whose name has %d bytes; %d are the most", len(name), longestName)
	}
	trimmed := strings.TrimSuffix(name, "/")
	local, err := filepath.Localize(path.Clean(trimmed))
	if err != nil || path.IsAbs(name) || strings.Contains("/"+trimmed+"/", "/../") {
		return "", fmt.Errorf("the archive has a file %q, which leads out of it", name)
	}
	if u.top == "" || u.top == "/" {
		return local, nil
	}
	top, rest, _ := strings.Cut(local, "/")
	if top != u.top {
		return "", fmt.Errorf("the archive has a file %q, which does not lie in %q", name, u.top)
	}
	if rest == "" {
		return ".", nil
	}
	return rest, nil
}

// entry makes one file, directory or link.
func (u *unpacker) entry(h *tar.Header) error {
	name, err := u.relative(h.Name)
	if err != nil {
		return err
	}
	if err := u.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if isSparse(h) {
		return fmt.Errorf("the archive has a file %q with holes, whose size says nothing", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		made, err := u.mkdir(name)
		if made { // one that was there keeps its mode
			u.dirs = append(u.dirs, dirState{name, h.FileInfo().Mode() & 0o777, h.ModTime})
		}
		return err
	case tar.TypeReg:
		return u.file(name, h)
	case tar.TypeLink:
		return u.link(name, h.Linkname)
	case tar.TypeSymlink:
		to := path.Join(path.Dir(name), h.Linkname) //nolint:gosec // this is to see where it leads
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(to) {
			u.note(fmt.Sprintf("%s is a link to %s, which is not copied", h.Name, h.Linkname))
			return nil
		}
		if err := u.clear(name); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, name)
	}
	u.note(fmt.Sprintf("%s is neither file nor directory nor link", h.Name))
	return nil
}

// isSparse tells of a file with holes: a few bytes of archive could fill a disk.
// The engine makes none.
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

func (u *unpacker) file(name string, h *tar.Header) error {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.in)
	if err == nil {
		err = f.Chmod(h.FileInfo().Mode() & 0o777)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	u.files[name] = true
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// link makes a hard link to a file that the archive has brought. Any other would
// give the archive's name to a file of this machine.
func (u *unpacker) link(name, target string) error {
	to, err := u.relative(target)
	if err != nil {
		return err
	}
	if !u.files[to] {
		return fmt.Errorf("the archive has a link %q to %q, which it did not bring", name, target)
	}
	if to == name {
		return nil
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(to, name)
}

// clear removes a file or link that is in the way. Anything else stays.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("%w: %s is there and is no file", errConflict, name)
	}
	delete(u.files, name)
	return u.root.Remove(name)
}

// mkdirAll makes a directory and those above it. None may be a link.
func (u *unpacker) mkdirAll(name string) error {
	if name == "." || name == u.parent {
		return nil
	}
	if err := u.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if _, err := u.mkdir(name); err != nil {
		return err
	}
	u.parent = name
	return nil
}

func (u *unpacker) mkdir(name string) (made bool, err error) {
	if name == "." {
		return u.rootIsNew, nil
	}
	err = u.root.Mkdir(name, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	info, err := u.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is there and is no directory", errConflict, name)
	}
	return false, err
}
