package gateway_test

import (
	"context"
	"slices"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
)

// A gateway that removes what it created leaves what others created: also sandboxes of the same
// key that exist already, or again.
func TestRemoveMade(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.RemoveMade = true })
	others, err := gateway.New(gateway.Config{Driver: h.host, Key: theKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(others.Close)
	other := &fixture{Gateway: others, engine: h.engine, spec: h.spec}

	l := testhelp.Listen(t)
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, l) }()

	const body = `{"image":"debian"}`
	var stay []string
	stay = append(stay, other.make(t, body).ID)
	stay = append(stay, other.make(t, body, api.IdempotencyKeyHeader, "shared").ID)
	h.make(t, body, api.IdempotencyKeyHeader, "shared")
	again := h.make(t, body, api.IdempotencyKeyHeader, "again")
	container := h.container(again.ID)
	want(t, other.ask(t, "DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/"+again.ID, ""), 204, "")
	h.mu.Lock()
	delete(h.inhabited, container) // a new sandbox has a new server
	h.mu.Unlock()
	stay = append(stay, other.make(t, body, api.IdempotencyKeyHeader, "again").ID)

	h.make(t, body)
	h.make(t, body, api.IdempotencyKeyHeader, "mine")
	gone := h.make(t, body)
	want(t, other.ask(t, "DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/"+gone.ID, ""), 204, "")
	want(t, h.ask(t, "POST", "/start", "/start", `{"image":"debian","session_id":"s"}`, "Content-Type", "application/json"), 200, "running")

	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
	var left []string
	for name := range h.engine.States() {
		left = append(left, idOf(name))
	}
	slices.Sort(left)
	slices.Sort(stay)
	if !slices.Equal(left, stay) {
		t.Errorf("left %v, want %v", left, stay)
	}
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", body), 503, "shutting down")
}
