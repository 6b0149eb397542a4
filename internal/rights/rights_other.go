//go:build !linux

package rights

import "net"

// Listener does nothing: sandboxes run on Linux alone.
func Listener(l *net.UnixListener) net.Listener { return l }
