package egress

import "net"

// ClosingListener is the listener where the kernel does not refuse open files.
func ClosingListener(l *net.UnixListener) net.Listener { return &closingListener{l} }
