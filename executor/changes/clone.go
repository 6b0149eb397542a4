package changes

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
)

// Files above [Config.MaxFile] are never read. Where the file system of the root and of the store lets files share blocks, their
// contents are kept as clones, whose names are those of the attributes, and have the place of the hash in a node: files
// with one name have one content, others are compared by their attributes.

// cloneName names the content of a file that has had its attributes for longer than the file system's tick: with another content it has
// others.
func (n *node) cloneName() store.Sum { return store.CloneName(fmt.Appendf(nil, "%v", n.attr)) }

func (t *Tracker) large(n *node) bool { return n.regular() && n.attr.size > t.cfg.MaxFile }

// clonable reports whether a large file may be kept as a clone.
func (t *Tracker) clonable(n *node) bool {
	return t.clones.Load() && !n.unclonable.Load() && n.attr.size <= t.cfg.Store.Stats().CloneBound
}

// tryClones finds out whether large files can be cloned: into a file without a name, which is made in the open root. Where none can be
// made each large file will tell.
func (t *Tracker) tryClones() bool {
	if t.cfg.Store == nil || t.distrusted != "" || t.tick < 0 {
		return false
	}
	fd, err := unix.Openat(t.rootFD, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	return t.cfg.Store.ClonesTo(fd)
}

// Clones reports whether large files are kept, as far as that is known.
func (t *Tracker) Clones() bool { return t.clones.Load() }

// openLarge opens a large file to be cloned, once another content would show by other attributes: not where a process has it mapped. t.mu
// is held, which is why no time is waited for that another clock set.
func (t *Tracker) openLarge(fd int, w arrival) (*os.File, error) {
	n := w.n
	switch age := time.Now().UnixNano() - n.attr.ctime; {
	case age < -t.tick, t.isMapped(member{w.d, n.name}):
		return nil, errChanged
	case age <= t.tick:
		<-time.After(time.Duration(t.tick - age))
	}
	return t.openUnchanged(fd, n.name, &n.attr)
}

// keepLarge keeps a clone of a large file. One that cannot be cloned is left out.
func (t *Tracker) keepLarge(k taken) error {
	defer func() { _ = k.file.Close() }()
	n := k.w.n
	name := n.cloneName()
	if !k.sure {
		return nil
	}
	if !t.cfg.Store.Has(name) {
		clone, err := t.cfg.Store.Clone(k.file, n.attr.size)
		switch {
		case errors.Is(err, store.ErrFull):
			return err
		case err != nil: // also of this file alone: one without copy on write, of another layer, used for swap
			n.unclonable.Store(true)
			return nil
		}
		t.reclaiming.RLock()
		defer t.reclaiming.RUnlock()
		if !t.unchanged(k.file, &n.attr) {
			return clone.Discard()
		}
		if err := clone.Keep(name); err != nil {
			return errors.Join(err, clone.Discard())
		}
	}
	if old := n.hash.Load(); old == nil || store.IsClone(*old) && !t.cfg.Store.Has(*old) {
		n.hash.CompareAndSwap(old, &name)
	}
	return nil
}

// largeFit reports whether all large files of the last state have room in the store.
func (t *Tracker) largeFit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	room := t.cfg.Store.Stats().CloneBound
	t.state.root.eachFile(func(k *node) {
		if t.large(k) && t.clonable(k) {
			room -= k.attr.size
		}
	})
	return room >= 0
}

// cloned reports whether the content of a file is kept as a clone.
func (t *Tracker) cloned(n *node) bool {
	hash := n.hash.Load()
	return hash != nil && store.IsClone(*hash) && t.cfg.Store != nil && t.cfg.Store.Has(*hash)
}

// openClone opens the clone that has the content of a file of a state. The goroutine has the rights of this process, which the
// user does not have.
func (t *Tracker) openClone(n *node) (f *os.File, err error) {
	var server sync.WaitGroup
	server.Go(func() { f, err = t.cfg.Store.OpenClone(*n.hash.Load(), n.attr.size) })
	server.Wait()
	return f, err
}

// writeClone makes the content of a clone that of an open file.
func (t *Tracker) writeClone(fd int, n *node) error {
	clone, err := t.openClone(n)
	if err != nil {
		return err
	}
	defer func() { _ = clone.Close() }()
	if err := unix.Ftruncate(fd, 0); err != nil {
		return err
	}
	if t.cfg.Store.CloneTo(fd, clone) == nil {
		return nil
	}
	return writeAll(fd, clone, n.attr.size) // as on a file system that has the place of the root since
}
