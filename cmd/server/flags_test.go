package main

import (
	"errors"
	"flag"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	keyFile := filepath.Join(t.TempDir(), "key")
	testhelp.WriteFile(t, keyFile, " secret\n", 0o600)
	for _, c := range []struct {
		name, args string
		env        []string
		want       func(o *options) bool
	}{
		{"nothing", "", nil, func(o *options) bool {
			return o.addr == "127.0.0.1:8000" && o.username == "" && o.softTimeout == 10*time.Second && filepath.IsAbs(o.workingDir) && o.browser
		}},
		{"port", "3000", nil, func(o *options) bool { return o.addr == "0.0.0.0:3000" }},
		{"host and port", "--host 0.0.0.0 --port 9", nil, func(o *options) bool { return o.addr == "0.0.0.0:9" }},
		{"host", "--host ::1", nil, func(o *options) bool { return o.addr == "[::1]:8000" }},
		{"port", "--port 9", nil, func(o *options) bool { return o.addr == "127.0.0.1:9" }},
		{"key of OpenHands", "", []string{"OH_SESSION_API_KEYS_0=a", "SESSION_API_KEY=b"}, func(o *options) bool { return o.key == "b" && o.keyInEnv }},
		{"directory of OpenHands", "", []string{"OH_EXECUTION_ONLY=true"}, func(o *options) bool { return o.workingDir == "/workspace" && o.track == "/workspace" }},
		{"another directory", "--working-dir /w", []string{"OH_EXECUTION_ONLY=true"}, func(o *options) bool { return o.workingDir == "/w" }},
		{"address", "--addr unix:/run/s", nil, func(o *options) bool { return o.addr == "unix:/run/s" }},
		{
			"as Docker's runtime starts it", "run -n openhands poetry run python -u -m openhands.runtime.action_execution_server 34567 --working-dir /workspace --plugins agent_skills jupyter --username openhands --user-id 1001 --no-enable-browser", nil,
			func(o *options) bool {
				return o.addr == "0.0.0.0:34567" && o.workingDir == "/workspace" && o.username == "openhands" && o.userID == 1001 && !o.browser &&
					slices.Equal(o.plugins, []string{"agent_skills", "jupyter"})
			},
		},
		{"flags before the port", "--working-dir /w --plugins=jupyter 3000", nil, func(o *options) bool {
			return o.addr == "0.0.0.0:3000" && o.workingDir == "/w" && slices.Equal(o.plugins, []string{"jupyter"})
		}},
		{"flags end", "--plugins jupyter -- 3000", nil, func(o *options) bool {
			return o.addr == "0.0.0.0:3000" && slices.Equal(o.plugins, []string{"jupyter"})
		}},
		{"one dash", "-plugins agent_skills jupyter -username me", nil, func(o *options) bool {
			return o.username == "me" && slices.Equal(o.plugins, []string{"agent_skills", "jupyter"})
		}},
		{"variables", "3000", []string{"SESSION_API_KEY=k", "NO_CHANGE_TIMEOUT_SECONDS=1", "SANDBOX_GROUP_ID=5", "USER=me", "DEBUG="}, func(o *options) bool {
			return o.key == "k" && o.softTimeout == time.Second && o.groupID == 5 && o.selfName == "me"
		}},
		{"flags win", "--soft-timeout 2s --session-key-file " + keyFile, []string{"SESSION_API_KEY=k", "NO_CHANGE_TIMEOUT_SECONDS=1"}, func(o *options) bool {
			return o.key == "secret" && o.softTimeout == 2*time.Second
		}},
		{"changes", "--changes off", nil, func(o *options) bool { return o.changes == "off" }},
		{"tracked", "--working-dir /w", nil, func(o *options) bool { return o.changes == "" && o.track == "/w" }},
		{"tracked elsewhere", "--working-dir /w --track /w/src", nil, func(o *options) bool { return o.track == "/w/src" }},
		{"draft model", "--draft-model-url http://h/v1 --draft-model m --draft-model-key-file " + keyFile, nil, func(o *options) bool {
			return o.draft.URL == "http://h/v1" && o.draft.Model == "m" && o.draft.Key == "secret" && o.key == ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, err := parse(strings.Fields(c.args), c.env, io.Discard)
			if err != nil || !c.want(o) {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"0":                            `port "0"`,
		"70000":                        `port "70000"`,
		"3000 4000":                    `unexpected argument "4000"`,
		"3000 --addr :4":               "both a port",
		"--plugins chess":              `plugin "chess"`,
		"--plugins":                    "at least one",
		"3000 --plugins --username me": "at least one",
		"-- 3000 --fly":                `unexpected argument "--fly"`,
		"--fly":                        "-fly: this is server ",
		"fly /a /b":                    `"fly" is neither a port nor a command: this is server `,
		"--user-id x":                  "user-id",
		"--no-enable-browser --browsergym-eval-env e": "needs the browser",
		"--changes all":                "must be undo, facts or off",
		"--changes-bytes -1":           "is negative",
		"--changes off --track /w":     "--track needs",
		"--soft-timeout 0s":            "not positive",
		"--session-key-file /dev/null": "empty",
		"--draft-model m":              "need --draft-model-url",
		"--draft-model-url h":          `"h" is not an http or https URL`,
		"--allow-root":                 "needs a key",
		"--addr :4 --host 0.0.0.0":     "--host and --port exclude --addr",
		"3000 --port 4":                "both a port",
		"--port 0":                     `--port "0" is not a number`,
		"--addr here":                  "--addr here: write HOST:PORT or unix:PATH",
		"--addr unix:":                 "--addr unix:: write HOST:PORT or unix:PATH",
		"--draft-model-url http://h --draft-model-key-file /dev/null": "empty",
	} {
		if _, err := parse(strings.Fields(args), nil, io.Discard); !errors.As(err, new(*usageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a usageError with %q in it", args, err, want)
		}
	}
	for _, env := range []string{"RUNTIME_MAX_MEMORY_GB=much", "NO_CHANGE_TIMEOUT_SECONDS=0", "SANDBOX_GROUP_ID=wheel"} {
		if _, err := parse(nil, []string{env}, io.Discard); err == nil {
			t.Errorf("%s: got no error", env)
		}
	}
	if o, err := parse(nil, []string{"SANDBOX_GROUP_ID=0"}, io.Discard); err != nil || o.groupID != 0 {
		t.Errorf("root's group: got %v", err)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, nil, &help); !errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(help.String(), "Usage: server") {
		t.Errorf("got %q, %v", help.String(), err)
	}
}

// The flags are parsed from whatever a launcher says; no line of it panics.
func FuzzParse(f *testing.F) {
	f.Add("3000 --plugins a b --username=x -- --", "USER=x")
	f.Add("-m openhands.runtime.action_execution_server 1 --plugins", "LOG_LEVEL=WARNING")
	f.Fuzz(func(t *testing.T, args, env string) {
		if strings.Contains(args, "key-file") {
			return // it would be read
		}
		o, err := parse(strings.Fields(args), strings.Split(env, "\n"), io.Discard)
		if err == nil && (o.addr == "" || o.softTimeout <= 0) {
			t.Errorf("got %+v", o)
		}
	})
}

// TestDocs holds the tables of docs/reference/server.md to the help: both have the same
// flags, and every variable of the help is in the other.
func TestDocs(t *testing.T) {
	t.Parallel()
	data := testhelp.ReadFile(t, "../../docs/reference/server.md")
	_, flags, _ := strings.Cut(string(data), "\n## Flags\n")
	flags, variables, _ := strings.Cut(flags, "\n## Variables\n")
	variables, _, _ = strings.Cut(variables, "\n## ")
	usage, helpVariables, _ := strings.Cut(help, "\nVariables:\n")
	names := func(expression, text string) map[string]bool {
		found := map[string]bool{}
		for _, name := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
			found[name[1]] = true
		}
		return found
	}
	told := names("(?m)^\\| `--([a-z-]+)", flags)
	if said := names(`(?m)^  --(?:\[no-\])?([a-z-]+)`, usage); !maps.Equal(told, said) {
		t.Errorf("docs/reference/server.md has the flags %v\nthe help has %v", told, said)
	}
	told = names("`([A-Z0-9_]+)`", variables)
	for name := range names(`([A-Z]+(?:_[A-Z0-9]+)+|DEBUG)`, helpVariables) {
		if !told[name] {
			t.Errorf("docs/reference/server.md does not have %s", name)
		}
	}
}
