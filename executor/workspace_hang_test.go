package executor_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// A mount whose server is gone leaves its own entry in doubt, and no other one.
func TestDeadMountInTheWorkspace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a", "1")
	put(t, dir, "mounted/b", "1")
	w := follow(t, dir, executor.WorkspaceConfig{})
	before := stepOf(w)
	free := hangAt(t, filepath.Join(dir, "mounted"), true)
	put(t, dir, "a", "11")
	put(t, dir, "c", "1")
	c := w.Compare(before, stepOf(w), "")
	if c.Exact || c.Why != "unsure" || c.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) || !slices.Equal(c.Unsure, []api.FilePath{"mounted"}) {
		t.Errorf("got %+v", c)
	}
	free()
	if c := w.Compare(before, stepOf(w), ""); !c.Exact || c.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) {
		t.Errorf("without it: got %+v", c)
	}
}
