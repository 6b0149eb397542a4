package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestNetworkUsage(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	testhelp.WriteFile(t, policy, "mode: allowlist\nallow:\n- 0x7f.1\n", 0o600)
	for args, want := range map[string]string{
		"create --allow 0x7f.1 debian":                       `--allow: rule "0x7f.1"`,
		"create --deny https://a.example/x debian":           "write its host alone, with :PORT for one port, without https:// and a path",
		"network --remove http://a.example box":              "it is a URL",
		"create --deny a@b debian":                           `--deny: rule "a@b"`,
		"create --allow * debian":                            `rule "*"`,
		"create --network bridge --allow a.example debian":   "--network bridge has no policy",
		"create --network none --network-policy x debian":    "--network none has no policy",
		"create --network-policy " + policy + " debian":      "policy.yaml: line 3, /allow/0: rule",
		"create --private 10.0.0.0/8 debian":                 "--private is for the rules",
		"create --allow a.example --private 10.0.0.1 debian": "--private \"10.0.0.1\"",
		"create --on local --allow a.example":                "--allow cannot be honoured without an engine",
		"create --on kubernetes --allow 0x7f.1 debian":       `--allow: rule "0x7f.1"`,
		"network --on kubernetes --mode open box":            "must be public, allowlist or no-network",
		"serve --allow : debian":                             "--allow: rule",
		"serve --secret do-not-print":                        "--secret: ",
		"serve --secret id=A,env=DO-NOT-PRINT,host=a.b":      `--secret "A": the variable`,
		"serve --private 10.0.0.0":                           "must be a range",
		"pool --network public --deny : debian":              "--deny: rule",
		"create --secret do-not-print debian":                "--secret: ",
		"create --on local --secret id=A":                    "--secret cannot be honoured without an engine",
		"create --on kubernetes --secret id=A,host=a debian": `--secret "A": its value is read from`,
		"serve --on kubernetes --private 10.0.0.0":           "must be a range",
		"create --network none --secret id=A debian":         "--network none has no policy",
		"network --secret id=A,env=DO-NOT-PRINT box":         `--secret "A": the variable`,
		"create --no-names debian":                           "--no-names is for a policy",
		"network --mode open box":                            "must be public, allowlist or no-network",
		"network --allow : box":                              "--allow: rule",
		"network --remove : box":                             "--remove: rule",
		"network -f " + policy + " box":                      "line 3, /allow/0: rule",
		"network --follow box":                               "--follow is for --denied",
		"network --denied --mode public box":                 "one at a time",
		"network ls":                                         "'docker network ls'",
		"network create front":                               "'docker network create'",
		"network":                                            "",
	} {
		code, stdout, stderr := inProcess(t.Context(), nil, strings.Fields(args)...)
		if strings.Contains(strings.ToLower(stderr), "do-not-print") {
			t.Errorf("%s: %s", args, stderr)
		}
		if code != command.ExitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %q, want %d and %q", args, code, stdout, stderr, command.ExitUsage, want)
		}
	}
}

