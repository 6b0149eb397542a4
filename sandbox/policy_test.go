package sandbox_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// TestPolicy: a policy excludes other networks, raises the default of open files, and is part of the
// hash, which stays that of earlier versions without one.
func TestPolicy(t *testing.T) {
	t.Parallel()
	public := &egress.Policy{Mode: egress.ModePublic}
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	hashes := map[string]int{}
	for i, spec := range []sandbox.Spec{
		{Network: "none", OpenFiles: 4608}, {Policy: public}, {Policy: public, Private: ten}, {Policy: &egress.Policy{Mode: egress.ModeAllowlist}},
	} {
		spec.Image = "debian"
		if err := spec.Complete(); err != nil || spec.Network != "none" || spec.OpenFiles != 4608 {
			t.Errorf("%d: got network %s, %d open files, %v", i, spec.Network, spec.OpenFiles, err)
		}
		hashes[spec.Hash()]++
	}
	if len(hashes) != 4 {
		t.Errorf("got hashes %v, want 4 different ones", hashes)
	}
	plain := sandbox.Spec{Image: "debian", Network: "bridge"}
	if err := plain.Complete(); err != nil || plain.Hash() != "459ed714ef8cdce07b0b9b2cb30c3f48" {
		t.Errorf("got hash %s, %v; sandboxes of earlier versions must keep theirs", plain.Hash(), err)
	}
	for want, spec := range map[string]sandbox.Spec{
		"leave out network bridge": {Network: "bridge", Policy: public},
		"mode \"open\"":            {Policy: &egress.Policy{Mode: "open"}},
		"there is none":            {Private: ten},
		"secrets":                  {Policy: &egress.Policy{Mode: egress.ModePublic, Secrets: []egress.Secret{{Name: "A"}}}},
		"private range 10.0.0.1/8": {Policy: public, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
	} {
		spec.Image = "debian"
		if err := spec.Complete(); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
