package gateway_test

import (
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/gateway"
)

// The policy of the defaults is the operator's: a client may ask for less, no network at all, and
// not for another network. The engine of the test keeps no policies, and says so.
func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(_ *house, c *gateway.Config) { c.Defaults.Policy = &egress.Policy{Mode: egress.ModePublic} })
	create := func(network string) (body string) {
		if network != "" {
			network = `,"network":"` + network + `"`
		}
		return `{"image":"debian"` + network + `}`
	}
	const path = "/v1/sandboxes"
	want(t, h.ask(t, "POST", path, path, create("")), 422, "network policies cannot be kept here")
	want(t, h.ask(t, "POST", path, path, create("bridge")), 422, "leave out network bridge")
	want(t, h.ask(t, "POST", path, path, create("none")), 201, `"id"`)
}
