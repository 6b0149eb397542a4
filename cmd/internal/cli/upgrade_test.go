package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

// A server that has one user with the commands is not upgraded: the agent could send the
// program. What is no server is refused before anything is sent.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "one", "--server", filepath.Join(programs(t), "server"))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--server", filepath.Join(programs(t), "server"), "one"}, command.ExitConflict, "cannot be upgraded in place"},
		{[]string{"--server", filepath.Join(m.dir, "absent"), "one"}, command.ExitFailed, "no such file"},
		{[]string{"--wait", "2h", "one"}, command.ExitUsage, "--wait must be from 0 to 1h"},
		{[]string{"--server", filepath.Join(programs(t), "server"), "two"}, command.ExitNotFound, "two"},
	} {
		code, stdout, stderr := m.run(append([]string{"upgrade"}, tt.args...)...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("upgrade %q: exit code %d, %q, %q, want %d and %q", tt.args, code, stdout, stderr, tt.code, tt.want)
		}
	}
	m.ok("exec", "one", "true")
}
