package platform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// Modes are the modes of a network policy.
var Modes = []string{string(egress.ModePublic), string(egress.ModeNoNetwork), string(egress.ModeAllowlist)}

// SecretUsage is the usage of --secret.
const SecretUsage = "send a secret to hosts, and not to the sandbox: `SPEC` is id=NAME,env=VARIABLE,host=HOST, or\nsrc=FILE for env=; also header=NAME, format=TEXT with {} for the value, var=VARIABLE"

// policyFlags are the flags of a network policy, beside --network.
type policyFlags struct {
	file                          string
	allow, deny, private, secrets []string
	noNames                       bool

	offers  bool            // see SpecFlags.Offer
	offered []egress.Secret // once they were read
}

func (f *policyFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.allow, "allow", nil, "let the sandbox reach what this `RULE` names and nothing else: HOST, *.DOMAIN, an address or\na range, with :PORT for one port")
	flags.StringArrayVar(&f.deny, "deny", nil, "keep the sandbox from what this `RULE` names, whatever else is allowed")
	flags.StringVar(&f.file, "network-policy", "", "take the network policy from a `FILE` in YAML or JSON; --network, --allow, --deny and --secret add to it")
	flags.StringArrayVar(&f.secrets, "secret", nil, SecretUsage)
	flags.BoolVar(&f.noNames, "no-names", false, "with a policy, let programs reach what is allowed by a proxy alone: no resolver")
	flags.StringArrayVar(&f.private, "private", nil, "let rules lead to private addresses in this `CIDR`, such as 10.0.0.0/8")
}

// policy sets the network policy of a specification that has the value of --network.
func (f *policyFlags) policy(p *Platform, s *sandbox.Spec) error {
	mode := ""
	if slices.Contains(Modes, s.Network) {
		mode, s.Network = s.Network, ""
	}
	sent := f.secrets
	if f.offers {
		sent = nil
		if err := f.offer(p); err != nil {
			return err
		}
	}
	for _, text := range f.private {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--private %q: must be a range of addresses such as 10.0.0.0/8", text)
		}
		s.Private = append(s.Private, prefix)
	}
	s.NoNames = f.noNames
	if mode == "" && f.file == "" && len(f.allow)+len(f.deny)+len(sent) == 0 {
		if len(f.private) > 0 && !f.offers {
			return errors.New("--private is for the rules of --allow, --network or --network-policy")
		}
		if f.noNames && !f.offers {
			return errors.New("--no-names is for a policy of --allow, --network or --network-policy")
		}
		return nil
	}
	if s.Network != "" {
		return fmt.Errorf("--network %s has no policy: leave it out, or --allow, --deny, --secret and --network-policy", s.Network)
	}
	policy := egress.Policy{Mode: egress.ModePublic}
	var err error
	switch {
	case f.file != "":
		if policy, err = p.ReadPolicy(f.file, true); err != nil {
			return fmt.Errorf("--network-policy: %w", err)
		}
	case len(f.allow)+len(sent) > 0:
		policy.Mode = egress.ModeAllowlist
	}
	if mode != "" {
		policy.Mode = egress.Mode(mode)
	}
	allow, err := ParseRules("--allow", f.allow)
	if err != nil {
		return err
	}
	deny, err := ParseRules("--deny", f.deny)
	if err != nil {
		return err
	}
	policy.Allow, policy.Deny = append(policy.Allow, allow...), append(policy.Deny, deny...)
	secrets, err := p.ReadSecrets(sent, true)
	if err != nil {
		return err
	}
	policy.Secrets = append(policy.Secrets, secrets...)
	s.Policy = &policy
	return policy.Check()
}

// offer reads the secrets that are offered.
func (f *policyFlags) offer(p *Platform) (err error) {
	f.offered, err = p.ReadSecrets(f.secrets, true)
	names := map[string]bool{}
	for i := range f.offered {
		if err == nil && names[f.offered[i].Name] {
			err = fmt.Errorf("--secret %q: two have this id", f.offered[i].Name)
		}
		names[f.offered[i].Name] = true
	}
	return err
}

// ParseRules parses the values of a flag.
func ParseRules(flag string, texts []string) ([]egress.Rule, error) {
	var all []egress.Rule
	for _, text := range texts {
		r, err := egress.ParseRule(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// ReadPolicy reads a network policy from a file in YAML or JSON. The error names the line with the
// mistake. A policy that is not whole is not checked, and secrets without a value keep the one that
// a sandbox has.
func (p *Platform) ReadPolicy(name string, whole bool) (egress.Policy, error) {
	file, err := p.OpenFile(name)
	if err != nil {
		return egress.Policy{}, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, egress.MaxPolicy+1))
	if err != nil {
		return egress.Policy{}, err
	}
	if len(text) > egress.MaxPolicy {
		return egress.Policy{}, fmt.Errorf("%s is larger than %d bytes", name, egress.MaxPolicy)
	}
	policy, err := p.parsePolicy(text, whole)
	if err != nil {
		return policy, fmt.Errorf("%s: %w", name, err)
	}
	return policy, nil
}

// parsePolicy parses a policy in YAML, of which JSON is a part. Its secrets may have env or src in
// place of value; they may have none unless the policy is to be whole.
func (p *Platform) parsePolicy(text []byte, whole bool) (egress.Policy, error) {
	var document yaml.Node
	var value any
	err := yaml.Unmarshal(text, &document)
	if err == nil {
		err = document.Decode(&value)
	}
	if err != nil {
		return egress.Policy{}, yamlError(text, err)
	}
	if members, ok := value.(map[string]any); ok {
		if err := p.readValues(members, func(pointer string) int { return lineOf(&document, pointer) }); err != nil {
			return egress.Policy{}, err
		}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return egress.Policy{}, errors.New("it is no policy: the names of its members must be texts")
	}
	policy, err := egress.DecodePolicy(data)
	if err == nil && whole {
		err = policy.Check()
	}
	if wrong, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		line := lineOf(&document, string(wrong.JSONPointer))
		if wrong.Err != nil {
			return policy, fmt.Errorf("line %d, %s: %w", line, wrong.JSONPointer, wrong.Err)
		}
		return policy, fmt.Errorf("line %d, %s: %s cannot be here", line, wrong.JSONPointer, wrong.JSONKind)
	}
	return policy, err
}

var yamlLine = regexp.MustCompile(`line \d+`)

// yamlError returns the error of a text. The decoder's own words quote the text, which may be a
// secret.
func yamlError(text []byte, err error) error {
	if !bytes.Contains(text, []byte("secrets")) {
		return errors.New(output.Clean(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	if line := yamlLine.FindString(err.Error()); line != "" {
		return fmt.Errorf("%s: it is not valid YAML", line)
	}
	return errors.New("it is not valid YAML")
}

// lineOf is the line of the value at a JSON pointer, or of the last value on the way that exists.
func lineOf(node *yaml.Node, pointer string) int {
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(node.Line, 1)
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		next := -1
		switch node.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == token {
					line, next = node.Content[i].Line, i+1
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(token); err == nil {
				next = i
			}
		}
		if next < 0 || next >= len(node.Content) {
			break
		}
		node = node.Content[next]
		if node.Kind == yaml.ScalarNode {
			line = node.Line
		}
	}
	return line
}
