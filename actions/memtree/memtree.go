// Package memtree is a workspace in memory for tests: files with contents, and states of them.
package memtree

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
)

// Tree is a workspace of files without directories. Its methods may be called concurrently. The fields may be set
// before.
type Tree struct {
	// Off is the answer of NoUndo.
	Off string
	// First is called where the first state is waited for; nil does nothing.
	First func()
	// Refuse are paths that no restore changes.
	Refuse []string
	// Fails is the error of each restore; nil for none.
	Fails error
	// Unkept are paths whose contents are lost when they change.
	Unkept []string
	// Processes are those that Restore names.
	Processes []int
	// Broken is the answer of Unfinished.
	Broken bool
	// Lost is how many contents of each state are missing.
	Lost int
	// Restoring is called in each Restore and Revert that is no dry run, before it changes anything; nil does nothing.
	Restoring func()

	mu     sync.Mutex
	files  map[string]string
	states map[uint64]map[string]string
	next   uint64
	pins   []api.Pin
}

// New returns a tree without files.
func New() *Tree {
	return &Tree{files: map[string]string{}, states: map[uint64]map[string]string{}, next: 1}
}

// Write changes a file, and removes it if content is "".
func (t *Tree) Write(path, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files = maps.Clone(t.files); content == "" {
		delete(t.files, path)
		return
	}
	t.files[path] = content
}

// Show returns all files, such as "a=1 b=2".
func (t *Tree) Show() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return show(t.files)
}

// Forget makes a state one that is no longer kept.
func (t *Tree) Forget(n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.states, n)
}

func show(files map[string]string) string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all = append(all, path+"="+files[path])
	}
	return strings.Join(all, " ")
}

// After is of actions.Workspace.
func (t *Tree) After(recorded uint64) { t.next = recorded + 1 }

// Earlier is of actions.Workspace.
func (t *Tree) Earlier() uint64 { return 0 }

// Unfinished is of actions.Workspace.
func (t *Tree) Unfinished() bool { return t.Broken }

// Await is of actions.Workspace.
func (t *Tree) Await(context.Context) bool {
	if t.First != nil {
		t.First()
	}
	return true
}

// Rest is of actions.Workspace.
func (t *Tree) Rest() {}

// Living is of actions.Workspace.
func (t *Tree) Living() bool { return false }

// Left is of actions.Workspace.
func (t *Tree) Left(time.Time, bool) bool { return false }

// NoUndo is of actions.Workspace.
func (t *Tree) NoUndo() string { return t.Off }

// Verify is of actions.Workspace.
func (t *Tree) Verify() (uint64, bool) { return t.Step() }

// Dir is of server.Workspace.
func (t *Tree) Dir() string { return "/w" }

// Info is of server.Workspace.
func (t *Tree) Info() api.ChangesInfo {
	return api.ChangesInfo{Mode: api.ChangesUndo, Baseline: api.Baseline{State: api.BaselineDone}, Store: &api.ChangesStore{Bytes: 12, Bound: 34}}
}

// Stats is of server.Workspace.
func (t *Tree) Stats() (watches int, listed, steps uint64, stepping time.Duration) { return 0, 0, 0, 0 }

// Step is of actions.Workspace.
func (t *Tree) Step() (n uint64, exact bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step(), true
}

func (t *Tree) step() uint64 {
	if last, ok := t.states[t.next-1]; ok && maps.Equal(last, t.files) {
		return t.next - 1
	}
	t.states[t.next] = t.files
	t.files = maps.Clone(t.files)
	t.next++
	return t.next - 1
}

// Known is of actions.Workspace.
func (t *Tree) Known(n uint64) (kept, given bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, kept = t.states[n]
	return kept, n > 0 && n < t.next
}

// Compare is of actions.Workspace.
func (t *Tree) Compare(from, to uint64, path string) *api.Changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.compare(from, to, path)
}

func (t *Tree) compare(from, to uint64, below string) *api.Changes {
	c := &api.Changes{Before: api.StateName(from), After: api.StateName(to), Exact: true, Paths: []api.ChangedPath{}}
	old, okOld := t.states[from]
	now, okNow := t.states[to]
	if !okOld || !okNow {
		c.Exact, c.Why = false, "offline"
		return c
	}
	for _, path := range union(old, now) {
		var op string
		switch before, after := old[path], now[path]; {
		case before == after || !within(path, below):
			continue
		case before == "":
			op = "created"
			c.Counts.Created++
		case after == "":
			op = "deleted"
			c.Counts.Deleted++
		default:
			op = "modified"
			c.Counts.Modified++
		}
		c.Paths = append(c.Paths, api.NewChangedPath(op, path, ""))
	}
	return c
}

