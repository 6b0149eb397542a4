package rights

import "net"

// Closing is the listener where the kernel does not refuse open files.
func Closing(l *net.UnixListener) net.Listener { return &closingListener{l} }
