package sandbox_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// TestPolicyHash: the value of a secret is no part of the hash, and where it is sent is.
func TestPolicyHash(t *testing.T) {
	t.Parallel()
	hashes := map[string]string{}
	for name, secret := range map[string]string{
		"one": `"hosts":["a.example"],"value":"12345678"`, "rotated": `"hosts":["a.example"],"value":"87654321"`,
		"elsewhere": `"hosts":["b.example"],"value":"12345678"`, "var": `"hosts":["a.example"],"var":"V","value":"12345678"`,
	} {
		p, err := egress.ParsePolicy([]byte(`{"mode":"public","secrets":[{"name":"A",` + secret + `}]}`))
		if err != nil {
			t.Fatal(err)
		}
		spec := sandbox.Spec{Image: "debian", Policy: &p}
		if err := spec.Complete(); err != nil {
			t.Fatal(err)
		}
		hashes[name] = spec.Hash()
		if spec.Policy.Secrets[0].Value == "" {
			t.Error("the policy lost its value")
		}
	}
	if hashes["one"] != hashes["rotated"] || hashes["one"] == hashes["elsewhere"] || hashes["one"] == hashes["var"] {
		t.Errorf("got %v", hashes)
	}
}

// TestPolicy: a policy excludes other networks, raises the default of open files, and is part of the
// hash, which stays that of earlier versions without one.
func TestPolicy(t *testing.T) {
	t.Parallel()
	public := &egress.Policy{Mode: egress.ModePublic}
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	hashes := map[string]int{}
	for i, spec := range []sandbox.Spec{
		{Network: "none", OpenFiles: 4608},
		{Policy: public},
		{Policy: public, Private: ten},
		{Policy: &egress.Policy{Mode: egress.ModeAllowlist}},
		{Policy: public, NoNames: true},
	} {
		spec.Image = "debian"
		if err := spec.Complete(); err != nil || spec.Network != "none" || spec.OpenFiles != 4608 {
			t.Errorf("%d: got network %s, %d open files, %v", i, spec.Network, spec.OpenFiles, err)
		}
		hashes[spec.Hash()]++
	}
	if len(hashes) != 5 {
		t.Errorf("got hashes %v, want 5 different ones", hashes)
	}
	plain := sandbox.Spec{Image: "debian", Network: "bridge"}
	if err := plain.Complete(); err != nil || plain.Hash() != "459ed714ef8cdce07b0b9b2cb30c3f48" {
		t.Errorf("got hash %s, %v; sandboxes of earlier versions must keep theirs", plain.Hash(), err)
	}
	for want, spec := range map[string]sandbox.Spec{
		"leave out network bridge": {Network: "bridge", Policy: public},
		"mode \"open\"":            {Policy: &egress.Policy{Mode: "open"}},
		"there is none":            {Private: ten},
		"it has no hosts":          {Policy: &egress.Policy{Mode: egress.ModePublic, Secrets: []egress.Secret{{Name: "A"}}}},
		"names are resolved with":  {NoNames: true},
		"private range 10.0.0.1/8": {Policy: public, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
	} {
		spec.Image = "debian"
		if err := spec.Complete(); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
