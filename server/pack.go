package server

import (
	"archive/tar"
	"fmt"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/files"
)

// maxLeftOut bounds the number of missing files that the archive of a download names.
const maxLeftOut = 1000

// packFiles streams a file, a link or a directory with all that is in it as a tar
// archive. It opens each with the rights of the sandbox's user and follows no link
// below the directory that has the first one.
func (s *Server) packFiles(w http.ResponseWriter, r *http.Request) error {
	name, err := s.filePath(r)
	if err != nil {
		return err
	}
	name = path.Clean(name)
	dir, base := path.Dir(name), path.Base(name)
	if name == "/" {
		base = "."
	}
	parent, err := s.openParent(dir, base)
	if err != nil {
		return fileError(err, name)
	}
	defer parent.Close()
	out := tar.NewWriter(w)
	p := &archive.Packer{Out: out, As: s.cfg.As, Exclude: kernelFiles}
	var leftOut []string
	missing := 0
	p.LeftOut = func(text string) {
		if missing++; missing <= maxLeftOut {
			leftOut = append(leftOut, text)
		}
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := p.Pack(parent, base, base); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	if missing > maxLeftOut {
		leftOut = append(leftOut, fmt.Sprintf("%d more", missing-maxLeftOut))
	}
	for _, text := range leftOut {
		if err := p.NoteLeftOut(text); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return nil
}

// openParent opens the directory that has a file, once the user may read the file.
func (s *Server) openParent(dir, base string) (parent *os.File, err error) {
	err = s.cfg.As(func() error {
		// A user may pass through directories whose names are not the user's to list.
		if parent, err = files.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		return checkPackable(parent, base, path.Join(dir, base))
	})
	if err != nil && parent != nil {
		_ = parent.Close()
	}
	return parent, err
}

// checkPackable refuses a file that an archive cannot have, before the archive begins.
func checkPackable(parent *os.File, base, shown string) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unixFlags
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		flags |= unix.O_DIRECTORY
	case unix.S_IFREG:
	default:
		return refuseFile("not_regular_file", shown, "%q is neither file nor directory nor link", shown)
	}
	fd, err := unix.Openat(int(parent.Fd()), base, flags, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if flags&unix.O_DIRECTORY == 0 && kernelFiles(f) {
		return refuseFile("not_regular_file", shown, "%q is a file of the kernel: read it with a command", shown)
	}
	return nil
}
