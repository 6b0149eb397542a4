//go:build integration

package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// A sandbox that is reached by a port is reached by its neighbours on the network
// too. While it waits in a pool no controller owns it, and an agent must not take it.
func TestDockerNeighbourClaims(t *testing.T) {
	t.Parallel()
	h := testHost(t, func(c *docker.Config) { c.Transport = "port" })
	neighbour := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	pool, err := sandbox.NewPool(t.Context(), h, "warm", sandbox.Spec{Image: busyboxImage}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { pool.Run(ctx, time.Second) })
	defer running.Wait()
	defer cancel()
	var waiting *sandbox.Sandbox
	testhelp.Eventually(t, func() bool {
		all, err := h.List(t.Context())
		for _, s := range all {
			if s.Pool != "" && s.State == sandbox.Ready {
				waiting = s
			}
		}
		return waiting != nil || err != nil
	}, "the pool is full")
	details, err := h.Inspect(t.Context(), waiting)
	if err != nil || len(details.Addresses) != 1 {
		t.Fatalf("got %+v, %v", details, err)
	}
	at := "http://" + details.Addresses[0] + ":8000"
	if got, _ := run(t, neighbour, "wget -qO- "+at+"/alive"); !strings.Contains(got, "ok") {
		t.Fatalf("the neighbour does not even reach it: %q", got)
	}
	got, _ := run(t, neighbour, `wget -O- --header 'Content-Type: application/json' --post-data '{"key": "0123456789abcdef0123456789abcdef"}' `+at+"/v1/claim 2>&1")
	if !strings.Contains(got, "403") {
		t.Errorf("a neighbour claims: got %q, want 403", got)
	}
	s, warm, err := pool.Claim(t.Context(), sandbox.Spec{Image: busyboxImage})
	if err != nil || !warm {
		t.Fatalf("the claim of the owner: warm %v, %v", warm, err)
	}
	if out, _ := run(t, s, "echo mine"); out != "mine" {
		t.Errorf("claimed, it answers %q", out)
	}
}
