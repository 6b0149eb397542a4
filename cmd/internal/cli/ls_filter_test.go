package cli

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func TestLsChooses(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "one", "--owner", "me", "--label", "team=a")
	m.ok("create", "--name", "two", "--owner", "you")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--filter", "owner=me", "--format", "{{.Name}} {{.Owner}}"}, "one me\n"},
		{[]string{"-a", "--filter", "label=team", "--format", "{{.Name}}"}, "one\n"},
		{[]string{"--filter", "owner=me", "--filter", "name=two", "-q"}, ""},
	} {
		if got := m.ok(append([]string{"ls"}, tt.args...)...); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, tt := range []struct{ flag, value, stderr string }{
		{"--filter", "x=y", "names are id, name, owner, image, state, pool, label\n"},
		{"--format", "{{", "--format: template: "},
		{"--format", "{{.Nope}}", "; the fields are .ID, .Name, .Owner, "},
	} {
		code, stdout, stderr := m.run("ls", tt.flag, tt.value)
		if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s %s: exit code %d, %q, %q", tt.flag, tt.value, code, stdout, stderr)
		}
	}
}

// The platform may stand before the command or after it, or in the environment.
func TestPlatform(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	for _, tt := range []struct {
		on   string
		args []string
	}{
		{"", []string{"--on", "local", "ls", "--state-dir", dir}},
		{"", []string{"ls", "--on", "local", "--state-dir", dir}},
		{"", []string{"ls", "--on=local", "--on=local", "--state-dir", dir}},
		{"local", []string{"ls", "--state-dir", dir}},
		{"docker", []string{"ls", "--on=local", "--state-dir", dir}},
		{"moon", []string{"ls", "--on", "local", "--state-dir", dir}},
	} {
		code, stdout, stderr := inProcess(t.Context(), map[string]string{"ACTIOND_ON": tt.on}, tt.args...)
		if code != 0 || !strings.HasPrefix(stdout, "SANDBOX") {
			t.Errorf("%s, %q: exit code %d, %q, %q", tt.on, tt.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := inProcess(t.Context(), map[string]string{"ACTIOND_ON": "moon"}, "ls"); code != command.ExitUsage || !strings.Contains(stderr, "ACTIOND_ON \"moon\"") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
