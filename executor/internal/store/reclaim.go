package store

import (
	"cmp"
	"errors"
	"slices"
)

// Reclaim removes segments of which less than half is live, after it copied the live part. It returns the number of
// bytes that the store became smaller by. Contents that are not live in other segments remain, and can be had until
// these go. live is called while the store is locked.
func (s *Store) Reclaim(live func(Sum) bool) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errClosed
	}
	defer s.evictions.Add(1)
	if s.root == nil {
		return s.forget(live), nil
	}
	before := s.size
	kept := make(map[*segment]int64, len(s.segments))
	bySegment := make(map[*segment][]Sum, len(s.segments))
	for sum, p := range s.index {
		bySegment[p.seg] = append(bySegment[p.seg], sum)
		if live(sum) {
			kept[p.seg] += p.length()
		}
	}
	old := slices.Clone(s.segments)
	var grew *segment // the last one, which gets the copies
	if len(old) > 0 {
		grew = old[len(old)-1]
	}
	// Those without anything live go first, which makes room for what the others have.
	slices.SortStableFunc(old, func(a, b *segment) int { return cmp.Compare(kept[a], kept[b]) })
	for _, g := range old {
		if 2*kept[g] >= g.size-fileHeader && kept[g] > 0 {
			continue
		}
		if g == grew && kept[g] > 0 { // it got copies of others
			continue
		}
		if err := s.evict(g, bySegment[g], live); err != nil {
			return before - s.size, err
		}
	}
	return before - s.size, nil
}

// evict copies the live contents of a segment into the growing one and removes it. s.mu is held.
func (s *Store) evict(g *segment, sums []Sum, live func(Sum) bool) error {
	slices.SortFunc(sums, func(a, b Sum) int { return cmp.Compare(s.index[a].at, s.index[b].at) })
	for _, sum := range sums {
		if !live(sum) {
			continue
		}
		p := s.index[sum]
		rec, err := p.read()
		if err == nil && s.zstd.check(sum, rec) != nil {
			err = errDamaged
		}
		if errors.Is(err, errDamaged) {
			delete(s.index, sum)
			continue
		}
		if err == nil {
			err = s.append(sum, rec[:recordHeader], rec[recordHeader:], s.bound)
		}
		if err != nil {
			return err // the segment stays
		}
	}
	if err := s.root.Remove(segmentName(g.n)); err != nil {
		return err
	}
	for _, sum := range sums {
		if s.index[sum].seg == g {
			delete(s.index, sum)
		}
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
	s.size -= g.size
	return g.file.Close()
}
