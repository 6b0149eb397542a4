package egress_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/egress"
)

func TestChange(t *testing.T) {
	t.Parallel()
	const before = `{"mode":"allowlist","allow":["a.example","b.example"],"deny":["c.example"],"max_bytes":7,
		"secrets":[{"name":"A","hosts":["a.example"],"value":"11111111"},{"name":"B","hosts":["b.example"],"value":"22222222"}]}`
	for change, want := range map[string]string{
		`{}`:                              before,
		`{"mode":"public"}`:               strings.Replace(before, "allowlist", "public", 1),
		`{"allow_add":["b.example"]}`:     before,
		`{"allow_remove":["z.example"]}`:  before,
		`{"secrets_remove":["Z"]}`:        before,
		`{"allow_remove":["a.example"]}`:  strings.Replace(before, `"a.example",`, "", 1),
		`{"allow_remove":["A.Example."]}`: strings.Replace(before, `"a.example",`, "", 1),
		`{"allow_add":["d.example","d.example"],"deny_add":["e.example"]}`:                           strings.NewReplacer(`"b.example"],"deny":["c.example"`, `"b.example","d.example"],"deny":["c.example","e.example"`).Replace(before),
		`{"allow_add":["a.example"],"allow_remove":["a.example"]}`:                                   strings.Replace(before, `["a.example","b.example"],"deny"`, `["b.example","a.example"],"deny"`, 1),
		`{"deny_remove":["c.example"],"secrets_remove":["A"]}`:                                       `{"mode":"allowlist","allow":["a.example","b.example"],"max_bytes":7,"secrets":[{"name":"B","hosts":["b.example"],"value":"22222222"}]}`,
		`{"secrets":[{"name":"A","hosts":["x.example"],"value":"33333333"}]}`:                        strings.Replace(before, `["a.example"],"value":"11111111"`, `["x.example"],"value":"33333333"`, 1),
		`{"secrets":[{"name":"A","value":"33333333"}]}`:                                              strings.Replace(before, `11111111`, `33333333`, 1),
		`{"secrets":[{"name":"A","header":"X-Key","value":"33333333"}]}`:                             strings.Replace(before, `["a.example"],"value":"11111111"`, `["a.example"],"header":"X-Key","value":"33333333"`, 1),
		`{"secrets_remove":["A"],"secrets":[{"name":"C","hosts":["c.example"],"value":"kkkkkkkk"}]}`: strings.NewReplacer(`{"name":"A","hosts":["a.example"],"value":"11111111"},`, "", `"22222222"}`, `"22222222"},{"name":"C","hosts":["c.example"],"value":"kkkkkkkk"}`).Replace(before),
	} {
		c, err := egress.ParseChange([]byte(change))
		if err != nil {
			t.Errorf("%s: %v", change, err)
			continue
		}
		p, wanted, untouched := parse(t, before), parse(t, want), parse(t, before)
		shared := p
		for range 2 { // twice is as once
			c.Apply(&p)
			if !p.Equal(&wanted) {
				got, _ := json.Marshal(p)
				t.Errorf("%s: got %s\nwant %s", change, got, want)
			}
		}
		if !shared.Equal(&untouched) {
			t.Errorf("%s changed the slices of another policy", change)
		}
		if same := p.Equal(&untouched); same != (want == before) {
			t.Errorf("%s: Equal says %v", change, same)
		}
	}
	for change, want := range map[string]string{
		`{"allow":["a.example"]}`:                      `: member "allow" is unknown`,
		`{"deny_add":["a.example","a.example:99999"]}`: "/deny_add/1: rule",
		`{"secrets":[{"name":"A","value":12345678}]}`:  "/secrets/0/value: number cannot be here",
		`{"private":["10.0.0.0/8"]}`:                   `: member "private" is unknown`,
		`{"secrets":[{"name":"A","hosts":["a b"]}]}`:   "/secrets/0/hosts/0: host",
		strings.Repeat(" ", egress.MaxPolicy+1):        ": the policy is larger",
		`7`:                                            ": number cannot be here",
	} {
		_, err := egress.ParseChange([]byte(change))
		if err == nil {
			t.Errorf("%.60s is accepted", change)
			continue
		}
		if pointer, text := egress.Where(err); !strings.HasPrefix(pointer+": "+text, want) || strings.Contains(text, "12345678") {
			t.Errorf("%.60s: %s: %s, want %s", change, pointer, text, want)
		}
	}
}

