package docker

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// examineEgress reports whether network policies can be kept, and the state of the egress proxy. It starts
// nothing.
func (h *Host) examineEgress(ctx context.Context) ([]sandbox.Finding, error) {
	learned, err := h.learn(ctx)
	if err != nil {
		return nil, err
	}
	note := func(text, so string) sandbox.Finding {
		return sandbox.Finding{Status: "note", About: "network", Text: text, So: so}
	}
	if err := h.keepsPolicies(learned, ""); err != nil {
		_, reason, _ := strings.Cut(err.Error(), cannotKeep)
		return []sandbox.Finding{note("network policies cannot be kept", reason)}, nil
	}
	found, err := h.examineProxy(ctx, note)
	if err != nil {
		return nil, err
	}
	data, name, err := h.roots()
	if err == nil {
		err = checkRoots(data, name)
	}
	if err != nil {
		return append(found, note("network policies can have no secrets", err.Error())), nil
	}
	return append(found, note("hosts with secrets are verified by the certificates in "+name, "")), nil
}

// examineProxy returns findings about the egress proxy.
func (h *Host) examineProxy(ctx context.Context, note func(text, so string) sandbox.Finding) ([]sandbox.Finding, error) {
	ids, err := h.state.confs()
	if err != nil {
		return nil, err
	}
	info, err := h.inspect(ctx, "looking for the egress proxy", h.egressName())
	if isNotFound(err) && len(ids) == 0 {
		return []sandbox.Finding{{Status: "ok", About: "network", Text: "sandboxes can have network policies; the first one starts the egress proxy"}}, nil
	}
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	var metrics []byte
	if err := h.askEgress(ctx, http.MethodGet, "/metrics", &metrics); err != nil {
		return []sandbox.Finding{{ //nolint:nilerr // the finding says it
			Status: "weaker", About: "network", Text: fmt.Sprintf("the egress proxy does not answer, and sandboxes with network policies reach nothing (%d)", len(ids)),
			So: "'runtimectl prune' starts it; should it not: " + err.Error(),
		}}, nil
	}
	version, open, memory := egress.ReadMetrics(metrics)
	age := "an unknown time"
	if info.ContainerJSONBase != nil && info.State != nil {
		age = units.HumanDuration(time.Since(when(info.State.StartedAt)))
	}
	found := []sandbox.Finding{{Status: "ok", About: "network", Text: fmt.Sprintf("the egress proxy %s has run for %s, with %d policies, %d open connections, and %s of memory",
		version, strings.ToLower(age), len(ids), open, units.BytesSize(memory))}}
	if info.Config != nil && h.outdated(info.Config.Labels[labelBinary]) {
		found = append(found, note("the egress proxy is of another version of the server than new sandboxes get",
			"a creation of a later release replaces it while it has no connection, and 'runtimectl doctor --restart-egress' at once"))
	}
	found = append(found, h.examineNames(ctx)...)
	own, err := h.state.loadHost()
	if err != nil {
		return append(found, note("the addresses of this host are unknown, and all connections are refused", err.Error())), nil
	}
	return append(found, note("no sandbox with a network policy reaches the addresses of this host: "+own, "")), nil
}

// maxExamined bounds the sandboxes that are asked whether they resolve names.
const maxExamined = 64

// examineNames reports sandboxes in which programs that know no proxy cannot connect to names,
// although they should.
func (h *Host) examineNames(ctx context.Context) (found []sandbox.Finding) {
	all, err := h.List(ctx)
	if err != nil {
		return nil // the engine was reported already
	}
	asked, on := 0, 0
	for _, box := range all {
		s, err := h.own(box)
		if err != nil || box.State != sandbox.Ready || asked == maxExamined {
			continue
		}
		switch names := h.names(ctx, s); names {
		case "":
			continue
		case "on":
			on++
		case "off", "unknown":
		default:
			found = append(found, sandbox.Finding{
				Status: "weaker", About: "network", Text: fmt.Sprintf("programs of sandbox %s that know no proxy cannot connect to names: %s", box.ID, names),
				So: "programs that read proxy variables do; an engine from 20.10 on lets sandboxes listen on port 53",
			})
		}
		asked++
	}
	if len(found) > 0 || on == 0 {
		return found
	}
	return []sandbox.Finding{{Status: "ok", About: "network", Text: fmt.Sprintf("programs that know no proxy connect to names (%d of %d sandboxes with policies)", on, asked)}}
}

// loadHost returns the addresses that no sandbox reaches, as text.
func (s *stateDir) loadHost() (string, error) {
	data, err := s.root.ReadFile(hostFile)
	if err != nil {
		return "", err
	}
	addrs, err := egress.ParseHostAddresses(data)
	if err != nil {
		return "", err
	}
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() && a.Is6() }) // each container has one of the latter
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", "), nil
}

// RestartEgress is [sandbox.Networker]'s.
func (h *Host) RestartEgress(ctx context.Context) error {
	if _, err := h.removeEgress(ctx, false); err != nil {
		return err
	}
	ids, err := h.state.confs()
	if err != nil || len(ids) == 0 {
		return err // the next policy starts it
	}
	if err := h.saveHost(ctx); err != nil {
		return err
	}
	return h.raiseEgress(ctx)
}
