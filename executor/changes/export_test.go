package changes

import (
	"os"

	"github.com/actiond/actiond/executor/internal/store"
)

// StoresHaveTimes is storesHaveTimes.
var StoresHaveTimes = storesHaveTimes

// ListXattrs is listXattrs.
var ListXattrs = listXattrs

// OpenLarge opens the clone of a large file of a state.
func (t *Tracker) OpenLarge(s *State, path string) (*os.File, error) {
	n := s.lookup(path)
	if n == nil || !t.cloned(n) {
		return nil, store.ErrNotKept
	}
	return t.openClone(n)
}
