package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

const (
	// demoPort is where the demo's sandbox serves a page.
	demoPort = 8765
	// deniedURL is a host that no policy of the demo allows, of a name that cannot be registered.
	deniedURL = "http://evil.example/"
	// serveCommand returns when the page can be asked for.
	serveCommand = "cat /proc/sys/kernel/random/uuid >server.key; " +
		"(/.actiond/server %d --session-key-file server.key >server.log 2>&1 &); until grep -q serving server.log; do sleep 0.1; done"
)

// demoFetches are the commands that print a page, by a program that the sandbox must have. The last
// one is for images without a client of HTTP.
var demoFetches = []struct{ program, command string }{
	{"curl", "curl -sS %s"},
	{"wget", "wget -q -O - %s"},
	{"bash", `bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "GET %%s HTTP/1.0\r\n\r\n" "$0" >&3; cat <&3' %s`},
}

// networkDemo has the parts that the requests over the network need.
type networkDemo struct {
	address netip.AddrPort // of the page
	spec    sandbox.Spec   // of the sandbox that may ask for it
	fetch   string         // command, with %s for the URL
}

// URL is the page that the policy allows.
func (n *networkDemo) URL() string { return "http://" + n.address.String() + "/healthz" }

// noNetworkError reports why requests over the network are left out.
type noNetworkError struct{ error }

// prepareNetwork returns how the sandbox s serves a page to another one. It fails with a
// noNetworkError where policies cannot be kept. found are the programs of the sandbox.
func (p *program) prepareNetwork(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox, found []string) (*networkDemo, error) {
	if p.Kubernetes {
		return nil, noNetworkError{errors.New("the egress proxy of a cluster connects to public addresses alone")}
	}
	if _, err := sandbox.Needs[sandbox.Networker](driver, "keep network policies"); err != nil {
		return nil, noNetworkError{err}
	}
	inspector, err := sandbox.Needs[sandbox.Inspector](driver, "say the addresses of sandboxes")
	if err != nil {
		return nil, noNetworkError{err}
	}
	n := &networkDemo{}
	for _, f := range slices.Backward(demoFetches) {
		if slices.Contains(found, f.program) {
			n.fetch = f.command
		}
	}
	if n.fetch == "" {
		return nil, noNetworkError{errors.New("the sandbox has no curl, wget or bash")}
	}
	details, err := inspector.Inspect(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(details.Addresses) == 0 {
		return nil, noNetworkError{errors.New("the sandbox has no address")}
	}
	address, err := netip.ParseAddr(details.Addresses[0])
	if err != nil {
		return nil, err
	}
	n.address = netip.AddrPortFrom(address, demoPort)
	rule, err := egress.ParseRule(n.address.String())
	if err != nil {
		return nil, err
	}
	n.spec = sandbox.Spec{
		Image: s.Image, TTL: demoTTL, Labels: map[string]string{"runtimectl": "demo"},
		Policy:  &egress.Policy{Mode: egress.ModeAllowlist, Allow: []egress.Rule{rule}},
		Private: []netip.Prefix{netip.PrefixFrom(address, address.BitLen())},
	}
	if _, err := driver.Check(ctx, new(n.spec)); errors.Is(err, sandbox.ErrInvalid) {
		return nil, noNetworkError{err}
	} else if err != nil {
		return nil, err
	}
	return n, nil
}

// playNetwork serves a page in the sandbox s, and asks for it and for another host from a sandbox
// whose policy allows the page alone.
func (p *program) playNetwork(ctx context.Context, d *demo, driver sandbox.Driver, s *sandbox.Sandbox, found []string) (err error) {
	n, err := p.prepareNetwork(ctx, driver, s, found)
	if why, ok := errors.AsType[noNetworkError](err); ok {
		d.print("\nLeft out, requests over the network that a policy allows and denies: %s\n", output.Clean(errorText(why.error)))
		return d.written
	}
	if err != nil {
		return fmt.Errorf("preparing requests over the network: %w", err)
	}
	var box *sandbox.Sandbox
	defer func() {
		if box != nil {
			err = p.RemoveAfter(ctx, driver, box, err)
			_, _ = fmt.Fprintln(p.Stderr, "note: the egress proxy stays for further sandboxes; without any, 'runtimectl prune' removes it after 10 minutes")
		}
	}()
	create := func(ctx context.Context) (api.Observation, error) {
		if box, err = driver.Create(ctx, n.spec); err != nil {
			return nil, err
		}
		c, err := platform.Client(box)
		if err != nil {
			return nil, err
		}
		d.use(c)
		return api.ReadObservation{Content: "sandbox " + box.ID}, nil
	}
	private := n.spec.Private[0].String()
	run := func(command string) api.Action { return api.RunAction{Command: command, Blocking: true} }
	for _, step := range []step{
		{say: "Serve a page here, by another server of this sandbox's.", show: fmt.Sprintf("/.actiond/server %d &", demoPort), action: run(fmt.Sprintf(serveCommand, demoPort)), seconds: 30},
		{say: "Make a second sandbox, whose network policy allows that page's address alone.", show: "create --allow " + n.address.String() + " --private " + private + " " + s.Image, work: create},
		{say: "There, ask for the page. The policy allows it.", action: run(fmt.Sprintf(n.fetch, n.URL())), holds: []string{`{"status":"ok"}`}},
		{say: "Ask another host. The policy denies it, and says so to the agent.", action: run(fmt.Sprintf(n.fetch, deniedURL) + " || true"), show: fmt.Sprintf(n.fetch, deniedURL), holds: []string{
			"[network] blocked by policy: " + strings.TrimSuffix(strings.TrimPrefix(deniedURL, "http://"), "/") + ":80 (not in the allow list)",
		}},
	} {
		if err := d.play(ctx, step); err != nil {
			return err
		}
	}
	return nil
}
