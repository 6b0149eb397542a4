package kubernetes_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/actiond/actiond/kubernetes"
)

// A clock that may be right stays; one that must be wrong is moved as far as is known.
func TestClock(t *testing.T) {
	t.Parallel()
	sent := time.Date(2026, 1, 1, 12, 0, 0, 3e8, time.UTC)
	received := sent.Add(100 * time.Millisecond)
	for name, tt := range map[string]struct {
		before, date, want time.Duration // the Date as of the whole second
	}{
		"right":                {0, 0, 0},
		"it may be right":      {500 * time.Millisecond, 0, 500 * time.Millisecond},
		"behind":               {0, 20 * time.Minute, 20*time.Minute - 400*time.Millisecond},
		"ahead":                {0, -20 * time.Minute, -20*time.Minute + 700*time.Millisecond},
		"set right":            {20 * time.Minute, 0, 700 * time.Millisecond},
		"it may be so skewed":  {20 * time.Minute, 20 * time.Minute, 20 * time.Minute},
		"it is known to a bit": {20*time.Minute + 900*time.Millisecond, 20 * time.Minute, 20*time.Minute + 700*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c kubernetes.Clock
			c.Ahead(tt.before)
			date := sent.Truncate(time.Second).Add(tt.date).Format(http.TimeFormat)
			if got := c.Heard(sent, received, date); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got := c.Heard(sent, received, "yesterday"); got != tt.want {
				t.Errorf("without a date: got %v, want %v", got, tt.want)
			}
		})
	}
}
