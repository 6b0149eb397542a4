package egress_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/egress"
)

func parse(tb testing.TB, text string) egress.Policy {
	tb.Helper()
	p, err := egress.ParsePolicy([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestDecide is the table of rules and hosts.
func TestDecide(t *testing.T) {
	t.Parallel()
	const list = `{"mode":"allowlist","allow":["api.example.com","*.example.org:443","8.8.8.0/24","[2606:4700::1111]:443",
		"Bücher.example","1.1.1.1:53"],"deny":["ads.example.org","8.8.8.9","*.bad.example.org"]}`
	const public = `{"mode":"public","deny":["tracker.example","*:25","10.0.0.0/8","*.wild.example"]}`
	for _, tc := range []struct {
		policy, target string
		allowed        bool
		reason         string
	}{
		{list, "api.example.com:80", true, "allow api.example.com"},
		{list, "API.Example.COM.:80", true, "allow api.example.com"},
		{list, "sub.api.example.com:80", false, "not in the allow list"},
		{list, "evilapi.example.com:80", false, "not in the allow list"},
		{list, "example.org:443", false, "not in the allow list"},
		{list, "a.example.org:443", true, "allow *.example.org:443"},
		{list, "a.b.example.org:443", true, "allow *.example.org:443"},
		{list, "a.example.org:80", false, "not in the allow list"},
		{list, "aexample.org:443", false, "not in the allow list"},
		{list, "ads.example.org:443", false, "deny ads.example.org"},
		{list, "x.bad.example.org:443", false, "deny *.bad.example.org"},
		{list, "8.8.8.8:1", true, "allow 8.8.8.0/24"},
		{list, "[::ffff:8.8.8.8]:1", true, "allow 8.8.8.0/24"},
		{list, "8.8.8.9:1", false, "deny 8.8.8.9"},
		{list, "[::ffff:808:809]:1", false, "deny 8.8.8.9"},
		{list, "8.8.4.4:1", false, "not in the allow list"},
		{list, "[2606:4700:0:0::1111]:443", true, "allow [2606:4700::1111]:443"},
		{list, "[2606:4700::1111]:80", false, "not in the allow list"},
		{list, "xn--bcher-kva.example:80", true, "allow xn--bcher-kva.example"},
		{list, "1.1.1.1:53", true, "allow 1.1.1.1:53"},
		{list, "1.1.1.1:54", false, "not in the allow list"},
		{public, "anything.example:443", true, "mode public"},
		{public, "tracker.example:443", false, "deny tracker.example"},
		{public, "mail.example:25", false, "deny *:25"},
		{public, "9.9.9.9:25", false, "deny *:25"},
		{public, "10.1.2.3:80", false, "deny 10.0.0.0/8"},
		{public, "a.wild.example:80", false, "deny *.wild.example"},
		{public, "wild.example:80", true, "mode public"},
		{`{"mode":"no-network","allow":["api.example.com"]}`, "api.example.com:443", false, "mode no-network"},
		{`{"mode":"allowlist"}`, "api.example.com:443", false, "not in the allow list"},
		{`{"network_mode":"allowlist","allowed_hosts":["api.example.com"]}`, "api.example.com:443", true, "allow api.example.com"},
		{`{"mode":"allowlist","allow":["2001:db8::1"]}`, "[2001:db8::1]:443", true, "allow 2001:db8::1"},
		{`{"mode":"allowlist","allow":["[2001:db8::/32]:443"]}`, "[2001:db8::1]:443", true, "allow [2001:db8::/32]:443"},
	} {
		host, port, err := egress.ParseTarget(tc.target)
		if err != nil {
			t.Errorf("%s: %v", tc.target, err)
			continue
		}
		p := parse(t, tc.policy)
		if got, want := p.Decide(host, port), (egress.Verdict{Allowed: tc.allowed, Reason: tc.reason}); got != want {
			t.Errorf("%s under %s: got %+v, want %+v", tc.target, tc.policy, got, want)
		}
	}
}

// TestAttackHostForms has forms of hosts that programs read in different ways (row 13).
func TestAttackHostForms(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"", ":", ":80", "example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:+80", "example.com:080",
		"example.com:80:80", "example.com:80 ", " example.com:80", "user@example.com:80", "allowed.example@evil.example:80",
		"example.com%00.evil.example:80", "example%2ecom:80", "example.com#.evil.example:80", "*.example.com:80", "*:80",
		"2130706433:80", "0x7f000001:80", "0x7f.1:80", "127.1:80", "0177.0.0.1:80", "127.0.0.01:80", "1.2.3.4.5:80",
		"１２７.0.0.1:80", "ｅxample.com:80", "example。com:80", "exa mple.com:80", "example.com\x00:80", "example..com:80",
		".example.com:80", "example.com..:80", "-a.example.com:80", "a-.example.com:80", "::1:80", "[::1:80", "::1]:80", "[::1%lo]:80",
		"[127.0.0.1]:80", "[example.com]:80", "http://example.com:80", "example.com/:80", "example.com\\:80", "exam\tple.com:80",
		strings.Repeat("a", 64) + ".example:80", strings.Repeat("a.", 127) + "example:80",
	} {
		if host, port, err := egress.ParseTarget(target); err == nil {
			t.Errorf("%q is %s at %d, want an error", target, host, port)
		}
	}
}

func TestParsePolicyRefuses(t *testing.T) {
	t.Parallel()
	many, _ := json.Marshal(slices.Repeat([]string{"a.example"}, egress.MaxRules+1))
	for text, want := range map[string]string{
		``:                                   "decoding",
		`[]`:                                 "decoding",
		`{}`:                                 `mode ""`,
		`{"mode":"open"}`:                    `mode "open"`,
		`{"mode":"public","alow":[]}`:        "alow",
		`{"mode":"public","mode":"public"}`:  "duplicate",
		`{"mode":"public","max_bytes":-1}`:   "max_bytes",
		`{"mode":"public","allow":[""]}`:     `rule ""`,
		`{"mode":"public","allow":["*"]}`:    "only deny",
		`{"mode":"public","allow":["*:80"]}`: "only deny",
		`{"mode":"public","network_mode":"public"}`:                            "same member",
		`{"mode":"public","allow":[],"allowed_hosts":[]}`:                      "same member",
		`{"mode":"public","deny":["8.8.8.8/24"]}`:                              "begins at 8.8.8.0/24",
		`{"mode":"public","deny":["::ffff:8.8.8.0/120"]}`:                      "as IPv4",
		`{"mode":"public","deny":["a.*.example"]}`:                             "neither a host name",
		`{"mode":"public","deny":["*example.com"]}`:                            "neither a host name",
		`{"mode":"public","deny":["*.*.example"]}`:                             "neither a host name",
		`{"mode":"public","deny":["a.example:http"]}`:                          "from 1 to 65535",
		`{"mode":"public","deny":["http://a.example"]}`:                        "write its host alone",
		`{"mode":"public","deny":["0x7f.1"]}`:                                  "neither a host name",
		`{"mode":"public","deny":["user@a.example"]}`:                          "neither a host name",
		`{"mode":"public","deny":["[a.example]:80"]}`:                          "neither a host name",
		`{"mode":"public","deny":["8.8.8.8/33"]}`:                              "no range",
		`{"mode":"public","deny":["fe80::1%eth0"]}`:                            "neither a host name",
		`{"mode":"public","deny":[7]}`:                                         "decoding",
		`{"mode":"public","deny":[null]}`:                                      "a rule is null",
		fmt.Sprintf(`{"mode":"public","deny":%s}`, many):                       "1001 rules",
		strings.Repeat(" ", egress.MaxPolicy) + `{"mode":"x"}`:                 "larger",
		fmt.Sprintf(`{"mode":"public","deny":[%q]}`, strings.Repeat("a", 600)): "longer than 512",
	} {
		if _, err := egress.ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want an error with %q", text, err, want)
		}
	}
}

// FuzzRule: the text of a rule is its only other form, and a rule for one host matches it.
func FuzzRule(f *testing.F) {
	for _, text := range []string{
		"api.example.com", "*.example.org:443", "8.8.8.0/24", "[2606:4700::1111]:443", "Bücher.example", "*", "*:25", "2001:db8::/32",
		"[2001:db8::/32]:1", "::ffff:1.2.3.4", "[::]", "a.example.:1", "ｅxample.com",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := egress.ParseRule(text)
		if err != nil {
			return
		}
		again, err := egress.ParseRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %q, which is %q, %v", text, r, again, err)
		}
		p := egress.Policy{Mode: egress.ModePublic, Deny: []egress.Rule{r}}
		if host, err := egress.ParseHost(text); err == nil && p.Decide(host, 80).Allowed {
			t.Fatalf("rule %q does not match host %q", text, host)
		}
	})
}

// FuzzTarget: a host is in one form, in which nothing has a meaning to a shell, a URL or a terminal.
func FuzzTarget(f *testing.F) {
	for _, text := range []string{"a.example:443", "[::1]:80", "1.2.3.4:1", "a@b.example:1", "[::ffff:1.2.3.4]:9", "A.EXAMPLE.:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := egress.ParseTarget(text)
		if err != nil {
			return
		}
		if again, err := egress.ParseHost(host.String()); err != nil || again != host || port == 0 {
			t.Fatalf("%q is %q, which is %q, %v", text, host, again, err)
		}
		if strings.Trim(host.String(), "abcdefghijklmnopqrstuvwxyz0123456789.-_:") != "" {
			t.Fatalf("%q is %q", text, host)
		}
	})
}
