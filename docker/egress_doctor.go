package docker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// examineEgress says whether network policies can be kept, and what the egress proxy does. It starts
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
	version, open, memory := readEgress(metrics)
	age := "an unknown time"
	if info.ContainerJSONBase != nil && info.State != nil {
		age = units.HumanDuration(time.Since(when(info.State.StartedAt)))
	}
	found := []sandbox.Finding{{Status: "ok", About: "network", Text: fmt.Sprintf("the egress proxy %s has run for %s, with %d policies, %d open connections, and %s of memory",
		version, strings.ToLower(age), len(ids), open, units.BytesSize(memory))}}
	if info.Config != nil && h.outdated(info.Config.Labels[labelBinary]) {
		found = append(found, note("the egress proxy is of another version of the server than new sandboxes get",
			"'runtimectl doctor --restart-egress' replaces it, which ends its connections"))
	}
	own, err := h.state.loadHost()
	if err != nil {
		return append(found, note("the addresses of this host are unknown, and all connections are refused", err.Error())), nil
	}
	return append(found, note("no sandbox with a network policy reaches the addresses of this host: "+own, "")), nil
}

// readEgress returns what the metrics of the proxy say; what they lack is zero.
func readEgress(metrics []byte) (version string, open int, memory float64) {
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		number, _ := strconv.ParseFloat(value, 64) // 0: it is no number
		switch {
		case strings.HasPrefix(name, "actiond_egress_build_info{"):
			_, version, _ = strings.Cut(name, `version="`)
			version, _, _ = strings.Cut(version, `"`)
		case name == "actiond_network_open":
			open = int(number)
		case name == "process_resident_memory_bytes":
			memory = number
		}
	}
	return version, open, memory
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
	addrs = slices.DeleteFunc(addrs, netip.Addr.IsLoopback)
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
