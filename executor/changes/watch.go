package changes

import (
	"errors"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchMask is that of a watch, which the kernel forgets after its first event: it is one dirty bit of a directory.
// Nothing reads while a command runs, and the queue of events holds two of a directory.
const watchMask = unix.IN_ONLYDIR | unix.IN_ONESHOT | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE

// watches are the dirty bits of directories.
type watches struct {
	inotify int // negative where it cannot be had
	max     int
	dirs    map[int32]*dir
	cold    map[*dir]struct{} // those without a watch
}

// openWatches charges the user with the instance: the kernel allows each user 128 on a host.
func (t *Tracker) openWatches() error {
	t.watches = watches{inotify: -1, max: t.cfg.MaxWatches, dirs: map[int32]*dir{}, cold: map[*dir]struct{}{}}
	return t.cfg.User.DoEffective(func() error {
		if fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err == nil {
			t.watches.inotify = fd
		}
		return nil // everything is listed without it
	})
}

func (w *watches) close() {
	if w.inotify >= 0 {
		_ = unix.Close(w.inotify)
		w.inotify = -1
	}
}

// arm watches an open directory. It comes before the listing, so that a change meanwhile makes it dirty again.
func (w *watches) arm(d *dir, fd int) {
	if d.wd != 0 {
		return
	}
	w.cold[d] = struct{}{}
	if w.inotify < 0 || len(w.dirs) >= w.max {
		return
	}
	n, err := unix.InotifyAddWatch(w.inotify, "/proc/self/fd/"+strconv.Itoa(fd), watchMask)
	if err != nil { // ENOSPC: the limit is that of the user in all containers
		return
	}
	wd := int32(n) //nolint:gosec // the kernel's are that wide
	if other := w.dirs[wd]; other != nil {
		other.wd = 0
	}
	d.wd, w.dirs[wd] = wd, d
	delete(w.cold, d)
}

// forget ends the watch of a directory that is gone.
func (w *watches) forget(d *dir) {
	delete(w.cold, d)
	if d.wd != 0 {
		_, _ = unix.InotifyRmWatch(w.inotify, uint32(d.wd)) //nolint:gosec // a watch descriptor is positive
		delete(w.dirs, d.wd)
		d.wd = 0
	}
}

// readEvents marks the directories that changed.
func (t *Tracker) readEvents() {
	w := &t.watches
	for w.inotify >= 0 {
		n, err := unix.Read(w.inotify, t.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for data := t.buf[:n]; len(data) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&data[0])) //nolint:gosec // as inotify(7) lays them out
			data = data[unix.SizeofInotifyEvent+int(event.Len):]
			if event.Mask&unix.IN_Q_OVERFLOW != 0 {
				t.overflow()
				continue
			}
			// IN_IGNORED follows the event. It comes alone if the watch was armed again just before the kernel forgot it.
			if d := w.dirs[event.Wd]; d != nil {
				delete(w.dirs, event.Wd)
				d.wd = 0
				t.mark(d)
			}
		}
	}
}

// overflow marks everything, since events were lost, and with them the watches that they came from.
func (t *Tracker) overflow() {
	for _, d := range t.watches.dirs {
		d.wd = 0
	}
	clear(t.watches.dirs)
	t.markAll()
}

func (t *Tracker) markAll() {
	for _, d := range t.dirs {
		t.mark(d)
	}
}

// markUnwatched marks what watches do not tell of, if that is little.
func (t *Tracker) markUnwatched() {
	switch {
	case t.distrusted != "" && t.names <= listedNames:
		t.markAll()
		return
	case t.distrusted != "":
		t.because(t.distrusted)
	}
	names := 0
	for d := range t.watches.cold {
		if names += 1 + len(d.kids); names > listedNames {
			t.because(WhyWatchLimit)
			return
		}
	}
	for d := range t.watches.cold {
		t.mark(d)
	}
}