func union(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func within(path, below string) bool {
	return below == "" || below == "." || path == below || strings.HasPrefix(path, below+"/")
}

// Diff is of actions.Workspace.
func (t *Tree) Diff(c *api.Changes, from, to uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range c.Paths {
		c.Paths[i].Diff = fmt.Sprintf("-%s\n+%s\n", t.states[from][p.Path], t.states[to][p.Path])
		c.Paths[i].Lines = &[2]int{1, 1}
	}
}

// Restore is of actions.Workspace.
func (t *Tree) Restore(to uint64, o api.RestoreOptions) (*api.Restored, error) {
	t.mu.Lock()
	target := t.states[to]
	t.mu.Unlock()
	return t.change(o, func(now map[string]string) (map[string]string, []string) { return target, union(now, target) })
}

// Revert is of actions.Workspace.
func (t *Tree) Revert(from, to uint64, o api.RestoreOptions) (*api.Restored, error) {
	t.mu.Lock()
	was, is := t.states[from], t.states[to]
	t.mu.Unlock()
	return t.change(o, func(now map[string]string) (map[string]string, []string) {
		var paths []string
		for _, path := range union(was, is) {
			if was[path] != is[path] {
				paths = append(paths, path)
			}
			if was[path] != is[path] && now[path] != is[path] {
				t.Refuse = append(slices.Clone(t.Refuse), path)
			}
		}
		return was, paths
	})
}

// change gives some paths their content in a target.
func (t *Tree) change(o api.RestoreOptions, plan func(now map[string]string) (target map[string]string, paths []string)) (*api.Restored, error) {
	if t.Restoring != nil && !o.DryRun {
		t.Restoring()
	}
	if t.Fails != nil {
		return nil, t.Fails
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.step()
	kept := t.Refuse
	target, paths := plan(t.files)
	r := &api.Restored{DryRun: o.DryRun, Refused: []api.RefusedPath{}, Living: t.Processes}
	files := maps.Clone(t.files)
	for _, path := range paths {
		asked := o.Paths == nil || slices.ContainsFunc(o.Paths, func(below string) bool { return within(path, below) })
		switch {
		case !asked || files[path] == target[path]:
		case slices.Contains(t.Refuse, path):
			r.Refused = append(r.Refused, api.NewRefusedPath(path, "it changed since"))
		default:
			if slices.Contains(t.Unkept, path) {
				r.Lost = append(r.Lost, api.FilePath(path))
			}
			if files[path] = target[path]; target[path] == "" {
				delete(files, path)
			}
		}
	}
	t.Refuse = kept
	if r.RefusedCount = len(r.Refused); o.All && r.RefusedCount > 0 {
		files = maps.Clone(t.files)
	}
	was, next := t.files, t.next
	t.files = files
	after := t.step()
	r.Changes = *t.compare(before, after, "")
	if o.DryRun {
		delete(t.states, after)
		t.files, t.next = was, next
		t.states[before] = maps.Clone(was)
		r.After = r.Before
	}
	return r, nil
}

// Capture is of actions.Workspace.
func (t *Tree) Capture(ctx context.Context) error { return context.Cause(ctx) }

// Missing is of actions.Workspace.
func (t *Tree) Missing(uint64) (missing int, paths []api.FilePath, err error) {
	if t.Lost > 0 {
		paths = []api.FilePath{"lost"}
	}
	return t.Lost, paths, nil
}

// Pin is of actions.Workspace.
func (t *Tree) Pin(p api.Pin) error {
	_ = t.Unpin(p.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pins = append(t.pins, p)
	return nil
}

// Unpin is of actions.Workspace.
func (t *Tree) Unpin(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.pins)
	if t.pins = slices.DeleteFunc(slices.Clone(t.pins), func(p api.Pin) bool { return p.Name == name }); len(t.pins) == n {
		return api.NotFound("There is no checkpoint " + name)
	}
	return nil
}

// Pins is of actions.Workspace.
func (t *Tree) Pins() []api.Pin {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.pins)
}
