package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// followWait is how long one request waits for refused connections.
const followWait = 30 * time.Second

// networkFlags are the flags of network.
type networkFlags struct {
	mode, file, check      string
	allow, deny, remove    []string
	secrets, removeSecrets []string
	denied, follow         bool
}

func (p *program) network() *cobra.Command {
	var f networkFlags
	c := &cobra.Command{
		Use:   "network [flags] SANDBOX",
		Short: "Show or change what a sandbox reaches over the network",
		Long: `Network shows the network policy of a sandbox, its connections, and the latest that
were refused. With flags it changes the policy first: connections that the new one
refuses have ended when it returns. The sandbox must have been created with
--network public, allowlist or no-network, or with --allow, --deny, --secret or
--network-policy.

A RULE is a host name, *.DOMAIN for all names below it, an address or a range of
addresses, and may end with :PORT. What --deny names is refused in every mode, and
--allow has an effect in mode allowlist alone.

--secret adds a secret, or replaces the one of that name: the next request has the
new value. Without host= it keeps the hosts, and what else is not given.

With --check it says what the policy decides about HOST:PORT, by which rule, and
connects to nothing; the exit code is 1 where that is refused.`,
		Example: `  runtimectl network build
  runtimectl network build --mode no-network
  runtimectl network build --allow '*.example.org:443' --remove api.example.com
  runtimectl network build --secret id=API,env=API_KEY,host=api.example.com
  runtimectl network build --denied --follow`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && slices.Contains(dockerNetworkWords, args[0]) {
				return fmt.Errorf("networks are the engine's: 'docker network %s'; this command is about the network of a sandbox", args[0])
			}
			return command.ArgRange(1, 1)(cmd, args)
		},
		ValidArgsFunction: p.CompleteSandboxes(1),
	}
	f.add(c)
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := f.change(&p.Platform)
		if err == nil {
			err = f.checkTogether(change != nil)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		return p.In(func(driver sandbox.Driver) error {
			s, err := p.Find(cmd.Context(), driver, args[0])
			if err != nil {
				return err
			}
			networker, err := sandbox.Needs[sandbox.Networker](driver, "keep network policies")
			if err != nil {
				return err
			}
			switch {
			case f.denied:
				return p.printDenied(cmd.Context(), networker, s, f.follow, format)
			case f.check != "":
				return p.checkTarget(cmd.Context(), networker, s, f.check, format)
			}
			return p.showNetwork(cmd.Context(), networker, s, change, format)
		}, p.servers()...) // without, an egress proxy that was removed cannot be made again
	}
	return c
}

