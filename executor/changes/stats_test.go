package changes_test

import (
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

func TestStats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "mkdir d/e\nwrite d/a 12345\nwrite b 123")
	tracker := track(t, changes.Config{Root: dir})
	before := step(t, tracker)
	if files, bytes := before.Size(); files != 2 || bytes != 8 {
		t.Errorf("got %d files of %d bytes, want 2 of 8", files, bytes)
	}
	first, ok := tracker.Stats()
	if !ok || first.Watches+first.Cold != 3 {
		t.Errorf("got %+v, %t, want 3 directories", first, ok)
	}
	do(t, dir, "write d/e/c 1")
	if tracker.Unchanged() {
		t.Error("a new file is no change")
	}
	after := step(t, tracker)
	if last, _ := tracker.Stats(); last.Listed <= first.Listed {
		t.Errorf("got %d directories listed after %d", last.Listed, first.Listed)
	}
	if whole, part := after.Own(&changes.State{}), after.Own(before); part <= 0 || part >= whole || after.Own(after) != 0 {
		t.Errorf("got %d of %d bytes beside the state before", part, whole)
	}
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tracker := track(t, changes.Config{Root: dir})
	last := step(t, tracker)
	if !tracker.Unchanged() {
		t.Error("nothing is a change")
	}
	do(t, dir, "write a 1")
	for range 2 { // the event was read by the first call
		if tracker.Unchanged() {
			t.Error("a new file is no change")
		}
	}
	expect(t, tracker, last, "created a")
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
	if tracker.Unchanged() {
		t.Error("a closed tracker knows")
	}
}
