package changes

import (
	"slices"
	"strings"
)

const missing = "it is neither there nor in the target"

// selected returns the present tree with what has one of the paths taken from the target.
func (r *restorer) selected(target *node, paths []string) *node {
	f := &filter{}
	for _, path := range paths {
		f.add(path)
	}
	if f.all {
		return target
	}
	r.filtered = true
	s := &selection{r: r, inside: map[ident]int{}}
	root := s.merge(r.before.root, target, f, &place{dir: true})
	s.split(target)
	return root
}

// filter are the paths that were asked for, as a tree.
type filter struct {
	all  bool
	kids map[string]*filter
}

// has reports whether a path was added.
func (f *filter) has(path string) bool {
	for name := range parts(path) {
		f = f.below(name)
	}
	return f != nil && f.all
}

// below is the part for an entry of a directory, or nil.
func (f *filter) below(name string) *filter {
	if f == nil {
		return nil
	}
	return f.kids[name]
}

func (f *filter) add(path string) {
	for name := range parts(strings.Trim(path, "/")) {
		if f.kids == nil {
			f.kids = map[string]*filter{}
		}
		if f.kids[name] == nil {
			f.kids[name] = &filter{}
		}
		f = f.kids[name]
	}
	f.all = true
}

type selection struct {
	r      *restorer
	inside map[ident]int // how many names of a file were asked for
	linked []*place
	nodes  []*node
}

// merge returns the node of a path for the present node p and the target t, either of which may be nil.
func (s *selection) merge(p, t *node, f *filter, at *place) *node {
	if f.all {
		if p == nil && t == nil {
			s.r.refuse(at, "", missing)
		}
		s.count(t, at)
		return t
	}
	base := p
	if p == nil {
		base = t // as in the target
	}
	if base == nil || !base.isDir() {
		for name := range f.kids {
			if t != nil && t.isDir() {
				s.r.refuse(at, name, "another file has the place of its directory")
			} else {
				s.r.refuse(at, name, missing)
			}
		}
		return p
	}
	out := &node{name: base.name, attr: base.attr, more: base.more, racy: base.racy, cut: base.cut}
	if p != nil {
		out.kids = slices.Clone(p.kids)
	}
	changed := false
	for name, below := range f.kids {
		var x, y *node
		i, has := find(out.kids, name)
		if has {
			x = out.kids[i]
		}
		if t != nil {
			y = entry(t.kids, name)
		}
		switch z := s.merge(x, y, below, &place{up: at, name: name, dir: true}); {
		case z == x:
			continue
		case z == nil:
			out.kids = slices.Delete(out.kids, i, i+1)
		case has:
			out.kids[i] = z
		default:
			out.kids = slices.Insert(out.kids, i, z)
		}
		changed = true
	}
	if !changed {
		return p
	}
	return out
}

// count notes the files with several names that were asked for.
func (s *selection) count(n *node, at *place) {
	switch {
	case n == nil:
	case n.isDir():
		for _, k := range n.kids {
			s.count(k, at.at(k))
		}
	case n.attr.nlink > 1:
		s.inside[n.attr.ident]++
		s.linked, s.nodes = append(s.linked, at), append(s.nodes, n)
	}
}

// split names the files of which not all names were asked for.
func (s *selection) split(target *node) {
	if len(s.nodes) == 0 {
		return
	}
	all := map[ident]int{}
	target.eachFile(func(k *node) {
		if k.attr.nlink > 1 {
			all[k.attr.ident]++
		}
	})
	for i, n := range s.nodes {
		if s.inside[n.attr.ident] < all[n.attr.ident] {
			s.r.split.add(s.linked[i], "")
		}
	}
}
