package changes

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
)

// RestoreOptions limit a restore to parts of a state.
type RestoreOptions struct {
	// Paths are the files and directories to restore, with all below; nil means everything. No other name changes.
	Paths []string
	// DryRun only says what would be done.
	DryRun bool
	// Limits bound the facts of the answer.
	Limits Limits
	// Pids are the living processes that may have mapped files.
	Pids []int
}

// Restore returns the tree to the state target: names, types, contents, modes, owners, links, link groups, extended
// attributes and times. It lists everything first, and keeps the present contents that it takes away, so that it can be
// taken back. All is done with the rights of the user; no link is followed and no mount entered. What cannot be brought
// back is left as it is, and named: contents that were not kept, others' files, sockets and devices, and files that
// change meanwhile. Times of changes and creation, and inode numbers, are new.
//
// While it works, a plan in [Config.StateDir] tells the next tracker to end it, see [Tracker.Resume]. One restore
// works at a time, and steps wait for it. It fails if it could not begin, or could not take on the rights of the user.
func (t *Tracker) Restore(target *State, o RestoreOptions) (*Restored, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	return t.restore(o, func(r *restorer) *node {
		if o.Paths != nil {
			return r.selected(target.root, o.Paths)
		}
		return target.root
	})
}

// Resume ends the restore that a killed process began, if there is one; otherwise it returns nil. It comes before the first
// step.
func (t *Tracker) Resume() (*Restored, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	target, err := t.readPlan()
	if err != nil || target == nil {
		return nil, err
	}
	return t.restore(RestoreOptions{}, func(*restorer) *node { return target.root })
}

// restore lists everything and makes the tree what target returns. The directories of the user that are closed and differ are opened
// before, one level after another: the states have them as they were, with what is in them.
func (t *Tracker) restore(o RestoreOptions, target func(*restorer) *node) (*Restored, error) {
	if err := t.lookLocked(true, o.Pids); err != nil {
		return nil, err
	}
	closed := map[*dir]attr{}
	for level := 0; ; level++ {
		r := &restorer{t: t, before: t.state, out: &Restored{Before: t.state}}
		root := target(r)
		r.compare(root)
		if o.DryRun || level == maxClosed || !r.openClosed(closed) {
			return r.run(root, o)
		}
		if err := t.lookLocked(false, o.Pids); err != nil {
			return nil, err
		}
		for d, was := range closed {
			if d.id == was.ident {
				d.attr = was
				d.touch()
				t.mark(cmp.Or(d.up, d)) // which the next step has as they are
			}
		}
		t.publish(t.state.unwatched)
	}
}

// maxClosed bounds the closed directories in each other that a restore opens: each level is a look at the tree.
const maxClosed = 100

// closed reports whether a present directory that differs cannot be listed or searched, and its user may open it.
func (r *restorer) closed(p *spot) bool {
	if p == nil || p.d == nil || int(p.d.attr.uid) != r.t.cfg.User.EffectiveUID() ||
		p.same != nil && p.same.n.cut != whole && p.same.n.attr.mode == p.n.attr.mode {
		return false
	}
	return p.d.cut == unreadable
}

// openClosed opens the closed directories, and adds them to opened with their attributes. It returns false if there are no others.
func (r *restorer) openClosed(opened map[*dir]attr) (found bool) {
	_ = r.t.cfg.User.Do(func() error { // the only error is that of changing the user, which the restore will have
		open := newOpenSpots(r.t.rootFD)
		defer open.close()
		for _, p := range r.presents {
			if _, before := opened[p.d]; before || !r.closed(p) {
				continue
			}
			fd, err := r.t.rootFD, error(nil)
			if p.up != nil {
				fd, err = open.open(p)
			}
			if err == nil && unlock(fd, 0o700) == nil {
				opened[p.d], found = p.d.attr, true
				r.t.mark(p.d)
			}
		}
		return nil
	})
	return found
}

