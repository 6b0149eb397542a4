package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/sandbox"
)

// halfMeter has statistics of one sandbox, as an engine that finds no control group of the other.
type halfMeter struct{ knows string }

func (m halfMeter) Stats(_ context.Context, s *sandbox.Sandbox, _ bool, each func(sandbox.Stats) error) error {
	for range 3 {
		if s.ID == m.knows {
			if err := each(sandbox.Stats{Time: time.Unix(1, 0), Pids: 7}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A sandbox of which nothing is known is an error with its name, not a row of zeros.
func TestMeasureUnknown(t *testing.T) {
	t.Parallel()
	all := []*sandbox.Sandbox{{ID: "other", State: sandbox.Ready}, {ID: "known", State: sandbox.Ready}}
	list, err := measure(t.Context(), halfMeter{"known"}, all)
	if len(list) != 1 || list[0].ID != "known" || list[0].Pids != 7 {
		t.Errorf("got %+v, want the measurement of the known one", list)
	}
	if err == nil || !strings.Contains(err.Error(), "sandbox other was not measured") {
		t.Errorf("got the error %v, want that the other was not measured", err)
	}
}
