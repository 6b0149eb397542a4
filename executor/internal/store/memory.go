package store

// inMemory is the place of a record that lies in memory, in a segment of its own.
func (s *Store) inMemory(sum Sum, rec []byte) {
	s.index[sum] = place{seg: &segment{data: rec, size: int64(len(rec))}}
	s.size += int64(len(rec))
}

// forget is Reclaim in memory, where every content goes by itself. s.mu is held.
func (s *Store) forget(live func(Sum) bool) (freed int64) {
	for sum, p := range s.index {
		if !live(sum) {
			delete(s.index, sum)
			freed += p.seg.size
		}
	}
	s.size -= freed
	return freed
}
