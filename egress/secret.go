package egress

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/actiond/actiond/internal/lazyregexp"
	"github.com/actiond/actiond/internal/shorten"
)

// Limits of secrets.
const (
	MaxSecrets     = 64
	maxSecretHosts = 64
	maxFormat      = 256
	minValue       = 8 // shorter ones would be found in responses that do not have them
	maxValue       = 8192
)

const (
	secretPort    = 443
	defaultHeader = "Authorization"
	placeholder   = "{}"
)

// Value is a text that only the egress proxy may know. Formatted or logged, it is "(hidden)"; JSON
// has the text itself, for the controller's file.
type Value string

// String implements [fmt.Stringer].
func (Value) String() string { return "(hidden)" }

// GoString implements [fmt.GoStringer].
func (v Value) GoString() string { return v.String() }

// LogValue implements [slog.LogValuer].
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

// Secret is a value that the proxy writes into a header of every request to certain hosts, in place
// of the agent's. The sandbox never has it.
type Secret struct {
	// Name is told to the sandbox, and is in errors and logs.
	Name string `json:"name"`
	// Hosts are the names to which it is sent, by TLS at port 443.
	Hosts []Host `json:"hosts"`
	// Header is the name of the header; empty: Authorization.
	Header string `json:"header,omitzero"`
	// Format is the header with {} in place of the value; empty: "Bearer {}". The text behind "Basic "
	// is encoded in base64 if it has a colon.
	Format string `json:"format,omitzero"`
	// Var is a variable of the sandbox that gets [Secret.Placeholder]; empty: none.
	Var string `json:"var,omitzero"`
	// Value has 8 to 8192 visible ASCII characters.
	Value Value `json:"value,omitzero"`
}

// Placeholder is a value for programs that do not start without one.
func (s *Secret) Placeholder() string { return "actiond-secret-" + s.Name }

// The lengths are not in the patterns, which each process compiles when it starts: a
// bounded repetition is compiled into so many copies.
const (
	maxSecretName   = 64
	maxVariableName = 128
)

var (
	secretName   = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// framing are the headers that say how a request is to be read, which are the proxy's to set.
var framing = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (s *Secret) header() string {
	if s.Header == "" {
		return defaultHeader
	}
	return textproto.CanonicalMIMEHeaderKey(s.Header)
}

func (s *Secret) format() string { return cmp.Or(s.Format, defaultFormat) }

// within reports whether s, whose members are all given, sends a value to no other host than other and
// in no other way.
func (s *Secret) within(other *Secret) bool {
	foreign := func(h Host) bool { return !slices.Contains(other.Hosts, h) }
	return s.header() == other.header() && s.format() == other.format() && !slices.ContainsFunc(s.Hosts, foreign)
}

// complete gives s the members of the earlier one of its name that it leaves out, but for the value.
func (s *Secret) complete(earlier *Secret) {
	if len(s.Hosts) == 0 {
		s.Hosts = earlier.Hosts
	}
	s.Header, s.Format, s.Var = cmp.Or(s.Header, earlier.Header), cmp.Or(s.Format, earlier.Format), cmp.Or(s.Var, earlier.Var)
}

// Check returns the error in s, without its value, or nil.
func (s *Secret) Check() error {
	switch n := len(s.Hosts); {
	case len(s.Name) > maxSecretName || !secretName().MatchString(s.Name):
		return errors.New("a name has 1 to 64 letters, digits, and _ . - behind the first")
	case n == 0:
		return errors.New("it has no hosts")
	case n > maxSecretHosts:
		return fmt.Errorf("it has %d hosts; %d can be", n, maxSecretHosts)
	case slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.name == "" }):
		return errors.New("its hosts must be names, without wildcards, addresses and ports")
	case !httpguts.ValidHeaderFieldName(s.header()), slices.Contains(framing, s.header()), strings.HasPrefix(s.header(), "Proxy-"):
		return errors.New("its header cannot be set")
	case s.Var != "" && (len(s.Var) > maxVariableName || !variableName().MatchString(s.Var)):
		return errors.New("its var is not the name of a variable")
	case len(s.Value) < minValue, len(s.Value) > maxValue, !areVisible(string(s.Value)):
		return fmt.Errorf("its value must have %d to %d visible ASCII characters", minValue, maxValue)
	case s.Format == "":
		return nil
	case strings.Count(s.Format, placeholder) != 1, len(s.Format) > maxFormat, !areVisible(strings.ReplaceAll(s.Format, " ", "")),
		s.Format != strings.TrimSpace(s.Format):
		return fmt.Errorf("its format must be ASCII text with one %s, of at most %d characters", placeholder, maxFormat)
	}
	return nil
}

func areVisible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !isVisible(r) })
}

func isVisible(c rune) bool { return c > ' ' && c < 0x7f }

// checkSecrets returns the first error.
func checkSecrets(secrets []Secret) error {
	if len(secrets) > MaxSecrets {
		return fmt.Errorf("the policy has %d secrets; %d can be", len(secrets), MaxSecrets)
	}
	type header struct {
		host Host
		name string
	}
	taken := map[any]string{} // by a name (string), a variable (type variable) or a header
	type variable string
	for i := range secrets {
		s := &secrets[i]
		err := s.Check()
		claim := func(key any, what string) {
			if other, ok := taken[key]; ok && err == nil {
				err = fmt.Errorf("secret %s has the same %s", other, what)
			}
			taken[key] = s.Name
		}
		claim(s.Name, "name")
		if s.Var != "" {
			claim(variable(s.Var), "var")
		}
		for _, host := range s.Hosts {
			claim(header{host, s.header()}, "header of "+host.String())
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", shorten.Quoted(s.Name, maxLabel), err)
		}
	}
	return nil
}

// secretOf returns the first secret of a host at a port, or nil.
func (p *Policy) secretOf(host Host, port uint16) *Secret {
	if port != secretPort {
		return nil
	}
	for i := range p.Secrets {
		if slices.Contains(p.Secrets[i].Hosts, host) {
			return &p.Secrets[i]
		}
	}
	return nil
}

// WithoutValues returns a copy of p that may be shown and stored.
func (p *Policy) WithoutValues() Policy {
	c := *p
	c.Secrets = slices.Clone(p.Secrets)
	for i := range c.Secrets {
		c.Secrets[i].Value = ""
	}
	return c
}

// KeepValues is [FillSecrets] for the secrets of a policy that takes the place of another one.
func (p *Policy) KeepValues(before *Policy) error {
	p.Secrets = slices.Clone(p.Secrets)
	return FillSecrets(p.Secrets, nil, before.Secrets)
}

// Placeholders are the variables of a sandbox for programs that do not start without a secret.
func (p *Policy) Placeholders() map[string]string {
	all := map[string]string{}
	for i := range p.Secrets {
		if s := &p.Secrets[i]; s.Var != "" {
			all[s.Var] = s.Placeholder()
		}
	}
	return all
}

// UnmarshalText parses a host name or an address in a policy. A name may have other letters than
// ASCII's.
func (h *Host) UnmarshalText(text []byte) error {
	if name, err := toName(string(text)); err == nil {
		*h = Host{name: name}
		return nil
	}
	parsed, err := ParseHost(string(text))
	if err != nil {
		return fmt.Errorf("host %s: %w", shorten.Quoted(string(text), maxName), err)
	}
	*h = parsed
	return nil
}

// MarshalText returns the text of [Host.String].
func (h Host) MarshalText() ([]byte, error) { return []byte(h.String()), nil }
