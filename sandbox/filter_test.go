package sandbox_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/sandbox"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	s := &sandbox.Sandbox{ID: "0123456789ab", Name: "box", Owner: "me", Image: "debian", State: sandbox.Ready, Labels: map[string]string{"team": "a", "empty": ""}}
	for text, want := range map[string]bool{
		"": true, "owner=me": true, "owner=you": false, "owner=me name=box": true, "owner=me name=other": false, "state=ready": true,
		"label=team": true, "label=team=a": true, "label=team=b": false, "label=empty": true, "label=empty=": true, "label=none": false, "image=debian": true,
	} {
		f := sandbox.Filter(strings.Fields(text))
		if err := f.Check(); err != nil || f.Fits(s) != want {
			t.Errorf("%q: got %v, %v, want %v", text, f.Fits(s), err, want)
		}
	}
	for _, text := range []string{"owner", "owner=", "=me", "color=red", ""} {
		if (sandbox.Filter{text}).Check() == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