func (f *networkFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.mode, "mode", "", "change the mode to `MODE`: public, allowlist or no-network")
	flags.StringArrayVar(&f.allow, "allow", nil, "add a `RULE` to the hosts that mode allowlist admits")
	flags.StringArrayVar(&f.deny, "deny", nil, "add a `RULE` to the hosts that are refused")
	flags.StringArrayVar(&f.remove, "remove", nil, "remove a `RULE`")
	flags.StringArrayVar(&f.secrets, "secret", nil, platform.SecretUsage)
	flags.StringArrayVar(&f.removeSecrets, "remove-secret", nil, "remove the secret `NAME`")
	flags.StringVarP(&f.file, "file", "f", "", "replace the policy by the one in a `FILE` of YAML or JSON, before the other flags change it")
	flags.StringVar(&f.check, "check", "", "say what the policy decides about `HOST:PORT`")
	flags.BoolVar(&f.denied, "denied", false, "list the refused connections, the oldest first")
	flags.BoolVar(&f.follow, "follow", false, "with --denied, wait for more until interrupted")
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(platform.Modes, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// dockerNetworkWords are commands of 'docker network'.
var dockerNetworkWords = []string{"connect", "create", "disconnect", "inspect", "list", "ls", "prune", "rm"}

// checkTogether refuses flags that exclude each other.
func (f *networkFlags) checkTogether(changes bool) error {
	switch {
	case f.follow && !f.denied:
		return errors.New("--follow is for --denied")
	case f.denied && f.check != "", (f.denied || f.check != "") && changes:
		return errors.New("change the policy, --check or list what was --denied: one at a time")
	}
	return nil
}

// change returns the change of a policy that the flags ask for, nil for none. An error is a usage
// error.
func (f *networkFlags) change(p *platform.Platform) (func(*sandbox.Network) error, error) {
	if f.mode != "" && !slices.Contains(platform.Modes, f.mode) {
		return nil, fmt.Errorf("--mode %q: must be public, allowlist or no-network", f.mode)
	}
	allow, err := platform.ParseRules("--allow", f.allow)
	if err != nil {
		return nil, err
	}
	deny, err := platform.ParseRules("--deny", f.deny)
	if err != nil {
		return nil, err
	}
	remove, err := platform.ParseRules("--remove", f.remove)
	if err != nil {
		return nil, err
	}
	secrets, err := p.ReadSecrets(f.secrets, false)
	if err != nil {
		return nil, err
	}
	var read *egress.Policy
	if f.file != "" {
		policy, err := p.ReadPolicy(f.file, false)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		read = &policy
	}
	if f.mode == "" && read == nil && len(allow)+len(deny)+len(remove)+len(secrets)+len(f.removeSecrets) == 0 {
		return nil, nil //nolint:nilnil // no change
	}
	return func(n *sandbox.Network) error {
		if read != nil {
			n.Policy = *read
		}
		for i, r := range remove {
			if !slices.Contains(n.Policy.Allow, r) && !slices.Contains(n.Policy.Deny, r) || slices.Contains(remove[:i], r) {
				return command.Invalid("--remove: rule %q is not in the policy", r)
			}
		}
		if err := f.checkSecrets(&n.Policy, secrets); err != nil {
			return err
		}
		change := egress.Change{
			Mode: egress.Mode(f.mode), AllowAdd: allow, AllowRemove: remove, DenyAdd: deny, DenyRemove: remove, Secrets: secrets, SecretsRemove: f.removeSecrets,
		}
		change.Apply(&n.Policy)
		return nil
	}, nil
}

// checkSecrets refuses secrets that would change nothing, or have no hosts.
func (f *networkFlags) checkSecrets(policy *egress.Policy, secrets []egress.Secret) error {
	has := func(name string) bool {
		return slices.ContainsFunc(policy.Secrets, func(s egress.Secret) bool { return s.Name == name })
	}
	for i, name := range f.removeSecrets {
		if !has(name) || slices.Contains(f.removeSecrets[:i], name) {
			return command.Invalid("--remove-secret: the policy has no secret %q; %s", name, secretNames(policy))
		}
	}
	for _, s := range secrets {
		if len(s.Hosts) == 0 && (!has(s.Name) || slices.Contains(f.removeSecrets, s.Name)) {
			return command.Invalid("--secret %q: the policy has no such secret, so it needs host=HOST; %s", s.Name, secretNames(policy))
		}
	}
	return nil
}

func secretNames(policy *egress.Policy) string {
	if len(policy.Secrets) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(policy.Summary().Secrets, ", ")
}

// showNetwork makes the change, if there is one, and prints the network.
func (p *program) showNetwork(ctx context.Context, networker sandbox.Networker, s *sandbox.Sandbox, change func(*sandbox.Network) error, format *output.Format) error {
	var n *sandbox.Network
	var err error
	if change != nil {
		n, err = networker.SetNetwork(ctx, s, change)
	} else {
		n, err = networker.Network(ctx, s)
	}
	if err != nil {
		return err
	}
	info := describeNetwork(n)
	if n.Up && n.Denied > 0 {
		latest, err := networker.Denied(ctx, s, n.Denied-latestDenied, 0)
		if err != nil {
			return err
		}
		info.Latest = latest
	}
	if err := p.Print(format, info); err != nil {
		return err
	}
	if change != nil && !n.Up {
		return command.Unavailable("the policy is stored and applies once the egress proxy answers; until then the network is closed")
	}
	return nil
}

// latestDenied is how many refused connections are shown beside the policy.
const latestDenied = 5

// networkInfo is the output of network.
type networkInfo struct {
	Mode       egress.Mode     `json:"mode"`
	Allow      []egress.Rule   `json:"allow"`
	Deny       []egress.Rule   `json:"deny"`
	MaxBytes   int64           `json:"max_bytes"`
	Private    []string        `json:"private"`
	Secrets    []secretInfo    `json:"secrets"`
	Names      string          `json:"names"` // "on", "off", "unknown", or why they are not on
	Generation int64           `json:"generation"`
	Egress     string          `json:"egress"` // "ok", or "down"
	Problem    string          `json:"problem,omitzero"`
	Open       int             `json:"open"`
	Sent       int64           `json:"sent_bytes"`
	Received   int64           `json:"received_bytes"`
	Denied     int64           `json:"denied"`
	Latest     []egress.Denial `json:"latest_denied,omitzero"`
}

// secretInfo is a secret as it is shown.
type secretInfo struct {
	Name   string        `json:"name"`
	Hosts  []egress.Host `json:"hosts"`
	Header string        `json:"header,omitzero"`
	Format string        `json:"format,omitzero"`
	Var    string        `json:"var,omitzero"`
}

// text is the name and the hosts.
func (s *secretInfo) text() string {
	var hosts []string
	for _, host := range s.Hosts {
		hosts = append(hosts, host.String())
	}
	text := s.Name + " to " + strings.Join(hosts, " ")
	if s.Var != "" {
		text += ", in place of " + s.Var
	}
	return text
}

func describeNetwork(n *sandbox.Network) networkInfo {
	info := networkInfo{
		Mode: n.Policy.Mode, Allow: append([]egress.Rule{}, n.Policy.Allow...), Deny: append([]egress.Rule{}, n.Policy.Deny...), MaxBytes: n.Policy.MaxBytes,
		Private: []string{}, Names: n.Names, Generation: n.Generation, Egress: "down", Problem: n.Problem, Open: n.Open, Sent: n.Sent, Received: n.Received, Denied: n.Denied,
	}
	info.Secrets = []secretInfo{}
	for _, s := range n.Policy.Secrets {
		info.Secrets = append(info.Secrets, secretInfo{s.Name, s.Hosts, s.Header, s.Format, s.Var})
	}
	if n.Up {
		info.Egress = "ok"
	}
	for _, prefix := range n.Private {
		info.Private = append(info.Private, prefix.String())
	}
	return info
}

// Folds lets the last column continue on further lines.
func (networkInfo) Folds() {}

func (i networkInfo) Table() [][]string {
	rows := [][]string{{"mode", string(i.Mode)}}
	add := func(name string, values []string) {
		for _, value := range values {
			rows = append(rows, []string{name, value})
			name = ""
		}
	}
	add("allow", egress.RuleTexts(i.Allow))
	add("deny", egress.RuleTexts(i.Deny))
	add("private", i.Private)
	var secrets []string
	for n := range i.Secrets {
		secrets = append(secrets, i.Secrets[n].text())
	}
	add("secret", secrets)
	if i.Names != "" {
		add("names", []string{i.Names})
	}
	if i.MaxBytes > 0 {
		add("limit", []string{output.Size(i.MaxBytes)})
	}
	if i.Egress != "ok" {
		add("egress", []string{"down, nothing passes: " + i.Problem})
		return rows
	}
	add("connections", []string{fmt.Sprintf("%d open, %s sent, %s received", i.Open, output.Size(i.Sent), output.Size(i.Received))})
	if i.Denied > 0 {
		lines := []string{fmt.Sprintf("%d connections", i.Denied)}
		for _, d := range i.Latest {
			lines = append(lines, strings.Join(deniedInfo(d).Row(), "  "))
		}
		add("denied", lines)
	}
	return rows
}

// printDenied prints the refused connections, and with follow also later ones.
func (p *program) printDenied(ctx context.Context, networker sandbox.Networker, s *sandbox.Sandbox, follow bool, format *output.Format) error {
	out := &output.Lines{To: &p.Streams, Format: format}
	var wait time.Duration
	for after := int64(0); ; {
		all, err := networker.Denied(ctx, s, after, wait)
		if err != nil {
			return command.UnlessOver(ctx, err)
		}
		for _, d := range all {
			if err := out.Print(deniedInfo(d)); err != nil {
				return err
			}
			after = d.Number
		}
		if !follow {
			return nil
		}
		wait = followWait
	}
}

// deniedInfo is a refused connection as it is printed.
type deniedInfo egress.Denial

func (deniedInfo) Headings() []string { return []string{"TIME", "HOST", "PORT", "REASON"} }

func (d deniedInfo) Row() []string {
	return []string{output.Stamp(d.Time), d.Host, strconv.Itoa(int(d.Port)), d.Reason}
}

// checkTarget prints the decision of the policy about a target. It fails where that is refused.
func (p *program) checkTarget(ctx context.Context, networker sandbox.Networker, s *sandbox.Sandbox, target string, format *output.Format) error {
	host, port, err := egress.ParseTarget(target)
	if err != nil {
		return command.Invalid("--check %q: %w", target, err)
	}
	n, err := networker.Network(ctx, s)
	if err != nil {
		return err
	}
	verdict := (&egress.Conf{Policy: n.Policy, Private: n.Private}).Decide(host, port)
	if err := p.Print(format, verdictInfo{host.String(), port, verdict.Allowed, verdict.Reason}); err != nil {
		return err
	}
	if !verdict.Allowed {
		return &command.ExitError{Code: command.ExitFailed}
	}
	return nil
}

// verdictInfo is the output of network --check.
type verdictInfo struct {
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
}

func (v verdictInfo) Table() [][]string {
	return [][]string{{map[bool]string{true: "allowed", false: "denied"}[v.Allowed], v.Reason}}
}
