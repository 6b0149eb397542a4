// Package sockets reads the kernel's tables of sockets, such as /proc/net/tcp.
package sockets

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listening is the State of a TCP socket that listens.
const Listening = 0x0A

// maxTable bounds the bytes that are read of a table. TCP sockets that listen come first in
// it.
const maxTable = 4 << 20

// Socket is a row of a table.
type Socket struct {
	Local, Remote netip.AddrPort
	State         uint8
	Inode         uint64
}

// Read calls each for the rows of a table in the form of /proc/net/tcp, until that returns
// false. procfs's reader would hold every connection in memory, however many there are.
func Read(table io.Reader, each func(Socket) bool) error {
	lines := bufio.NewScanner(io.LimitReader(table, maxTable))
	for lines.Scan() {
		if s, ok := Parse(lines.Text()); ok && !each(s) {
			break
		}
	}
	return lines.Err()
}

// Parse reads a row; false where that does not describe a socket.
func Parse(row string) (s Socket, ok bool) {
	fields := strings.Fields(row)
	if len(fields) < 10 {
		return Socket{}, false
	}
	state, err1 := strconv.ParseUint(fields[3], 16, 8)
	inode, err2 := strconv.ParseUint(fields[9], 10, 64)
	local, ok1 := parseEnd(fields[1])
	remote, ok2 := parseEnd(fields[2])
	return Socket{local, remote, uint8(state), inode}, err1 == nil && err2 == nil && ok1 && ok2
}

func parseEnd(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	address, ok := parseAddress(host)
	number, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(address, uint16(number)), ok && err == nil
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
