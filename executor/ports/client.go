package ports

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"

	"github.com/actiond/actiond/executor/internal/sockets"
)

// Client returns a process of the sandbox that has the end of a TCP connection at local, whose other
// end is at remote; 0 where there is none. The connection must stay open meanwhile.
func (f *Finder) Client(local, remote netip.AddrPort) int {
	inode := connected(local, remote)
	if inode == 0 {
		return 0
	}
	owners, _ := f.owners([]socket{{inode: inode}})
	return owners[inode]
}

// connected returns the inode of the socket of a connection, or 0. That of a program that speaks
// IPv6 is in the other table, with mapped addresses.
func connected(local, remote netip.AddrPort) (inode uint64) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) { // no IPv6
			continue
		}
		if err != nil {
			return 0
		}
		_ = sockets.Read(file, func(row sockets.Socket) bool { // what cannot be read has no client
			if unmap(row.Local) == local && unmap(row.Remote) == remote {
				inode = row.Inode
			}
			return inode == 0
		})
		_ = file.Close()
		if inode != 0 {
			break
		}
	}
	return inode
}

func unmap(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
