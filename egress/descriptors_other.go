//go:build !linux

package egress

import "net"

// refuseDescriptors does nothing: the egress proxy runs on Linux alone.
func refuseDescriptors(l *net.UnixListener) net.Listener { return l }
