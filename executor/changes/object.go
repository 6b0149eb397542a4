package changes

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/actiond/actiond/executor/internal/store"
)

// A saved state consists of objects in the store, which share what is the same in several states as its tree does. The
// first byte of an object says what it is: a state (its numbers, then its root), the entries of a directory, or the parts
// of a large directory, which are such entries by a hash of their names. Directories are followed by the sum of their
// entries.
const (
	objectState   = 's'
	objectEntries = 'e'
	objectParts   = 'p'

	// maxEntries is how many names a directory has in one object: one change writes all. partCount is the number of parts.
	maxEntries = 512
	partCount  = 64
)

// Save keeps a state in the store and returns its name, from which Load makes it again, also in another process. It
// costs the parts that are not shared with states that were saved. Contents that are not known by now are not known in
// the saved state. It fails with [store.ErrFull].
func (t *Tracker) Save(s *State) (store.Sum, error) {
	if t.cfg.Store == nil {
		return store.Sum{}, store.ErrNotKept
	}
	t.reclaiming.RLock()
	defer t.reclaiming.RUnlock()
	entries, _, err := t.saveEntries(s.root)
	if err != nil {
		return store.Sum{}, err
	}
	object := s.numbers([]byte{objectState})
	object = append(s.root.encodeSelf(object), entries[:]...)
	return t.cfg.Store.Put(object)
}

// saveEntries saves the entries of a directory. final reports that they will not be known better.
func (t *Tracker) saveEntries(n *node) (sum store.Sum, final bool, err error) {
	if saved := n.hash.Load(); saved != nil && t.cfg.Store.Has(*saved) {
		return *saved, true, nil
	}
	final = true
	objects := make([][]byte, 1)
	counts := make([]int, 1)
	if len(n.kids) > maxEntries {
		objects, counts = make([][]byte, partCount), make([]int, partCount)
	}
	for _, k := range n.kids {
		i := 0
		if len(objects) > 1 {
			i = partOf(k.name)
		}
		counts[i]++
		objects[i] = k.encodeSelf(objects[i])
		switch {
		case k.isDir():
			below, ok, err := t.saveEntries(k)
			if err != nil {
				return sum, false, err
			}
			final = final && ok
			objects[i] = append(objects[i], below[:]...)
		case k.regular() && k.hash.Load() == nil && t.content(k, true) == ContentPending:
			final = false
		}
	}
	parts := []byte{objectParts}
	for i, object := range objects {
		head := binary.AppendUvarint([]byte{objectEntries}, uint64(counts[i])) //nolint:gosec // not negative
		if sum, err = t.cfg.Store.Put(append(head, object...)); err != nil {
			return sum, false, err
		}
		parts = append(parts, sum[:]...)
	}
	if len(objects) > 1 {
		if sum, err = t.cfg.Store.Put(parts); err != nil {
			return sum, false, err
		}
	}
	if final {
		n.hash.Store(&sum)
	}
	return sum, final, nil
}

func partOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % partCount)
}

// Load returns a saved state, which shares equal parts with the last state. It fails with [store.ErrNotKept] if part
// of it is gone.
func (t *Tracker) Load(sum store.Sum) (*State, error) {
	if t.cfg.Store == nil {
		return nil, store.ErrNotKept
	}
	t.mu.Lock()
	l := &loader{store: t.cfg.Store, present: map[store.Sum]*node{}}
	if t.state != nil {
		l.index(t.state.root)
	}
	t.mu.Unlock()
	return l.state(sum)
}

// loader reads saved states.
type loader struct {
	store *store.Store
	// present are directories that are in memory, by the sum of their entries.
	present map[store.Sum]*node
	// seen are the objects and contents that were met, where they are only counted; nil where they are loaded.
	seen  map[store.Sum]struct{}
	nodes map[*node]struct{} // those that were met
}

func (l *loader) index(n *node) {
	if saved := n.hash.Load(); saved != nil {
		l.present[*saved] = n
	}
	for _, k := range n.kids {
		if k.isDir() {
			l.index(k)
		}
	}
}

func (l *loader) object(sum store.Sum, kind byte) (*decoder, byte, error) {
	data, err := l.store.Get(sum)
	if err != nil {
		return nil, 0, err
	}
	if len(data) == 0 || kind != 0 && data[0] != kind {
		return nil, 0, errState
	}
	return &decoder{rest: data[1:]}, data[0], nil
}

