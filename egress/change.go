package egress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/internal/shorten"
)

// Change is a change of a policy that keeps the rest of it: those of several controllers do not undo
// one another. Done twice, it has the effect of once.
type Change struct {
	Mode        Mode   `json:"mode"` // "": the present one
	AllowAdd    []Rule `json:"allow_add"`
	AllowRemove []Rule `json:"allow_remove"` // one that is not in the policy is no error
	DenyAdd     []Rule `json:"deny_add"`
	DenyRemove  []Rule `json:"deny_remove"`
	// Secrets take the place of those of the same name.
	Secrets       []Secret `json:"secrets"`
	SecretsRemove []string `json:"secrets_remove"` // names
}

// ParseChange decodes a change. Whether its rules and secrets make a policy is known after
// [Change.Apply], by [Policy.Check].
func ParseChange(data []byte) (c Change, err error) {
	if len(data) > MaxPolicy {
		return c, errTooLarge
	}
	if err = decode(data, &c); err != nil {
		return c, fmt.Errorf("decoding the change: %w", err)
	}
	return c, nil
}

// Apply makes the change. It does not alter slices that p shares.
func (c *Change) Apply(p *Policy) {
	if c.Mode != "" {
		p.Mode = c.Mode
	}
	p.Allow = changed(p.Allow, c.AllowRemove, c.AllowAdd)
	p.Deny = changed(p.Deny, c.DenyRemove, c.DenyAdd)
	named := func(name string) func(Secret) bool { return func(s Secret) bool { return s.Name == name } }
	p.Secrets = slices.Clone(p.Secrets)
	for _, name := range c.SecretsRemove {
		p.Secrets = slices.DeleteFunc(p.Secrets, named(name))
	}
	for _, s := range c.Secrets {
		if i := slices.IndexFunc(p.Secrets, named(s.Name)); i >= 0 {
			p.Secrets[i] = s
		} else {
			p.Secrets = append(p.Secrets, s)
		}
	}
}

// changed returns a copy of rules without some and with others.
func changed(rules, without, with []Rule) (all []Rule) {
	seen := map[Rule]bool{}
	for _, r := range without {
		seen[r] = true
	}
	for _, r := range rules {
		if !seen[r] {
			all = append(all, r)
		}
	}
	clear(seen)
	for _, r := range all {
		seen[r] = true
	}
	for _, r := range with {
		if !seen[r] {
			all = append(all, r)
			seen[r] = true
		}
	}
	return all
}

// Equal reports whether two policies have the same rules and secrets in the same order.
func (p *Policy) Equal(q *Policy) bool {
	return p.Mode == q.Mode && p.MaxBytes == q.MaxBytes && slices.Equal(p.Allow, q.Allow) && slices.Equal(p.Deny, q.Deny) &&
		slices.EqualFunc(p.Secrets, q.Secrets, func(a, b Secret) bool { return a.Value == b.Value && a.fits(&b) && b.fits(&a) && a.Var == b.Var })
}

// FillSecrets gives the secrets that come without a value the one of the same name in own, which are
// the operator's, or else in present, which the sandbox has. Their other members must then be absent
// or the same: a value does not go to hosts that its owner did not name. Secrets of the client do not
// have the name of an operator's. The slice is changed; values are no part of the error.
func FillSecrets(secrets, own, present []Secret) error {
	for i := range secrets {
		s := &secrets[i]
		same := func(o Secret) bool { return o.Name == s.Name }
		known := slices.IndexFunc(own, same)
		from := own
		if known < 0 && s.Value == "" {
			from, known = present, slices.IndexFunc(present, same)
		}
		var err error
		switch {
		case known < 0 && s.Value != "":
			continue // the client's own
		case known < 0:
			err = errors.New("it has no value, and there is none of this name")
		case s.Value != "":
			err = errors.New("the gateway's operator has one of this name, which has its own value: give the name alone, or take another name")
		case !s.fits(&from[known]):
			err = errors.New("without a value its hosts, header, format and var cannot change: leave them out, or give a value")
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", shorten.Quoted(s.Name, maxLabel), err)
		}
		*s = from[known]
	}
	return nil
}

// fits reports whether the members of s but its value are absent or those of other.
func (s *Secret) fits(other *Secret) bool {
	return (len(s.Hosts) == 0 || slices.Equal(s.Hosts, other.Hosts)) && (s.Header == "" || s.header() == other.header()) &&
		(s.Format == "" || s.format() == other.format()) && (s.Var == "" || s.Var == other.Var)
}

// Where returns the JSON pointer to what is wrong with a document that [ParsePolicy], [DecodePolicy]
// or [ParseChange] refused, "" where it is the whole, and what is wrong. Values are no part of it where
// they are of the wrong type.
func Where(err error) (pointer, text string) {
	wrong, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return "", err.Error()
	}
	at := wrong.JSONPointer
	if errors.Is(wrong.Err, json.ErrUnknownName) {
		return string(at.Parent()), "member " + shorten.Quoted(at.LastToken(), maxLabel) + " is unknown"
	}
	if wrong.Err != nil {
		return string(at), wrong.Err.Error()
	}
	kind := wrong.JSONKind.String()
	switch kind {
	case "{":
		kind = "an object"
	case "[":
		kind = "a list"
	}
	return string(at), kind + " cannot be here"
}
