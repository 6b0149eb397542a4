package changes

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// spot is a directory of a tree during a restore.
type spot struct {
	up   *spot // nil for the root
	name string
	n    *node
	d    *dir // of the present tree
	// id is the identity that it must have when it is opened; zero if that is not known yet.
	id    ident
	depth int

	same *spot // the directory with the same path in the other tree

	// Of a directory of the target.
	was   *spot // the present directory that becomes it, or nil
	moved bool  // was has another place
	bad   bool  // it could not be made; nothing below it is tried
	subs  map[string]*spot

	// Of a present directory.
	becomes *spot  // the directory of the target that it becomes
	aside   string // its name in the scratch directory, while it is there
	left    bool   // it was taken out of its place
	gone    bool
}

func (s *spot) path() string {
	var names []string
	for ; s.up != nil; s = s.up {
		names = append(names, s.name)
	}
	if names == nil {
		return "."
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// openSpots are the directory that was opened last and the one above it. Both are open only as paths, which is enough to
// look at and change what is in them.
type openSpots struct {
	root         int
	at, above    *spot
	atFD, overFD int
}

func newOpenSpots(root int) *openSpots { return &openSpots{root: root, atFD: -1, overFD: -1} }

func (o *openSpots) close() {
	for _, fd := range []int{o.atFD, o.overFD} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	o.at, o.above, o.atFD, o.overFD = nil, nil, -1, -1
}

// open opens a directory. The caller does not close it. It fails if another directory has its place.
func (o *openSpots) open(s *spot) (int, error) {
	if o.at == s {
		return o.atFD, nil
	}
	var fd int
	var err error
	above, overFD := (*spot)(nil), -1
	const flags = unix.O_PATH | unix.O_DIRECTORY
	switch {
	case s.up == nil:
		fd, err = files.OpenBeneath(o.root, ".", flags)
	case s.up == o.at:
		if fd, err = files.OpenBeneath(o.atFD, s.name, flags); err == nil {
			above, overFD = o.at, o.atFD
			o.at, o.atFD = nil, -1
		}
	case s.up == o.above:
		if fd, err = files.OpenBeneath(o.overFD, s.name, flags); err == nil {
			above, overFD = o.above, o.overFD
			o.above, o.overFD = nil, -1
		}
	case o.at != nil && o.at.up == s && s.id != (ident{}): // checked below
		fd, err = unix.Openat(o.atFD, "..", flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EACCES) { // it was closed just now
			o.close()
			return o.open(s)
		}
	default:
		if overFD, err = files.OpenBeneath(o.root, s.up.path(), flags); err == nil {
			above = s.up
			if fd, err = files.OpenBeneath(overFD, s.name, flags); err != nil {
				_ = unix.Close(overFD)
				overFD = -1
			}
		}
	}
	if err != nil {
		return -1, err
	}
	o.close()
	o.at, o.atFD, o.above, o.overFD = s, fd, above, overFD
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		o.close()
		return -1, err
	}
	switch id := identOf(&st); {
	case s.id == (ident{}):
		s.id = id
	case s.id != id:
		o.close()
		return -1, errMoved
	}
	return fd, nil
}

var errMoved = errors.New("another directory has its place")