func (r *restorer) run(root *node, o RestoreOptions) (*Restored, error) {
	if err := r.keepPresent(); err != nil {
		return nil, err
	}
	r.match()
	defer func() {
		slices.SortFunc(r.out.Refused, func(a, b Refusal) int { return cmp.Compare(a.Path, b.Path) })
		slices.Sort(r.split.paths)
		r.out.Lost, r.out.Unsure, r.out.Split = r.lost.paths, r.unsure.paths, r.split.paths
	}()
	if o.DryRun {
		r.foresee()
		r.out.After = &State{root: root, names: r.before.names}
		r.out.Changes = Compare(r.before, r.out.After, o.Limits)
		return r.out, nil
	}
	if len(r.targets) > 0 {
		name := scratchPrefix + rand.Text()
		if err := r.t.writePlan(root); err != nil {
			return nil, err
		}
		if err := r.t.cfg.User.Do(func() error { return r.work(name) }); err != nil {
			return nil, errors.Join(err, r.t.removePlan())
		}
	}
	if err := r.t.removePlan(); err != nil {
		return nil, err
	}
	if err := r.t.lookLocked(false, o.Pids); err != nil {
		return nil, err
	}
	r.adoptWritten(r.t.state.root)
	r.verify(r.t.state.root, root, &place{dir: true}, &r.named, false)
	r.out.After = r.t.state
	r.out.Changes = Compare(r.before, r.out.After, o.Limits)
	return r.out, nil
}

// foresee names the paths that a restore would refuse.
func (r *restorer) foresee() {
	for _, t := range r.targets {
		if t.n.cut != whole || t.was != nil && t.was.n.cut != whole {
			if t.n.cut != whole || !r.closed(t.was) {
				r.refuseCut(t)
			}
			continue
		}
		for _, k := range t.n.kids {
			if k.isDir() {
				continue
			}
			if why := r.can(k, r.present(t, k.name)); why != "" {
				r.refuse(t, k.name, why)
			}
		}
	}
}

// keepPresent keeps the contents of what differs, which tells what is the same, and those that will be taken away.
func (r *restorer) keepPresent() error {
	if r.t.cfg.Store == nil {
		return nil
	}
	var work []arrival
	for _, p := range r.presents {
		if p.d == nil {
			continue
		}
		if p.n.more != nil && r.t.wantsXattrs(p.n.more.xattrs) {
			work = append(work, arrival{p.d, nil})
		}
		for _, k := range p.n.kids {
			if k.isDir() || !r.t.wants(k) || p.same != nil && entry(p.same.n.kids, k.name) == k {
				continue
			}
			work = append(work, arrival{p.d, k})
		}
	}
	for len(work) > 0 {
		all, n, err := r.t.takeFiles(work)
		if err != nil {
			return err
		}
		for _, k := range all {
			if err := r.t.keep(k); err != nil && !errors.Is(err, store.ErrFull) { // what is lost is named
				return err
			}
		}
		work = work[n:]
	}
	return nil
}

// adoptWritten gives the files that were made their hashes.
func (r *restorer) adoptWritten(n *node) {
	if len(r.written) == 0 {
		return
	}
	n.eachFile(func(k *node) {
		if w, ok := r.written[k.attr.ident]; ok && k.regular() && w.attr == k.attr {
			k.hash.CompareAndSwap(nil, w.hash)
		}
	})
}

// verify names the paths that differ from the target, but for what a directory does not have whose own path, or one above, is named.
func (r *restorer) verify(p, t *node, at *place, named *filter, under bool) {
	if p == t || r.out.RefusedCount > 10*maxRefused {
		return
	}
	before := r.out.RefusedCount
	switch {
	case p.attr.kind() != t.attr.kind():
		r.refuse(at, "", "another file has its place")
		return
	case p.attr.mode != t.attr.mode:
		r.refuse(at, "", fmt.Sprintf("its mode is %#o, not %#o", p.attr.mode&^unix.S_IFMT, t.attr.mode&^unix.S_IFMT))
	case p.attr.uid != t.attr.uid || p.attr.gid != t.attr.gid:
		r.refuse(at, "", "its owner is another")
	case p.extra().xattrs != t.extra().xattrs:
		r.refuse(at, "", "its extended attributes differ")
	case p.attr.mtime != t.attr.mtime && p.cut != mounted && !p.attr.device() && p.attr.kind() != unix.S_IFSOCK:
		r.refuse(at, "", "its time differs")
	}
	if !p.isDir() {
		if other, known := otherContent(p, t); other && known {
			r.refuse(at, "", "its content differs")
		} else if !known {
			r.unsure.add(at, "")
		}
		return
	}
	if p.cut != whole || t.cut != whole {
		return
	}
	under = under || at.up != nil && (named != nil && named.all || r.out.RefusedCount > before)
	for x, y := range differing(p.kids, t.kids) {
		switch {
		case x != nil && y != nil:
			r.verify(x, y, at.at(y), named.below(y.name), under)
		case x != nil && !under:
			r.refuse(at, x.name, "it is not in the target")
		case y != nil && !under:
			r.refuse(at, y.name, "it is missing")
		}
	}
}
