package changes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// work changes the tree, with the rights of the user. Directories that moved and files that were renamed go to the scratch
// directory first, so that all places are free; then each directory, those above first, loses what is wrong and gets what is
// missing; then files get their further names, and directories their attributes, the lowest first.
func (r *restorer) work(name string) error {
	r.open, r.leaders = newOpenSpots(r.t.rootFD), newOpenSpots(r.t.rootFD)
	r.groups, r.written = map[groupKey]*linkGroup{}, map[ident]written{}
	defer r.open.close()
	defer r.leaders.close()
	if err := r.retry(r.targets[0], func(int) error { return r.openScratch(name) }); err != nil {
		r.fail(r.targets[0], "", err)
		return nil
	}
	defer func() { _ = errors.Join(unix.Close(r.scratchFD), unix.Close(r.outerFD)) }()
	r.detachFiles()
	r.detachDirs()
	for _, t := range r.targets {
		r.rebuild(t)
	}
	r.link()
	r.clean(name)
	for _, t := range slices.Backward(r.targets) {
		r.finish(t)
	}
	return nil
}

// retry opens a directory and works in it; again after it got the rights that its owner may give, if they are missing. Its
// mode is set at the end.
func (r *restorer) retry(s *spot, work func(fd int) error) error {
	at, err := r.open.open(s)
	if err == nil {
		err = work(at)
	}
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	fd, failed := r.open.open(s)
	if failed != nil || unlock(fd, 0o700) != nil {
		return err
	}
	return work(fd)
}

// unlock gives an open file a mode that lets its owner change it, such as what is in a directory. The mode is set afterwards.
func unlock(fd int, mode uint32) error {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MODE, &st); err != nil {
		return err
	}
	return unix.Chmod(fdPath(fd), uint32(st.Mode)&^unix.S_IFMT|mode)
}

// isStill checks that an entry is what it was when everything was listed. By another name a file may have got another time.
func (r *restorer) isStill(fd int, n *node) error {
	a, _, err := r.t.stat(fd, n.name)
	if err != nil {
		return err
	}
	if a.ident != n.attr.ident || a.kind() != n.attr.kind() ||
		!n.isDir() && (a.size != n.attr.size || n.attr.nlink == 1 && a.mtime != n.attr.mtime) {
		return errMeanwhile
	}
	return nil
}

func (r *restorer) detachFiles() {
	all := slices.SortedFunc(maps.Values(r.items), func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.from.path(), b.from.path()), cmp.Compare(a.n.name, b.n.name))
	})
	for i, it := range all {
		aside := fmt.Sprint("f", i)
		err := r.retry(it.from, func(fd int) error {
			if err := r.isStill(fd, it.n); err != nil {
				return err
			}
			return unix.Renameat(fd, it.n.name, r.scratchFD, aside)
		})
		if err != nil { // it is made anew
			delete(r.items, it.to)
			delete(r.taken, member{it.from.d, it.n.name})
			continue
		}
		it.aside = aside
	}
}

func (r *restorer) detachDirs() {
	var all []*spot
	for _, t := range r.targets {
		if t.moved {
			all = append(all, t.was)
		}
	}
	slices.SortStableFunc(all, func(a, b *spot) int { return cmp.Compare(b.depth, a.depth) }) // so that paths stay
	for i, p := range all {
		aside := fmt.Sprint("d", i)
		move := func(fd int) error {
			if err := r.isStill(fd, p.n); err != nil {
				return err
			}
			return unix.Renameat(fd, p.name, r.scratchFD, aside)
		}
		err := r.retry(p.up, move)
		if errors.Is(err, unix.EACCES) { // a directory that moves changes itself
			if fd, failed := r.open.open(p); failed == nil && unlock(fd, 0o700) == nil {
				err = r.retry(p.up, move)
			}
		}
		if err != nil {
			r.fail(p, "", err)
			t := p.becomes
			t.was, t.moved, t.id, p.becomes = nil, false, ident{}, nil
			continue
		}
		p.aside, p.left = aside, true
	}
	r.open.close() // paths are others now
}

// unchanged reports whether nothing is to be done in a directory.
func (t *spot) unchanged() bool { return t.was != nil && !t.moved && t.was.n == t.n }

