package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/files"
)

// scratchPrefix begins the name of the directory in the root that a restore works in.
const scratchPrefix = ".actiond-restore-"

// maxRefused bounds the paths that are named.
const maxRefused = 1000

// Refusal is a path that is not as in the target.
type Refusal struct {
	Path, Why string
}

// Restored is the result of a restore.
type Restored struct {
	// Before and After are the states around it. A restore to Before takes it back. In a dry run After is what would be.
	Before, After *State
	Changes       *Changes // from Before to After
	// Refused are the paths that are not as in the target, and why; not more than 1000 and 64 KiB, of RefusedCount.
	Refused      []Refusal
	RefusedCount int
	// Lost are files whose present content was not kept and is gone, as that of files above [Config.MaxFile].
	Lost []string
	// Unsure are files whose contents are not known to be those of the target, because they were not read: those above
	// [Config.MaxFile] that were renamed or changed in attributes since.
	Unsure []string
	// Split are files whose other names were not asked for, and which are files of their own now.
	Split []string
}

// restorer carries out one restore. t.mu is held.
type restorer struct {
	t        *Tracker
	before   *State
	out      *Restored
	named    filter // the paths that are refused
	refused  int    // their bytes
	filtered bool   // parts of the target are the present tree

	targets  []*spot          // the directories of the target that are not the same, those above first
	presents map[ident]*spot  // the present directories that are not the same
	taken    map[member]*item // present files that the target has elsewhere, by place
	items    map[*node]*item  // the same, by the file of the target
	groups   map[groupKey]*linkGroup

	open      *openSpots
	leaders   *openSpots // of files that get further names
	scratchFD int
	outerFD   int // of the directory that has the scratch directory, as inner
	inner     string
	temps     int
	written   map[ident]written

	lost, unsure, split sample
}

// item is a present file that is moved.
type item struct {
	from  *spot
	n, to *node
	aside string // its name in the scratch directory, while it is there
}

// written is a file that was made, as it was then.
type written struct {
	attr attr
	hash *digest
}

// groupKey is that of the names of one file. In a target that is put together from two states, one file may have been two.
type groupKey struct {
	ident
	ctime int64
}

// linkGroup are the names of the target for one file.
type linkGroup struct {
	todo   []linkName
	leader *linkName
}

type linkName struct {
	at  *spot
	n   *node
	was *node // a present file of that name, or nil
}

// refuse names an entry of a directory, or the directory itself for "". A path is named once.
func (r *restorer) refuse(at pathed, name, why string) {
	if len(r.out.Refused) >= maxRefused || r.refused > maxPathBytes {
		r.out.RefusedCount++
		return
	}
	path := join(at.path(), name)
	if r.named.has(path) {
		return
	}
	r.out.RefusedCount++
	if r.refused += len(path); r.refused <= maxPathBytes {
		r.named.add(path)
		r.out.Refused = append(r.out.Refused, Refusal{path, why})
	}
}

// fail names an entry of a directory, or the directory itself for "", if err says that it could not be changed.
func (r *restorer) fail(at *spot, name string, err error) {
	if err != nil {
		r.refuse(at, name, reason(err))
	}
}

// reason returns an error in words for a result.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return "another file has its place"
	case errors.Is(err, unix.EXDEV):
		return "another file system is mounted there"
	case errors.Is(err, unix.ENOTEMPTY):
		return "the directory is not empty"
	case errors.Is(err, fs.ErrPermission):
		return "operation not permitted"
	}
	return err.Error()
}

// compare finds the directories of both trees that are not the same.
func (r *restorer) compare(target *node) {
	r.presents = map[ident]*spot{}
	p := &spot{n: r.before.root, d: r.t.root, id: r.before.root.attr.ident}
	t := &spot{n: target}
	r.pair(p, t)
}

