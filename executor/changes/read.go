package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// errChanged says that a file is another one by now.
var errChanged = errors.New("it changes while it is read")

// trust returns why the times of a file system are not believed, and how far they are behind, by its type (statfs(2)): at
// most 10 ms on disks.
func trust(kind int64) (distrusted Why, tick int64) {
	switch kind & 0xffffffff { // the type is signed on some machines
	case unix.FUSE_SUPER_MAGIC: // and virtiofs
		return WhyFUSE, int64(2 * time.Second)
	case unix.NFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC:
		return WhyNetwork, int64(2 * time.Second)
	case unix.TMPFS_MAGIC: // a store through a mapping leaves no time if the page was read before
		return "", -1
	}
	return "", int64(10 * time.Millisecond)
}

// reader reads a file system.
type reader struct {
	device device
	buf    []byte // for the entries of directories
}

// stat returns the attributes of an entry of a directory, or of the directory itself for "". outside is
// true for an entry that is mounted.
func (r *reader) stat(fd int, name string) (a attr, outside bool, err error) {
	var st unix.Statx_t
	// The server of the file system is asked: with AT_STATX_DONT_SYNC the names of one inode differ on FUSE.
	err = unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil {
		return attr{}, false, err
	}
	a = attr{
		ident: identOf(&st),
		ctime: nanoseconds(st.Ctime), mtime: nanoseconds(st.Mtime),
		size: int64(st.Size), //nolint:gosec // compared alone
		mode: uint32(st.Mode), uid: st.Uid, gid: st.Gid, nlink: st.Nlink,
	}
	if a.device() {
		a.size = int64(st.Rdev_major)<<32 | int64(st.Rdev_minor)
	}
	outside = device{st.Dev_major, st.Dev_minor} != r.device || name != "" && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	return a, outside, nil
}

func identOf(st *unix.Statx_t) ident {
	if st.Mask&unix.STATX_BTIME == 0 {
		return ident{ino: st.Ino}
	}
	return ident{st.Ino, nanoseconds(st.Btime)}
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// device is a file system's number.
type device struct{ major, minor uint32 }

// readNames lists a directory in order; it fails with errCrowded for more than room names.
func (r *reader) readNames(fd, room int) (names []string, err error) {
	for {
		n, err := unix.Getdents(fd, r.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOENT): // it is removed
			return nil, nil
		case err != nil:
			return nil, err
		case n == 0:
			slices.Sort(names)
			return names, nil
		}
		_, _, names = unix.ParseDirent(r.buf[:n], -1, names)
		if len(names) > room {
			return nil, errCrowded
		}
	}
}

var errCrowded = errors.New("more names than the limit")

// readMore reads the attributes that few files have. Those that cannot be read are left out.
func readMore(fd int, name string, kind uint32) *more {
	m := more{xattrs: readXattrs("/proc/self/fd/" + strconv.Itoa(fd) + "/" + name)}
	if kind == unix.S_IFLNK {
		m.link = readLink(fd, name)
	}
	if m.link == "" && m.xattrs == "" {
		return nil
	}
	return &m
}

// readLink returns the target of a symbolic link, "" where it cannot be read.
func readLink(fd int, name string) string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func readXattrs(path string) string {
	text := listXattrs(path)
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}

const (
	// maxXattr is the kernel's limit of a list of names and of a value (xattr(7)).
	maxXattr = 64 << 10
	// maxXattrs bounds the text of the extended attributes of a file, of which some file systems keep thousands. Of more there is a
	// hash, so that changes are found.
	maxXattrs = 64 << 10
)

// listXattrs returns the extended attributes of a file as text, or nil. Most files have none, so that it takes little memory before it
// knows.
func listXattrs(path string) []byte {
	var small [256]byte
	n, err := unix.Llistxattr(path, small[:])
	switch {
	case errors.Is(err, unix.ERANGE):
		return readAllXattrs(path)
	case err != nil || n == 0:
		return nil
	}
	return readXattrsOf(path, string(small[:n]))
}

func readAllXattrs(path string) []byte {
	list := make([]byte, maxXattr)
	n, err := unix.Llistxattr(path, list)
	if err != nil || n == 0 {
		return nil
	}
	return readXattrsOf(path, string(list[:n]))
}

// readXattrsOf returns the extended attributes of the names in a list as text.
func readXattrsOf(path, list string) []byte {
	names := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	slices.Sort(names)
	var text []byte
	value := make([]byte, maxXattr)
	for _, name := range names {
		if name == "security.selinux" {
			continue
		}
		n, err := unix.Lgetxattr(path, name, value)
		text = strconv.AppendQuote(strconv.AppendQuote(text, name), string(value[:max(n, 0)]))
		if err != nil {
			text = append(text, err.Error()...) // which cannot be parsed
		}
		if len(text) > maxXattrs {
			sum := sha256.Sum256(text)
			text = append([]byte("too large"), sum[:]...) // nor can this
		}
	}
	return text
}

// emptyHash is that of an empty file, which need not be opened.
var emptyHash digest = sha256.Sum256(nil)

// readHash returns the hash of a regular file, as readUnchanged reads it.
func (r *reader) readHash(fd int, name string, a *attr) (*digest, error) {
	if a.size == 0 {
		return &emptyHash, nil
	}
	var text string
	err := r.readUnchanged(fd, name, a, func(f *os.File) (err error) {
		text, err = files.SHA256(f, a.size, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	var sum digest
	if _, err := hex.Decode(sum[:], []byte(text)); err != nil {
		return nil, err
	}
	return &sum, nil
}

// readUnchanged calls read with a regular file that has the attributes a, and to which nothing is being written. It fails
// with errChanged if the file has other attributes before or after, so that no contents are torn.
func (r *reader) readUnchanged(fd int, name string, a *attr, read func(f *os.File) error) error {
	f, err := openFile(fd, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if !r.unchanged(f, a) {
		return errChanged
	}
	if err := awaitWrite(int(f.Fd()), a); err != nil {
		return err
	}
	if err := read(f); err != nil {
		return err
	}
	if !r.unchanged(f, a) {
		return errChanged
	}
	return nil
}

func (r *reader) unchanged(f *os.File, a *attr) bool {
	now, _, err := r.stat(int(f.Fd()), "")
	return err == nil && now == *a
}

// openFile opens an entry of a directory that was a regular file, to read it. It follows no link, waits for no FIFO,
// and leaves the time of the last access if it may.
func openFile(fd int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	file, err := files.OpenBeneath(fd, name, flags|unix.O_NOATIME)
	if errors.Is(err, unix.EPERM) { // another user's
		file, err = files.OpenBeneath(fd, name, flags)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(file), name), nil
}
