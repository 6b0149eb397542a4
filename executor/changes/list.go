package changes

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// list reads a dirty directory.
func (t *Tracker) list(d *dir) {
	d.dirty = false
	t.listed++
	fd, err := t.opened.open(t.rootFD, d)
	var self attr
	if err == nil {
		self, _, err = t.stat(fd, "")
	}
	if err == nil && self.ident != d.id {
		err = errChanged
	}
	if err != nil {
		t.unopened(d, err)
		return
	}
	t.watches.arm(d, fd)
	now := time.Now().UnixNano()
	if d.up == nil { // no directory above reports a change of the root itself
		if self, _, err = t.stat(fd, ""); err != nil {
			t.unopened(d, err)
			return
		}
	}
	t.refresh(d, &self, fd, ".", now)
	if d.depth >= maxDepth {
		t.cutOff(d, crowded)
		return
	}
	names, err := t.readNames(fd, t.room(d))
	switch {
	case err == nil:
		if why := t.merge(d, fd, names, now); why != whole {
			t.cutOff(d, why)
			return
		}
		if d.cut != whole {
			d.cut = whole
			delete(t.cuts, d)
			d.touch()
		}
	case errors.Is(err, errCrowded):
		t.cutOff(d, crowded)
	default:
		t.cutOff(d, unreadable)
	}
}

// unopened deals with a directory that cannot be opened by its path.
func (t *Tracker) unopened(d *dir, err error) {
	switch {
	case errors.Is(err, unix.EXDEV):
		t.cutOff(d, mounted)
	case d.up != nil && (errors.Is(err, errChanged) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)):
		d.dirty = true // and is put into the queue if the directory above still has it
		t.mark(d.up)
	default:
		t.cutOff(d, unreadable)
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			d.dirty = true // this process has no descriptors left, or the like
			t.later = append(t.later, d)
		}
	}
}

// cutOff leaves out the entries of a directory.
func (t *Tracker) cutOff(d *dir, why cut) {
	for _, s := range d.subs {
		t.orphan(s)
	}
	t.empty(d)
	if d.cut != why {
		d.cut = why
		d.touch()
	}
	if why == mounted {
		delete(t.cuts, d)
	} else {
		t.cuts[d] = t.room(d)
	}
}

// refresh gives a directory the attributes that were read just now, and the extended ones if they may have changed.
func (t *Tracker) refresh(d *dir, a *attr, fd int, name string, now int64) {
	if d.attr == *a && !d.racy {
		return
	}
	racy := t.racy(a, now)
	more := readMore(fd, name, unix.S_IFDIR)
	if d.attr == *a && d.racy == racy && same(&node{more: d.more}, &node{more: more}) {
		return
	}
	if d.cut == unreadable && d.attr.ctime != a.ctime {
		t.mark(d) // it may be readable by now
	}
	d.attr, d.more, d.racy = *a, more, racy
	d.touch()
}

// same compares two nodes as they were read; rules are read later.
func same(a, b *node) bool {
	x, y := a.extra(), b.extra()
	return x.link == y.link && x.xattrs == y.xattrs
}

// racy reports whether a file that was looked at now may change without another time.
func (t *Tracker) racy(a *attr, now int64) bool { return t.tick < 0 || a.ctime >= now-t.tick }

// merge makes the entries of a directory from its names and the last entries. It returns why they are to be
// left out: they count for more names than the limit, or cannot be looked at.
func (t *Tracker) merge(d *dir, fd int, names []string, now int64) cut {
	room := t.room(d)
	kids, old, changed := make([]*node, 0, len(names)), d.kids, false
	again := false // some entry could not be looked at, and is as it was
	gone := func() {
		t.gone(d, old[0])
		old, changed = old[1:], true
	}
	for _, name := range names {
		for len(old) > 0 && old[0].name < name {
			gone()
		}
		var was *node
		if len(old) > 0 && old[0].name == name {
			was = old[0]
		}
		n, err := t.entry(d, fd, name, was, now)
		if errors.Is(err, unix.ENOENT) {
			continue // was is gone too
		}
		if errors.Is(err, unix.EACCES) { // it may be listed and not searched
			return unreadable
		}
		if err != nil { // as of a mount whose server is gone
			t.doubt(d, name)
			again, n = true, was
		}
		if n == nil {
			continue
		}
		if was != nil {
			old = old[1:]
		}
		changed = changed || n != was
		kids = append(kids, n)
		if room -= charge(kids[len(kids)-1:]); room < 0 {
			return crowded
		}
	}
	for len(old) > 0 {
		gone()
	}
	if changed {
		t.regroup(d, d.kids, kids)
		t.countRules(d.kids, kids)
		t.names += charge(kids) - charge(d.kids)
		d.kids = kids
		d.touch()
	}
	if again && !d.dirty {
		d.dirty = true
		t.later = append(t.later, d)
	}
	return whole
}

