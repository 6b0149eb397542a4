package changes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
)

// The encoded form of a state: stateMagic, the numbers of the state, the tree in depth-first order, and a checksum.
const (
	stateMagic = "actiondt\x01"

	flagRacy   = 1
	flagHash   = 2
	flagLink   = 4
	flagXattrs = 8
	cutShift   = 6

	// leastEntry is the smallest number of bytes of an entry.
	leastEntry = 12
)

var (
	errState   = errors.New("not the encoded form of a state, or damaged")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Encode appends the encoded form of a state to dst: about 110 bytes a name.
func (s *State) Encode(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, stateMagic...)
	dst = s.numbers(dst)
	dst = s.root.encode(dst)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

func (n *node) encode(dst []byte) []byte {
	dst = n.encodeSelf(dst)
	if n.isDir() {
		dst = binary.AppendUvarint(dst, uint64(len(n.kids)))
		for _, k := range n.kids {
			dst = k.encode(dst)
		}
	}
	return dst
}

// encodeSelf is encode without the entries of a directory.
func (n *node) encodeSelf(dst []byte) []byte {
	more, hash := n.extra(), n.hash.Load()
	if n.isDir() {
		hash = nil // of the object it was saved as, see object.go
	}
	flags := byte(n.cut) << cutShift
	if n.racy {
		flags |= flagRacy
	}
	if hash != nil {
		flags |= flagHash
	}
	if more.link != "" {
		flags |= flagLink
	}
	if more.xattrs != "" {
		flags |= flagXattrs
	}
	dst = append(dst, flags)
	dst = appendText(dst, n.name)
	a := &n.attr
	dst = binary.AppendUvarint(dst, a.ino)
	for _, v := range []int64{a.btime, a.ctime, a.mtime, a.size} {
		dst = binary.AppendVarint(dst, v)
	}
	for _, v := range []uint32{a.mode, a.uid, a.gid, a.nlink} {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	if hash != nil {
		dst = append(dst, hash[:]...)
	}
	if more.link != "" {
		dst = appendText(dst, more.link)
	}
	if more.xattrs != "" {
		dst = appendText(dst, more.xattrs)
	}
	return dst
}

// DecodeState returns the state of an encoded form.
func DecodeState(data []byte) (*State, error) {
	if len(data) < len(stateMagic)+4 || string(data[:len(stateMagic)]) != stateMagic {
		return nil, errState
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, errState
	}
	d := decoder{rest: body[len(stateMagic):]}
	s := &State{}
	d.numbers(s)
	s.root = d.node(0)
	switch {
	case d.bad || len(d.rest) > 0:
		return nil, errState
	case !s.root.isDir() || s.root.name != "":
		return nil, fmt.Errorf("%w: it has no root", errState)
	}
	return s, nil
}

// numbers appends the members of a state beside its tree; the method of decoder reads them.
func (s *State) numbers(dst []byte) []byte {
	dst = appendText(dst, string(s.why))
	dst = binary.AppendUvarint(dst, uint64(len(s.unsure)))
	for _, path := range s.unsure {
		dst = appendText(dst, path)
	}
	dst = binary.AppendVarint(dst, int64(s.names))
	return binary.AppendVarint(dst, int64(s.unwatched))
}

func (d *decoder) numbers(s *State) {
	s.why = Why(d.text(100))
	var unsure sample
	for range d.count(1) {
		unsure.addPath(d.text(math.MaxInt))
	}
	s.unsure = unsure.paths
	s.names, s.unwatched = int(d.varint()), int(d.varint())
	d.bad = d.bad || s.why != "" && !slices.Contains(whys, s.why) || s.names < 0 || s.unwatched < 0
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 { return number(d, binary.Uvarint) }

func (d *decoder) varint() int64 { return number(d, binary.Varint) }

func number[T uint64 | int64](d *decoder, read func([]byte) (T, int)) T {
	v, n := read(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	d.bad = d.bad || v > math.MaxUint32
	return uint32(v) //nolint:gosec // checked
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.bad, d.rest = true, nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// count reads a number of things that have size bytes at least.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/size) { //nolint:gosec // it is not negative
		d.bad, d.rest = true, nil
		return 0
	}
	return int(n) //nolint:gosec // checked
}

func (d *decoder) text(limit int) string {
	n := d.count(1)
	d.bad = d.bad || n > limit
	return string(d.bytes(n))
}

func (d *decoder) node(depth int) *node {
	n := d.self(depth > 0)
	if depth > maxDepth+1 {
		d.bad, d.rest = true, nil
	}
	if n.isDir() {
		n.kids = d.entries(leastEntry, func() *node { return d.node(depth + 1) })
	}
	return n
}

// entries reads the entries of a directory, which are in order.
func (d *decoder) entries(least int, read func() *node) []*node {
	count := d.count(least)
	if count == 0 {
		return nil
	}
	kids := make([]*node, 0, count)
	for range count {
		k := read()
		if last := len(kids) - 1; last >= 0 && kids[last].name >= k.name {
			d.bad = true
		}
		if d.bad {
			break
		}
		kids = append(kids, k)
	}
	return kids
}

// self reads a node without entries. The root has no name.
func (d *decoder) self(named bool) *node {
	n := &node{}
	flags := d.bytes(1)
	if len(flags) == 0 {
		return n
	}
	n.racy, n.cut = flags[0]&flagRacy != 0, cut(flags[0]>>cutShift)
	n.name = d.text(math.MaxInt)
	n.attr.ino = d.uvarint()
	for _, v := range []*int64{&n.attr.btime, &n.attr.ctime, &n.attr.mtime, &n.attr.size} {
		*v = d.varint()
	}
	for _, v := range []*uint32{&n.attr.mode, &n.attr.uid, &n.attr.gid, &n.attr.nlink} {
		*v = d.uint32()
	}
	d.bad = d.bad || n.attr.size < 0 || strings.ContainsAny(n.name, "/\x00") || n.name == "." || n.name == ".." || (n.name != "") != named
	if flags[0]&flagHash != 0 {
		var hash digest
		copy(hash[:], d.bytes(len(hash)))
		n.hash.Store(&hash)
	}
	var m more
	if flags[0]&flagLink != 0 {
		m.link = d.text(math.MaxInt)
	}
	if flags[0]&flagXattrs != 0 {
		m.xattrs = d.text(len(digest{}))
		d.bad = d.bad || len(m.xattrs) != len(digest{})
	}
	if m.link != "" || m.xattrs != "" {
		n.more = &m
	}
	return n
}

// Adopt takes over the hashes of the files that did not change since last from an earlier tracker of the same root,
// so that these files need not be read again. It comes before the first Step, whose comparison with last has the
// changes while there was no tracker.
func (t *Tracker) Adopt(last *State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != nil {
		adopt(last.root, t.state.root)
	}
}

func adopt(a, b *node) {
	for x, y := range differing(a.kids, b.kids) {
		switch {
		case x == nil || y == nil:
		case x.isDir() && y.isDir():
			adopt(x, y)
		case x.regular() && x.attr == y.attr && !x.racy:
			y.hash.CompareAndSwap(nil, x.hash.Load())
		}
	}
}
