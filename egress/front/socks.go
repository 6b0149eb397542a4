package front

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/actiond/actiond/egress"
)

// The bytes of SOCKS5 (RFC 1928).
const (
	socksVersion = 5
	socksNoAuth  = 0
	socksNoneFit = 0xff // of the methods
	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksSucceeded   = 0
	socksFailed      = 1
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksExpired     = 6
	socksNoCommand   = 7
	socksNoAddress   = 8
)

// socks serves a client that has sent the first byte of SOCKS5: CONNECT without authentication. A
// host name is passed on as it is.
func (f *Front) socks(c *client) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReaderSize(c, 512) // all that a client sends first has at most 257 bytes
	if !socksMethod(c, r) {
		return
	}
	host, port, code := socksTarget(r)
	if code != socksSucceeded {
		f.metrics.Failed(http.StatusBadRequest)
		socksReply(c, code)
		return
	}
	_ = c.SetReadDeadline(time.Time{}) // a connection that cannot have one is broken
	t, err := f.open(f.life, c, host, port)
	if err != nil {
		socksReply(c, socksCode(refusalOf(err)))
		return
	}
	defer func() { _ = t.Close() }()
	if socksReply(c, socksSucceeded) {
		f.carry(c, buffered(r, c), t, host, port)
	}
}

// socksMethod agrees on no authentication; false where the client does not offer that.
func socksMethod(c *client, r *bufio.Reader) bool {
	count, err := r.ReadByte()
	if err != nil {
		return false
	}
	offered := false
	for range count {
		method, err := r.ReadByte()
		if err != nil {
			return false
		}
		offered = offered || method == socksNoAuth
	}
	if !offered {
		_, _ = c.Write([]byte{socksVersion, socksNoneFit})
		return false
	}
	_, err = c.Write([]byte{socksVersion, socksNoAuth})
	return err == nil
}

// socksTarget reads a request. code is that of the reply to one that cannot be fulfilled.
func socksTarget(r *bufio.Reader) (host egress.Host, port uint16, code byte) {
	var head [4]byte // version, command, nothing, kind of address
	if _, err := io.ReadFull(r, head[:]); err != nil || head[0] != socksVersion {
		return host, 0, socksFailed
	}
	var length int
	switch head[3] {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksName:
		n, err := r.ReadByte()
		if err != nil {
			return host, 0, socksFailed
		}
		length = int(n)
	default:
		return host, 0, socksNoAddress
	}
	address := make([]byte, length+2)
	if _, err := io.ReadFull(r, address); err != nil {
		return host, 0, socksFailed
	}
	if head[1] != socksConnect {
		return host, 0, socksNoCommand
	}
	text := string(address[:length])
	if head[3] != socksName {
		addr, _ := netip.AddrFromSlice(address[:length])
		text = addr.String()
	}
	host, err := egress.ParseHost(text)
	port = binary.BigEndian.Uint16(address[length:])
	if err != nil || port == 0 {
		return host, 0, socksNoAddress
	}
	return host, port, socksSucceeded
}

// socksCode is the reply for a refusal.
func socksCode(r *refusal) byte {
	switch {
	case r.denied != "":
		return socksNotAllowed
	case r.status == http.StatusBadGateway:
		return socksUnreachable
	case r.status == http.StatusGatewayTimeout:
		return socksExpired
	}
	return socksFailed
}

// socksReply sends a reply without an address, which no client needs after CONNECT.
func socksReply(c *client, code byte) bool {
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}
