package platform

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/testhelp"
)

const hidden = "do-not-print-this-value"

// secretPlatform has variables with values, and a directory with files.
func secretPlatform(t *testing.T) (p *Platform, dir string) {
	t.Helper()
	env := map[string]string{"KEY": hidden, "SPACE": hidden + " x", "SHORT": "hidden"}
	dir = t.TempDir()
	for name, text := range map[string]string{
		"key": hidden, "line": hidden + "\n", "dos": hidden + "\r\n", "lines": hidden + "\n\n", "nul": hidden + "\x00", "large": strings.Repeat(hidden, 4000), "empty": "",
	} {
		testhelp.WriteFile(t, filepath.Join(dir, name), text, 0o600)
	}
	return &Platform{Streams: output.Streams{Getenv: func(name string) string { return env[name] }}}, dir
}

// TestReadSecrets: a specification has docker's form, its value is read once, and no error has any
// of it.
func TestReadSecrets(t *testing.T) {
	t.Parallel()
	p, dir := secretPlatform(t)
	for spec, want := range map[string]string{
		"id=API,env=KEY,host=api.example,host=b.example":                             "",
		"id=API,src=DIR/key,host=api.example,header=X-Api-Key,format={},var=API_KEY": "",
		"id=API,src=DIR/line,host=api.example":                                       "",
		"id=API,src=DIR/dos,host=api.example":                                        "",
		`id=API,env=KEY,host=api.example,"format=Basic user,name:{}"`:                "",
		"env=KEY,host=api.example":                                                   "--secret: it has no id=NAME",
		"id=API,host=api.example":                                                    `--secret "API": its value is read from one of`,
		"id=API,env=KEY,src=DIR/key,host=api.example":                                "from one of",
		"id=API,env=KEY":                                 "it has no hosts",
		"id=API,env=KEY,host=*.example":                  "*.example",
		"id=API,env=KEY,host=8.8.8.8":                    "must be names",
		"id=API,env=KEY,host=api.example:443":            "api.example:443",
		"id=API,env=OTHER,host=api.example":              "the variable OTHER is not set here: export it",
		"id=API,env=" + hidden + ",host=api.example":     "is not set here",
		"id=API,env=SPACE,host=api.example":              "8 to 8192 visible ASCII",
		"id=API,env=SHORT,host=api.example":              "8 to 8192 visible ASCII",
		"id=API,src=DIR/lines,host=api.example":          "8 to 8192 visible ASCII",
		"id=API,src=DIR/nul,host=api.example":            "8 to 8192 visible ASCII",
		"id=API,src=DIR/empty,host=api.example":          "8 to 8192 visible ASCII",
		"id=API,src=DIR/large,host=api.example":          "larger than",
		"id=API,src=DIR/" + hidden + ",host=api.example": "no such file",
		"id=API,value=" + hidden + ",host=api.example":   "seen by others",
		hidden: "must be id=NAME",
		"id=API,env=KEY,host=api.example," + hidden:   "must be id=NAME",
		"id=API,env=KEY,host=api.example,path=/v1":    "other than id",
		"id=API,env=KEY,env=KEY,host=api.example":     "env= is given twice",
		"id=API,env=,host=api.example":                "env= has no value",
		"id=API,env=KEY,host=api.example\n":           "must be id=NAME",
		`id=API,env=KEY,host=api.example,"`:           "must be id=NAME",
		"":                                            "must be id=NAME",
		"id=API,env=KEY,host=api.example,header=Host": "its header cannot be set",
		"id=API,env=KEY,host=api.example,format=x":    "its format",
		"id=API,env=KEY,host=api.example,var=1":       "its var",
	} {
		all, err := p.ReadSecrets([]string{strings.ReplaceAll(spec, "DIR", dir)}, true)
		switch {
		case want == "" && (err != nil || len(all) != 1 || all[0].Name != "API" || string(all[0].Value) != hidden || len(all[0].Hosts) == 0):
			t.Errorf("%s: got %v, %v", spec, all, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), "--secret") || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", spec, err, want)
		case err != nil && strings.Contains(err.Error(), hidden):
			t.Errorf("%s: the error has the value: %v", spec, err)
		}
	}
	all, err := p.ReadSecrets([]string{"id=API,env=KEY"}, false)
	if err != nil || len(all) != 1 || all[0].Hosts != nil {
		t.Errorf("without hosts: %v, %v", all, err)
	}
}

// TestPolicySecrets: a policy's file names the source of a value, or has it.
func TestPolicySecrets(t *testing.T) {
	t.Parallel()
	p, dir := secretPlatform(t)
	for members, want := range map[string]string{
		"value: " + hidden:                     "",
		"env: KEY":                             "",
		"src: DIR/line":                        "",
		"env: OTHER":                           "line 4, /secrets/0/env: the variable OTHER is not set",
		"env: [KEY]":                           "line 4, /secrets/0/env: a secret has one of",
		"src: DIR/" + hidden:                   "line 4, /secrets/0/src: reading the file",
		"env: KEY\n  value: " + hidden:         "line 4, /secrets/0/env: a secret has one of",
		"env: KEY\n  src: DIR/key":             "a secret has one of",
		"value: [" + hidden + "]":              "line 4, /secrets/0/value",
		"value: !!int " + hidden:               "",
		"value: !!float " + hidden:             "",
		"value: *" + hidden:                    "",
		"value: {" + hidden:                    "",
		"value: \"" + hidden:                   "",
		"valeu: " + hidden:                     "line 4, /secrets/0/valeu",
		"value: " + hidden + "\n  value: x":    "",
		"value: " + hidden + "\n   x: y":       "",
		"env: KEY\n  hosts: [" + hidden + "%]": "hosts",
		"":                                     "secret \"API\": its value must have",
	} {
		text := "mode: allowlist\nsecrets:\n- {name: API, hosts: [api.example]}\n"
		if members != "" {
			text = strings.ReplaceAll("mode: allowlist\nsecrets:\n- name: API\n  "+members+"\n  hosts: [api.example]\n", "DIR", dir)
		}
		if strings.Contains(members, "hosts:") {
			text = strings.TrimSuffix(text, "  hosts: [api.example]\n")
		}
		policy, err := p.parsePolicy([]byte(text), true)
		switch {
		case err == nil && (want != "" || string(policy.Secrets[0].Value) != hidden):
			t.Errorf("%q: got %+v", members, policy)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%q: got %v, want %q", members, err, want)
		case err != nil && strings.Contains(strings.ReplaceAll(err.Error(), hidden+"%", ""), "print-this"):
			t.Errorf("%q: the error has the value: %v", members, err)
		}
	}
}
