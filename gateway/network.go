package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// maxDeniedWait bounds the wait for denials.
const maxDeniedWait = time.Minute

// policyOf returns the policy that a creation asks for, with the values of the operator's secrets.
func (g *Gateway) policyOf(sent jsontext.Value) (*egress.Policy, error) {
	p, err := egress.DecodePolicy(sent)
	if err == nil {
		err = egress.FillSecrets(p.Secrets, g.ownSecrets, nil)
	}
	if err == nil {
		err = g.limit(&p)
	}
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return nil, badPolicy("/network", err)
	}
	return &p, nil
}

// limit refuses a policy that admits more than the operator's, and adds the operator's rules of deny.
func (g *Gateway) limit(p *egress.Policy) error {
	by := g.cfg.Defaults.Policy
	if by == nil {
		return nil
	}
	return p.Limit(by, func(name string) bool {
		return slices.ContainsFunc(g.ownSecrets, func(s egress.Secret) bool { return s.Name == name })
	})
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

// networked calls do with the sandbox in the path, and the driver's ability to keep its policy.
func (g *Gateway) networked(r *http.Request, do func(able sandbox.Networker, s *sandbox.Sandbox) error) error {
	return sandbox.With(g.cfg.Driver, "keep network policies", func(able sandbox.Networker) error {
		s, err := g.asked(r)
		if err != nil {
			return err
		}
		return do(able, s)
	})
}

func (g *Gateway) getNetwork(w http.ResponseWriter, r *http.Request) error {
	return g.networked(r, func(able sandbox.Networker, s *sandbox.Sandbox) error {
		n, err := able.Network(r.Context(), s)
		if err != nil {
			return err
		}
		return writeNetwork(w, n)
	})
}

// putNetwork replaces a policy.
func (g *Gateway) putNetwork(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r)
	if err != nil {
		return err
	}
	sent, err := egress.DecodePolicy(body)
	if err != nil {
		return badPolicy("", err)
	}
	return g.setNetwork(w, r, func(p *egress.Policy) error {
		next := sent
		next.Secrets = slices.Clone(sent.Secrets) // FillSecrets changes it
		err := egress.FillSecrets(next.Secrets, g.ownSecrets, p.Secrets)
		*p = next
		return err
	})
}

// patchNetwork changes parts of a policy.
func (g *Gateway) patchNetwork(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r)
	if err != nil {
		return err
	}
	sent, err := egress.ParseChange(body)
	if err != nil {
		return badPolicy("", err)
	}
	return g.setNetwork(w, r, func(p *egress.Policy) error {
		change := sent
		change.Secrets = slices.Clone(sent.Secrets)
		err := egress.FillSecrets(change.Secrets, g.ownSecrets, p.Secrets)
		change.Apply(p)
		return err
	})
}

// setNetwork changes the policy of the sandbox in the path, and answers with the result. The driver
// calls change with the present policy while no other change is made.
func (g *Gateway) setNetwork(w http.ResponseWriter, r *http.Request, change func(p *egress.Policy) error) error {
	match, err := generations(r)
	if err != nil {
		return err
	}
	return g.networked(r, func(able sandbox.Networker, s *sandbox.Sandbox) error {
		before := int64(-1)
		n, err := able.SetNetwork(r.Context(), s, func(n *sandbox.Network) error {
			before = n.Generation
			if !match(n.Generation) {
				return api.Unmet(fmt.Sprintf("The network policy of sandbox %s is of generation %d, and not of one that If-Match names; nothing was changed", s.ID, n.Generation))
			}
			err := change(&n.Policy)
			if err == nil {
				err = g.limit(&n.Policy)
			}
			if err != nil {
				return badPolicy("", err)
			}
			return nil // the driver checks the result, whose secrets have no values where those stay
		})
		g.metrics.networkChanged(r.Context(), n, before, err)
		if err != nil {
			return err
		}
		if n.Generation != before { // the log has neither rules nor secrets
			g.log.InfoContext(r.Context(), "changed a network policy", slog.String("sandbox", s.ID), slog.String("name", s.Name),
				slog.String("mode", string(n.Policy.Mode)), slog.Int64("generation", n.Generation), slog.Bool("applied", n.Up))
		}
		if n.Up {
			return writeNetwork(w, n)
		}
		w.Header().Set("Retry-After", "1")
		return writeJSON(w, http.StatusServiceUnavailable, api.NetworkUnapplied{
			Detail: "the network policy is stored, and applies once the egress proxy answers; until then the network is closed: " + n.Problem,
			Errors: []any{}, Code: "egress_down", Generation: n.Generation,
		})
	})
}

