//go:build integration

package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// buildPackage makes /tmp/greet.deb as root. It has a program, a file and a set-group-id
// program of other owners, and makes an account when it is configured.
const buildPackage = `set -e; umask 022; cd /tmp; rm -rf greet; mkdir -p greet/DEBIAN greet/usr/bin greet/var/lib/greet
printf 'Package: greet\nVersion: 1\nArchitecture: all\nMaintainer: none <none@example.org>\nDepends: passwd\nDescription: greets\n' >greet/DEBIAN/control
printf '#!/bin/sh\nset -e\nuseradd --system greeter\nchown greeter /var/lib/greet\nchmod 2770 /var/lib/greet\n' >greet/DEBIAN/postinst
printf '#!/bin/sh\necho greetings\n' >greet/usr/bin/greet
cp greet/usr/bin/greet greet/usr/bin/greet-mail
chmod 755 greet/DEBIAN/postinst greet/usr/bin/greet
chown games greet/usr/bin/greet; chgrp mail greet/usr/bin/greet-mail greet/var/lib/greet; chmod 2755 greet/usr/bin/greet-mail
dpkg-deb --build greet greet.deb`

// TestCLIExecRoot installs a package as people expect, and lets the agent lay traps.
func TestCLIExecRoot(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	box := image(t, debianImage)
	c.ok("create", "--name", "closed", "--network", "none", box)
	code, _, stderr := c.run("exec", "--user", "root", "closed", "--", "id")
	if code != 125 || !strings.Contains(stderr, "--allow-root") {
		t.Errorf("in another sandbox: exit code %d, %q, want 125 and the flag", code, stderr)
	}
	if code, _, stderr = c.run("exec", "closed", "--", "apt-get", "install", "greet"); code != 100 || !strings.Contains(stderr, "create a sandbox with '--allow-root'") {
		t.Errorf("as the agent: exit code %d, %q, want 100 and the way", code, stderr)
	}
	c.ok("create", "--name", "open", "--network", "none", "--allow-root", box)
	if code, _, stderr = c.run("exec", "open", "--", "dpkg", "--configure", "-a"); code != 2 || !strings.Contains(stderr, "'runtimectl exec --user root open -- ...'") {
		t.Errorf("as the agent where root is allowed: exit code %d, %q, want 2 and the way", code, stderr)
	}
	c.ok("exec", "--user", "root", "open", "--", "sh", "-c", buildPackage)
	c.ok("exec", "--user", "root", "-e", "DEBIAN_FRONTEND=noninteractive", "open", "--", "apt-get", "install", "-y", "/tmp/greet.deb")
	if got := c.ok("exec", "open", "--", "sh", "-c", "id -un; greet; greet-mail"); got != "agent\ngreetings\ngreetings\n" {
		t.Errorf("the installed programs: got %q", got)
	}
	if got := c.ok("exec", "open", "--", "stat", "-c", "%U %G %a", "/usr/bin/greet", "/usr/bin/greet-mail", "/var/lib/greet"); got !=
		"games root 755\nroot mail 2755\ngreeter mail 2770\n" {
		t.Errorf("the installed files: got %q", got)
	}

	// The agent's settings do not reach root's programs: its home, its shell files, what it
	// exports, and the programs of directories that are its own.
	c.ok("exec", "--user", "root", "open", "--", "chown", "agent", "/usr/local/bin")
	c.ok("exec", "--session", "default", "open", "--", "/bin/sh", "-c", `for f in ls id apt-get sh env; do printf '#!/bin/sh\necho owned\n' >/usr/local/bin/$f; chmod 755 /usr/local/bin/$f; done
		for f in .profile .bashrc .bash_profile; do echo 'echo owned' >~/$f; done; ln -s /usr/local/bin/id id`)
	c.ok("exec", "--session", "default", "open", "--", "export", "LD_PRELOAD=/workspace/owned.so", "BASH_ENV=/workspace/owned", "ENV=/workspace/owned")
	want := "HOME=/root\nLOGNAME=root\nPAGER=cat\nPATH=/usr/local/sbin:/usr/sbin:/usr/bin\nSHELL=/bin/sh\nTERM=xterm-256color\nUSER=root\n"
	got := c.ok("exec", "--user", "root", "open", "--", "env")
	if lines := strings.SplitAfter(got, "\n"); strings.Join(lines[:max(0, len(lines)-2)], "") != want || !strings.HasPrefix(lines[len(lines)-2], "ACTIOND_TREE=") {
		t.Errorf("the environment: got %q, want %q and ACTIOND_TREE", got, want)
	}
	if got := c.ok("exec", "--user", "root", "open", "--", "sh", "-c", "id -u; pwd; bash -c 'id -un'; ls -d /"); got != "0\n/\nroot\n/\n" {
		t.Errorf("the programs: got %q", got)
	}
	// A home that is the agent's is not root's.
	c.ok("exec", "--user", "root", "open", "--", "chown", "agent", "/root")
	if got := c.ok("exec", "--user", "root", "open", "--", "sh", "-c", "echo $HOME"); got != "/\n" {
		t.Errorf("HOME: got %q", got)
	}
	if code, _, _ := c.run("exec", "--user", "root", "--timeout", "2s", "open", "--", "sh", "-c", "exec sleep 1000"); code != 124 {
		t.Errorf("after its time: exit code %d, want 124", code)
	}
	testhelp.Eventually(t, func() bool {
		return c.ok("exec", "open", "--", "/bin/sh", "-c", `for p in /proc/[0-9]*/comm; do read -r n <$p && [ "$n" = sleep ] && echo $p; done; true`) == ""
	}, "the interrupted program ends")
}