func (r *restorer) pair(p, t *spot) {
	if p != nil && t != nil && p.n == t.n {
		return
	}
	var x, y []*node
	if p != nil {
		if r.presents[p.n.attr.ident] == nil {
			r.presents[p.n.attr.ident] = p
		}
		x = p.n.kids
	}
	if t != nil {
		if t.same = p; p != nil {
			p.same = t
		}
		r.targets = append(r.targets, t)
		y = t.n.kids
	}
	for a, b := range differing(x, y) {
		var q, s *spot
		if a != nil && a.isDir() {
			q = &spot{up: p, name: a.name, n: a, id: a.attr.ident, depth: p.depth + 1}
			if p.d != nil {
				q.d = p.d.subs[a.name]
			}
		}
		if b != nil && b.isDir() {
			s = &spot{up: t, name: b.name, n: b, depth: t.depth + 1}
			if t.subs == nil {
				t.subs = map[string]*spot{}
			}
			t.subs[b.name] = s
		}
		if q != nil || s != nil {
			r.pair(q, s)
		}
	}
}

// match finds for each directory of the target the present one that becomes it: by identity, first at the same path,
// or by name.
func (r *restorer) match() {
	take := func(t, p *spot) {
		t.was, p.becomes, t.id = p, t, p.id
	}
	for _, t := range r.targets {
		if t.same != nil && (t.up == nil || t.same.n.attr.ident == t.n.attr.ident) && t.same.becomes == nil {
			take(t, t.same)
		}
	}
	for _, t := range r.targets {
		if p := r.presents[t.n.attr.ident]; t.was == nil && p != nil && p.becomes == nil && p.up != nil && p.n.cut == whole {
			take(t, p)
		}
	}
	for _, t := range r.targets {
		if t.was == nil && t.up.was != nil {
			if k := entry(t.up.was.n.kids, t.name); k != nil {
				if p := r.presents[k.attr.ident]; p != nil && p.up == t.up.was && p.name == t.name && p.becomes == nil {
					take(t, p)
				}
			}
		}
		t.moved = t.up != nil && t.was != nil && (t.was.up != t.up.was || t.was.name != t.name)
	}
	r.matchFiles()
}

