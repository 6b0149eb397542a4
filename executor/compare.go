package executor

import (
	"strings"
	"unicode/utf8"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/changes"
)

// Known reports whether a state is kept, and whether its number was ever given out.
func (w *Workspace) Known(n uint64) (kept, given bool) {
	w.mu.Lock()
	states := w.states
	w.mu.Unlock()
	if states == nil {
		return false, false
	}
	return states.Known(n)
}

// Compare returns the net changes between two states, at or below a path unless that is "". Where one of them is not
// kept, it says that nothing is known.
func (w *Workspace) Compare(from, to uint64, path string) *api.Changes {
	c := &api.Changes{Before: api.StateName(from), After: api.StateName(to), Paths: []api.ChangedPath{}}
	a, err := w.get(from)
	b, err2 := w.get(to)
	if err != nil || err2 != nil {
		if c.Why = "offline"; w.Info().Baseline.Why != "" {
			c.Why = string(changes.WhyRoot)
		}
		return c
	}
	limits := changes.Limits{}
	if path != "" {
		limits = changes.Limits{Facts: 500_000, Bytes: 64 << 20}
	}
	fill(c, changes.Compare(a, b, limits), path)
	return c
}

// get returns a state.
func (w *Workspace) get(n uint64) (*changes.State, error) {
	w.mu.Lock()
	last, state, states := w.last, w.state, w.states
	w.mu.Unlock()
	switch {
	case states == nil:
		return nil, changes.ErrNoState
	case n == last:
		return state, nil
	}
	return states.Get(n)
}

// fill writes the entries that were found at or below a path.
func fill(c *api.Changes, found *changes.Changes, path string) {
	c.Exact, c.Why, c.Truncated, c.Unwatched = found.Exact, string(found.Why), found.Truncated, found.Unwatched
	for _, name := range found.Unsure {
		if within(name, path) {
			c.Unsure = append(c.Unsure, api.FilePath(name))
		}
	}
	for group, n := range found.Ignored {
		if !within(group, path) {
			continue
		}
		if c.Ignored == nil {
			c.Ignored = map[string]int{}
		}
		if !utf8.ValidString(group) {
			group = strings.ToValidUTF8(group, "\uFFFD")
		}
		c.Ignored[group] += n
	}
	c.Counts = api.ChangeCounts(found.Counts)
	addPaths(c, found, path)
}

// maxPaths bounds the paths of an answer about one path.
const maxPaths = 200

// addPaths adds the facts at or below a path; "" means all, otherwise they are counted too.
func addPaths(c *api.Changes, found *changes.Changes, path string) {
	if path != "" {
		c.Counts = api.ChangeCounts{}
	}
	for _, f := range found.Facts {
		if path != "" {
			if !within(f.Path, path) && (f.From == "" || !within(f.From, path)) {
				continue
			}
			count(&c.Counts, f.Op)
		}
		if path != "" && len(c.Paths) == maxPaths {
			c.Truncated = true
			continue
		}
		c.Paths = append(c.Paths, api.NewChangedPath(string(f.Op), f.Path, f.From))
	}
}

func count(c *api.ChangeCounts, op changes.Op) {
	switch op {
	case changes.Created:
		c.Created++
	case changes.Modified:
		c.Modified++
	case changes.Deleted:
		c.Deleted++
	case changes.Renamed:
		c.Renamed++
	case changes.Meta:
		c.Meta++
	}
}

// within reports whether a name is at or below a path.
func within(name, path string) bool {
	return path == "" || path == "." || name == path || strings.HasPrefix(name, path+"/")
}
