//go:build !linux

package docker

import (
	"context"
	"errors"
	"net"
)

// dialSocket is for Linux, where sandboxes share this host's kernel; elsewhere
// the engine runs in a virtual machine and a port is used.
func dialSocket(context.Context, string, string, int) (net.Conn, error) {
	return nil, errors.New("sockets of sandboxes can be reached on Linux only")
}
