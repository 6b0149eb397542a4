package changes

import (
	"cmp"
	"crypto/sha256"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

// node is a file or directory of a tree. Nothing but hash changes once a [State] has it, so that
// trees share the nodes that are the same in both.
type node struct {
	name string
	attr attr
	more *more // nil for most
	// hash is that of a regular file's content at the time of attr; nil while it is unknown. It may be read
	// later: the attributes show that the file is still the same.
	hash atomic.Pointer[digest]
	kids []*node // of a directory, by name
	// racy is for a file that may have changed after it was read, without other attributes.
	racy bool
	cut  cut
	// kept is set for a directory if all that is to be kept of it and below was, as long as the store lost nothing since: to one
	// more than the number of its losses.
	kept atomic.Uint32
}

// attr has the attributes of a file. Files are compared by it as a whole.
type attr struct {
	ident
	ctime, mtime          int64 // in nanoseconds
	size                  int64 // the number of a device
	mode, uid, gid, nlink uint32
}

// ident tells files of one file system apart, also those that get the inode of a removed one.
type ident struct {
	ino   uint64
	btime int64 // 0 where the file system has none
}

// more has the attributes that few files have.
type more struct {
	link   string // the target of a symbolic link
	xattrs string // a hash of the extended attributes, or ""
	rules  gitignore.Rules
	// ruleBytes is about how much memory the rules take, and their file.
	ruleBytes int
}

type digest = [sha256.Size]byte

// cut says why a directory's entries are not in the tree.
type cut uint8

const (
	whole cut = iota
	mounted
	unreadable
	crowded // they are beyond the limit of names
)

func (a *attr) kind() uint32  { return a.mode & unix.S_IFMT }
func (a *attr) device() bool  { return a.kind() == unix.S_IFCHR || a.kind() == unix.S_IFBLK }
func (n *node) isDir() bool   { return n.attr.kind() == unix.S_IFDIR }
func (n *node) regular() bool { return n.attr.kind() == unix.S_IFREG }

// extra is n.more, also where there is none, or no node.
func (n *node) extra() more {
	if n == nil || n.more == nil {
		return more{}
	}
	return *n.more
}

// chargedBytes is how many bytes of a name and of a link's target count as one more name.
const chargedBytes = 400

// charge is how many names some entries count for: as much memory as they take.
func charge(kids []*node) (names int) {
	for _, k := range kids {
		if names++; k.more != nil {
			names += len(k.more.link) / chargedBytes
		}
	}
	return names
}

func find(kids []*node, name string) (int, bool) {
	return slices.BinarySearchFunc(kids, name, func(n *node, name string) int { return cmp.Compare(n.name, name) })
}

// entry returns the entry of a name, or nil.
func entry(kids []*node, name string) *node {
	if i, ok := find(kids, name); ok {
		return kids[i]
	}
	return nil
}

// eachFile visits everything below a directory but directories.
func (n *node) eachFile(visit func(*node)) {
	for _, k := range n.kids {
		if k.isDir() {
			k.eachFile(visit)
		} else {
			visit(k)
		}
	}
}

// differing returns the entries of two directories that are not the same, by name: nil for the one that a directory does not have.
func differing(x, y []*node) iter.Seq2[*node, *node] {
	return func(yield func(a, b *node) bool) {
		for len(x) > 0 || len(y) > 0 {
			var a, b *node
			switch {
			case len(x) > 0 && len(y) > 0 && x[0] == y[0]: // most are; a look into them takes much longer
				x, y = x[1:], y[1:]
				continue
			case len(y) == 0 || len(x) > 0 && x[0].name < y[0].name:
				a, x = x[0], x[1:]
			case len(x) == 0 || y[0].name < x[0].name:
				b, y = y[0], y[1:]
			default:
				a, b, x, y = x[0], y[0], x[1:], y[1:]
			}
			if !yield(a, b) {
				return
			}
		}
	}
}

// dir is a directory as it is now: the part of the tree that changes. A dir keeps its identity
// when the directory is moved.
type dir struct {
	up    *dir // nil for the root and for a directory whose name is gone
	name  string
	depth int
	id    ident
	attr  attr
	more  *more
	kids  []*node         // those of changed directories are replaced in snapshot
	subs  map[string]*dir // the directories among kids
	node  *node           // as of the last state

	cut     cut
	racy    bool
	wd      int32 // of its watch, or 0
	dirty   bool  // it is to be listed
	changed bool  // node is out of date, and those of the directories above too
	// stale has those of subs that are changed, and maybe others.
	stale []*dir
	// times is how often it was listed in a step.
	step, times uint32
}

// touch says that the nodes of d and of the directories above it are out of date.
func (d *dir) touch() {
	for ; d != nil && !d.changed; d = d.up {
		d.changed = true
		if d.up != nil {
			d.up.stale = append(d.up.stale, d)
		}
	}
}

// snapshot returns the node for d. Whatever did not change is shared with the last one.
func (d *dir) snapshot() *node {
	if !d.changed {
		return d.node
	}
	d.changed = false
	stale, fresh := d.stale, false
	d.stale = nil
	for _, s := range stale {
		if !s.changed || s.up != d {
			continue // it was found before, or moved
		}
		i, ok := find(d.kids, s.name)
		if !ok {
			continue
		}
		if !fresh {
			d.kids, fresh = slices.Clone(d.kids), true // the last state has them
		}
		d.kids[i] = s.snapshot()
	}
	d.node = &node{name: d.name, attr: d.attr, more: d.more, kids: d.kids, racy: d.racy, cut: d.cut}
	return d.node
}

// path returns the path below the root, "." for the root.
func (d *dir) path() string {
	var names []string
	for ; d.up != nil; d = d.up {
		names = append(names, d.name)
	}
	if names == nil {
		return "."
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// take makes s the entry name of d, wherever it was before.
func (d *dir) take(s *dir, name string) {
	s.leave()
	if d.subs == nil {
		d.subs = map[string]*dir{}
	}
	d.subs[name] = s
	s.up, s.name, s.changed = d, name, true
	d.stale = append(d.stale, s)
	d.touch()
}

// leave takes s out of the directory above it. One that stayed there would be dropped with it.
func (s *dir) leave() {
	if s.up != nil {
		delete(s.up.subs, s.name)
		s.up = nil
	}
}

// parts returns the names in a path, none for ".".
func parts(path string) iter.Seq[string] {
	if path == "." {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(path, "/")
}
