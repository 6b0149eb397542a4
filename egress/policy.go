// Package egress decides which hosts sandboxes reach over the network, and connects them. A sandbox
// has no network of its own, but a Unix socket to the egress proxy, on which it asks by CONNECT
// for one connection at a time. The proxy decides by the host's name, looks the name up once,
// and dials the addresses found.
//
// Everything that a sandbox sends is hostile. The package knows policies and connections, and
// no sandboxes: the controller gives it the policy of each by an id.
package egress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
)

// Mode says which of the hosts that no rule names a policy admits.
type Mode string

// The modes.
const (
	ModePublic    Mode = "public"     // every public address
	ModeNoNetwork Mode = "no-network" // nothing, whatever the rules
	ModeAllowlist Mode = "allowlist"  // nothing
)

// Limits of a policy.
const (
	MaxPolicy = 256 << 10 // bytes of JSON
	MaxRules  = 1000      // of allow and deny together
)

// errTooLarge refuses more than MaxPolicy bytes.
var errTooLarge = fmt.Errorf("the policy is larger than %d bytes", MaxPolicy)

// Policy says which hosts a sandbox may reach.
type Policy struct {
	Mode Mode `json:"mode"`
	// Allow are the hosts that mode allowlist admits.
	Allow []Rule `json:"allow,omitzero"`
	// Deny are refused in every mode, whatever Allow says: hosts, and the addresses to which
	// names lead.
	Deny []Rule `json:"deny,omitzero"`
	// MaxBytes limits the bytes that the sandbox sends and receives together; 0: no limit.
	MaxBytes int64 `json:"max_bytes,omitzero"`
	// Secrets are sent to hosts, which they admit at port 443 in mode allowlist.
	Secrets []Secret `json:"secrets,omitzero"`
}

// decode does not accept unknown members. Its errors have no value of the document, which may be a secret.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into, json.RejectUnknownMembers(true))
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		semantic.JSONValue = nil
	}
	return err
}

// ParsePolicy decodes and checks a policy. It accepts Harbor's names of two members: network_mode
// for mode, and allowed_hosts for allow.
func ParsePolicy(data []byte) (Policy, error) {
	p, err := DecodePolicy(data)
	if err == nil {
		err = p.Check()
	}
	return p, err
}

// DecodePolicy decodes a policy as [ParsePolicy] does, and leaves the check to [Policy.Check]: its
// secrets may lack the members that [FillSecrets] adds.
func DecodePolicy(data []byte) (Policy, error) {
	if len(data) > MaxPolicy {
		return Policy{}, errTooLarge
	}
	var sent struct {
		Policy `json:",inline"`

		NetworkMode  *Mode   `json:"network_mode"`
		AllowedHosts *[]Rule `json:"allowed_hosts"`
	}
	if err := decode(data, &sent); err != nil {
		return Policy{}, fmt.Errorf("decoding the policy: %w", err)
	}
	p := sent.Policy
	if sent.NetworkMode != nil {
		if p.Mode != "" {
			return Policy{}, errors.New("mode and network_mode are the same member; give one")
		}
		p.Mode = *sent.NetworkMode
	}
	if sent.AllowedHosts != nil {
		if p.Allow != nil {
			return Policy{}, errors.New("allow and allowed_hosts are the same member; give one")
		}
		p.Allow = *sent.AllowedHosts
	}
	return p, nil
}

// Check returns an error for a policy that [ParsePolicy] would refuse.
func (p *Policy) Check() error {
	switch p.Mode {
	case ModePublic, ModeNoNetwork, ModeAllowlist:
	default:
		return fmt.Errorf("mode %q: use %s, %s or %s", p.Mode, ModePublic, ModeNoNetwork, ModeAllowlist)
	}
	if n := len(p.Allow) + len(p.Deny); n > MaxRules {
		return fmt.Errorf("the policy has %d rules; %d can be", n, MaxRules)
	}
	for _, r := range p.Allow {
		if r.name == "*" {
			return fmt.Errorf("rule %q: only deny can have it; use mode %s", r, ModePublic)
		}
	}
	if slices.Contains(p.Allow, Rule{}) || slices.Contains(p.Deny, Rule{}) {
		return errors.New("a rule is null; it would match nothing")
	}
	if p.MaxBytes < 0 {
		return errors.New("max_bytes is negative")
	}
	if err := checkSecrets(p.Secrets); err != nil {
		return err
	}
	if data, err := json.Marshal(p); err != nil || len(data) > MaxPolicy { // changes may have added to it
		return errors.Join(errTooLarge, err)
	}
	return nil
}

// Summary is the part of a policy that its sandbox may know.
type Summary struct {
	Mode     Mode   `json:"mode"`
	Allow    []Rule `json:"allow,omitzero"`
	Deny     []Rule `json:"deny,omitzero"`
	MaxBytes int64  `json:"max_bytes,omitzero"`
	// Secrets are names.
	Secrets []string `json:"secrets,omitzero"`
}

// Summary returns the parts of p that its sandbox may know.
func (p *Policy) Summary() Summary {
	s := Summary{Mode: p.Mode, Allow: p.Allow, Deny: p.Deny, MaxBytes: p.MaxBytes}
	for i := range p.Secrets {
		s.Secrets = append(s.Secrets, p.Secrets[i].Name)
	}
	return s
}

// Verdict says whether a policy admits a host, and why.
type Verdict struct {
	Allowed bool
	// Reason is the rule or the mode that decided, in words. It is safe for logs and headers.
	Reason string
}

// Reasons of denials. That of a deny rule has the rule behind it.
const (
	reasonNotAllowed = "not in the allow list"
	reasonDeny       = "deny"
	reasonNoNetwork  = "mode no-network"
	reasonPrivate    = "private address"
	reasonServerName = "other server name"
	reasonHello      = "unreadable TLS hello"
	reasonMaxBytes   = "max_bytes"
)

// Decide returns the verdict on a host at a port by its name, before any lookup.
func (p *Policy) Decide(host Host, port uint16) Verdict {
	if p.Mode == ModeNoNetwork {
		return Verdict{Reason: reasonNoNetwork}
	}
	if reason := p.denied(host, port); reason != "" {
		return Verdict{Reason: reason}
	}
	if p.Mode == ModePublic {
		return Verdict{Allowed: true, Reason: "mode public"}
	}
	for _, r := range p.Allow {
		if r.Matches(host, port) {
			return Verdict{Allowed: true, Reason: "allow " + r.String()}
		}
	}
	if s := p.secretOf(host, port); s != nil {
		return Verdict{Allowed: true, Reason: "secret " + s.Name}
	}
	return Verdict{Reason: reasonNotAllowed}
}

// Decide returns the verdict on a host at a port, as [Policy.Decide] does, and on an address also
// whether it is one of those that are never reached, or private. Addresses of the host, which the
// proxy refuses, are not known here.
func (c *Conf) Decide(host Host, port uint16) Verdict {
	v := c.Policy.Decide(host, port)
	if v.Allowed && host.addr.IsValid() && !usable(host.addr, nil, c.Private) {
		return Verdict{Reason: reasonPrivate}
	}
	return v
}

// denied returns the reason of the rule that denies a host, or "".
func (p *Policy) denied(host Host, port uint16) string {
	for _, r := range p.Deny {
		if r.Matches(host, port) {
			return reasonDeny + " " + r.String()
		}
	}
	return ""
}
