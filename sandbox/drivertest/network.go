package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// A sandbox has the policy that it was created with until that is changed. A driver that keeps no
// policies refuses the sandbox.
func testNetwork(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	ctx := t.Context()
	plain := create(t, d, spec)
	spec.Key, spec.Policy = "policy", &egress.Policy{Mode: egress.ModeAllowlist, Allow: Rules(t, "api.example")}
	networker, ok := need[sandbox.Networker](t, d)
	if !ok {
		_, err := d.Create(ctx, spec)
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), d.Platform()+" cannot honour a network policy") {
			t.Errorf("a policy: got %v", err)
		}
		return
	}
	if _, err := networker.Network(ctx, plain); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), plain.ID) {
		t.Errorf("the network of a sandbox without a policy: got %v", err)
	}
	s := create(t, d, spec)
	works(t, s)
	first, err := networker.Network(ctx, s)
	if err != nil || first.Policy.Mode != egress.ModeAllowlist || len(first.Policy.Allow) != 1 || !first.Up {
		t.Fatalf("Network: %+v, %v", first, err)
	}
	changed, err := networker.SetNetwork(ctx, s, func(n *sandbox.Network) error {
		n.Policy = egress.Policy{Mode: egress.ModeNoNetwork}
		return nil
	})
	if err != nil || changed.Generation <= first.Generation || !changed.Up || changed.Policy.Mode != egress.ModeNoNetwork {
		t.Errorf("SetNetwork: %+v, %v, before %+v", changed, err, first)
	}
	same, err := networker.SetNetwork(ctx, s, func(n *sandbox.Network) error {
		n.Policy = egress.Policy{Mode: egress.ModeNoNetwork}
		return nil
	})
	if err != nil || same.Generation != changed.Generation || !same.Up {
		t.Errorf("a change to the same policy: %+v, %v, before %+v", same, err, changed)
	}
	no := errors.New("no")
	if _, err := networker.SetNetwork(ctx, s, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModePublic; return no }); !errors.Is(err, no) {
		t.Errorf("a change that fails: %v", err)
	}
	if _, err := networker.SetNetwork(ctx, s, func(n *sandbox.Network) error { n.Policy.Mode = "open"; return nil }); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a change to a policy that cannot be: %v", err)
	}
	if denied, err := networker.Denied(ctx, s, 0, 0); err != nil || len(denied) != 0 {
		t.Errorf("Denied: %v, %v", denied, err)
	}
	again, err := d.Create(ctx, spec)
	if err != nil || again.ID != s.ID {
		t.Fatalf("the same key again: %v, %v", again, err)
	}
	if kept, err := networker.Network(ctx, again); err != nil || kept.Policy.Mode != egress.ModeNoNetwork || kept.Generation != changed.Generation {
		t.Errorf("the policy after the key was given again: %+v, %v, want %+v", kept, err, changed)
	}
	other := spec
	other.Policy = &egress.Policy{Mode: egress.ModePublic}
	if _, err := d.Create(ctx, other); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the same key for another policy: %v", err)
	}
	other.Key, other.Network = "other", "bridge"
	if _, err := d.Create(ctx, other); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a policy beside another network: %v", err)
	}
	if err := d.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := networker.Network(ctx, s); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the network of a sandbox that was removed: %v", err)
	}
	next := create(t, d, spec)
	if n, err := networker.Network(ctx, next); err != nil || n.Policy.Mode != egress.ModeAllowlist || !n.Up {
		t.Errorf("the network of a sandbox with the key of one that was removed: %+v, %v", n, err)
	}
	if _, warms := d.(sandbox.Warmer); warms {
		testNetworkPool(t, d, networker, spec)
	}
}

// A sandbox in a pool reaches nothing, and has the policy of its claimer afterwards.
func testNetworkPool(t *testing.T, d sandbox.Driver, networker sandbox.Networker, spec sandbox.Spec) {
	ctx := t.Context()
	spec.Policy = &egress.Policy{Mode: egress.ModePublic}
	pool, err := sandbox.NewPool(ctx, d, "policies", spec, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	warm := fill(t, d, pool, "policies", 1)
	if n, err := networker.Network(ctx, warm[0]); err != nil || n.Policy.Mode != egress.ModeNoNetwork {
		t.Errorf("the network of a warm sandbox: %+v, %v", n, err)
	}
	spec.Key, spec.Policy = "claimer", &egress.Policy{Mode: egress.ModeAllowlist, Allow: Rules(t, "claimer.example")}
	s, taken, err := pool.Claim(ctx, spec)
	if err != nil || !taken {
		t.Fatalf("Claim: %+v, %v, %v", s, taken, err)
	}
	if n, err := networker.Network(ctx, s); err != nil || len(n.Policy.Allow) != 1 || !n.Up {
		t.Errorf("the network of a claimed sandbox: %+v, %v", n, err)
	}
	works(t, s)
	if err := d.Delete(ctx, s); err != nil {
		t.Error(err)
	}
	if err := pool.Drain(ctx); err != nil {
		t.Error(err)
	}
}

// Rules parses the rules of a policy.
func Rules(t *testing.T, texts ...string) (all []egress.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := egress.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}
