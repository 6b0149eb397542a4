package changes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Op is the kind of a change.
type Op string

// The kinds of changes.
const (
	Created  Op = "created"
	Modified Op = "modified" // another content, target, or type
	Deleted  Op = "deleted"
	Renamed  Op = "renamed"
	Meta     Op = "meta" // another mode, owner or extended attribute; of files and links also another mtime
)

// Fact is one change. Paths are relative to the root, which is ".", and may be no UTF-8. From is the path before a
// rename, "" for others.
type Fact struct {
	Op         Op
	Path, From string
}

// Counts are numbers of facts.
type Counts struct {
	Created, Modified, Deleted, Renamed, Meta int
}

func (c *Counts) add(op Op) {
	switch op {
	case Created:
		c.Created++
	case Modified:
		c.Modified++
	case Deleted:
		c.Deleted++
	case Renamed:
		c.Renamed++
	case Meta:
		c.Meta++
	}
}

// Limits bound the facts of [Changes]. 0 means 200 facts and 64 KiB of paths.
type Limits struct {
	Facts, Bytes int
}

// Changes are the net changes from one state to another.
type Changes struct {
	Counts Counts // complete
	Facts  []Fact // by path; within the limits
	// Ignored counts the facts that are in neither: those in a directory that git ignores, by its path, of other ignored
	// files by the pattern, and of a repository's own files by the path of .git. Of more than 100 groups the rest is "*". It
	// is git's rules in the tree that hold, as they are in the later state, with or without a repository. A rename into or
	// out of an ignored directory is a fact.
	Ignored map[string]int
	// Truncated is true if the limits left out facts.
	Truncated bool
	// Exact is true if nothing is missing or wrong; otherwise Why says why not. Unsure then names, within limits, the
	// files and directories that could not be decided.
	Exact  bool
	Why    Why
	Unsure []string
	// Unwatched is the number of files that have names outside of the root, by which they may have changed unseen.
	Unwatched int

	// files are the nodes of the facts, before and after; nil where there is none.
	files []pairOf
}

type pairOf struct{ was, now *node }

// Compare returns the net changes between two states of one tracker, in time proportional to what is not shared.
//
// A path has one fact at most, but that of a renamed file whose content or attributes changed too has two. A path
// whose file was replaced by an equal one has none, a path with another type is modified. What moved with its
// directory is not named. From and the paths of deleted files are names before, all others are names after.
func Compare(a, b *State, limits Limits) *Changes {
	limits.Facts, limits.Bytes = cmp.Or(limits.Facts, 200), cmp.Or(limits.Bytes, 64<<10)
	c := &comparison{b: b.root, out: &Changes{}, limits: limits}
	if root := (&place{}); a.root != b.root {
		c.pair(root, root, a.root, b.root, false)
	}
	c.pairDirs()
	c.settle()
	out := c.out
	out.Unwatched = b.unwatched
	slices.SortFunc(c.said, func(a, b said) int { return cmp.Or(cmp.Compare(a.Path, b.Path), -cmp.Compare(a.Op, b.Op)) })
	for _, f := range c.said {
		out.Facts, out.files = append(out.Facts, f.Fact), append(out.files, f.pairOf)
	}
	unsure := c.unsure.paths
	for _, s := range []*State{a, b} {
		unsure = append(unsure, s.unsure...)
		if out.Why == "" || s.why != "" && slices.Index(whys, s.why) < slices.Index(whys, out.Why) {
			out.Why = s.why
		}
	}
	if out.Why == "" && (len(unsure) > 0 || c.unsure.bytes > 0) {
		out.Why = WhyUnsure
	}
	var some sample
	slices.Sort(unsure)
	for _, path := range slices.Compact(unsure) {
		some.addPath(path)
	}
	out.Unsure = some.paths
	out.Exact = out.Why == ""
	return out
}

type comparison struct {
	b      *node // the later root
	out    *Changes
	said   []said
	unsure sample
	limits Limits
	// grouping is the time that was spent on rules.
	grouping time.Duration
	// What is in one of both trees alone.
	gone, come []*candidate
	// goneDirs are the directories in gone, also deep ones, and homes those that came with the identity of one.
	goneDirs map[ident]*candidate
	homes    map[*node]bool
	byIdent  map[ident]*candidate
	replaced []replacement
}

type said struct {
	Fact
	pairOf
}

// place is a path. Deep trees would have long ones.
type place struct {
	up   *place
	name string
	dir  bool
	// What is known of it once it is sought, see ignored.go.
	grouped, looked, sought bool
	group                   string
	ruled                   *place
	later                   *node
}

// at returns the place of an entry of a directory.
func (p *place) at(n *node) *place { return &place{up: p, name: n.name, dir: n.isDir()} }

