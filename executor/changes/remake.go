package changes

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/files"
)

// holeSize is the number of zero bytes that are left out of a file.
const holeSize = 64 << 10

var zeros [holeSize]byte

var (
	errMeanwhile = errors.New("it changed meanwhile")
	errInTheWay  = errors.New("another file has its place")
)

func tempName(i int) string { return fmt.Sprint("t", i) }

func (r *restorer) temp() string {
	r.temps++
	return tempName(r.temps - 1)
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// named returns a file with the attributes of n and another name.
func (n *node) named(name string) *node { return &node{name: name, attr: n.attr, more: n.more} }

// make makes a file in the scratch directory, with all attributes, and returns its name there.
func (r *restorer) make(k *node) (name string, err error) {
	name = r.temp()
	switch k.attr.kind() {
	case unix.S_IFLNK:
		err = unix.Symlinkat(k.extra().link, r.scratchFD, name)
	case unix.S_IFIFO:
		err = unix.Mknodat(r.scratchFD, name, unix.S_IFIFO|0o600, 0)
	case unix.S_IFREG:
		err = r.makeRegular(name, k)
	default:
		return "", errors.New("a file of its type cannot be brought back")
	}
	if err != nil {
		return "", err
	}
	return name, r.setMeta(r.scratchFD, k.named(name))
}

func (r *restorer) makeRegular(name string, k *node) error {
	fd, err := unix.Openat(r.scratchFD, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(r.write(fd, k), unix.Close(fd))
}

// write makes the content of a file of the target that of an open file. Long runs of zeros are holes.
func (r *restorer) write(fd int, k *node) error {
	data, err := r.t.kept(k)
	if err != nil {
		return err
	}
	if err := unix.Ftruncate(fd, 0); err != nil {
		return err
	}
	holes, size := false, int64(len(data))
	for at := int64(0); at < size; {
		part := data[at:min(at+holeSize, size)]
		if len(part) == holeSize && bytes.Equal(part, zeros[:]) {
			at, holes = at+holeSize, true
			continue
		}
		n, err := unix.Pwrite(fd, part, at)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		at += int64(max(n, 0))
	}
	if holes {
		return unix.Ftruncate(fd, size)
	}
	return nil
}

// setMeta gives an entry of a directory the owner, extended attributes, mode and time of k, as far as it has others.
func (r *restorer) setMeta(dir int, k *node) error {
	now, _, err := r.t.stat(dir, k.name)
	if err != nil {
		return err
	}
	if now.kind() != k.attr.kind() {
		return errMeanwhile
	}
	fd, err := files.OpenBeneath(dir, k.name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if a, _, err := r.t.stat(fd, ""); err != nil || a.ident != now.ident {
		return errors.Join(errMeanwhile, err)
	}
	chmod := now.mode != k.attr.mode
	if now.uid != k.attr.uid || now.gid != k.attr.gid {
		if err := unix.Fchownat(fd, "", int(k.attr.uid), int(k.attr.gid), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		chmod = true // the kernel takes away set-user-id
	}
	if changed, err := r.setXattrs(dir, fd, k); err != nil {
		return fmt.Errorf("extended attributes: %w", err)
	} else if changed {
		chmod = true // an access control list has the mode's bits
	}
	if now.mtime != k.attr.mtime { // of another user's file the same time could not be set
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(k.attr.mtime)}
		if err := unix.UtimesNanoAt(dir, k.name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if chmod && k.attr.kind() != unix.S_IFLNK { // at the end, since it may close a directory
		return unix.Chmod(fdPath(fd), k.attr.mode&^unix.S_IFMT)
	}
	return nil
}

// setXattrs gives an entry of a directory, which is open as fd, the extended attributes of k.
func (r *restorer) setXattrs(dir, fd int, k *node) (changed bool, err error) {
	path := fdPath(dir) + "/" + k.name
	have := listXattrs(path)
	if have == nil && k.extra().xattrs == "" {
		return false, nil
	}
	wanted := map[string]string{}
	if sum := k.extra().xattrs; sum != "" {
		if r.t.cfg.Store == nil {
			return false, store.ErrNotKept
		}
		text, err := r.t.cfg.Store.Get(store.Sum([]byte(sum)))
		if err != nil {
			if readXattrs(path) == sum {
				return false, nil
			}
			return false, err
		}
		if bytes.Equal(text, have) {
			return false, nil
		}
		if wanted, err = parseXattrs(string(text)); err != nil {
			return false, err
		}
	}
	present, err := parseXattrs(string(have))
	if err != nil {
		return false, err
	}
	set := func(work func() error) error {
		err := work()
		if errors.Is(err, unix.EACCES) && k.attr.kind() != unix.S_IFLNK && unlock(fd, 0o600) == nil {
			err = work()
		}
		return err
	}
	for name := range present {
		if _, ok := wanted[name]; !ok {
			if err := set(func() error { return unix.Lremovexattr(path, name) }); err != nil {
				return true, err
			}
		}
	}
	for name, value := range wanted {
		if present[name] == value && value != "" {
			continue
		}
		if err := set(func() error { return unix.Lsetxattr(path, name, []byte(value), 0) }); err != nil {
			return true, err
		}
	}
	return true, nil
}

// parseXattrs returns the values by name in a text of listXattrs. It fails where a value could not be read.
func parseXattrs(text string) (map[string]string, error) {
	all := map[string]string{}
	for len(text) > 0 {
		var part [2]string
		for i := range part {
			quoted, err := strconv.QuotedPrefix(text)
			if err == nil {
				text = text[len(quoted):]
				part[i], err = strconv.Unquote(quoted)
			}
			if err != nil {
				return nil, errors.New("an extended attribute could not be read, or they are too large")
			}
		}
		all[part[0]] = part[1]
	}
	return all, nil
}
