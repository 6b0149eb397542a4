package changes

// pairs are the regular files whose names came and went in a step.
type pairs struct {
	gone map[ident]*node
	come []arrival
}

type arrival struct {
	d *dir
	n *node
}

func (p *pairs) goes(n *node) {
	if n.regular() && n.hash.Load() != nil {
		if p.gone == nil {
			p.gone = map[ident]*node{}
		}
		p.gone[n.attr.ident] = n
	}
}

func (p *pairs) comes(d *dir, n *node) {
	if n.regular() && n.hash.Load() == nil {
		p.come = append(p.come, arrival{d, n})
	}
}

// rereadMoved reads the files that were renamed: a rename changes the time of the last change, so the
// attributes do not tell whether the content is the same.
func (t *Tracker) rereadMoved() {
	for _, c := range t.moved.come {
		was := t.moved.gone[c.n.attr.ident]
		if was == nil || was.attr.size != c.n.attr.size || c.n.attr.size > min(t.cfg.MaxFile, t.reread) || !t.attached(c.d) {
			continue
		}
		fd, err := t.opened.open(t.rootFD, c.d)
		if err != nil {
			continue // it stays unknown
		}
		t.reread -= c.n.attr.size
		if sum, err := t.readHash(fd, c.n.name, &c.n.attr); err == nil {
			c.n.hash.Store(sum)
		}
	}
	t.moved = pairs{}
}