// gone deals with an entry that a directory no longer has.
func (t *Tracker) gone(d *dir, was *node) {
	if s := d.subs[was.name]; s != nil {
		t.orphan(s)
	} else {
		t.moved.goes(was)
	}
}

// entry returns the node of one entry, which is was if nothing changed.
func (t *Tracker) entry(d *dir, fd int, name string, was *node, now int64) (*node, error) {
	a, outside, err := t.stat(fd, name)
	if err != nil {
		return nil, err
	}
	if a.kind() == unix.S_IFDIR {
		return t.directory(d, fd, name, &a, was, outside, now), nil
	}
	if s := d.subs[name]; s != nil {
		t.orphan(s)
		was = nil
	}
	_, forced := t.forced[member{d, name}]
	if was != nil && was.attr == a && !was.racy && !forced {
		return was, nil
	}
	n := &node{name: name, attr: a, racy: forced || t.racy(&a, now)}
	n.more = readMore(fd, name, a.kind())
	if was != nil && same(was, n) {
		n.more = was.more
	}
	if n.regular() && !outside {
		t.readContent(d, fd, n, was, now)
		if name == ignoreFile {
			t.readRules(fd, n, was)
		}
	}
	if was == nil || was.attr.ident != n.attr.ident {
		t.moved.comes(d, n)
		if was != nil {
			t.moved.goes(was)
		}
	} else if was.attr == n.attr && was.racy == n.racy && was.more == n.more && was.hash.Load() == n.hash.Load() && (n.hash.Load() != nil || !n.regular()) {
		return was, nil
	}
	return n, nil
}

// readContent gives a node its hash, as far as the bounds of the step allow it.
func (t *Tracker) readContent(d *dir, fd int, n, was *node, now int64) {
	var before *digest
	if was != nil && was.regular() {
		before = was.hash.Load()
	}
	for try := 1; ; try++ {
		size := n.attr.size
		if size == 0 {
			n.hash.Store(&emptyHash)
			return
		}
		budget := &t.eager
		if n.racy || before != nil && size == was.attr.size {
			budget = &t.reread // the attributes do not tell whether it changed
		}
		if size > t.cfg.MaxFile || size > *budget {
			return
		}
		*budget -= max(size, leastRead)
		sum, err := t.readHash(fd, n.name, &n.attr)
		switch {
		case err == nil && before != nil && *before == *sum:
			n.hash.Store(before)
			return
		case err == nil:
			n.hash.Store(sum)
			return
		case !errors.Is(err, errChanged):
			return
		case try == maxTries:
			n.racy = true
			t.doubt(d, n.name)
			return
		}
		a, _, err := t.stat(fd, n.name)
		if err != nil || a.kind() != unix.S_IFREG {
			n.racy = true
			t.mark(d)
			return
		}
		n.attr, n.racy = a, n.racy || t.racy(&a, now)
	}
}

// directory returns the node of a directory. It is found by its identity where it was moved, and keeps its entries:
// that they did not change is known from their own watches.
func (t *Tracker) directory(d *dir, fd int, name string, a *attr, was *node, outside bool, now int64) *node {
	s := d.subs[name]
	switch {
	case s != nil && s.id == a.ident:
		if s.dirty {
			t.push(s)
		}
	default:
		if s != nil {
			t.orphan(s)
		} else if was != nil {
			t.moved.goes(was)
		}
		if s = t.dirs[a.ident]; s == nil || within(d, s) {
			s = &dir{id: a.ident}
			t.dirs[a.ident] = s
			s.dirty = true
		} else if a.btime == 0 {
			s.dirty = true // it may be another directory with the same number
		}
		d.take(s, name)
		t.place(s, d.depth+1)
	}
	t.refresh(s, a, fd, name, now)
	switch {
	case outside:
		s.dirty = false
		t.cutOff(s, mounted)
	case s.cut == mounted:
		t.mark(s)
	}
	if was != nil && was == s.node {
		return was
	}
	return &node{name: name, attr: *a} // until the snapshot
}

// within reports whether d is s or below it.
func within(d, s *dir) bool {
	for ; d != nil; d = d.up {
		if d == s {
			return true
		}
	}
	return false
}
