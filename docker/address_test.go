package docker

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/sandbox"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	h := &Host{state: &stateDir{path: "/state of mine"}}
	for want, of := range map[string]*instance{
		"unix:///state%20of%20mine/sandboxes/abc/run/": {transport: "socket", origin: "abc"},
		"http://127.0.0.1:4321":                        {transport: "port", port: 4321},
	} {
		s := &sandbox.Sandbox{ID: "abc", Access: of}
		of.Sandbox, of.host = s, h
		if got, err := h.Address(s); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	of := &instance{transport: "port"}
	of.Sandbox = &sandbox.Sandbox{ID: "abc", Access: of}
	if got, err := h.Address(of.Sandbox); err == nil {
		t.Errorf("without a port: got %q", got)
	}
}
