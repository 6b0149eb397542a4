package pid1

import (
	"slices"
	"testing"
	"time"
)

// Crashes count for so long a time, and each pause is longer than the one before.
func TestCrashes(t *testing.T) {
	t.Parallel()
	var p initProcess
	now := time.Now()
	for i, want := range []time.Duration{1e8, 2e8, 4e8, 8e8, 16e8} { // nanoseconds
		if pause, again := p.crashed(now.Add(time.Duration(i) * time.Second)); !again || pause != want {
			t.Errorf("crash %d: %v, %v", i, pause, again)
		}
	}
	late := p
	late.crashes = slices.Clone(p.crashes)
	if _, again := p.crashed(now.Add(5 * time.Second)); again {
		t.Error("a sixth crash was forgiven")
	}
	if pause, again := late.crashed(now.Add(restartTime + 1500*time.Millisecond)); !again || pause != 8*firstPause {
		t.Errorf("with two crashes forgotten: %v, %v", pause, again)
	}
}
