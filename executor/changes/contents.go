package changes

import "context"

// maxPortion bounds the bytes and the files that ReadContents reads before it lets a step in.
const (
	maxPortion      = 8 << 20
	maxPortionFiles = 500
)

// ReadContents reads the files whose contents are not known yet, until ctx ends. Without it a later comparison cannot tell
// whether a file of the same size has other content, and says so: New and Step read only a few MiB. Files that cannot be
// read, change meanwhile or are too large stay unknown.
func (t *Tracker) ReadContents(ctx context.Context) error {
	t.mu.Lock()
	work := make([]arrival, 0, len(t.dirs))
	for _, d := range t.dirs {
		for _, k := range d.kids {
			if t.unread(k) {
				work = append(work, arrival{d, k})
			}
		}
	}
	t.mu.Unlock()
	for len(work) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		rest, err := t.readPortion(work)
		if err != nil {
			return err
		}
		work = rest
	}
	return nil
}

func (t *Tracker) unread(n *node) bool {
	return n.regular() && n.attr.size <= t.cfg.MaxFile && n.hash.Load() == nil
}

// readPortion reads some files, and returns the others.
func (t *Tracker) readPortion(work []arrival) (rest []arrival, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	var sums []*digest
	size := int64(0)
	err = t.cfg.User.Do(func() error {
		defer t.opened.close()
		for _, w := range work[:min(len(work), maxPortionFiles)] {
			if size >= maxPortion {
				break
			}
			sums = append(sums, nil)
			if !t.attached(w.d) || !t.unread(w.n) {
				continue
			}
			fd, err := t.opened.open(t.rootFD, w.d)
			if err != nil {
				continue
			}
			size += w.n.attr.size
			if sum, err := t.readHash(fd, w.n.name, &w.n.attr); err == nil {
				sums[len(sums)-1] = sum
			}
		}
		return nil
	})
	t.readEvents()
	for i, sum := range sums {
		if w := work[i]; sum != nil && w.same() {
			w.n.hash.Store(sum)
		}
	}
	return work[len(sums):], err
}
