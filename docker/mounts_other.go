//go:build !linux

package docker

import (
	"os"

	"github.com/actiond/actiond/sandbox"
)

// heldMounts are for Linux: elsewhere the engine runs in a virtual machine,
// which sees only its shared directories.
type heldMounts struct{}

func holdMounts([]sandbox.Mount) (*heldMounts, error) { return &heldMounts{}, nil }

func (*heldMounts) release() {}

func (*heldMounts) below([]agentDir) (source, dir string) { return "", "" }

func (*heldMounts) check(int, int) error { return nil }

func (*stateDir) startFIFO(string, int) (*os.File, error) { return os.Open(os.DevNull) }
