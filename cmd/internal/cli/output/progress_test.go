package output

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// Nothing is said about work that takes less than 0.3 s; after that, the latest line.
func TestProgressWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		line := newProgress(&out, 80)
		line.Say("waiting")
		line.Say("starting")
		time.Sleep(patience - time.Millisecond)
		line.End()
		time.Sleep(time.Second)
		if out.Len() > 0 {
			t.Errorf("short work: got %q", out.String())
		}

		line = newProgress(&out, 80)
		line.Say("waiting")
		line.Count("starting %d", 1)
		time.Sleep(patience)
		synctest.Wait()
		line.Say("starting 1")
		line.Count("starting 2") // too soon after the one before
		line.End()
		line.End()
		if want := "\r\x1b[Kstarting 1\r\x1b[K"; out.String() != want {
			t.Errorf("long work: got %q, want %q", out.String(), want)
		}
	})
}
