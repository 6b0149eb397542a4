package changes

import "golang.org/x/sys/unix"

// why a path is not reverted.
const (
	changedSince = "it changed since"
	notEmpty     = "the directory is no longer empty"
)

// Revert takes back the changes from the state before to the state after, path by path, and leaves later changes: a
// path that is not as in after is refused, as is a directory that was made and is no longer empty. With all set, nothing is
// done if a path is refused. It is otherwise as [Tracker.Restore]; the paths of o are ignored.
func (t *Tracker) Revert(before, after *State, all bool, o RestoreOptions) (*Restored, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	return t.restore(o, func(r *restorer) *node {
		r.filtered = true
		root := r.revert(r.before.root, before.root, after.root, &place{dir: true})
		if all && r.out.RefusedCount > 0 {
			return r.before.root
		}
		return root
	})
}

// revert returns what a path is to be: p is there now, a was there before and b after; each may be nil.
func (r *restorer) revert(p, a, b *node, at *place) *node {
	switch {
	case a == b || a != nil && b != nil && !a.isDir() && isAs(a, b):
		return p
	case b != nil && b.isDir() && (a == nil || a.isDir()):
		if p == nil || !p.isDir() {
			if p != nil || a != nil {
				r.refuse(at, "", changedSince)
			}
			return p
		}
		return r.revertDir(p, a, b, at)
	case b == nil && p == nil, p != nil && b != nil && r.isWhole(p, b):
		return a
	case p != nil && a != nil && r.isWhole(p, a):
		return p // it is already
	case p == nil && a == nil:
		return nil
	}
	r.refuse(at, "", changedSince)
	return p
}

// revertDir is revert for a directory that was made, or was there before.
func (r *restorer) revertDir(p, a, b *node, at *place) *node {
	out := &node{name: p.name, attr: p.attr, more: p.more, racy: p.racy, cut: p.cut}
	changed := false
	var was []*node
	if a != nil {
		was = a.kids
	}
	for _, name := range names(p.kids, was, b.kids) {
		x, y, z := entry(p.kids, name), entry(was, name), entry(b.kids, name)
		now := r.revert(x, y, z, &place{up: at, name: name, dir: true})
		if now != nil {
			out.kids = append(out.kids, now)
		}
		changed = changed || now != x
	}
	switch {
	case a == nil && len(out.kids) == 0:
		return nil
	case a == nil:
		r.refuse(at, "", notEmpty)
	case otherMeta(a, b) && !otherMeta(p, b):
		out.attr, out.more, changed = a.attr, a.more, true
		out.attr.ident = p.attr.ident
	case otherMeta(a, b) && otherMeta(p, a):
		r.refuse(at, "", changedSince)
	}
	if !changed {
		return p
	}
	if p.attr.mtime == b.attr.mtime && a != nil {
		out.attr.mtime = a.attr.mtime
	}
	return out
}

// names returns the names in three directories, in order.
func names(all ...[]*node) []string {
	var out []string
	for {
		least := ""
		for _, kids := range all {
			if len(kids) > 0 && (least == "" || kids[0].name < least) {
				least = kids[0].name
			}
		}
		if least == "" {
			return out
		}
		out = append(out, least)
		for i, kids := range all {
			if len(kids) > 0 && kids[0].name == least {
				all[i] = kids[1:]
			}
		}
	}
}

// isAs reports whether two files are the same in all that a restore brings back.
func isAs(a, b *node) bool {
	if a.attr.kind() != b.attr.kind() || otherMeta(a, b) {
		return false
	}
	if a.attr.kind() == unix.S_IFDIR {
		return true
	}
	other, known := otherContent(a, b)
	return !other && known
}

// isWhole is isAs with all that is in a directory.
func (r *restorer) isWhole(a, b *node) bool {
	if a == b {
		return true
	}
	if !isAs(a, b) || len(a.kids) != len(b.kids) {
		return false
	}
	for i, k := range a.kids {
		if k.name != b.kids[i].name || !r.isWhole(k, b.kids[i]) {
			return false
		}
	}
	return true
}
