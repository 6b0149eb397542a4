package egress_test

import (
	"fmt"
	"html"
	"html/template"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/net/http/httpguts"

	"github.com/actiond/actiond/egress"
)

const token = "sk-0123456789/+abcdef=="

func TestDecideSecret(t *testing.T) {
	t.Parallel()
	const secrets = `"secrets":[{"name":"API","hosts":["api.example.com","Bücher.example."],"value":"` + token + `"}]`
	for _, tc := range []struct {
		rules, target string
		allowed       bool
		reason        string
	}{
		{`"mode":"allowlist"`, "api.example.com:443", true, "secret API"},
		{`"mode":"allowlist"`, "xn--bcher-kva.example:443", true, "secret API"},
		{`"mode":"allowlist"`, "api.example.com:80", false, "not in the allow list"},
		{`"mode":"allowlist"`, "sub.api.example.com:443", false, "not in the allow list"},
		{`"mode":"allowlist","deny":["*.example.com"]`, "api.example.com:443", false, "deny *.example.com"},
		{`"mode":"no-network"`, "api.example.com:443", false, "mode no-network"},
	} {
		host, port, err := egress.ParseTarget(tc.target)
		if err != nil {
			t.Fatal(err)
		}
		p := parse(t, `{`+tc.rules+`,`+secrets+`}`)
		if got, want := p.Decide(host, port), (egress.Verdict{Allowed: tc.allowed, Reason: tc.reason}); got != want {
			t.Errorf("%s under %s: got %+v, want %+v", tc.target, tc.rules, got, want)
		}
	}
}

func TestParseSecretsRefuses(t *testing.T) {
	t.Parallel()
	one := func(members string) string {
		return `{"name":"API","hosts":["a.example"],"value":"` + token + `"` + members + `}`
	}
	several := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"S%d","hosts":["h%d.example"],"value":%q}`, i, i, token))
		}
		return strings.Join(all, ",")
	}
	for secrets, want := range map[string]string{
		one(`,"paths":["/v1/**"]`):                                     "paths",
		one(`,"Value":"x"`):                                            "Value",
		`{"hosts":["a.example"],"value":"` + token + `"}`:              `secret "": a name has`,
		`{"name":"a b","hosts":["a.example"],"value":"` + token + `"}`: "a name has",
		`{"name":"` + strings.Repeat("a", 65) + `","hosts":["a.example"],"value":"` + token + `"}`:  "a name has",
		one(`,"var":"` + strings.Repeat("A", 129) + `"`):                                            "not the name of a variable",
		`{"name":"API","value":"` + token + `"}`:                                                    "secret API: it has no hosts",
		`{"name":"API","hosts":["*.example"],"value":"` + token + `"}`:                              "neither a host name nor an address",
		`{"name":"API","hosts":["*"],"value":"` + token + `"}`:                                      "neither a host name nor an address",
		`{"name":"API","hosts":["a.example:443"],"value":"x"}`:                                      "neither a host name nor an address",
		`{"name":"API","hosts":["8.8.8.8"],"value":"` + token + `"}`:                                "must be names",
		`{"name":"API","hosts":[""],"value":"` + token + `"}`:                                       "neither a host name nor an address",
		`{"name":"API","hosts":["a.example"]}`:                                                      "8 to 8192 visible ASCII",
		`{"name":"API","hosts":["a.example"],"value":"short"}`:                                      "8 to 8192 visible ASCII",
		`{"name":"API","hosts":["a.example"],"value":"with a blank"}`:                               "8 to 8192 visible ASCII",
		`{"name":"API","hosts":["a.example"],"value":"line\nline"}`:                                 "8 to 8192 visible ASCII",
		`{"name":"API","hosts":["a.example"],"value":"käuflich1"}`:                                  "8 to 8192 visible ASCII",
		`{"name":"API","hosts":["a.example"],"value":"` + strings.Repeat("x", 8193) + `"}`:          "8 to 8192 visible ASCII",
		one(`,"header":"Host"`):                                                                     "its header cannot be set",
		one(`,"header":"transfer-encoding"`):                                                        "its header cannot be set",
		one(`,"header":"proxy-authorization"`):                                                      "its header cannot be set",
		one(`,"header":"X Key"`):                                                                    "its header cannot be set",
		one(`,"header":"X:Key"`):                                                                    "its header cannot be set",
		one(`,"format":"Bearer"`):                                                                   "its format must be",
		one(`,"format":"{}{}"`):                                                                     "its format must be",
		one(`,"format":"{}\r\nX: y"`):                                                               "its format must be",
		one(`,"format":"{} "`):                                                                      "its format must be",
		one(`,"var":"A=B"`):                                                                         "its var",
		one(``) + `,` + one(``):                                                                     `secret API: secret API has the same name`,
		one(`,"var":"X"`) + `,{"name":"B","hosts":["b.example"],"var":"X","value":"` + token + `"}`: "secret B: secret API has the same var",
		one(``) + `,{"name":"B","hosts":["b.example","A.example"],"header":"authorization","value":"` + token + `"}`: "secret B: secret API has the same header of a.example",
		`{"name":"API","hosts":["a.example","a.example."],"value":"` + token + `"}`:                                  "the same header of a.example",
		several(65): "65 secrets",
	} {
		text := `{"mode":"public","secrets":[` + secrets + `]}`
		_, err := egress.ParsePolicy([]byte(text))
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"API"`, "API"), want) && !strings.Contains(strings.ReplaceAll(err.Error(), `"B"`, "B"), want) {
			t.Errorf("%.120s: got %v, want an error with %q", secrets, err, want)
		}
		if err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error has the value: %v", secrets, err)
		}
	}
	for _, members := range []string{`,"header":"X-Api-Key","format":"{}"`, `,"format":"Basic user:{}"`, `,"var":"API_KEY"`} {
		parse(t, `{"mode":"public","secrets":[`+one(members)+`,{"name":"B","hosts":["a.example"],"header":"X-Other","value":"`+token+`"}]}`)
	}
	parse(t, `{"mode":"public","secrets":[`+several(64)+`]}`)
}