// rebuild gives a directory, which is in its place, the right entries.
func (r *restorer) rebuild(t *spot) {
	if t.up != nil && t.up.bad || t.bad || t.unchanged() {
		t.bad = t.bad || t.up != nil && t.up.bad
		return
	}
	if t.n.cut != whole || t.was != nil && t.was.n.cut != whole {
		r.refuseCut(t)
		return
	}
	if _, err := r.open.open(t); err != nil {
		r.fail(t, "", err)
		t.bad = true
		return
	}
	if t.was != nil {
		for _, p := range t.was.n.kids {
			r.removeWrong(t, p)
		}
	}
	for _, k := range t.n.kids {
		if k.isDir() {
			r.addDir(t, k)
		} else {
			r.addFile(t, k)
		}
	}
}

// removeWrong removes an entry that the target does not have, or has as another type.
func (r *restorer) removeWrong(t *spot, p *node) {
	k := entry(t.n.kids, p.name)
	if p == k {
		return
	}
	if !p.isDir() {
		if r.present(t, p.name) == p && (k == nil || k.isDir()) {
			r.remove(t, p)
		}
		return
	}
	q := r.presents[p.attr.ident]
	if q == nil || q.up != t.was || q.name != p.name || q.becomes != nil {
		return
	}
	if k != nil && !k.isDir() && r.can(k, nil) != "" {
		return // what it is refused for is said below
	}
	q.gone = r.removeTree(&spot{up: t, name: p.name, n: p, id: p.attr.ident}, q)
}

// remove removes a file.
func (r *restorer) remove(at *spot, n *node) bool {
	err := r.retry(at, func(fd int) error {
		if err := r.isStill(fd, n); err != nil {
			return err
		}
		return unix.Unlinkat(fd, n.name, 0)
	})
	err = ignoreMissing(err)
	r.fail(at, n.name, err)
	if err == nil {
		r.loses(at, n)
	}
	return err == nil
}

// loses names a file whose content goes and was not kept.
func (r *restorer) loses(at *spot, n *node) {
	if n.regular() && n.attr.nlink == 1 && r.t.content(n, false) != ContentKept {
		r.lost.add(at, n.name)
	}
}

// removeTree removes a directory with what is known to be in it. What came since stays, and with it the directory.
func (r *restorer) removeTree(s, q *spot) bool {
	if s.n.cut == mounted {
		r.fail(s, "", unix.EXDEV)
		return false
	}
	whole := true
	for _, k := range s.n.kids {
		if !k.isDir() && (q.d == nil || r.taken[member{q.d, k.name}] == nil) {
			whole = r.remove(s, k) && whole
		}
	}
	for _, k := range s.n.kids {
		if !k.isDir() {
			continue
		}
		below := r.presents[k.attr.ident]
		switch {
		case below == nil || below.up != q || below.name != k.name:
			whole = false
		case below.becomes != nil:
			whole = whole && below.left
		default:
			whole = r.removeTree(&spot{up: s, name: k.name, n: k, id: k.attr.ident}, below) && whole
		}
	}
	if !whole {
		return false
	}
	err := ignoreMissing(r.retry(s.up, func(fd int) error { return unix.Unlinkat(fd, s.name, unix.AT_REMOVEDIR) }))
	r.fail(s, "", err)
	return err == nil
}

// addDir puts a directory into its place, or makes it.
func (r *restorer) addDir(t *spot, k *node) {
	c := t.subs[k.name]
	if c == nil || c.was != nil && !c.moved {
		return
	}
	err := r.retry(t, func(fd int) error {
		if !c.moved {
			return unix.Mkdirat(fd, k.name, 0o700)
		}
		err := unix.Renameat2(r.scratchFD, c.was.aside, fd, k.name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // the file system does not have it; a directory replaces an empty one alone
			err = unix.Renameat(r.scratchFD, c.was.aside, fd, k.name)
		}
		return err
	})
	if errors.Is(err, unix.EEXIST) {
		err = errInTheWay
	}
	if err != nil {
		r.fail(c, "", err)
		c.bad = true
		return
	}
	if c.moved {
		c.was.aside = ""
	}
}

