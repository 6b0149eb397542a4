package ports

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/actiond/actiond/executor/internal/sockets"
)

// socket is one that listens.
type socket struct {
	at    netip.AddrPort
	inode uint64
}

// maxSockets bounds the sockets that are looked at, so that a process with very
// many of them costs little memory.
const maxSockets = 4096

// listening returns the sockets that listen on a port, 0 for all, in a fixed order.
func listening(port uint16) ([]socket, error) {
	var all []socket
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) { // no IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing the ports: %w", err)
		}
		found, err := readTable(file, port, maxSockets-len(all))
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", table, err)
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b socket) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.inode, b.inode))
	})
	return all, nil
}

// readTable returns at most so many sockets that listen on a port, 0 for all, from a
// table in the form of /proc/net/tcp.
func readTable(r io.Reader, port uint16, most int) ([]socket, error) {
	var found []socket
	err := sockets.Read(r, func(row sockets.Socket) bool {
		s, ok := listener(row)
		if ok && (port == 0 || s.at.Port() == port) {
			found = append(found, s)
		}
		return len(found) < most
	})
	return found, err
}

// listener returns the socket of a row; false where it does not listen.
func listener(row sockets.Socket) (socket, bool) {
	if row.State != sockets.Listening || row.Local.Port() == 0 || row.Inode == 0 {
		return socket{}, false
	}
	return socket{row.Local, row.Inode}, true
}
