package egress_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/egress"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	const (
		list = `{"mode":"allowlist","allow":["a.example","*.b.example:443","8.8.8.0/24","2001:db8::/32"],"deny":["x.b.example"],"max_bytes":100}`
		one  = `"value":"0123456789"}`
	)
	for _, tt := range []struct{ by, sent, want string }{
		{`{"mode":"public"}`, `{"mode":"public"}`, `{"mode":"public"}`},
		{`{"mode":"public","deny":["d.example"],"max_bytes":5}`, `{"mode":"public","max_bytes":4}`, `{"mode":"public","deny":["d.example"],"max_bytes":4}`},
		{`{"mode":"public","deny":["d.example"],"max_bytes":5}`, `{"mode":"allowlist","allow":["d.example"],"deny":["e.example","d.example"],"max_bytes":6}`, `{"mode":"allowlist","allow":["d.example"],"deny":["e.example","d.example"],"max_bytes":5}`},
		{`{"mode":"no-network"}`, `{"mode":"no-network","allow":["a.example"]}`, `{"mode":"no-network","allow":["a.example"]}`},
		{`{"mode":"no-network"}`, `{"mode":"allowlist"}`, `mode allowlist: `},
		{`{"mode":"no-network"}`, `{"mode":"public"}`, `mode public: `},
		{list, `{"mode":"public"}`, `mode public: `},
		{list, `{"mode":"no-network"}`, `{"mode":"no-network","deny":["x.b.example"],"max_bytes":100}`},
		{
			list, `{"mode":"allowlist","allow":["a.example:80","b.b.example:443","*.c.b.example:443","*.b.example:443","8.8.8.8","8.8.8.128/25:53","2001:db8::1"]}`,
			`{"mode":"allowlist","allow":["a.example:80","b.b.example:443","*.c.b.example:443","*.b.example:443","8.8.8.8","8.8.8.128/25:53","2001:db8::1"],"deny":["x.b.example"],"max_bytes":100}`,
		},
		{list, `{"mode":"no-network","allow":["c.example"]}`, `rule "c.example"`},
		{list, `{"mode":"allowlist","allow":["*.a.example"]}`, `rule "*.a.example"`},
		{list, `{"mode":"allowlist","allow":["sub.a.example"]}`, `rule "sub.a.example"`},
		{list, `{"mode":"allowlist","allow":["b.example:443"]}`, `rule "b.example:443"`},
		{list, `{"mode":"allowlist","allow":["xb.example:443"]}`, `rule "xb.example:443"`},
		{list, `{"mode":"allowlist","allow":["b.b.example"]}`, `rule "b.b.example"`},
		{list, `{"mode":"allowlist","allow":["b.b.example:80"]}`, `rule "b.b.example:80"`},
		{list, `{"mode":"allowlist","allow":["8.8.0.0/16"]}`, `rule "8.8.0.0/16"`},
		{list, `{"mode":"allowlist","allow":["0.0.0.0/0"]}`, `rule "0.0.0.0/0"`},
		{list, `{"mode":"allowlist","allow":["::/0"]}`, `rule "::/0"`},
		{list, `{"mode":"allowlist","secrets":[{"name":"S","hosts":["evil.example"],` + one + `]}`, `secret S: `},
		{list, `{"mode":"allowlist","secrets":[{"name":"S","hosts":["x.b.example"],` + one + `]}`, `secret S: `},
		{list, `{"mode":"allowlist","secrets":[{"name":"S","hosts":["a.example"],` + one + `]}`, `{"mode":"allowlist","deny":["x.b.example"],"max_bytes":100,"secrets":[{"name":"S","hosts":["a.example"],` + one + `]}`},
		{list, `{"mode":"allowlist","secrets":[{"name":"OWN","hosts":["own.example"],` + one + `]}`, `{"mode":"allowlist","deny":["x.b.example"],"max_bytes":100,"secrets":[{"name":"OWN","hosts":["own.example"],` + one + `]}`},
	} {
		by, p := parse(t, tt.by), parse(t, tt.sent)
		for range 2 { // what is limited once is as after twice
			err := p.Limit(&by, func(name string) bool { return name == "OWN" })
			if !strings.HasPrefix(tt.want, "{") {
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("%s under %s: got %v, want %s", tt.sent, tt.by, err, tt.want)
				}
				continue
			}
			wanted := parse(t, tt.want)
			if err != nil || !p.Equal(&wanted) {
				got, _ := json.Marshal(p)
				t.Errorf("%s under %s: got %s, %v\nwant %s", tt.sent, tt.by, got, err, tt.want)
			}
		}
	}
}

// FuzzLimit: what a limited policy admits, the other one admits.
func FuzzLimit(f *testing.F) {
	for _, seed := range []string{"a.example", "*.example:443", "8.8.8.0/24", "[2001:db8::1]:443", "0.0.0.0/0"} {
		f.Add(seed, seed, seed, "sub.a.example:443")
		f.Add(seed, "*.example", "8.8.8.8:53", "8.8.8.8:53")
	}
	f.Fuzz(func(t *testing.T, allow, deny, inner, target string) {
		a, errA := egress.ParseRule(allow)
		d, errD := egress.ParseRule(deny)
		i, errI := egress.ParseRule(inner)
		host, port, errT := egress.ParseTarget(target)
		if errA != nil || errD != nil || errI != nil || errT != nil {
			t.Skip()
		}
		for _, mode := range []egress.Mode{egress.ModePublic, egress.ModeAllowlist, egress.ModeNoNetwork} {
			by := egress.Policy{Mode: mode, Allow: []egress.Rule{a}, Deny: []egress.Rule{d}}
			p := egress.Policy{Mode: egress.ModeAllowlist, Allow: []egress.Rule{i}}
			if p.Limit(&by, nil) == nil && p.Decide(host, port).Allowed && !by.Decide(host, port).Allowed {
				t.Errorf("%s within %+v admits %s", i, by, target)
			}
		}
	})
}