// addFile makes a file as in the target.
func (r *restorer) addFile(t *spot, k *node) {
	p := r.present(t, k.name)
	if p == k {
		return
	}
	stays := p != nil && r.stays(p, k)
	if k.attr.nlink > 1 {
		key := groupKey{k.attr.ident, k.attr.ctime}
		g := r.groups[key]
		if g == nil {
			g = &linkGroup{}
			r.groups[key] = g
		}
		if !stays && !r.rewritten(t, p, k) {
			g.todo = append(g.todo, linkName{t, k, p})
			return
		}
		if !stays || g.leader != nil { // or it has the attributes by its first name
			return
		}
		g.leader = &linkName{t, k, p}
	}
	if why := r.can(k, p); why != "" {
		r.refuse(t, k.name, why)
		return
	}
	if stays && k.regular() && !otherMeta(p, k) {
		return
	}
	if stays {
		r.fail(t, k.name, r.retry(t, func(fd int) error {
			if err := r.isStill(fd, p); err != nil {
				return err
			}
			return r.setMeta(fd, k)
		}))
		return
	}
	r.fail(t, k.name, r.place(t, k, p))
}

// rewritten writes a file in place that has names outside of the tree, and reports whether it did.
func (r *restorer) rewritten(t *spot, p, k *node) bool {
	if p == nil || !p.regular() || !k.regular() || p.attr.ident != k.attr.ident || r.filtered {
		return false
	}
	g := r.t.links.byIno[p.attr.ino]
	if g == nil || len(g.names) >= int(p.attr.nlink) || r.can(k, nil) != "" {
		return false
	}
	err := r.retry(t, func(fd int) error {
		if err := r.isStill(fd, p); err != nil {
			return err
		}
		f, err := files.OpenBeneath(fd, k.name, unix.O_WRONLY)
		if err != nil {
			return err
		}
		if err := errors.Join(r.write(f, k), unix.Close(f)); err != nil {
			return err
		}
		return r.setMeta(fd, k)
	})
	r.fail(t, k.name, err)
	if err != nil {
		return true
	}
	r.note(t, k)
	if g := r.groups[groupKey{k.attr.ident, k.attr.ctime}]; g.leader == nil {
		g.leader = &linkName{t, k, p}
	}
	return true
}

// place makes a file, or takes it from the scratch directory, and puts it into its place, in which p is now.
func (r *restorer) place(t *spot, k, p *node) error {
	it := r.items[k]
	if it == nil {
		name, err := r.make(k)
		if err != nil {
			return err
		}
		return r.put(t, name, k, p)
	}
	meta := r.setMeta(r.scratchFD, k.named(it.aside)) // which others' files do not allow
	if err := r.put(t, it.aside, k, p); err != nil {
		return err
	}
	it.aside = ""
	return meta
}

// put gives a file in the scratch directory its name, in whose place p is now.
func (r *restorer) put(t *spot, name string, k, p *node) error {
	err := r.retry(t, func(fd int) error {
		if p == nil {
			err := unix.Renameat2(r.scratchFD, name, fd, k.name, unix.RENAME_NOREPLACE)
			if !errors.Is(err, unix.EINVAL) {
				return err
			}
			if _, _, err := r.t.stat(fd, k.name); !errors.Is(err, unix.ENOENT) {
				return errInTheWay
			}
		} else if err := r.isStill(fd, p); err != nil {
			return err
		}
		return unix.Renameat(r.scratchFD, name, fd, k.name)
	})
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOENT) && p != nil {
		err = errInTheWay
	}
	if err != nil {
		return err
	}
	if p != nil {
		r.loses(t, p)
	}
	r.note(t, k)
	return nil
}

// note remembers the attributes of a file that was made, so that it need not be read.
func (r *restorer) note(t *spot, k *node) {
	hash := k.hash.Load()
	if !k.regular() || hash == nil {
		return
	}
	if fd, err := r.open.open(t); err == nil {
		if a, _, err := r.t.stat(fd, k.name); err == nil {
			r.written[a.ident] = written{a, hash}
		}
	}
}

// link gives files their further names.
func (r *restorer) link() {
	without := map[groupKey]*linkGroup{}
	todo := map[*node]bool{}
	for key, g := range r.groups {
		if len(g.todo) > 0 && g.leader == nil {
			without[key] = g
		}
		for _, m := range g.todo {
			todo[m.n] = true
		}
	}
	if len(without) > 0 {
		findLeaders(r.targets[0], without, todo)
	}
	for key, g := range r.groups {
		if len(g.todo) == 0 {
			continue
		}
		if g.leader != nil && !r.isLeader(key, g) {
			g.leader = nil
		}
		for _, m := range g.todo {
			var err error
			if g.leader == nil {
				if why := r.can(m.n, nil); why != "" {
					r.refuse(m.at, m.n.name, why)
					continue
				}
				if err = r.place(m.at, m.n, m.was); err == nil {
					g.leader = &m
				}
			} else {
				err = r.linkTo(g.leader, m)
			}
			r.fail(m.at, m.n.name, err)
		}
		if g.leader != nil {
			r.note(g.leader.at, g.leader.n)
		}
	}
}

