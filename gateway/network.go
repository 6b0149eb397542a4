package gateway

import (
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
)

// policyOf returns the policy that a creation asks for, with the values of the operator's secrets.
func (g *Gateway) policyOf(sent jsontext.Value) (*egress.Policy, error) {
	p, err := egress.DecodePolicy(sent)
	if err == nil {
		if err = egress.FillSecrets(p.Secrets, g.ownSecrets, nil); err == nil {
			err = g.checkPolicy(&p)
		}
	}
	if err != nil {
		return nil, badPolicy("/network", err)
	}
	return &p, nil
}

// checkPolicy refuses a policy that no sandbox can have, or that admits more than the operator's, and
// adds the operator's rules of deny.
func (g *Gateway) checkPolicy(p *egress.Policy) error {
	err := p.Check()
	if limit := g.cfg.Defaults.Policy; err == nil && limit != nil {
		own := func(name string) bool {
			return slices.ContainsFunc(g.ownSecrets, func(s egress.Secret) bool { return s.Name == name })
		}
		if err = p.Limit(limit, own); err == nil {
			err = p.Check() // with the rules that were added
		}
	}
	return err
}

// badPolicy refuses a policy or a change. at is the JSON pointer to it in the body.
func badPolicy(at string, err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return refuse(http.StatusBadRequest, "body: %v", syntax)
	}
	pointer, text := egress.Where(err)
	if at += pointer; at != "" {
		text = at + ": " + text
	}
	if errors.Is(err, json.ErrUnknownName) {
		return refuse(http.StatusBadRequest, "body: %s", text)
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Detail: "Invalid request parameters", Errors: text}
}