// matchFiles finds the files that were renamed and have one name.
func (r *restorer) matchFiles() {
	r.taken, r.items = map[member]*item{}, map[*node]*item{}
	gone := map[ident]*item{}
	for _, p := range r.presents {
		for _, k := range p.n.kids {
			if k.regular() && k.attr.nlink == 1 && k.attr.btime != 0 && p.d != nil {
				gone[k.attr.ident] = &item{from: p, n: k}
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, t := range r.targets {
		for _, k := range t.n.kids {
			if p := r.present(t, k.name); p != nil && !k.isDir() && r.stays(p, k) {
				delete(gone, p.attr.ident)
				continue
			}
			it := gone[k.attr.ident]
			if it == nil || !k.regular() || k.attr.nlink != 1 || it.from == t.was && it.n.name == k.name || !r.movedContent(it.n, k) {
				continue
			}
			if stays := it.from.becomes; stays != nil { // not if another file of the target is that one
				if other := entry(stays.n.kids, it.n.name); other != nil && other.attr.ident == k.attr.ident {
					continue
				}
			}
			delete(gone, k.attr.ident)
			it.to = k
			r.items[k], r.taken[member{it.from.d, it.n.name}] = it, it
		}
	}
}

// movedContent reports whether a file that has another name has the same content. A rename changes the time of the change.
func (r *restorer) movedContent(p, t *node) bool {
	if p.attr.size != t.attr.size {
		return false
	}
	same, known := sameHash(p, t)
	return same || !known && p.attr.mtime == t.attr.mtime
}

// sameContent reports whether a present file has the content of one of the target, whatever its attributes.
func (r *restorer) sameContent(p, t *node) bool {
	if p.attr.kind() != t.attr.kind() {
		return false
	}
	other, known := otherContent(p, t)
	if !known && !other && p.attr.ident == t.attr.ident {
		return p.attr.mtime == t.attr.mtime // its attributes alone changed, or nobody knows
	}
	return !other && (known || p.attr == t.attr)
}

// stays reports whether a present file becomes the one of the target in its place.
func (r *restorer) stays(p, t *node) bool {
	if p == t {
		return true
	}
	if !r.sameContent(p, t) {
		return false
	}
	if p.attr.nlink == 1 && t.attr.nlink == 1 {
		return true
	}
	// The other names of the file would change too.
	return p.attr.ident == t.attr.ident && (!r.filtered || !otherMeta(p, t))
}

// present returns the present file or directory that has a name in a directory of the target, or nil.
func (r *restorer) present(t *spot, name string) *node {
	if t.was == nil {
		return nil
	}
	k := entry(t.was.n.kids, name)
	if k != nil && k.isDir() {
		if q := r.presents[k.attr.ident]; q != nil && q.up == t.was && q.name == name && (q.gone || q.becomes != nil && q.becomes.moved) {
			return nil
		}
		return k
	}
	if t.was.d != nil && r.taken[member{t.was.d, name}] != nil {
		return nil
	}
	return k
}

// can says why a file of the target cannot be made; "" if it can.
func (r *restorer) can(k, p *node) string {
	if p != nil && r.stays(p, k) && p.extra().xattrs == k.extra().xattrs || r.items[k] != nil && r.items[k].n.extra().xattrs == k.extra().xattrs {
		return ""
	}
	if sum := k.extra().xattrs; sum != "" && (r.t.cfg.Store == nil || !r.t.cfg.Store.Has(store.Sum([]byte(sum)))) {
		return "its extended attributes were not kept"
	}
	switch k.attr.kind() {
	case unix.S_IFREG:
		if p != nil && r.stays(p, k) || r.items[k] != nil {
			return ""
		}
		switch why := r.t.content(k, false); why {
		case ContentKept:
			return ""
		case ContentLarge:
			return fmt.Sprintf("its content was not kept: it is larger than %d bytes", r.t.cfg.MaxFile)
		default:
			return "its content was not kept"
		}
	case unix.S_IFLNK, unix.S_IFIFO, unix.S_IFDIR:
		return ""
	case unix.S_IFSOCK:
		return "a socket cannot be brought back"
	}
	return "a device cannot be brought back"
}

// refuseCut names a directory whose entries are not known, unless nothing differs.
func (r *restorer) refuseCut(t *spot) {
	switch {
	case t.n.cut == mounted && t.was != nil && t.was.n.cut == mounted:
	case t.n.cut == mounted || t.was != nil && t.was.n.cut == mounted:
		r.refuse(t, "", "another file system is mounted there")
	default:
		r.refuse(t, "", "what is in it is not known")
	}
}

// topOfHierarchy is FS_TOPDIR_FL of linux/fs.h.
const topOfHierarchy = 0x20000

// openScratch makes the directory to work in, in another one which says that its directories have nothing in common. ext4 then
// takes inodes for them and their files from parts of the disk that are little used. Otherwise those of files that were
// removed minutes ago are near, and for each new file it looks at all of them, which it prefers not to use again:
// ten times the work of the files themselves. Other file systems refuse that, or ignore it.
func (r *restorer) openScratch(name string) error {
	if err := unix.Mkdirat(r.t.rootFD, name, 0o700); err != nil {
		return err
	}
	outer, err := files.OpenBeneath(r.t.rootFD, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		_ = unix.Unlinkat(r.t.rootFD, name, unix.AT_REMOVEDIR)
		return err
	}
	if readable, err := files.OpenBeneath(outer, ".", unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
		if flags, err := unix.IoctlGetUint32(readable, unix.FS_IOC_GETFLAGS); err == nil {
			_ = unix.IoctlSetPointerInt(readable, unix.FS_IOC_SETFLAGS, int(flags|topOfHierarchy))
		}
		_ = unix.Close(readable)
	}
	r.outerFD, r.inner = outer, strings.TrimPrefix(name, scratchPrefix) // which decides the part of the disk
	if err = unix.Mkdirat(outer, r.inner, 0o700); err == nil {
		r.scratchFD, err = files.OpenBeneath(outer, r.inner, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		_ = unix.Unlinkat(outer, r.inner, unix.AT_REMOVEDIR)
		_ = unix.Unlinkat(r.t.rootFD, name, unix.AT_REMOVEDIR)
		_ = unix.Close(outer)
	}
	return err
}
