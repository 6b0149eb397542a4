package platform

import (
	"bytes"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/runtimectl/internal/output"
	"github.com/actiond/actiond/sandbox"
)

func TestHintRoot(t *testing.T) {
	t.Parallel()
	const hint = "note: apt-get needs root, and commands of this sandbox run as agent; create one with '--user root', or from an image that has what is needed\n"
	for _, tt := range []struct{ user, line, want string }{
		{"agent:1000", "apt-get install -y jq", hint},
		{"agent:1000", "/usr/bin/apt-get update", hint},
		{"agent:1000", "make install", ""},
		{"root:0", "apt-get update", ""},
		{"me", "apt-get update", ""},
	} {
		var said bytes.Buffer
		p := &Platform{Streams: output.Streams{Stderr: &said}}
		p.HintRoot(&sandbox.Sandbox{User: tt.user}, strings.Fields(tt.line))
		if said.String() != tt.want {
			t.Errorf("%s: %q: got %q, want %q", tt.user, tt.line, said.String(), tt.want)
		}
	}
}
