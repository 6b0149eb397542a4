package platform

import (
	"bytes"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/sandbox"
)

func TestHintRoot(t *testing.T) {
	t.Parallel()
	const (
		hint    = "note: the command ran as agent; if it needs root, create a sandbox with '--allow-root' and use 'exec --user root', or take an image that has what is needed\n"
		allowed = "note: the command ran as agent; if it needs root, use 'runtimectl exec --user root build -- ...'\n"
	)
	for _, tt := range []struct {
		user  string
		allow bool
		said  string
		want  string
	}{
		{"agent:1000", false, "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n", hint},
		{"agent:1000", true, "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?", allowed},
		{"agent:1000", true, "dpkg: error: requested operation requires superuser privilege", allowed},
		{"agent:1000", false, "mount: /mnt: must be superuser to use mount.\n", hint},
		{"agent:1000", false, "useradd: Permission denied.\nuseradd: cannot lock /etc/passwd; try again later.\n", hint},
		{"agent:1000", false, "chown: changing ownership of 'x': Operation not permitted\n", hint},
		{"agent:1000", false, "ERROR: Unable to lock database: Permission denied\nERROR: Failed to open apk database", hint},
		{"agent:1000", false, "Error: This command has to be run with superuser privileges (under the root user on most systems).", hint},
		{"agent:1000", false, "npm error Error: EACCES: permission denied, mkdir '/usr/lib/node_modules/x'", hint},
		{"agent:1000", false, `sudo: The "no new privileges" flag is set, which prevents sudo from running as root.`, hint},
		{"agent:1000", false, "This script must be run as root\n", hint},
		{"agent:1000", false, "git@example.org: Permission denied (publickey).\n", ""},
		{"agent:1000", false, "E: Unable to locate package jq\n", ""},
		{"agent:1000", true, "--- FAIL: TestX\n", ""},
		{"agent:1000", true, "", ""},
		{"root:0", false, "cat: x: Permission denied\n", ""},
		{"me", false, "are you root?", ""}, // of the local driver
	} {
		var said bytes.Buffer
		p := &Platform{Streams: output.Streams{Stderr: &said}}
		p.HintRoot(&sandbox.Sandbox{Name: "build", User: tt.user, AllowRoot: tt.allow}, tt.said)
		if said.String() != tt.want {
			t.Errorf("%s: %q: got %q, want %q", tt.user, tt.said, said.String(), tt.want)
		}
	}
}
