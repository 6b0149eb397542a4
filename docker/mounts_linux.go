package docker

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// heldMounts are mount sources kept open from their check until it is known
// that the engine has mounted them and nothing else. The engine resolves the
// path again, and whoever can write in a directory above a source, such as the
// agent of another sandbox, may have put a link in its place.
type heldMounts struct {
	mounts []Mount
	fds    []int
}

// holdMounts opens the sources, on whose paths there must be no link any more.
func holdMounts(mounts []Mount) (*heldMounts, error) {
	held := &heldMounts{mounts: mounts}
	for _, m := range mounts {
		fd, err := unix.Openat2(unix.AT_FDCWD, m.Source, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
		})
		if err != nil {
			held.release()
			return nil, fmt.Errorf("%w: mount %s is not what it was when it was checked: %w", ErrInvalid, m.Source, err)
		}
		held.fds = append(held.fds, fd)
	}
	return held, nil
}

func (h *heldMounts) release() {
	for _, fd := range h.fds {
		_ = unix.Close(fd)
	}
	h.fds = nil
}

// check compares what the process sees at the targets with what is held. It
// fails with ErrInvalid where it is something else, and with another error
// where it cannot look.
func (h *heldMounts) check(pid int) error {
	root, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("looking at the sandbox's mounts: %w", err)
	}
	defer func() { _ = unix.Close(root) }()
	for i, m := range h.mounts {
		same, err := sameFile(root, m.Target, h.fds[i])
		if err != nil {
			return fmt.Errorf("looking at mount %s: %w", m.Target, err)
		}
		if !same {
			return fmt.Errorf("%w: mount %s is not what was checked: somebody put something else in its place meanwhile", ErrInvalid, m.Source)
		}
	}
	return nil
}

func sameFile(root int, target string, want int) (bool, error) {
	// The image may have links on the way to the target, so they are followed, but
	// not out of the sandbox.
	fd, err := unix.Openat2(root, target, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &a), unix.Fstat(want, &b)); err != nil {
		return false, err
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}