// generations returns whether a generation is one that If-Match asks for.
func generations(r *http.Request) (match func(generation int64) bool, err error) {
	sent := r.Header.Values("If-Match")
	if len(sent) == 0 {
		return func(int64) bool { return true }, nil
	}
	var wanted []int64
	all := false
	for tag := range strings.SplitSeq(strings.Join(sent, ","), ",") {
		tag = strings.TrimSpace(tag)
		n, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
		switch {
		case tag == "*":
			all = true
		case err != nil || tag != entityTag(n):
			return nil, refuse(http.StatusBadRequest, `header.If-Match: must be * or generations in quotes such as "3", got %s`, api.Describe(tag))
		}
		wanted = append(wanted, n)
	}
	return func(generation int64) bool { return all || slices.Contains(wanted, generation) }, nil
}

func entityTag(generation int64) string { return `"` + strconv.FormatInt(generation, 10) + `"` }

// writeNetwork answers with a policy without values, and its generation as the entity tag.
func writeNetwork(w http.ResponseWriter, n *sandbox.Network) error {
	d := api.SandboxNetwork{
		Mode: string(n.Policy.Mode), Allow: egress.RuleTexts(n.Policy.Allow), Deny: egress.RuleTexts(n.Policy.Deny), MaxBytes: n.Policy.MaxBytes,
		Secrets: []api.NetworkSecret{}, Generation: n.Generation, Egress: api.EgressDown, Problem: n.Problem,
		Open: n.Open, Bytes: n.Sent + n.Received, Denied: n.Denied,
	}
	if n.Up {
		d.Egress = api.EgressOK
	}
	for _, s := range n.Policy.Secrets {
		secret := api.NetworkSecret{Name: s.Name, Header: s.Header, Format: s.Format, Var: s.Var}
		for _, host := range s.Hosts {
			secret.Hosts = append(secret.Hosts, host.String())
		}
		d.Secrets = append(d.Secrets, secret)
	}
	w.Header().Set("ETag", entityTag(n.Generation))
	return writeJSON(w, http.StatusOK, d)
}

// listDenied answers with the denials after a number, and waits for one if it is asked to.
func (g *Gateway) listDenied(w http.ResponseWriter, r *http.Request) error {
	after, err := number(r.URL.Query(), "after", 1<<53)
	if err != nil {
		return err
	}
	wait, err := number(r.URL.Query(), "wait", int64(maxDeniedWait/time.Second))
	if err != nil {
		return err
	}
	return g.networked(r, func(able sandbox.Networker, s *sandbox.Sandbox) error {
		denied, err := able.Denied(r.Context(), s, after, time.Duration(wait)*time.Second)
		if err != nil {
			return err
		}
		list := api.DenialList{Denied: []api.NumberedDenial{}}
		for _, d := range denied {
			list.Denied = append(list.Denied, api.NumberedDenial{Number: d.Number, Time: d.Time.UTC(), Host: d.Host, Port: int(d.Port), Reason: d.Reason})
		}
		return writeJSON(w, http.StatusOK, list)
	})
}

// number reads a parameter that is a whole number from 0 to most; absent, it is 0.
func number(query url.Values, name string, most int64) (int64, error) {
	text, ok := query[name]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text[0], 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, refuse(http.StatusBadRequest, "Parameter %s %.20q: must be a number from 0 to %d", name, text[0], most)
	}
	return n, nil
}
