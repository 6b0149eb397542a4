package ports

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// socket is one that listens.
type socket struct {
	at    netip.AddrPort
	inode uint64
}

const (
	// maxTable bounds what is read of a table of the kernel, in bytes. Sockets that
	// listen come first in it.
	maxTable = 4 << 20
	// maxSockets bounds the sockets that are looked at, so that a process with very
	// many of them costs little memory.
	maxSockets = 4096
)

// listening returns the sockets that listen on a port, 0 for all, in a fixed order.
// procfs's reader would hold every connection in memory, however many there are.
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
	lines := bufio.NewScanner(io.LimitReader(r, maxTable))
	for lines.Scan() && len(found) < most {
		s, ok := parseRow(lines.Text())
		if ok && (port == 0 || s.at.Port() == port) {
			found = append(found, s)
		}
	}
	return found, lines.Err()
}

// stateListen is TCP_LISTEN of the kernel.
const stateListen = "0A"

// parseRow reads a row; false where it is no socket that listens.
func parseRow(row string) (socket, bool) {
	fields := strings.Fields(row)
	if len(fields) < 10 || fields[3] != stateListen {
		return socket{}, false
	}
	host, port, _ := strings.Cut(fields[1], ":")
	address, ok := parseAddress(host)
	number, err1 := strconv.ParseUint(port, 16, 16)
	inode, err2 := strconv.ParseUint(fields[9], 10, 64)
	if !ok || err1 != nil || err2 != nil || number == 0 || inode == 0 {
		return socket{}, false
	}
	return socket{netip.AddrPortFrom(address, uint16(number)), inode}, true
}

// parseAddress reads an address: words of 32 bits in the byte order of the machine,
// as hexadecimal numbers.
func parseAddress(text string) (netip.Addr, bool) {
	if len(text) != 8 && len(text) != 32 {
		return netip.Addr{}, false
	}
	var address []byte
	for word := range slices.Chunk([]byte(text), 8) {
		value, err := strconv.ParseUint(string(word), 16, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		address = binary.NativeEndian.AppendUint32(address, uint32(value))
	}
	return netip.AddrFromSlice(address)
}
