package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
)

const (
	// maxWatches bounds the directories and files that are watched at a time.
	maxWatches = 512
	// maxLinks is how many links the kernel follows on the way to a file
	// (path_resolution(7)).
	maxLinks = 40
	// maxSteps bounds the components of a path and of the links on its way.
	maxSteps = 256
	// maxEventReads bounds how many events one check reads, of eventBuffer bytes
	// each time. More count as a change.
	maxEventReads = 16
	eventBuffer   = 16 << 10

	watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_DONT_FOLLOW
)

// errUnwatchable says that a change could happen unseen.
var errUnwatchable = errors.New("cannot be watched")

// watchable are the file systems, as /proc/self/mountinfo names them, whose
// changes all pass this kernel, so that inotify reports them. Network file systems
// change elsewhere.
var watchable = []string{
	"overlay", "fuse.fuse-overlayfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs",
	"tmpfs", "ramfs", "rootfs", "squashfs", "erofs", "iso9660",
}

// watchableTypes are those of them that have a type of their own (statfs(2)).
var watchableTypes = []int64{
	unix.OVERLAYFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.ISOFS_SUPER_MAGIC,
}

// watch reports changes to the way to files: to the directories and links that a
// path leads through, and to the mounts. It is not safe for concurrent use.
type watch struct {
	inotify int
	mounts  int             // /proc/self/mountinfo, which polls as urgent after a change
	local   map[uint64]bool // by mount id, whether the file system is watchable
	// names are the entries whose changes count, by watch descriptor. Changes of the
	// watched directory itself always count.
	names map[int32]map[string]bool
	dirs  map[string]int32 // watch descriptors by path, of one fill
}

// newWatch opens a watch. The kernel charges it to the effective user id, and
// allows each 128 on a host: so it is the user's.
func newWatch(user *identity.User) (*watch, error) {
	w := &watch{inotify: -1, mounts: -1}
	err := user.DoEffective(func() (err error) {
		w.inotify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		return err
	})
	if err == nil {
		w.mounts, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("watching for changes: %w", err)
	}
	w.reset()
	return w, nil
}

func (w *watch) close() {
	for _, fd := range []int{w.inotify, w.mounts} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// reset stops watching everything.
func (w *watch) reset() {
	for wd := range w.names {
		_, _ = unix.InotifyRmWatch(w.inotify, uint32(wd)) //nolint:gosec // a watch descriptor is positive
	}
	w.names, w.dirs, w.local = map[int32]map[string]bool{}, map[string]int32{}, nil
}

// follow watches all that the meaning of an absolute path depends on. It runs with
// the user's rights. An error says that a change could happen unseen.
func (w *watch) follow(path string) error {
	if !filepath.IsAbs(path) {
		return errUnwatchable
	}
	at, rest := "/", splitPath(path)
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		if steps == maxSteps {
			return errUnwatchable
		}
		name := rest[0]
		rest = rest[1:]
		switch name {
		case ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		unreadable := w.add(at, name, unix.IN_ONLYDIR)
		info, err := os.Lstat(next)
		switch {
		case unreadable != nil && (at == "/" || !errors.Is(unreadable, fs.ErrPermission) || !errors.Is(err, fs.ErrPermission)):
			return unreadable
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
			// The directory, or its own one, reports when that changes.
			return nil
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return nil // the same answer until one of the links changes
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = slices.Concat(splitPath(target), rest)
		case info.IsDir():
			at = next
		case len(rest) > 0:
			return nil // not a directory
		default:
			// Its mode can change by another name in another directory.
			return w.add(next, "", 0)
		}
	}
	return nil
}

// add watches a directory for changes of an entry, or a file.
func (w *watch) add(path, name string, flags uint32) error {
	wd, ok := w.dirs[path]
	if !ok {
		if len(w.names) >= maxWatches {
			return errUnwatchable
		}
		n, err := unix.InotifyAddWatch(w.inotify, path, watched|flags)
		if err != nil {
			return &fs.PathError{Op: "watch", Path: path, Err: err}
		}
		wd = int32(n) //nolint:gosec // the kernel's are that wide
		if w.names[wd] == nil {
			w.names[wd] = map[string]bool{}
		}
		if err := w.checkMount(path); err != nil {
			return err
		}
		w.dirs[path] = wd
	}
	w.names[wd][name] = true
	return nil
}

// checkMount returns an error unless all changes below the mount of path are seen.
func (w *watch) checkMount(path string) error {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &stat); err != nil {
		return err
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 {
		return errUnwatchable // before Linux 5.8
	}
	if w.local == nil {
		w.local = localMounts()
	}
	local, listed := w.local[stat.Mnt_id]
	if !listed { // the root of a chroot lies in it
		var system unix.Statfs_t
		if err := unix.Statfs(path, &system); err != nil {
			return err
		}
		local = slices.Contains(watchableTypes, system.Type)
	}
	if !local {
		return errUnwatchable
	}
	return nil
}

// localMounts lists the mounts by their ids, true for file systems that can be
// watched (proc_pid_mountinfo(5)).
func localMounts() map[uint64]bool {
	local := map[uint64]bool{}
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range bytes.Lines(data) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		id, _, _ := bytes.Cut(before, []byte(" "))
		kind, _, _ := bytes.Cut(after, []byte(" "))
		if number, err := strconv.ParseUint(string(id), 10, 64); err == nil {
			local[number] = slices.Contains(watchable, string(kind))
		}
	}
	return local
}

// changed reports whether something that is watched has changed since reset.
func (w *watch) changed() bool {
	ready := []unix.PollFd{{Fd: int32(w.inotify), Events: unix.POLLIN}, {Fd: int32(w.mounts), Events: unix.POLLPRI}} //nolint:gosec // descriptors
	n, err := unix.Poll(ready, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(ready, 0)
	}
	switch {
	case err != nil:
		return true
	case n == 0:
		return false
	}
	return ready[1].Revents != 0 || w.events()
}

// events reads the events, and reports whether one of them counts.
func (w *watch) events() bool {
	buffer := make([]byte, eventBuffer)
	for range maxEventReads {
		n, err := unix.Read(w.inotify, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			return true
		}
		for data := buffer[:n]; len(data) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&data[0])) //nolint:gosec // as inotify(7) lays them out
			end := unix.SizeofInotifyEvent + int(event.Len)
			name, _, _ := bytes.Cut(data[unix.SizeofInotifyEvent:end], []byte{0})
			data = data[end:]
			if w.counts(event, string(name)) {
				return true
			}
		}
	}
	return true
}

// counts reports whether an event is of something that is watched: an entry of
// interest, the directory or file itself, or lost events.
func (w *watch) counts(event *unix.InotifyEvent, name string) bool {
	if event.Mask&unix.IN_Q_OVERFLOW != 0 {
		return true
	}
	names, ok := w.names[event.Wd]
	return ok && (name == "" || names[name])
}
