package changes

import (
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

const (
	ignoreFile = ".gitignore"
	// maxIgnoreFile bounds an ignore file, in bytes. Those beyond [gitignore.MaxBytes] do not count.
	maxIgnoreFile = 128 << 10
	// maxGrouping bounds the time that rules are matched for. What is left is not grouped.
	maxGrouping = time.Second
	// maxGroups bounds the groups of ignored files, and maxGroup the path that names one, in bytes; the rest is one more group.
	maxGroups   = 100
	maxGroup    = 255
	otherGroups = "*"
)

// readRules gives the node of an ignore file its rules, which are kept while its content is the same.
func (t *Tracker) readRules(fd int, n, was *node) {
	if hash := n.hash.Load(); hash != nil && was != nil && was.more != nil && was.more == n.more && was.hash.Load() == hash {
		return
	}
	m := n.extra()
	m.rules, m.ruleBytes = nil, 0
	if t.rules >= gitignore.MaxBytes { // none is read in vain
		n.more = &m
		return
	}
	if f, err := openFile(fd, n.name); err == nil {
		if text, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile)); err == nil {
			m.rules, m.ruleBytes = gitignore.Parse(string(text), gitignore.MaxBytes-t.rules)
		}
		_ = f.Close() // it was only read
	}
	n.more = &m
}

// countRules counts the bytes of the rules of a directory whose entries changed.
func (t *Tracker) countRules(old, kids []*node) {
	t.rules += entry(kids, ignoreFile).extra().ruleBytes - entry(old, ignoreFile).extra().ruleBytes
}

// group returns the group that a path is counted in: the uppermost ignored directory above it, or the pattern that
// ignores a file; "" if it is not ignored. The rules are those of the later state.
func (c *comparison) group(p *place) string {
	if p.up == nil || p.grouped {
		return p.group
	}
	p.grouped, p.group = true, c.group(p.up)
	if p.group != "" {
		return p.group
	}
	if p.name == ".git" {
		p.group = p.label()
		return p.group
	}
	q := c.ruled(p.up)
	if q == nil || c.grouping > maxGrouping {
		return ""
	}
	start := time.Now()
	defer func() { c.grouping += time.Since(start) }()
	late := func() bool { return c.grouping+time.Since(start) > maxGrouping }
	for ; q != nil && !late(); q = c.ruled(q.up) {
		dir, ok := below(p.up, q)
		if !ok {
			break
		}
		r := c.rules(q).Last(dir, p.name, p.dir, late)
		if r == nil {
			continue
		}
		switch {
		case r.Keeps:
		case p.dir:
			p.group = p.label()
		default:
			p.group = r.Pattern[:min(len(r.Pattern), 100)]
		}
		break
	}
	return p.group
}

// ruled returns the nearest directory at or above p that has rules, or nil.
func (c *comparison) ruled(p *place) *place {
	if p == nil || p.looked {
		if p == nil {
			return nil
		}
		return p.ruled
	}
	p.looked, p.ruled = true, c.ruled(p.up)
	if len(c.rules(p)) > 0 {
		p.ruled = p
	}
	return p.ruled
}

func (c *comparison) rules(p *place) gitignore.Rules {
	n := c.later(p)
	if n == nil {
		return nil
	}
	return entry(n.kids, ignoreFile).extra().rules
}

// later returns the directory that has a path in the later state, or nil.
func (c *comparison) later(p *place) *node {
	if p.up == nil {
		return c.b
	}
	if !p.sought {
		p.sought = true
		if up := c.later(p.up); up != nil {
			p.later = entry(up.kids, p.name)
		}
	}
	return p.later
}

// below returns the path of p below the directory q; false where that is longer than programs can use.
func below(p, q *place) (path string, ok bool) {
	var names []string
	size := 0
	for ; p != q; p = p.up {
		names = append(names, p.name)
		if size += len(p.name) + 1; size > unix.PathMax {
			return "", false
		}
	}
	slices.Reverse(names)
	return strings.Join(names, "/"), true
}

// label is the path as the name of a group.
func (p *place) label() string {
	size := 0
	for q := p; q.up != nil; q = q.up {
		if size += len(q.name) + 1; size > maxGroup {
			return otherGroups
		}
	}
	return p.path()
}

// ignore counts a fact in its group, if it has one.
func (c *comparison) ignore(at, from *place) bool {
	group := c.group(at)
	if group == "" || from != nil && c.group(from) == "" {
		return false
	}
	if c.out.Ignored == nil {
		c.out.Ignored = map[string]int{}
	}
	if _, ok := c.out.Ignored[group]; !ok && len(c.out.Ignored) >= maxGroups {
		group = otherGroups
	}
	c.out.Ignored[group]++
	return true
}
