package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

// A range that cannot be used is a usage error, whatever becomes of the engine.
func TestUIDRange(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	for _, tt := range []struct {
		flags, variable string
		code            int
		stderr          string
	}{
		{"", "", command.ExitUnavailable, "cannot be reached"},
		{"--uid-range 70000-79999", "", command.ExitUnavailable, "cannot be reached"},
		{"", "70000-79999", command.ExitUnavailable, "cannot be reached"},
		{"--uid-range 9-1", "", command.ExitUsage, "--uid-range: "},
		{"--uid-range x", "70000-79999", command.ExitUsage, "--uid-range: "},
		{"", "0-9", command.ExitUsage, "ACTIOND_UID_RANGE: "},
		{"--uid-range 70000-79999", "0-9", command.ExitUnavailable, "cannot be reached"},
	} {
		line := "create --state-dir " + shortDir(t) + " --server " + filepath.Join(programs(t), "server") + " " + tt.flags + " image"
		code, _, stderr := inProcess(t.Context(), map[string]string{"ACTIOND_UID_RANGE": tt.variable}, strings.Fields(line)...)
		if code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%q, variable %q: exit code %d, %s\nwant %d, %q", tt.flags, tt.variable, code, stderr, tt.code, tt.stderr)
		}
	}
}