// TestAttackValueInErrors: no text about a policy has a value, whatever is wrong with it (row 23).
func TestAttackValueInErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":987654321}]}`,
		`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":["987654321"]}]}`,
		`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"987654321","value":"987654321"}]}`,
		`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"987654321 "}]}`,
		`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"987654321\x"}]}`,
		`{"mode":"public","secrets":"987654321"}`,
		`{"mode":"public","max_bytes":"987654321"}`,
	} {
		for name, decode := range map[string]func() error{
			"policy": func() error { _, err := egress.ParsePolicy([]byte(text)); return err },
			"file":   func() error { _, err := egress.ParseConf([]byte(`{"generation":1,"policy":` + text + `}`)); return err },
		} {
			if err := decode(); err == nil || strings.Contains(err.Error(), "98765") {
				t.Errorf("%s %s: got %v", name, text, err)
			}
		}
	}
	p := parse(t, `{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"987654321","var":"V"}]}`)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("policy", "policy", p, "secret", p.Secrets[0], "value", p.Secrets[0].Value)
	stored, err := json.Marshal(p.WithoutValues())
	if err != nil {
		t.Fatal(err)
	}
	summary, err := json.Marshal(p.Summary())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(p), fmt.Sprintf("%+v %#v %s %q", p, p, p.Secrets[0].Value, p.Secrets[0].Value), log.String(), string(stored), string(summary)} {
		if strings.Contains(text, "98765") || !strings.Contains(text, "API") {
			t.Errorf("got %s", text)
		}
	}
	if string(summary) != `{"mode":"public","secrets":["API"]}` || p.Secrets[0].Placeholder() != "actiond-secret-API" {
		t.Errorf("got %s, %s", summary, p.Secrets[0].Placeholder())
	}
	if whole, err := json.Marshal(p); err != nil || !strings.Contains(string(whole), "987654321") {
		t.Errorf("the controller's file: got %s, %v", whole, err)
	}
}

// TestKeepValues: a secret without a value keeps the present one, and only where nothing that leads
// the value elsewhere has changed.
func TestKeepValues(t *testing.T) {
	t.Parallel()
	before := parse(t, `{"mode":"public","secrets":[{"name":"API","hosts":["a.example","b.example"],"value":"987654321"},{"name":"B","hosts":["a.example"],"header":"x-key","value":"123456789"}]}`)
	for secrets, want := range map[string]string{
		`{"name":"API","hosts":["a.example","b.example"]}`:                                               "987654321",
		`{"name":"API","hosts":["b.example"],"header":"authorization","format":"Bearer {}","var":"KEY"}`: "987654321",
		`{"name":"API","hosts":["c.example"],"value":"abcdefghi"}`:                                       "abcdefghi",
		`{"name":"API"}`: "987654321",
		`{"name":"B"}`:   "123456789",
		`{"name":"API","hosts":["a.example","evil.example"]}`:        "",
		`{"name":"API","hosts":["a.example"],"header":"X-Other"}`:    "",
		`{"name":"API","hosts":["a.example"],"format":"Basic {}:x"}`: "",
		`{"name":"B","hosts":["b.example"],"header":"x-key"}`:        "",
		`{"name":"C","hosts":["a.example"]}`:                         "",
	} {
		var s egress.Secret
		if err := json.Unmarshal([]byte(secrets), &s); err != nil {
			t.Fatal(err)
		}
		sent := egress.Policy{Mode: egress.ModePublic, Secrets: []egress.Secret{s}}
		p := sent
		err := p.KeepValues(&before)
		switch {
		case sent.Secrets[0].Value != s.Value:
			t.Errorf("%s: the caller's secret was changed", secrets)
		case want == "" && (err == nil || !strings.Contains(err.Error(), "secret "+s.Name+": ") && !strings.Contains(err.Error(), `secret "`+s.Name+`": `) || strings.Contains(err.Error(), "98765")):
			t.Errorf("%s: got %v", secrets, err)
		case want != "" && (err != nil || p.Secrets[0].Value != egress.Value(want)):
			t.Errorf("%s: got %v, %s", secrets, err, string(p.Secrets[0].Value))
		}
	}
}

