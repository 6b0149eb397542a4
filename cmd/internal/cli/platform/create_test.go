package platform

import (
	"testing"

	"github.com/actiond/actiond/sandbox"
)

func TestDoing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state         sandbox.State
		waiting, want string
	}{
		{sandbox.Pending, "the image debian", "waiting for the image debian"},
		{sandbox.Creating, "its directory", "starting"},
		{sandbox.Starting, "waiting for its server to listen", "starting"},
		{sandbox.Ready, "", ""},
	} {
		if got := doing(tt.state, tt.waiting); got != tt.want {
			t.Errorf("%s, %q: got %q, want %q", tt.state, tt.waiting, got, tt.want)
		}
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		done, total int64
		want        string
	}{
		{34_200_000, 51_700_000, "34/52 MB"}, {0, 1_000_000, "0/1 MB"}, {999, 2000, "0/2 kB"}, {60, 50, "0/1 kB"},
	} {
		if got := share(tt.done, tt.total); got != tt.want {
			t.Errorf("%d of %d: got %q, want %q", tt.done, tt.total, got, tt.want)
		}
	}
}
