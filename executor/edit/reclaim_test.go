package edit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// TestNothingReclaimed fills a store in which nothing can be reclaimed for now, as before the states of an earlier
// process are known. The edits that are already kept stay so.
func TestNothingReclaimed(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	early := errors.New("too early")
	b := newBench(t, func(c *edit.Config) {
		c.StateDir, c.Contents = state, contentsIn(state, 1<<20)
		c.Reclaim = func() error { return early }
	})
	t.Cleanup(func() { closeContents(t, state) })
	contents, err := contentsIn(state, 1<<20)()
	check(t, err)
	for i := range 3 { // of the workspace
		_, err := contents.Put([]byte(noise(100+i, 200<<10)))
		check(t, err)
	}
	const files = 8
	kept := make([]bool, files)
	for i := range files {
		path := b.write(fmt.Sprint(i), noise(i, 60<<10), 0o644)
		r, err := b.Write(path, "/", "", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if kept[i] = r.HistoryErr == nil; !kept[i] && !errors.Is(r.HistoryErr, early) {
			t.Errorf("edit %d: got %v", i, r.HistoryErr)
		}
	}
	if !kept[0] || kept[files-1] {
		t.Errorf("kept are %v", kept)
	}
	for i := range files {
		if _, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path(fmt.Sprint(i))}); (err == nil) != kept[i] {
			t.Errorf("edit %d: got %v", i, err)
		}
	}
}
