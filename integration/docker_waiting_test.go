//go:build integration

package integration

import (
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/sandbox"
)

// TestDockerWaiting: the server of a sandbox, root with few capabilities, may see what a
// command of the sandbox's user waits for, and has the same rights where that is root.
func TestDockerWaiting(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	for _, user := range []string{"nobody", "root"} {
		s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), User: user})
		c := clientOf(t, s)
		for _, test := range []struct{ command, reason, on string }{
			{"printf 'Go on? '; head -n 1 /dev/tty", api.WaitsForInput, "terminal"},
			{"vi /tmp/new", api.WaitsForInput, "terminal"},
			{"sleep 1000", api.WaitsForTime, ""},
			{"while :; do :; done", api.WaitsBusy, ""},
		} {
			var w *api.Waiting
			for range 60 { // until it has come to its rest
				o, err := c.Do(t.Context(), api.Request{
					Session: "s", Timeout: new(1.0), Action: api.RunAction{Command: test.command, Reset: true, ReturnOnInput: true},
				})
				if err != nil {
					t.Fatal(err)
				}
				if w = o.(api.RunObservation).Metadata.Waiting; w != nil && w.For == test.reason {
					break
				}
			}
			if w == nil || w.For != test.reason || w.On != test.on {
				t.Errorf("%s, %s: got %+v", user, test.command, w)
			}
		}
	}
}