func (p *place) path() string {
	if p.up == nil {
		return "."
	}
	size := -1
	for q := p; q.up != nil; q = q.up {
		size += len(q.name) + 1
	}
	var names []string
	for ; p.up != nil; p = p.up {
		names = append(names, p.name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// candidate is a name that came or went, until it is known whether it is part of a rename.
type candidate struct {
	at   *place
	n    *node
	used bool
	next *candidate // another name of the same inode
}

// replacement is an entry of a moved directory whose name has another file now.
type replacement struct{ gone, come *candidate }

// say counts a fact about a file, which is a before and b after, and keeps it within the limits.
func (c *comparison) say(op Op, at, from *place, a, b *node) {
	if c.ignore(at, from) {
		return
	}
	c.out.Counts.add(op)
	if len(c.said) >= c.limits.Facts || c.limits.Bytes <= 0 {
		c.out.Truncated = true
		return
	}
	f := Fact{Op: op, Path: at.path()}
	if from != nil {
		f.From = from.path()
	}
	if c.limits.Bytes -= len(f.Path) + len(f.From); c.limits.Bytes < 0 {
		c.out.Truncated = true
		return
	}
	c.said = append(c.said, said{f, pairOf{a, b}})
}

func (c *comparison) doubt(at *place) { c.unsure.add(at, "") }

// pair compares two nodes that have the same name, or are the same file before and after a rename.
func (c *comparison) pair(pa, pb *place, a, b *node, moved bool) {
	switch {
	case a == b:
	case a.attr.kind() != b.attr.kind():
		c.say(Modified, pb, nil, a, b)
		c.below(pa, pb, a, b)
	case a.isDir():
		if otherMeta(a, b) {
			c.say(Meta, pb, nil, a, b)
		}
		c.entries(pa, pb, a, b, moved)
	default:
		switch other, known := otherContent(a, b); {
		case other:
			c.say(Modified, pb, nil, a, b)
			if !known {
				c.doubt(pb)
			}
		case otherMeta(a, b):
			c.say(Meta, pb, nil, a, b)
			fallthrough
		default:
			if !known {
				c.doubt(pb)
			}
		}
	}
}

// below takes the entries of two nodes of different types.
func (c *comparison) below(pa, pb *place, a, b *node) {
	for _, k := range a.kids {
		c.leaves(pa.at(k), k)
	}
	for _, k := range b.kids {
		c.comes(pb.at(k), k)
	}
}

// otherMeta reports a change that is not one of the content.
func otherMeta(a, b *node) bool {
	x, y := &a.attr, &b.attr
	return x.mode != y.mode || x.uid != y.uid || x.gid != y.gid || a.extra().xattrs != b.extra().xattrs ||
		x.mtime != y.mtime && (a.regular() || a.attr.kind() == unix.S_IFLNK)
}

// otherContent reports whether the contents of two files of one type differ; if that is not known, whether it looks
// like it.
func otherContent(a, b *node) (other, known bool) {
	switch {
	case a.attr.kind() == unix.S_IFLNK:
		return a.extra().link != b.extra().link, true
	case a.attr.device():
		return a.attr.size != b.attr.size, true
	case !a.regular():
		return false, true
	case a.attr.size != b.attr.size:
		return true, true
	}
	if same, known := sameHash(a, b); known {
		return !same, true
	}
	if a.attr.ident != b.attr.ident || a.attr.mtime != b.attr.mtime {
		return true, false
	}
	return false, a.attr.ctime == b.attr.ctime && !a.racy
}

// sameHash reports whether two files have the same hash, if both have one.
func sameHash(a, b *node) (same, known bool) {
	x, y := a.hash.Load(), b.hash.Load()
	if x == nil || y == nil {
		return false, false
	}
	return *x == *y, true
}

// entries compares two directories.
func (c *comparison) entries(pa, pb *place, a, b *node, moved bool) {
	if a.cut != whole || b.cut != whole {
		return // why is known from the states
	}
	for x, y := range differing(a.kids, b.kids) {
		switch {
		case y == nil:
			c.leaves(pa.at(x), x)
		case x == nil:
			c.comes(pb.at(y), y)
		default:
			c.named(pa, pb, x, y, moved)
		}
	}
}

// named compares two entries of the same name. In a directory that was moved, neither the old path of the first nor the
// new path of the second has another file, so that both may be parts of renames.
func (c *comparison) named(pa, pb *place, x, y *node, moved bool) {
	qb := pb.at(y)
	qa := qb
	if moved {
		qa = pa.at(x)
	}
	switch {
	case !moved || x.attr.ident == y.attr.ident:
		c.pair(qa, qb, x, y, moved)
	case x.isDir() && c.homes[x] || y.isDir() && c.goneDirs[y.attr.ident] != nil:
		c.leaves(qa, x)
		c.comes(qb, y)
	case x.isDir() && y.isDir():
		c.pair(qa, qb, x, y, moved)
	default:
		c.replaced = append(c.replaced, replacement{&candidate{at: qa, n: x}, &candidate{at: qb, n: y}})
		c.below(qa, qb, x, y)
	}
}

// leaves and comes take a name, and what is below it, that is in one tree alone. Before pairDirs, which looks for
// renamed directories, they only collect.
func (c *comparison) leaves(at *place, n *node) {
	if c.homes == nil {
		c.gone = append(c.gone, &candidate{at: at, n: n})
		return
	}
	if c.homes[n] {
		return // it was moved, with what is in it
	}
	c.gone = append(c.gone, &candidate{at: at, n: n})
	for _, k := range n.kids {
		c.leaves(at.at(k), k)
	}
}

func (c *comparison) comes(at *place, n *node) {
	if c.homes == nil {
		c.come = append(c.come, &candidate{at: at, n: n})
		return
	}
	if g := c.goneDirs[n.attr.ident]; g != nil && n.isDir() && !g.used {
		g.used = true
		c.say(Renamed, at, g.at, g.n, n)
		c.pair(g.at, at, g.n, n, true)
		return
	}
	c.come = append(c.come, &candidate{at: at, n: n})
	for _, k := range n.kids {
		c.comes(at.at(k), k)
	}
}

// pairDirs finds the directories that were moved, at any depth, by their identity.
func (c *comparison) pairDirs() {
	gone, come := c.gone, c.come
	c.gone, c.come = nil, nil
	dirs, homes := map[ident]*candidate{}, map[*node]bool{}
	if len(come) > 0 {
		for _, g := range gone {
			eachDir(g.at, g.n, func(at *place, n *node) { dirs[n.attr.ident] = &candidate{at: at, n: n} })
		}
	}
	c.goneDirs = map[ident]*candidate{}
	if len(dirs) > 0 {
		for _, k := range come {
			eachDir(k.at, k.n, func(_ *place, n *node) {
				if g := dirs[n.attr.ident]; g != nil {
					homes[g.n], c.goneDirs[n.attr.ident] = true, g
				}
			})
		}
	}
	c.homes = homes
	for _, g := range gone {
		c.leaves(g.at, g.n)
	}
	for _, k := range come {
		c.comes(k.at, k.n)
	}
}

func eachDir(at *place, n *node, visit func(*place, *node)) {
	if !n.isDir() {
		return
	}
	visit(at, n)
	for _, k := range n.kids {
		if k.isDir() {
			eachDir(at.at(k), k, visit)
		}
	}
}

// settle finds the files that were renamed, and says what is left.
func (c *comparison) settle() {
	gone, come := c.gone, c.come
	for _, r := range c.replaced {
		gone, come = append(gone, r.gone), append(come, r.come)
	}
	if len(come) > 0 {
		c.byIdent = make(map[ident]*candidate, len(gone))
		for _, g := range slices.Backward(gone) { // so that the first name is found first
			g.next = c.byIdent[g.n.attr.ident]
			c.byIdent[g.n.attr.ident] = g
		}
	}
	for _, k := range come {
		if g := c.from(k.n); g != nil {
			g.used, k.used = true, true
			c.say(Renamed, k.at, g.at, g.n, k.n)
			c.pair(g.at, k.at, g.n, k.n, true)
		}
	}
	for _, r := range c.replaced {
		if !r.gone.used && !r.come.used {
			r.gone.used, r.come.used = true, true
			if r.gone.n.attr.kind() != r.come.n.attr.kind() {
				c.say(Modified, r.come.at, nil, r.gone.n, r.come.n) // what was and is below it is known
			} else {
				c.pair(r.gone.at, r.come.at, r.gone.n, r.come.n, true)
			}
		}
	}
	for _, g := range gone {
		if !g.used {
			c.say(Deleted, g.at, nil, g.n, nil)
		}
	}
	for _, k := range come {
		if !k.used {
			c.say(Created, k.at, nil, nil, k.n)
		}
	}
}

// from returns a name that the file n had.
func (c *comparison) from(n *node) *candidate {
	if n.isDir() {
		return nil
	}
	for g := c.byIdent[n.attr.ident]; g != nil; g = g.next {
		if g.used || g.n.attr.kind() != n.attr.kind() {
			continue
		}
		if n.attr.btime != 0 {
			return g
		}
		if other, known := otherContent(g.n, n); known && !other { // another file may have the number
			return g
		}
	}
	return nil
}
