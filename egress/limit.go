package egress

import (
	"fmt"
	"slices"
	"strings"
)

// Limit makes p admit nothing that by does not admit: it refuses a wider mode, rules of allow that none
// of by's covers, and hosts of secrets that by does not admit, and adds by's rules of deny and its
// limit of bytes. Secrets whose names own accepts go where by's author sends them.
func (p *Policy) Limit(by *Policy, own func(name string) bool) error {
	wider := by.Mode == ModeNoNetwork && p.Mode != ModeNoNetwork || by.Mode == ModeAllowlist && p.Mode == ModePublic
	if wider {
		return fmt.Errorf("mode %s: the gateway's operator admits mode %s or less", p.Mode, by.Mode)
	}
	if by.Mode == ModeAllowlist {
		for _, r := range p.Allow {
			if !slices.ContainsFunc(by.Allow, func(other Rule) bool { return other.covers(r) }) {
				return fmt.Errorf("rule %q: the policy of the gateway's operator does not admit it", r)
			}
		}
		for i := range p.Secrets {
			s := &p.Secrets[i]
			refused := func(h Host) bool { return !by.Decide(h, secretPort).Allowed }
			if !own(s.Name) && slices.ContainsFunc(s.Hosts, refused) {
				return fmt.Errorf("secret %s: the policy of the gateway's operator does not admit its hosts", s.Name)
			}
		}
	}
	p.Deny = changed(p.Deny, nil, by.Deny)
	if by.MaxBytes > 0 && (p.MaxBytes == 0 || p.MaxBytes > by.MaxBytes) {
		p.MaxBytes = by.MaxBytes
	}
	return nil
}

// covers reports whether r matches all that other matches.
func (r Rule) covers(other Rule) bool {
	if r.port != 0 && r.port != other.port {
		return false
	}
	switch domain, wild := strings.CutPrefix(r.name, "*"); {
	case wild:
		return strings.HasSuffix(strings.TrimPrefix(other.name, "*"), domain)
	case r.name != "":
		return r.name == other.name
	}
	return other.prefix.IsValid() && r.prefix.Bits() <= other.prefix.Bits() && r.prefix.Contains(other.prefix.Addr())
}
