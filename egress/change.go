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
	// Secrets take the place of those of the same name. One without hosts keeps the fields that it leaves out.
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
		i := slices.IndexFunc(p.Secrets, named(s.Name))
		if i < 0 {
			p.Secrets = append(p.Secrets, s)
			continue
		}
		if len(s.Hosts) == 0 {
			s.complete(&p.Secrets[i])
		}
		p.Secrets[i] = s
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
		slices.EqualFunc(p.Secrets, q.Secrets, sameSecret)
}

func sameSecret(a, b Secret) bool {
	return a.Name == b.Name && a.Value == b.Value && a.within(&b) && b.within(&a) && a.Var == b.Var
}

// Brings reports whether p has a secret that before does not have, or has with another value or in another way.
func (p *Policy) Brings(before *Policy) bool {
	return slices.ContainsFunc(p.Secrets, func(s Secret) bool {
		return !slices.ContainsFunc(before.Secrets, func(earlier Secret) bool { return sameSecret(s, earlier) })
	})
}

// FillSecrets gives the secrets that come without a value the one of the same name in own, which are the operator's,
// or else in present, which the sandbox has, and the members that they leave out. Their header and format must be the
// same, and each of their hosts among those of that one: otherwise a client that cannot read a value could have it
// sent elsewhere. The variable of an operator's secret is the operator's as well, and secrets of the client do not
// have the name of such a one. The slice is changed; values are no part of the error.
func FillSecrets(secrets, own, present []Secret) error {
	for i := range secrets {
		if err := secrets[i].fill(own, present); err != nil {
			return fmt.Errorf("secret %s: %w", shorten.Quoted(secrets[i].Name, maxLabel), err)
		}
	}
	return nil
}

func (s *Secret) fill(own, present []Secret) error {
	same := func(o Secret) bool { return o.Name == s.Name }
	from, known := own, slices.IndexFunc(own, same)
	operators := known >= 0
	switch {
	case known >= 0 && s.Value != "":
		return errors.New("the gateway's operator has one of this name, which has its own value: give the name alone, or take another name")
	case s.Value != "":
		return nil // the client's own
	case known < 0:
		from, known = present, slices.IndexFunc(present, same)
	}
	if known < 0 {
		return errors.New("it has no value, and there is none of this name")
	}
	filled := *s
	filled.complete(&from[known])
	switch {
	case !filled.within(&from[known]):
		return errors.New("without a value its hosts, header and format cannot change: leave them out, or give its value again")
	case operators && filled.Var != from[known].Var:
		return errors.New("the gateway's operator has one of this name, whose var cannot change: leave it out")
	}
	filled.Value = from[known].Value
	*s = filled
	return nil
}

// Where returns the JSON pointer to the mistake in a document that [ParsePolicy], [DecodePolicy] or
// [ParseChange] refused, "" for the whole document, and the mistake in words. The text holds no value
// of the wrong type.
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
