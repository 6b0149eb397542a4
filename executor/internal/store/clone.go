package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoClones says that a file system does not share blocks between files, or is not that of the store.
var ErrNoClones = errors.New("the file cannot be cloned into the store of contents")

const (
	// cloneMark begins the names of clones. No content is known whose SHA-256 begins so.
	cloneMark   = "no sum, a clone:"
	clonePrefix = "clone-"
	// newPrefix begins the names of files that were not kept yet.
	newPrefix = "new-"
	// clonePart is the part of the free space, one of so many, that bounds clones where the store has no bound.
	clonePart = 4
)

// CloneName returns the name of the clone of a file, from attributes that another content of the file does not have.
func CloneName(attributes []byte) Sum {
	sum := sha256.Sum256(attributes)
	copy(sum[:], cloneMark)
	return sum
}

// IsClone reports whether a name is that of a clone.
func IsClone(sum Sum) bool { return string(sum[:len(cloneMark)]) == cloneMark }

func cloneFile(sum Sum) string { return clonePrefix + hex.EncodeToString(sum[len(cloneMark):]) }

// Clone is a file in the store that shares the content of another one, until either is written. It counts with all its
// bytes, which it takes once the other one is overwritten. It is unnamed until Keep.
type Clone struct {
	s    *Store
	name string
	size int64
}

// Clone clones an open file of so many bytes. It fails with [ErrFull], with [ErrTooLarge] and with [ErrNoClones].
func (s *Store) Clone(file *os.File, size int64) (*Clone, error) {
	if s.root == nil {
		return nil, ErrNoClones
	}
	c := &Clone{s, newPrefix + rand.Text(), size}
	if err := c.reserve(); err != nil {
		return nil, err
	}
	// The clone waits for the disk with the lock of the file, on which its writers and steps would wait.
	_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	f, err := s.root.OpenFile(c.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = errors.Join(s.CloneTo(int(f.Fd()), file), f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, c.Discard())
	}
	return c, nil
}

func (c *Clone) reserve() error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case c.size > s.cloneBound:
		return fmt.Errorf("%w: it has %d bytes, of %d for all large files", ErrTooLarge, c.size, s.cloneBound)
	case s.cloneBytes+c.size > s.cloneBound:
		return fmt.Errorf("%w: large files have %d of %d bytes", ErrFull, s.cloneBytes, s.cloneBound)
	}
	if err := s.checkSpace(0); err != nil {
		return err
	}
	s.cloneBytes += c.size
	return nil
}

// CloneTo makes the content of a file that of another one, which is open to be written and empty.
func (s *Store) CloneTo(dst int, file *os.File) error {
	err := s.clone(dst, int(file.Fd()))
	for _, none := range []error{unix.EOPNOTSUPP, unix.EXDEV, unix.ENOTTY, unix.ENOSYS} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", ErrNoClones, err)
		}
	}
	if err != nil {
		return full(err)
	}
	return nil
}

// ClonesTo reports whether clones can be made of and to files on the file system of an empty one, which is open to be written.
func (s *Store) ClonesTo(dst int) bool { return s.root != nil && s.CloneTo(dst, s.lock) == nil }

// Keep gives a clone its name.
func (c *Clone) Keep(name Sum) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed // the next Open removes it
	}
	if err := s.root.Rename(c.name, cloneFile(name)); err != nil {
		return err
	}
	s.cloneBytes -= s.clones[name] // it was kept meanwhile
	s.clones[name] = c.size
	return nil
}

// Discard removes a clone that is not kept.
func (c *Clone) Discard() error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.cloneBytes -= c.size
	if err := s.root.Remove(c.name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// OpenClone opens a clone of so many bytes to be read. It fails with [ErrNotKept].
func (s *Store) OpenClone(name Sum, size int64) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.clones[name]; !ok || s.closed {
		return nil, ErrNotKept
	}
	info, err := s.root.Lstat(cloneFile(name))
	if err == nil && info.Mode().IsRegular() && info.Size() == size {
		f, err := s.root.OpenFile(cloneFile(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil { // such as for want of descriptors
			return nil, errors.Join(ErrNotKept, err)
		}
		return f, nil
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = errors.Join(errDamaged, err, s.removeClone(name))
	}
	return nil, errors.Join(ErrNotKept, err)
}

// removeClone removes a clone, or the file in its place. s.mu is held.
func (s *Store) removeClone(name Sum) error {
	if err := s.root.RemoveAll(cloneFile(name)); err != nil {
		return err
	}
	s.cloneBytes -= s.clones[name]
	delete(s.clones, name)
	s.evictions.Add(1)
	return nil
}

// loadClone takes over a file of an earlier process, if it is a clone. A clone that was not kept is removed, and so is what has no room.
func (s *Store) loadClone(name string) error {
	text, ok := strings.CutPrefix(name, clonePrefix)
	if !ok && !strings.HasPrefix(name, newPrefix) {
		return nil
	}
	var sum Sum
	copy(sum[:], cloneMark)
	raw, _ := hex.DecodeString(text) // of another name than that of a clone a part
	copy(sum[len(cloneMark):], raw)
	if cloneFile(sum) != name {
		_ = s.root.RemoveAll(name) // no clone, whatever stays
		return nil
	}
	info, err := s.root.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() > s.cloneBound-s.cloneBytes:
		_ = s.root.RemoveAll(name)
		return nil
	}
	s.clones[sum] = info.Size()
	s.cloneBytes += info.Size()
	return nil
}

// removeClones removes the clones that are not live, and returns their bytes. s.mu is held.
func (s *Store) removeClones(live func(Sum) bool) (freed int64, err error) {
	for name, size := range s.clones {
		if live(name) {
			continue
		}
		if err := s.removeClone(name); err != nil {
			return freed, err
		}
		freed += size
	}
	return freed, nil
}
