package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
)

// network is the sandbox's side of its network policy. Its zero value has none.
type network struct {
	mu    sync.Mutex
	claim *api.ClaimNetwork // nil where there is no policy
	front *front.Front      // nil without a policy, and where it could not be started again
	// problem is why programs may not trust the sandbox's authority; empty: they do, or the sandbox has no authority.
	problem string
}

func (n *network) claimed() *api.ClaimNetwork {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.claim
}

func (n *network) trustProblem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

func (n *network) proxy() *front.Front {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.front
}

// namesProblem returns why programs that know no proxy cannot connect to names, although the claim
// asked for it; otherwise "".
func (n *network) namesProblem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.claim == nil || !n.claim.Names:
		return ""
	case n.front == nil:
		return "the sandbox has no network"
	case n.front.ResolverProblem() != nil:
		return n.front.ResolverProblem().Error()
	}
	return ""
}

// close closes the local proxy, and forgets it.
func (n *network) close() {
	n.mu.Lock()
	f := n.front
	n.claim, n.front, n.problem = nil, nil, ""
	n.mu.Unlock()
	if f != nil {
		f.Close()
	}
}

// connect starts the local proxy for the network of a claim, has programs trust its authority, and
// returns the variables of all programs. No command has run with these.
func (s *Server) connect(n *api.ClaimNetwork) (variables map[string]string, err error) {
	if n == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	trust, untrusted := s.trust(n.CA)
	if untrusted != nil {
		trust.problem = untrusted.Error()
	}
	cfg := front.Config{
		Socket: n.Socket(), Remote: n.Egress, Token: n.Token, Address: s.cfg.ProxyAddress, Log: s.log, Denied: s.denied, Opened: s.opened,
	}
	if n.Names {
		cfg.Resolver = cmp.Or(s.cfg.ResolverAddress, front.ResolverAddress)
	}
	f, err := front.Start(cfg)
	s.network.mu.Lock()
	s.network.claim, s.network.front, s.network.problem = n, f, trust.problem
	s.network.mu.Unlock()
	address := cmp.Or(s.cfg.ProxyAddress, front.Address)
	if err == nil {
		address = f.Address().String()
		if problem := f.ResolverProblem(); problem != nil {
			s.log.Warn("programs need the proxy to connect to names", "error", problem)
		}
	}
	variables = proxyVariables(address)
	maps.Copy(variables, trust.variables)
	maps.Copy(variables, n.Env)
	return variables, errors.Join(untrusted, err)
}

// denied counts a denial for its action, and returns the name of the client's process.
func (s *Server) denied(d front.Denial) (process string) {
	if s.cfg.Clients == nil {
		return ""
	}
	return s.deniedTo(s.cfg.Clients.Client(d.Client, d.Front))(d)
}

// opened finds the process of a connection in which requests may be denied.
func (s *Server) opened(client, proxy netip.AddrPort) func(front.Denial) (process string) {
	if s.cfg.Clients == nil {
		return func(front.Denial) string { return "" }
	}
	return s.deniedTo(s.cfg.Clients.Client(client, proxy))
}

// deniedTo counts denials of a process for its actions.
func (s *Server) deniedTo(o api.Origin) func(front.Denial) (process string) {
	return func(d front.Denial) string {
		s.actions.Denied(o, actions.Denial{Time: d.Time, Host: d.Host, Port: int(d.Port), Reason: d.Reason})
		return o.Process
	}
}

// collectDenied has denials inside of TLS counted, before the end of an action that began at a time.
func (s *Server) collectDenied(begun time.Time) {
	if f := s.network.proxy(); f != nil {
		f.Collect(begun)
	}
}

// countNetwork adds the metrics of the local proxy.
func (s *Server) countNetwork() {
	if f := s.network.proxy(); f != nil {
		s.metrics.Register(f.Collectors()...)
	}
}

// proxyVariables are those by which programs find the local proxy.
func proxyVariables(address string) map[string]string {
	proxy, none := "http://"+address, "localhost,127.0.0.1,::1,[::1],0.0.0.0,.localhost"
	if name, err := os.Hostname(); err == nil && name != "" {
		none += "," + name
	}
	return map[string]string{
		"http_proxy": proxy, "https_proxy": proxy, "all_proxy": proxy, "no_proxy": none,
		"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": none,
		"NODE_USE_ENV_PROXY": "1",
	}
}

// Resume restores the variables and the local proxy from the claim of the server that this one
// replaces. It is called once, before Serve and before any command. Where another process has taken
// the proxy's address, which deceives that sandbox's programs alone, the sandbox goes on without a
// network; where the certificates cannot be written, without trust in hosts with secrets.
func (s *Server) Resume(ctx context.Context, env map[string]string) error {
	n := s.network.claimed()
	variables, err := s.connect(n)
	if err != nil {
		s.log.WarnContext(ctx, "the network of the sandbox could not be restored", "error", err)
	}
	s.countNetwork()
	if len(env) == 0 && n == nil {
		return nil
	}
	return s.cfg.Executor.Export(ctx, env, variables)
}

// showNetwork answers with the policy and the latest denials.
func (s *Server) showNetwork(w http.ResponseWriter, r *http.Request) error {
	if s.network.claimed() == nil {
		return refuse(http.StatusConflict, "This sandbox has no network policy")
	}
	state := api.NetworkState{Egress: api.EgressDown, Allow: []string{}, Deny: []string{}, Secrets: []string{}, Denied: []api.NetworkDenial{}}
	state.TrustProblem, state.NamesProblem = s.network.trustProblem(), s.network.namesProblem()
	f := s.network.proxy()
	if f == nil {
		return writeJSON(w, http.StatusOK, state)
	}
	state.Names = f.Resolves()
	if p, err := f.Policy(r.Context()); err == nil {
		state.Egress, state.Mode, state.MaxBytes = api.EgressOK, string(p.Mode), p.MaxBytes
		state.Allow, state.Deny, state.Secrets = egress.RuleTexts(p.Allow), egress.RuleTexts(p.Deny), append(state.Secrets, p.Secrets...)
	}
	f.Collect(time.Time{})
	state.Open = f.Open()
	for _, d := range f.Denied() {
		state.Denied = append(state.Denied, api.NetworkDenial{Time: d.Time.UTC(), Host: d.Host, Port: int(d.Port), Reason: d.Reason, Process: d.Process})
	}
	return writeJSON(w, http.StatusOK, state)
}

// errNetwork refuses a claim whose network cannot be kept.
func errNetwork(err error) error {
	return refuse(http.StatusUnprocessableEntity, "The network policy cannot be kept: %v", err)
}
