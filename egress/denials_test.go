package egress_test

import (
	"context"
	"testing"

	"github.com/actiond/actiond/egress"
)

func TestDenialsKept(t *testing.T) {
	t.Parallel()
	ring := egress.NewDenials()
	for range 2500 {
		ring.Add(egress.Denial{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for after, want := range map[int64][2]int64{
		0: {1501, 2500}, 1500: {1501, 2500}, 2000: {2001, 2500}, 2499: {2500, 2500}, -5: {1501, 2500},
		2501: {1501, 2500}, 1 << 60: {1501, 2500}, // of a proxy that ended
	} {
		all := ring.Await(ctx, after)
		if all[0].Number != want[0] || all[len(all)-1].Number != want[1] || int64(len(all)) != want[1]-want[0]+1 {
			t.Errorf("after %d: %d from %d", after, len(all), all[0].Number)
		}
	}
	if all := ring.Await(ctx, 2500); len(all) > 0 {
		t.Errorf("after the last one: %d", len(all))
	}
}
