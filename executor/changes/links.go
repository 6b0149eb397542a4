package changes

import "slices"

// maxOutside is how many files with names outside of the tree are looked at in each step.
const maxOutside = 2000

// groups are the files with several names, by inode: a change by one name is no event in the directories of the others.
type groups struct {
	byIno map[uint64]*group
	// seek are the inodes that should have more names. A file that got its second name has one in an older node.
	seek map[uint64]struct{}
	// stale are the inodes whose names may show different attributes.
	stale   map[uint64]struct{}
	changed bool
	// outside are the files with names elsewhere, by the directory of one of their names.
	outside map[*dir][]*group
	// unwatched is the number of those beyond maxOutside.
	unwatched int
}

type group struct {
	attr  attr    // as last seen by any name
	hash  *digest // likewise; nil where it is unknown
	names []member
}

// learn takes the node of one name of the file, and reports whether it is news.
func (g *group) learn(n *node) bool {
	if !g.differs(n) {
		return false
	}
	g.attr, g.hash = n.attr, n.hash.Load()
	return true
}

func (g *group) differs(n *node) bool {
	hash := n.hash.Load()
	return g.attr != n.attr || g.hash != nil && hash != nil && *g.hash != *hash
}

// member is an entry of a directory.
type member struct {
	d    *dir
	name string
}

func newGroups() groups {
	return groups{byIno: map[uint64]*group{}, seek: map[uint64]struct{}{}, stale: map[uint64]struct{}{}}
}

// regroup deals with the files with several names among the changed entries of a directory: the directories of their
// other names are dirty too.
func (t *Tracker) regroup(d *dir, old, kids []*node) {
	var touched map[uint64]*node // the entry now, or nil
	note := func(n *node) {
		if n != nil && !n.isDir() && n.attr.nlink > 1 {
			if touched == nil {
				touched = map[uint64]*node{}
			}
			touched[n.attr.ino] = nil
		}
	}
	for x, y := range differing(old, kids) {
		note(x)
		note(y)
	}
	if len(touched) == 0 {
		return
	}
	t.links.changed = true
	for ino := range touched {
		if g := t.links.byIno[ino]; g != nil {
			g.names = slices.DeleteFunc(g.names, func(m member) bool { return m.d == d })
		}
	}
	for _, k := range kids {
		if _, ok := touched[k.attr.ino]; !ok || k.isDir() || k.attr.nlink < 2 {
			continue
		}
		g := t.links.byIno[k.attr.ino]
		if g == nil {
			g = &group{}
			t.links.byIno[k.attr.ino] = g
		}
		g.names = append(g.names, member{d, k.name})
		touched[k.attr.ino] = k
	}
	for ino, k := range touched {
		g := t.links.byIno[ino]
		switch {
		case g == nil:
			continue
		case len(g.names) == 0:
			delete(t.links.byIno, ino)
			continue
		case k == nil:
			g.attr, g.hash = attr{}, nil // one of the others will tell
		case !g.learn(k):
			continue
		case len(g.names) < int(k.attr.nlink):
			t.links.seek[ino] = struct{}{}
		}
		t.links.stale[ino] = struct{}{}
	}
}

// listNames marks the directories whose entry for a file differs from what another name shows. It comes after all
// directories were listed, so that none is listed for each file again.
func (t *Tracker) listNames() {
	for ino := range t.links.stale {
		g := t.links.byIno[ino]
		if g == nil {
			continue
		}
		for _, m := range g.names {
			if n := entry(m.d.kids, m.name); n == nil || g.differs(n) {
				t.mark(m.d)
			}
		}
	}
	clear(t.links.stale)
}

// seekNames marks the directories that have a file which got another name since.
func (t *Tracker) seekNames() {
	if len(t.links.seek) == 0 {
		return
	}
	for _, d := range t.dirs {
		for _, k := range d.kids {
			if k.attr.nlink == 1 && !k.isDir() {
				if _, ok := t.links.seek[k.attr.ino]; ok {
					t.mark(d)
					break
				}
			}
		}
	}
	clear(t.links.seek)
}

// countOutside finds the files with names outside of the tree.
func (t *Tracker) countOutside() {
	l := &t.links
	if !l.changed {
		return
	}
	l.changed, l.outside, l.unwatched = false, map[*dir][]*group{}, 0
	n := 0
	for _, g := range l.byIno {
		switch {
		case len(g.names) >= int(g.attr.nlink):
		case n == maxOutside:
			l.unwatched++
		default:
			n++
			l.outside[g.names[0].d] = append(l.outside[g.names[0].d], g)
		}
	}
}

// checkOutside looks at the files with names outside, which change without an event.
func (t *Tracker) checkOutside() {
	for d, all := range t.links.outside {
		fd, err := t.opened.open(t.rootFD, d)
		if err != nil {
			t.mark(d)
			continue
		}
		for _, g := range all {
			if a, _, err := t.stat(fd, g.names[0].name); err != nil || a != g.attr {
				t.mark(d)
				break
			}
		}
	}
	t.opened.close()
}
