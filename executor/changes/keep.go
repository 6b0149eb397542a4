package changes

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/channel"
)

// Content says whether the content of a file in a state can be had.
type Content string

// What may be known of a content.
const (
	ContentKept    Content = ""
	ContentPending Content = "pending" // it is to be kept, and will be lost if the file changes before
	ContentLost    Content = "lost"    // it was never kept, or no longer is
	ContentLarge   Content = "large"   // the file is above [Config.MaxFile]
)

// Progress is how far [Tracker.KeepContents] has come.
type Progress struct {
	// Files and Bytes are those kept, of all that were to be kept when it began.
	Files, AllFiles int64
	Bytes, AllBytes int64
	Running         bool
}

type progress struct {
	files, allFiles, bytes, allBytes atomic.Int64
	running                          atomic.Bool
}

// Keeping returns how far the last [Tracker.KeepContents] has come. It waits for nothing.
func (t *Tracker) Keeping() Progress {
	p := &t.keeping
	return Progress{p.files.Load(), p.allFiles.Load(), p.bytes.Load(), p.allBytes.Load(), p.running.Load()}
}

const (
	// keptPortion and keptFiles bound what KeepContents reads before it lets a step in.
	keptPortion = 1 << 20
	keptFiles   = 200
)

// KeepContents keeps the contents and extended attributes of all files of the last state, those that git ignores last, until
// ctx ends. It lets steps in, and takes half of a processor's time unless hurry is set. What changed since that state is
// left out, as are files above [Config.MaxFile] and those that cannot be read. It fails with [store.ErrFull] where the store
// has no more room.
//
// One call works at a time; a later one waits for its portions.
func (t *Tracker) KeepContents(ctx context.Context, hurry bool) error {
	if t.cfg.Store == nil {
		return nil
	}
	work := t.unkept()
	p := &t.keeping
	p.files.Store(0)
	p.bytes.Store(0)
	p.allFiles.Store(int64(len(work)))
	size := int64(0)
	for _, w := range work {
		size += w.size()
	}
	p.allBytes.Store(size)
	p.running.Store(true)
	defer p.running.Store(false)
	for len(work) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		start := time.Now()
		rest, err := t.keepPortion(work)
		if err != nil && !errors.Is(err, store.ErrFull) {
			return err
		}
		for _, w := range work[:len(work)-len(rest)] {
			p.files.Add(1)
			p.bytes.Add(w.size())
		}
		work = rest
		if err != nil {
			return err
		}
		if !hurry {
			if err := channel.Sleep(ctx, time.Since(start)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unkept returns the files of the last state that are to be kept, ignored files after the others.
func (t *Tracker) unkept() []arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nil {
		return nil
	}
	var first, last []arrival
	c := &comparison{b: t.state.root, out: &Changes{}}
	round := t.cfg.Store.Evictions() + 1
	var visit func(d *dir, at *place) (complete bool)
	visit = func(d *dir, at *place) (complete bool) {
		if !d.changed && d.node != nil && d.node.kept.Load() == round {
			return true
		}
		complete = true
		if d.more != nil && t.wantsXattrs(d.more.xattrs) {
			first, complete = append(first, arrival{d, nil}), false
		}
		for _, k := range d.kids {
			if s := d.subs[k.name]; s != nil && k.isDir() {
				complete = visit(s, at.at(k)) && complete
				continue
			}
			if !t.wants(k) {
				continue
			}
			complete = false
			if c.group(at.at(k)) != "" {
				last = append(last, arrival{d, k})
			} else {
				first = append(first, arrival{d, k})
			}
		}
		if complete && !d.changed && d.node != nil {
			d.node.kept.Store(round)
		}
		return complete
	}
	visit(t.root, &place{dir: true})
	return append(first, last...)
}

func (w arrival) size() int64 {
	if w.n == nil || !w.n.regular() {
		return 0
	}
	return w.n.attr.size
}

// Missing returns how many files of a state cannot be restored, because their contents are not kept, with some of their paths.
func (t *Tracker) Missing(s *State) (n int, paths []string) {
	var some sample
	var visit func(d *node, at *place)
	visit = func(d *node, at *place) {
		for _, k := range d.kids {
			switch {
			case k.isDir():
				visit(k, at.at(k))
			case k.regular() && t.content(k, false) != ContentKept:
				n++
				some.add(at, k.name)
			}
		}
	}
	visit(s.root, &place{dir: true})
	return n, some.paths
}

// wants reports whether something of a file is to be kept.
func (t *Tracker) wants(n *node) bool {
	return t.wantsXattrs(n.extra().xattrs) || n.regular() && t.content(n, true) == ContentPending
}

func (t *Tracker) wantsXattrs(sum string) bool {
	return sum != "" && !t.cfg.Store.Has(store.Sum([]byte(sum)))
}

// content says whether the content of a regular file is kept. present is whether the file is still the same.
func (t *Tracker) content(n *node, present bool) Content {
	hash := n.hash.Load()
	switch {
	case n.attr.size == 0:
		return ContentKept
	case hash != nil && t.cfg.Store != nil && t.cfg.Store.Has(*hash):
		return ContentKept
	case n.attr.size > t.cfg.MaxFile:
		return ContentLarge
	case present:
		return ContentPending
	}
	return ContentLost
}

// taken has the content that was read of a file.
type taken struct {
	w            arrival
	xattrSum     string
	data, xattrs []byte
	sure         bool // the file is known not to have changed meanwhile
}

// keepPortion keeps some files, and returns the others.
func (t *Tracker) keepPortion(work []arrival) (rest []arrival, err error) {
	all, n, err := t.takePortion(work)
	if err != nil {
		return nil, err
	}
	for _, k := range all { // without the lock
		if err := t.keep(k); err != nil {
			return work[n:], err
		}
	}
	return work[n:], nil
}

// takePortion reads some files, and returns how many.
func (t *Tracker) takePortion(work []arrival) (all []taken, n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, 0, errClosed
	}
	return t.takeFiles(work)
}

// takeFiles is takePortion while t.mu is held.
func (t *Tracker) takeFiles(work []arrival) (all []taken, n int, err error) {
	size := int64(0)
	err = t.cfg.User.Do(func() error {
		defer t.opened.close()
		for _, w := range work[:min(len(work), keptFiles)] {
			if n > 0 && size+w.size() > keptPortion {
				break
			}
			n++
			size += w.size()
			if k, ok := t.take(w); ok {
				all = append(all, k)
			}
		}
		return nil
	})
	t.readEvents()
	for i := range all {
		all[i].sure = all[i].w.same()
	}
	return all, n, err
}

// same reports whether a file that was read was the same all the time, once the events were read: what changed without another time changed
// with an event.
func (w arrival) same() bool { return w.n == nil || !w.n.racy || !w.d.dirty && w.d.wd != 0 }

// take reads one file, if it is still the same. t.mu is held, and the rights are the user's.
func (t *Tracker) take(w arrival) (k taken, ok bool) {
	if !t.attached(w.d) {
		return k, false
	}
	if w.n != nil && entry(w.d.kids, w.n.name) != w.n {
		return k, false
	}
	fd, err := t.opened.open(t.rootFD, w.d)
	if err != nil {
		return k, false
	}
	k.w = w
	name, more := ".", w.d.more
	if w.n != nil {
		name, more = w.n.name, w.n.more
	}
	if more != nil && t.wantsXattrs(more.xattrs) {
		k.xattrSum = more.xattrs
		k.xattrs = listXattrs("/proc/self/fd/" + strconv.Itoa(fd) + "/" + name)
	}
	if w.n != nil && w.n.regular() && t.content(w.n, true) == ContentPending {
		k.data, err = t.readWhole(fd, name, &w.n.attr)
	}
	return k, err == nil
}

// readWhole returns the contents of a regular file, as readUnchanged reads them.
func (r *reader) readWhole(fd int, name string, a *attr) ([]byte, error) {
	data := make([]byte, a.size)
	err := r.readUnchanged(fd, name, a, func(f *os.File) error {
		if _, err := f.ReadAt(data, 0); err != nil {
			return errors.Join(errChanged, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// keep stores a content that was read. It fails with [store.ErrFull] or where the store is broken.
func (t *Tracker) keep(k taken) error {
	t.reclaiming.RLock() // until the file has its hash, what is stored would be taken for unused
	defer t.reclaiming.RUnlock()
	if sum := sha256.Sum256(k.xattrs); k.xattrs != nil && string(sum[:]) == k.xattrSum {
		if _, err := t.cfg.Store.Put(k.xattrs); err != nil {
			return err
		}
	}
	if k.data == nil || k.w.n == nil {
		return nil
	}
	if k.w.n.hash.Load() == nil && !k.sure {
		return nil
	}
	sum, err := t.cfg.Store.Put(k.data)
	if err != nil && !errors.Is(err, store.ErrTooLarge) {
		return err
	}
	k.w.n.hash.CompareAndSwap(nil, &sum) // another hash shows that this is another content
	return nil
}

// ReadFile returns the content that a regular file had in a state of t. It fails with [store.ErrNotKept], and then says
// why; with [fs.ErrNotExist] where the state has no such file.
func (t *Tracker) ReadFile(s *State, path string) ([]byte, Content, error) {
	n := s.lookup(path)
	if n == nil || !n.regular() {
		return nil, ContentLost, fs.ErrNotExist
	}
	data, err := t.kept(n)
	if err != nil {
		return nil, t.content(n, t.present(s, path, n)), err
	}
	return data, ContentKept, nil
}

// kept returns the content of a regular file of a state. It fails with [store.ErrNotKept].
func (t *Tracker) kept(n *node) ([]byte, error) {
	if n.attr.size == 0 {
		return nil, nil
	}
	hash := n.hash.Load()
	if hash == nil || t.cfg.Store == nil {
		return nil, store.ErrNotKept
	}
	return t.cfg.Store.Get(*hash)
}

// present reports whether a file of a state is still the same.
func (t *Tracker) present(s *State, path string, n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == s {
		return true
	}
	now := t.state.lookup(path)
	return now != nil && (now == n || now.attr == n.attr)
}

// lookup returns the node of a path, or nil.
func (s *State) lookup(path string) *node {
	n := s.root
	for part := range parts(path) {
		if n = entry(n.kids, part); n == nil {
			return nil
		}
	}
	return n
}