// TestPolicySize: a policy that its file could not have is refused.
func TestPolicySize(t *testing.T) {
	t.Parallel()
	p := egress.Policy{Mode: egress.ModePublic}
	host := parse(t, `{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"987654321"}]}`).Secrets[0].Hosts
	for i := range egress.MaxSecrets {
		p.Secrets = append(p.Secrets, egress.Secret{Name: fmt.Sprintf("S%d", i), Hosts: host, Header: fmt.Sprintf("X-%d", i), Value: egress.Value(strings.Repeat("<", 8192))})
	}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
	ca, err := egress.NewCA("0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	p.Secrets = p.Secrets[:30]
	data, err := (&egress.Conf{Generation: 1, Policy: p, CA: ca}).Encode()
	if err != nil || len(data) > egress.MaxPolicy {
		t.Fatalf("got %d bytes, %v", len(data), err)
	}
	if c, err := egress.ParseConf(data); err != nil || c.Policy.Secrets[29].Value != p.Secrets[29].Value || c.CA != ca {
		t.Errorf("got %v", err)
	}
	if _, err := (&egress.Conf{Policy: p}).Encode(); err == nil {
		t.Error("secrets without a CA have a file")
	}
}

// TestFormsHTML: pages of errors escape the value in the ways of their libraries.
func TestFormsHTML(t *testing.T) {
	t.Parallel()
	s := egress.Secret{Name: "A", Value: "a&b<c>d\"e'f=g/h`i"}
	for _, page := range []string{
		html.EscapeString(string(s.Value)), template.HTMLEscapeString(string(s.Value)),
		"a&amp;b&lt;c&gt;d&quot;e&#x27;f=g/h`i",           // Python
		"a&amp;b&lt;c&gt;d&quot;e&#039;f=g/h`i",           // PHP
		"a&amp;b&lt;c&gt;d&quot;e&#39;f=g/h`i",            // lodash, PHP for XML by numbers
		"a&amp;b&lt;c&gt;d&quot;e'f=g/h`i",                // attributes
		"a&amp;b&lt;c&gt;d\"e'f=g/h`i",                    // text
		"a&amp;b&lt;c&gt;d&quot;e&#x27;f&#x3D;g/h&#x60;i", // Handlebars
		"a&amp;b&lt;c&gt;d&quot;e&#39;f&#x3D;g&#x2F;h&#x60;i",
	} {
		if got := string(scrub(t, strings.NewReader("<p>"+page+"</p>"), -1, egress.Forms(s))); got != "<p>"+strings.Repeat("*", len(page))+"</p>" {
			t.Errorf("%s is scrubbed to %s", page, got)
		}
	}
}

// FuzzSecret: what a policy accepts is one header, and a scrubbed header does not have the value.
func FuzzSecret(f *testing.F) {
	f.Add("a.example", "Authorization", "Bearer {}", token)
	f.Add("a.example", "X-Api-Key", "{}", "12345678")
	f.Add("a.example", "", "Basic user:{}", "pass word")
	f.Add("a.example", "Te", "Basic {}:x", "%25%2f%2F")
	f.Fuzz(func(t *testing.T, host, header, format, value string) {
		text, err := json.Marshal(map[string]any{"mode": "public", "secrets": []any{
			map[string]any{"name": "A", "hosts": []string{host}, "header": header, "format": format, "value": value},
		}})
		if err != nil {
			return
		}
		p, err := egress.ParsePolicy(text)
		if err != nil {
			return
		}
		s := p.Secrets[0]
		name, sent := egress.Header(s)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(sent) || sent == "" || sent != strings.TrimSpace(sent) {
			t.Fatalf("%q: %q", name, sent)
		}
		if got := string(scrub(t, strings.NewReader(sent), -1, egress.Forms(s))); len(got) != len(sent) || strings.Contains(got, value) && strings.Trim(value, "*") != "" {
			t.Fatalf("%q is scrubbed to %q", sent, got)
		}
	})
}
