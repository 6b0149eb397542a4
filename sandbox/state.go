package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
)

// DefaultStateDir returns the directory in which drivers record sandboxes: /var/lib/actiond
// for root, $XDG_STATE_HOME/actiond or ~/.local/state/actiond for others. It persists over
// a reboot, like stopped sandboxes, whose keys are in it.
func DefaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/actiond"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "actiond")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "actiond-"+strconv.Itoa(os.Geteuid()))
	}
	return filepath.Join(home, ".local", "state", "actiond")
}