// findLeaders looks for names that are in their place already.
func findLeaders(root *spot, groups map[groupKey]*linkGroup, todo map[*node]bool) {
	var visit func(s *spot)
	visit = func(s *spot) {
		for _, k := range s.n.kids {
			if k.isDir() {
				next := s.subs[k.name]
				if next == nil {
					next = &spot{up: s, name: k.name, n: k, depth: s.depth + 1}
				}
				visit(next)
				continue
			}
			if k.attr.nlink > 1 && !todo[k] {
				if g := groups[groupKey{k.attr.ident, k.attr.ctime}]; g != nil && g.leader == nil {
					g.leader = &linkName{at: s, n: k}
				}
			}
		}
	}
	visit(root)
}

// isLeader checks that the name has the file.
func (r *restorer) isLeader(key groupKey, g *linkGroup) bool {
	fd, err := r.leaders.open(g.leader.at)
	if err != nil {
		return false
	}
	a, _, err := r.t.stat(fd, g.leader.n.name)
	n := g.leader.n
	return err == nil && a.ident == key.ident && a.kind() == n.attr.kind() && a.size == n.attr.size && a.mtime == n.attr.mtime
}

func (r *restorer) linkTo(leader *linkName, m linkName) error {
	from, err := r.leaders.open(leader.at)
	if err != nil {
		return err
	}
	name := r.temp()
	if err := unix.Linkat(from, leader.n.name, r.scratchFD, name, 0); err != nil {
		return err
	}
	return r.put(m.at, name, m.n, m.was)
}

// clean empties and removes the scratch directory. What could not be put into its place goes back to its old one.
func (r *restorer) clean(name string) {
	back := func(from *spot, n *node, aside string) {
		if at := r.oldSpot(from); at != nil {
			err := r.retry(at, func(fd int) error { return unix.Renameat2(r.scratchFD, aside, fd, n.name, unix.RENAME_NOREPLACE) })
			if err == nil {
				return
			}
		}
		r.refuse(r.targets[0], join(name, r.inner+"/"+aside), "it could not be put back")
	}
	for _, it := range r.items {
		if it.aside != "" {
			back(it.from, it.n, it.aside)
		}
	}
	for _, t := range r.targets {
		if t.moved && t.was.aside != "" {
			back(t.was.up, t.was.n, t.was.aside)
		}
	}
	for i := range r.temps {
		_ = unix.Unlinkat(r.scratchFD, tempName(i), 0) // most have their places
	}
	_ = unix.Unlinkat(r.outerFD, r.inner, unix.AT_REMOVEDIR) // otherwise the next one fails
	r.fail(r.targets[0], name, r.retry(r.targets[0], func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) }))
}

// oldSpot returns the directory of the target that a present one became, or makes one that is gone again; nil if that fails.
func (r *restorer) oldSpot(p *spot) *spot {
	if p.becomes == nil && p.up != nil {
		if up := r.oldSpot(p.up); up != nil {
			again := &spot{up: up, name: p.name, n: p.n, depth: up.depth + 1}
			switch err := r.retry(up, func(fd int) error { return unix.Mkdirat(fd, p.name, 0o700) }); {
			case err == nil:
				r.targets = append(r.targets, again) // which finish gives its attributes
			case errors.Is(err, unix.EEXIST):
				again.id = p.id
			default:
				return nil
			}
			p.becomes = again
		}
	}
	if p.becomes != nil && p.becomes.bad {
		return nil
	}
	return p.becomes
}

// finish gives a directory its attributes.
func (r *restorer) finish(t *spot) {
	if t.bad || t.unchanged() || t.n.cut == mounted || t.was != nil && t.was.n.cut == mounted {
		return
	}
	r.fail(t, "", r.retry(t, func(fd int) error { return r.setMeta(fd, t.n.named(".")) }))
}