func (l *loader) state(sum store.Sum) (*State, error) {
	d, _, err := l.object(sum, objectState)
	if err != nil {
		return nil, err
	}
	s := &State{}
	d.numbers(s)
	s.root = d.self(false)
	var below store.Sum
	copy(below[:], d.bytes(len(below)))
	if d.bad || len(d.rest) > 0 || !s.root.isDir() {
		return nil, errState
	}
	if s.root.kids, err = l.entries(below, 0); err != nil {
		return nil, err
	}
	s.root = l.share(below, s.root)
	return s, nil
}

// share returns the directory in memory that is the same as n, or n.
func (l *loader) share(below store.Sum, n *node) *node {
	if p := l.present[below]; p != nil && p.name == n.name && p.attr == n.attr && p.cut == n.cut && p.racy == n.racy && same(p, n) {
		return p
	}
	return n
}

// entries returns the entries of a directory.
func (l *loader) entries(sum store.Sum, depth int) ([]*node, error) {
	if p := l.present[sum]; p != nil && l.seen == nil {
		return p.kids, nil
	}
	if l.seen != nil {
		if _, ok := l.seen[sum]; ok {
			return nil, nil
		}
		l.seen[sum] = struct{}{}
	}
	if depth > maxDepth+1 {
		return nil, errState
	}
	d, kind, err := l.object(sum, 0)
	if err != nil {
		return nil, err
	}
	switch kind {
	case objectEntries:
		return l.list(d, depth)
	case objectParts:
	default:
		return nil, errState
	}
	var all []*node
	for len(d.rest) > 0 {
		var part store.Sum
		copy(part[:], d.bytes(len(part)))
		p, _, err := l.object(part, objectEntries)
		if err != nil || d.bad {
			return nil, errors.Join(err, errState)
		}
		if l.seen != nil {
			l.seen[part] = struct{}{}
		}
		kids, err := l.list(p, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, kids...)
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

func (l *loader) list(d *decoder, depth int) ([]*node, error) {
	var failed error
	kids := d.entries(leastEntry, func() *node {
		k := d.self(true)
		if l.seen != nil {
			l.note(k)
		}
		if !k.isDir() || failed != nil || d.bad {
			return k
		}
		var below store.Sum
		copy(below[:], d.bytes(len(below)))
		if !d.bad {
			k.kids, failed = l.entries(below, depth+1)
			k = l.share(below, k)
		}
		return k
	})
	if failed == nil && (d.bad || len(d.rest) > 0) {
		failed = errState
	}
	return kids, failed
}

// note counts the contents of a file.
func (l *loader) note(k *node) {
	if hash := k.hash.Load(); hash != nil {
		l.seen[*hash] = struct{}{}
	}
	if sum := k.extra().xattrs; sum != "" {
		l.seen[store.Sum([]byte(sum))] = struct{}{}
	}
}

// Reclaim makes room in the store: contents that neither the last state, nor one of the states, in memory or saved, nor
// also needs are unused, and go where that frees space. It returns the bytes that the store became smaller by. Saved
// states of which a part is missing are not kept. also may be nil.
func (t *Tracker) Reclaim(states []*State, saved []store.Sum, also func(store.Sum) bool) (int64, error) {
	if t.cfg.Store == nil {
		return 0, nil
	}
	t.mu.Lock()
	t.reclaiming.Lock() // before another state has contents kept, which would be taken for unused
	defer t.reclaiming.Unlock()
	last := t.state
	t.mu.Unlock()
	l := &loader{store: t.cfg.Store, seen: map[store.Sum]struct{}{}, nodes: map[*node]struct{}{}}
	for _, s := range append(states, last) {
		if s == nil {
			continue
		}
		if err := l.memory(s.root); err != nil {
			return 0, err
		}
	}
	for _, sum := range saved {
		l.seen[sum] = struct{}{}
		if _, err := l.state(sum); err != nil && !errors.Is(err, store.ErrNotKept) && !errors.Is(err, errState) {
			return 0, err
		}
	}
	return t.cfg.Store.Reclaim(func(sum store.Sum) bool {
		_, ok := l.seen[sum]
		return ok || also != nil && also(sum)
	})
}

// memory counts the needs of a tree in memory: its contents, and the objects that it was saved as.
func (l *loader) memory(n *node) error {
	if n.isDir() {
		if _, ok := l.nodes[n]; ok {
			return nil
		}
		l.nodes[n] = struct{}{}
		if sum := n.extra().xattrs; sum != "" {
			l.seen[store.Sum([]byte(sum))] = struct{}{}
		}
		if saved := n.hash.Load(); saved != nil {
			if _, err := l.entries(*saved, 0); err != nil && !errors.Is(err, store.ErrNotKept) && !errors.Is(err, errState) {
				return err
			}
		}
		for _, k := range n.kids {
			if err := l.memory(k); err != nil {
				return err
			}
		}
		return nil
	}
	l.note(n)
	return nil
}
