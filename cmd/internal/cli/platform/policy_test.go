package platform

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// TestParsePolicy: what is wrong with a policy is named with its line.
func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mode: allowlist\nallow: [api.example.com, \"*.example.org:443\", 8.8.8.0/24]\ndeny:\n- ads.example.org\n": "",
		`{"mode": "public", "deny": ["*.example.org"]}`:                                                            "",
		"network_mode: no-network\nallowed_hosts: [a.example]\n":                                                   "",
		"mode: allowlist\nallow:\n- a.example\n- 0x7f.1\n":                                                         "line 4, /allow/1: rule \"0x7f.1\"",
		"mode: allowlist\n\nalow: [a.example]\n":                                                                   "line 3, /alow: ",
		"mode: allowlist\nallow: a.example\n":                                                                      "line 2, /allow: ",
		"mode: [\n":                                                                                                "line",
		"mode: open\n":                                                                                             "mode \"open\"",
		"":                                                                                                         "mode",
		"1: 2\n":                                                                                                   "no policy",
		"a: &a [x, x]\nb: &b [*a, *a]\nmode: public\n":                                                             "/a",
		"mode: public\nsecrets: [{name: A, value: do-not-print-this-value}]\n": "it has no hosts",
	} {
		_, err := (&Platform{}).parsePolicy([]byte(text), true)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "do-not-print"):
			t.Errorf("the error has a value: %v", err)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("mode: allowlist\nallow: [a.example]\n")
	f.Add(`{"mode": "public", "allow": [1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p := &Platform{Streams: output.Streams{Getenv: func(string) string { return "" }}}
		if policy, err := p.parsePolicy([]byte(text), true); err == nil && policy.Check() != nil {
			t.Errorf("%q is a policy that cannot be: %+v", text, policy)
		}
	})
}