// TestDockerRootAttacks has an agent ask for root by itself, and attack what runs as root.
func TestDockerRootAttacks(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage), AllowRoot: true, Network: "none"})
	if found, err := h.Get(t.Context(), s.ID); err != nil || !found.AllowRoot {
		t.Errorf("got %+v, %v: want that root is allowed", found, err)
	}
	key := keyOf(t, s)
	id := map[string]any{"action": map[string]any{"action": "exec", "args": map[string]any{"command": "id -u", "user": "root"}}}
	for path, body := range map[string]any{
		"/execute_action": id,
		"/v1/tools/call":  map[string]any{"dialect": "openhands", "name": "execute_bash", "arguments": map[string]any{"command": "id -u", "user": "root"}},
	} {
		answer, err := call(t.Context(), s.Dial, key, http.MethodPost, path, body)
		if err == nil && !strings.Contains(string(answer), `"is_error":true`) {
			t.Errorf("%s: got %s, want a refusal", path, answer)
		}
	}
	if _, err := call(t.Context(), s.Dial, "", http.MethodPost, "/v1/actions", id); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("without the key: got %v, want 403", err)
	}
	// A program of root's runs while the agent tries.
	id["action"].(map[string]any)["args"] = map[string]any{"argv": []string{"sleep", "1000"}, "user": "root"}
	id["action"].(map[string]any)["timeout"] = 0.5
	id["id"] = "sleeper"
	answer, err := call(t.Context(), s.Dial, key, http.MethodPost, "/v1/actions", id)
	var o struct{ Extras struct{ PID int } }
	if err != nil || json.Unmarshal(answer, &o) != nil || o.Extras.PID == 0 {
		t.Fatalf("got %s, %v", answer, err)
	}
	const sleeper = `P=$(for p in /proc/[0-9]*; do read -r n < $p/comm; test "$n" = sleep && echo ${p#/proc/}; done); `
	for _, tt := range []struct{ name, command, want string }{
		{"kill it", `kill -9 $P; echo $?`, "not permitted"},
		{"its environment", `cat /proc/$P/environ`, "Permission denied"},
		{"its memory", `cat /proc/$P/mem`, "Permission denied"},
		{"its descriptors", `ls /proc/$P/fd`, "Permission denied"},
		{"its directory", `ls /proc/$P/cwd/`, "Permission denied"},
		{"trace it", `grep -c . /proc/$P/syscall`, "ermi"},
		{"capabilities of the agent", `grep CapEff /proc/self/status`, "0000000000000000"},
		{"set-uid programs", `grep NoNewPrivs /proc/self/status`, "1"},
	} {
		if got, _ := run(t, s, sleeper+tt.command); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q in it", tt.name, got, tt.want)
		}
	}
	if _, err := call(t.Context(), s.Dial, key, http.MethodDelete, "/v1/actions/sleeper", nil); err == nil {
		t.Error("an action that was answered was cancelled")
	}
}
