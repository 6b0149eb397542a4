package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/actiond/actiond/internal/lazyregexp"
	"github.com/actiond/actiond/internal/shorten"
)

// Host is a host name in lower case, without a dot at its end, or an address.
type Host struct {
	name string
	addr netip.Addr // valid if the host is an address
}

// String returns the host without brackets.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// IsAddress reports whether the host is an address.
func (h Host) IsAddress() bool { return h.addr.IsValid() }

// Join returns HOST:PORT, with brackets where the host needs them.
func (h Host) Join(port uint16) string {
	if h.addr.IsValid() {
		return netip.AddrPortFrom(h.addr, port).String()
	}
	return h.name + ":" + strconv.Itoa(int(port))
}

const (
	maxName  = 253 // RFC 1035 without the last dot
	maxLabel = 63
)

// The last label begins with a letter, so that no number is a name: inet_aton reads 0x7f.1 and
// 2130706433 as 127.0.0.1.
var namePattern = lazyregexp.New(`^([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z]([a-z0-9-]*[a-z0-9])?$`)

// ParseHost parses a host name or an address, with or without brackets, from an untrusted client.
// A mapped IPv4 address becomes that address. Names must be in the form of DNS: a name with other
// letters than ASCII's would be decided in one form and looked up in another.
func ParseHost(text string) (Host, error) {
	inner, bracket := strings.CutPrefix(text, "[")
	if bracket {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "]"); !closed {
			return Host{}, errHost
		}
	}
	if addr, err := netip.ParseAddr(inner); err == nil && addr.Zone() == "" && (!bracket || addr.Is6()) {
		return Host{addr: addr.Unmap()}, nil
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if !isName(name) {
		return Host{}, errHost
	}
	return Host{name: name}, nil
}

var errHost = errors.New("it is neither a host name nor an address")

func isName(name string) bool {
	if len(name) > maxName || !namePattern().MatchString(name) {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > maxLabel {
			return false
		}
	}
	return true
}

// ParseTarget parses the HOST:PORT of a CONNECT request. An IPv6 address needs brackets.
func ParseTarget(text string) (Host, uint16, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 || strings.Contains(text[:colon], ":") != strings.HasPrefix(text, "[") {
		return Host{}, 0, errTarget
	}
	port, err := parsePort(text[colon+1:])
	if err != nil {
		return Host{}, 0, errTarget
	}
	host, err := ParseHost(text[:colon])
	if err != nil {
		return Host{}, 0, errTarget
	}
	return host, port, nil
}

var errTarget = errors.New("the target is not HOST:PORT, with a host name or an address")

// parsePort accepts one form of each port.
func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || text[0] == '0' || text[0] == '+' {
		return 0, errors.New("the port is not a number from 1 to 65535")
	}
	return uint16(port), nil
}

// Rule names hosts: a host name, *.DOMAIN for the names below it, an address, a range of
// addresses, or * for all; each at one port or at every port.
type Rule struct {
	name   string       // "*.example.org" and "*" are wildcards; "" where the rule has addresses
	prefix netip.Prefix // of one address or of a range
	port   uint16       // 0: every port
}

const maxRule = 512 // bytes, for a name in UTF-8

// ParseRule parses a rule. A host name may have other letters than ASCII's.
func ParseRule(text string) (Rule, error) {
	r, err := parseRule(text)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %s: %w", shorten.Quoted(text, maxName), err)
	}
	return r, nil
}

func parseRule(text string) (r Rule, err error) {
	if len(text) > maxRule {
		return Rule{}, fmt.Errorf("it is longer than %d bytes", maxRule)
	}
	if scheme, _, isURL := strings.Cut(text, "://"); isURL {
		return Rule{}, fmt.Errorf("it is a URL: write its host alone, with :PORT for one port, without %.20s:// and a path", scheme)
	}
	host, port, hasPort := cutPort(text)
	if hasPort {
		if r.port, err = parsePort(port); err != nil {
			return Rule{}, err
		}
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.ContainsRune(bare, '/') {
		r.prefix, err = parseRange(bare)
		return r, err
	}
	if parent, below := strings.CutPrefix(host, "*."); host == "*" || below {
		r.name = host
		if below {
			parent, err = toName(parent)
			r.name = "*." + parent
		}
		return r, err
	}
	if parsed, err := ParseHost(host); err == nil && parsed.addr.IsValid() {
		r.prefix = netip.PrefixFrom(parsed.addr, parsed.addr.BitLen())
		return r, nil
	}
	r.name, err = toName(host)
	return r, err
}

// cutPort cuts the port off a rule; the colons of an IPv6 address without brackets are its own.
func cutPort(text string) (host, port string, found bool) {
	if strings.HasPrefix(text, "[") {
		if end := strings.LastIndexByte(text, ']'); strings.HasPrefix(text[end+1:], ":") {
			return text[:end+1], text[end+2:], true
		}
		return text, "", false
	}
	if strings.Count(text, ":") > 1 {
		return text, "", false
	}
	return strings.Cut(text, ":")
}

func parseRange(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("it is no range of addresses such as 192.0.2.0/24")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write the range as IPv4")
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("the range begins at %s", p.Masked())
	}
	return p, nil
}

// toName returns the form of DNS of a host name in a rule.
func toName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if !isASCII(name) {
		var err error
		if name, err = idna.Lookup.ToASCII(name); err != nil {
			return "", errHost
		}
	}
	if !isName(name) {
		return "", errHost
	}
	return name, nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 })
}

// String returns the rule in the form that [ParseRule] accepts.
func (r Rule) String() string {
	host := r.name
	if host == "" {
		host = r.prefix.String()
		if r.prefix.IsSingleIP() {
			host = r.prefix.Addr().String()
		}
		if r.prefix.Addr().Is6() && r.port != 0 {
			host = "[" + host + "]"
		}
	}
	if r.port != 0 {
		host += ":" + strconv.Itoa(int(r.port))
	}
	return host
}

// MarshalText returns the text of [Rule.String].
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseRule].
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRule(string(text))
	return err
}

// RuleTexts returns the texts of rules, an empty list for none.
func RuleTexts(rules []Rule) []string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return texts
}

// Port returns the port that the rule names, or 0.
func (r Rule) Port() uint16 { return r.port }

// Matches reports whether the rule names a host at a port.
func (r Rule) Matches(host Host, port uint16) bool {
	if r.port != 0 && r.port != port {
		return false
	}
	switch domain, wild := strings.CutPrefix(r.name, "*"); {
	case wild:
		return domain == "" || strings.HasSuffix(host.name, domain)
	case r.name != "":
		return r.name == host.name
	}
	return r.prefix.Contains(host.addr)
}
