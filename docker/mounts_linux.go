package docker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/sandbox"
)

// heldMounts are mount sources kept open from their check until the engine is
// known to have mounted exactly them. The engine resolves the path again, and an
// agent that can write in a directory above a source, for instance that of
// another sandbox, may have replaced it by a link.
type heldMounts struct {
	mounts  []sandbox.Mount
	sources []*hostpath.File
}

// holdMounts opens the sources, whose paths must no longer have links.
func holdMounts(mounts []sandbox.Mount) (*heldMounts, error) {
	held := &heldMounts{mounts: mounts}
	for _, m := range mounts {
		source, err := hostpath.Open(m.Source, hostpath.NoLinks)
		if err != nil {
			held.release()
			return nil, fmt.Errorf("%w: mount %s changed since it was checked: %w", sandbox.ErrInvalid, m.Source, err)
		}
		held.sources = append(held.sources, source)
	}
	return held, nil
}

func (h *heldMounts) release() {
	for _, source := range h.sources {
		_ = source.Close()
	}
	h.sources = nil
}

// below is the path of the first mount that lies below one of the directories,
// with that directory; "" if none does.
func (h *heldMounts) below(dirs []agentDir) (source, dir string) {
	for _, s := range h.sources {
		for _, d := range dirs {
			if s.Below(d.info) {
				return s.Path(), d.path
			}
		}
	}
	return "", ""
}

// check compares a process's view of the targets with the held sources. It
// fails with ErrInvalid if they differ, and with another error if it cannot
// look. Links on the way to a target must belong to root of the sandbox, which
// is rootUID on this host, and not lie in one of the mounts: any other may be the
// work of an agent.
func (h *heldMounts) check(pid, rootUID int) error {
	root, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("looking at the sandbox's mounts: %w", err)
	}
	defer func() { _ = root.Close() }()
	for i, m := range h.mounts {
		target, err := hostpath.OpenIn(root, m.Target, func(l hostpath.Link) error { return h.trusts(l, rootUID) })
		if err != nil {
			return fmt.Errorf("looking at mount %s: %w", m.Target, err)
		}
		same, err := sameFile(target, h.sources[i])
		_ = target.Close()
		if err != nil {
			return fmt.Errorf("looking at mount %s: %w", m.Target, err)
		}
		if !same {
			return fmt.Errorf("%w: mount %s changed after it was checked", sandbox.ErrInvalid, m.Source)
		}
	}
	return nil
}

// trusts refuses a link on the way to a target that an agent may have made.
func (h *heldMounts) trusts(l hostpath.Link, rootUID int) error {
	if l.UID != rootUID {
		return fmt.Errorf("%w: %w: %s in the sandbox belongs to user %d", sandbox.ErrInvalid, hostpath.ErrLink, l.Path, l.UID)
	}
	for _, source := range h.sources {
		info, err := source.Stat()
		if err != nil {
			return err
		}
		if l.Below(info) {
			return fmt.Errorf("%w: %w: %s in the sandbox lies in the mount of %s", sandbox.ErrInvalid, hostpath.ErrLink, l.Path, source.Path())
		}
	}
	return nil
}

func sameFile(a, b *hostpath.File) (bool, error) {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB), errors.Join(errA, errB)
}

// startFIFO makes the FIFO on which the server of a sandbox waits before it does
// anything, and opens it. Where the file is closed before a byte is written to
// it, the server ends.
func (s *stateDir) startFIFO(id string, serverUID int) (*os.File, error) {
	dir, err := s.root.Open(path.Join("sandboxes", id, "run"))
	if err != nil {
		return nil, fmt.Errorf("opening the socket directory of sandbox %s: %w", id, err)
	}
	defer func() { _ = dir.Close() }()
	fifo, err := makeFIFO(dir, path.Base(insideStart), serverUID)
	if err != nil {
		return nil, fmt.Errorf("making the FIFO of sandbox %s: %w", id, err)
	}
	return fifo, nil
}

// makeFIFO makes a FIFO in dir in place of any file of this name, which commands
// that run as root may have put there.
func makeFIFO(dir *os.File, name string, owner int) (*os.File, error) {
	at := int(dir.Fd())
	if err := unix.Unlinkat(at, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, os.NewSyscallError("unlinkat", err)
	}
	if err := unix.Mkfifoat(at, name, 0o600); err != nil {
		return nil, os.NewSyscallError("mkfifoat", err)
	}
	// For reading, too: opening it waits for no other side then.
	fd, err := unix.Openat(at, name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	fifo := os.NewFile(uintptr(fd), name)
	info, err := fifo.Stat()
	if err == nil && info.Mode().Type() != os.ModeNamedPipe {
		err = fmt.Errorf("%s was replaced by %v", name, info.Mode().Type())
	}
	if err == nil {
		err = fifo.Chown(owner, -1)
	}
	if err != nil {
		return nil, errors.Join(err, fifo.Close())
	}
	return fifo, nil
}