// TestNetwork: the policy of a sandbox is shown, changed and asked, and the exit codes say why not.
func TestNetwork(t *testing.T) {
	if os.Geteuid() != 0 { // only root's engine shares sockets
		t.Setenv("DOCKER_HOST", dockertest.New(t).Address)
		code, _, stderr := inProcess(t.Context(), nil, "create", "--server", filepath.Join(programs(t), "server"), "--state-dir", shortDir(t),
			"--allow", "a.example", "debian")
		if code != command.ExitUsage || !strings.Contains(stderr, "network policies cannot be kept here") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		return
	}
	f := dockertest.New(t)
	f.Rooted = true
	f.Serve = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"observation": "run", "content": "", "extras": {"command": "true", "hidden": true, "metadata": {"exit_code": 0}}}`))
		})
	}
	t.Setenv("DOCKER_HOST", f.Address)
	dir := shortDir(t)
	server := filepath.Join(programs(t), "server")
	run := func(want int, stdoutHas, stderrHas string, args ...string) {
		t.Helper()
		args = append([]string{args[0], "--state-dir", filepath.Join(dir, "state")}, args[1:]...)
		code, stdout, stderr := inProcess(t.Context(), nil, args...)
		if code != want || !strings.Contains(stdout, stdoutHas) || !strings.Contains(stderr, stderrHas) || strings.Contains(stdout+stderr, "do-not-print") {
			t.Errorf("%q: exit code %d, %s%s, want %d, %q and %q", args, code, stdout, stderr, want, stdoutHas, stderrHas)
		}
	}
	run(0, "", "", "create", "--server", server, "--name", "box", "--allow", "api.example", "--deny", "*.ads.example", "debian")
	run(0, "", "", "create", "--server", server, "--name", "plain", "debian")
	run(0, "mode          allowlist\nallow         api.example\ndeny          *.ads.example\nnames         on\nconnections   0 open", "", "network", "box")
	run(command.ExitConflict, "", "without a network policy", "network", "plain")
	run(command.ExitNotFound, "", "no such sandbox", "network", "none")
	run(0, `"allow": [`, "", "network", "--remove", "api.example", "--allow", "b.example:443", "-o", "json", "box")
	run(command.ExitUsage, "", `rule "api.example" is not in the policy`, "network", "--remove", "api.example", "box")
	run(0, "allowed   allow b.example:443", "", "network", "--check", "b.example:443", "box")
	run(command.ExitFailed, "denied   not in the allow list", "", "network", "--check", "b.example:80", "box")
	run(0, "mode          public", "", "network", "--mode", "public", "box")
	run(command.ExitFailed, "denied   private address", "", "network", "--check", "10.0.0.1:80", "box")
	run(command.ExitUsage, "", "--check", "network", "--check", "b.example", "box")
	run(0, "", "", "network", "--denied", "box")
	run(0, "network       public\nnames         on\n", "", "inspect", "box")
	key := filepath.Join(dir, "key")
	write := func(value string) {
		t.Helper()
		testhelp.WriteFile(t, key, value+"\n", 0o600)
	}
	write("do-not-print-1")
	run(command.ExitUsage, "", `--secret "API": the policy has no such secret, so it needs host=HOST; it has none`, "network", "--secret", "id=API,src="+key, "box")
	run(0, "secret        API to api.example, in place of KEY", "", "network", "--secret", "id=API,src="+key+",host=api.example,var=KEY", "box")
	write("do-not-print-2")
	run(0, `"header": "X-Key",`, "", "network", "--secret", "id=API,src="+key+",header=X-Key", "-o", "json", "box")
	if got := confText(t, dir); !strings.Contains(got, "do-not-print-2") || strings.Contains(got, "do-not-print-1") || !strings.Contains(got, `"var":"KEY"`) {
		t.Errorf("after the rotation: %s", got)
	}
	run(0, "mode          no-network", "", "network", "--mode", "no-network", "box")
	if got := confText(t, dir); !strings.Contains(got, "do-not-print-2") {
		t.Errorf("after another change: %s", got)
	}
	file := filepath.Join(dir, "policy.yaml")
	for secrets, want := range map[string]string{
		"[{name: API}]":                          "", // keeps its value, and all else
		"[{name: API, hosts: [api.example]}]":    "",
		"[{name: API, hosts: [evil.example]}]":   "its hosts, header and format cannot change",
		"[{name: OTHER, hosts: [evil.example]}]": "it has no value, and there is none of this name",
	} {
		testhelp.WriteFile(t, file, "mode: public\nsecrets: "+secrets+"\n", 0o600)
		if want != "" {
			run(command.ExitUsage, "", want, "network", "-f", file, "box")
		} else {
			run(0, "secret        API to api.example, in place of KEY", "", "network", "-f", file, "box")
		}
		if got := confText(t, dir); !strings.Contains(got, "do-not-print-2") || !strings.Contains(got, `"header":"X-Key"`) {
			t.Errorf("after %s: %s", secrets, got)
		}
	}
	run(command.ExitUsage, "", `policy.yaml: secret "`, "create", "--server", server, "--network-policy", file, "debian")
	testhelp.WriteFile(t, file, "mode: open\n", 0o600)
	run(command.ExitUsage, "", `mode "open"`, "network", "-f", file, "box")
	run(command.ExitUsage, "", `the policy has no secret "B"; it has API`, "network", "--remove-secret", "B", "box")
	run(0, "", "", "network", "--remove-secret", "API", "--mode", "public", "box")
	if got := confText(t, dir); strings.Contains(got, "do-not-print") {
		t.Errorf("after its removal: %s", got)
	}
	f.Lock()
	proxy := ""
	for _, c := range f.Containers {
		if strings.HasPrefix(c.Name, "actiond-egress-") {
			proxy = c.Name
		}
	}
	f.Refusals = map[string]error{"start": os.ErrPermission}
	f.Unlock()
	f.Kill(proxy, false)
	run(command.ExitUnavailable, "egress   down, nothing passes", "the network is closed", "network", "--mode", "no-network", "box")
	f.Lock()
	f.Refusals = nil
	f.Unlock()
	run(0, "mode          no-network\n", "", "network", "box")
	run(0, "0 open connections", "", "doctor", "--server", server)
	run(0, "the egress proxy test has run for", "", "doctor", "--restart-egress", "--server", server)
	f.Lock()
	f.Refusals = map[string]error{"start": os.ErrPermission}
	f.Unlock()
	f.Kill(proxy, false)
	run(0, "reach nothing (1)", "", "doctor", "--server", server)
	f.Lock()
	f.Refusals = nil
	f.Unlock()
	run(0, "", "", "rm", "box", "plain")
}

// confText is the only file with a network policy below a directory.
func confText(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "state/egress/conf/????????????.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("got %q, %v", names, err)
	}
	text := testhelp.ReadFile(t, names[0])
	return string(text)
}
