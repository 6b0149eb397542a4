package changes

import "unsafe"

// Stats are numbers of a tracker.
type Stats struct {
	Watches int    // directories that are watched
	Cold    int    // and those that are not
	Listed  uint64 // directories that steps listed since New
}

// Stats returns the present numbers; false while a step works.
func (t *Tracker) Stats() (s Stats, ok bool) {
	if !t.mu.TryLock() {
		return s, false
	}
	defer t.mu.Unlock()
	return Stats{Watches: len(t.watches.dirs), Cold: len(t.watches.cold), Listed: t.listed}, true
}

// Unchanged reports whether a step without processes would return the last state, as far as that is known without
// waiting: it reads events and no directory, and is false while another call works.
func (t *Tracker) Unchanged() bool {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.readEvents()
	return t.idle() && !t.rootMoved() // which asks a file system that may not answer where it is not idle
}

// Size returns the number of regular files in the tree, and of their bytes. It takes time in proportion to the names.
func (s *State) Size() (files int, bytes int64) {
	s.root.eachFile(func(k *node) {
		if k.regular() {
			files, bytes = files+1, bytes+k.attr.size
		}
	})
	return files, bytes
}

// Own returns about how many bytes of memory a state takes that it does not share with another one of its tracker. It
// takes time in proportion to them.
func (s *State) Own(other *State) int {
	bytes := own(s.root, other.root)
	for _, path := range s.unsure {
		bytes += len(path)
	}
	return bytes
}

func own(n, other *node) int {
	if n == other {
		return 0
	}
	more := n.extra()
	bytes := int(unsafe.Sizeof(*n)) + len(n.name) + len(n.kids)*int(unsafe.Sizeof(n)) + len(more.link) + more.ruleBytes
	var old []*node
	if other != nil {
		old = other.kids
	}
	for k, was := range differing(n.kids, old) {
		if k != nil {
			bytes += own(k, was)
		}
	}
	return bytes
}