// Rules that changes add one after the other are bounded, as those of a policy are that comes at once:
// the proxy could not read it otherwise.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	p := parse(t, `{"mode":"allowlist"}`)
	for i := range 64 {
		host, err := egress.ParseHost(fmt.Sprintf("h%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		p.Secrets = append(p.Secrets, egress.Secret{Name: fmt.Sprint("S", i), Hosts: []egress.Host{host}, Value: egress.Value(strings.Repeat("x", 8192))})
	}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("half a megabyte of secrets: %v", err)
	}
}

// TestFillSecrets: a secret without a value is the operator's, or the one that the sandbox has, for the
// same hosts (attack 25).
func TestFillSecrets(t *testing.T) {
	t.Parallel()
	secrets := func(text string) []egress.Secret {
		var all []egress.Secret
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	own := secrets(`[{"name":"OWN","hosts":["own.example"],"header":"X-Key","format":"{}","var":"OWN","value":"operator-value"}]`)
	present := secrets(`[{"name":"OWN","hosts":["old.example"],"value":"older-value"},{"name":"MINE","hosts":["mine.example"],"value":"present-value"}]`)
	for sent, want := range map[string]string{
		`[{"name":"NEW","hosts":["evil.example"],"value":"client-value"}]`: "client-value",
		`[{"name":"OWN"}]`: "operator-value",
		`[{"name":"OWN","hosts":["own.example"],"header":"x-key","format":"{}","var":"OWN"}]`: "operator-value",
		`[{"name":"MINE"}]`: "present-value",
		`[{"name":"MINE","hosts":["mine.example"],"header":"Authorization","format":"Bearer {}"}]`: "present-value",
		`[{"name":"MINE","hosts":["evil.example"],"value":"client-value"}]`:                        "client-value",
		`[{"name":"OWN","hosts":["evil.example"]}]`:                                                "cannot change",
		`[{"name":"OWN","hosts":["own.example","evil.example"]}]`:                                  "cannot change",
		`[{"name":"OWN","header":"Authorization"}]`:                                                "cannot change",
		`[{"name":"OWN","format":"x{}"}]`:                                                          "cannot change",
		`[{"name":"OWN","var":"PATH"}]`:                                                            "cannot change",
		`[{"name":"OWN","hosts":["own.example"]}]`:                                                 "operator-value",
		`[{"name":"OWN","hosts":["old.example"]}]`:                                                 "cannot change",
		`[{"name":"OWN","hosts":["evil.example"],"value":"client-value"}]`:                         "operator has one",
		`[{"name":"OWN","value":"client-value"}]`:                                                  "operator has one",
		`[{"name":"MINE","hosts":["evil.example"]}]`:                                               "cannot change",
		`[{"name":"MINE","var":"A"}]`:                                                              "present-value",
		`[{"name":"own"}]`:                                                                         "no value",
		`[{"name":"OWN "}]`:                                                                        "no value",
		`[{}]`:                                                                                     "no value",
	} {
		got := secrets(sent)
		err := egress.FillSecrets(got, own, present)
		switch {
		case err == nil && string(got[0].Value) != want:
			t.Errorf("%s: got the value %s, want %s", sent, string(got[0].Value), want)
		case err == nil && want == "operator-value" && !(&egress.Policy{Secrets: got}).Equal(&egress.Policy{Secrets: own}):
			t.Errorf("%s: got %+v", sent, got)
		case err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "-value")):
			t.Errorf("%s: got %v, want %s", sent, err, want)
		}
	}
}
