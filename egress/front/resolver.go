package front

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/channel"
)

// ResolverAddress is where programs find the resolver.
const ResolverAddress = "127.0.0.1:53"

// Limits of a resolver.
const (
	maxTCPQueries = 8 // clients at a time
	tcpQueryTime  = 5 * time.Second
	tcpClientTime = 30 * time.Second
	// policyTime bounds the wait for the policy, whose ports names have. Without an answer they have
	// those of the last one.
	policyTime  = 250 * time.Millisecond
	policyPause = time.Second // after a failure
	policyRate  = 50          // a second, after the first ones
	// firstByteTime is how long a client that was refused may take to show its protocol.
	firstByteTime = 500 * time.Millisecond
	// lingerTime is how long a client may take to read the last words.
	lingerTime   = time.Second
	maxLinger    = 64 << 10 // bytes that a client may send meanwhile
	portSSH      = 22
	portHTTP     = 80
	portHTTPS    = 443
	tlsHandshake = 0x16 // the first byte of a TLS connection
)

// resolver answers DNS queries for names that programs connect to without the proxy. It owns two
// goroutines, one for each TCP client and one for each listener of a name, which Front counts.
type resolver struct {
	front  *Front
	udp    *net.UDPConn
	tcp    *net.TCPListener
	names  *names
	host   string // of the sandbox
	policy latestPolicy
	slots  chan struct{} // the semaphore of TCP clients
}

// startResolver listens at an address, for UDP and TCP.
func (f *Front) startResolver(address string, listen func(netip.AddrPort) (net.Listener, error)) (*resolver, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("starting the resolver: %w", err)
	}
	udp, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("starting the resolver: %w", err)
	}
	tcp, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), udpPort(udp))))
	if err != nil {
		_ = udp.Close()
		return nil, fmt.Errorf("starting the resolver: %w", err)
	}
	r := &resolver{front: f, udp: udp, tcp: tcp, slots: make(chan struct{}, maxTCPQueries)}
	r.policy = latestPolicy{egress: f.egress, limit: rate.NewLimiter(policyRate, policyRate)}
	r.names = newNames(listen, r.serve)
	if name, err := os.Hostname(); err == nil {
		r.host = strings.ToLower(name)
	}
	f.running.Go(r.answerUDP)
	f.running.Go(r.answerTCP)
	return r, nil
}

func udpPort(c *net.UDPConn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() } //nolint:forcetypeassert // it is UDP

// close ends the goroutines, which Front waits for.
func (r *resolver) close() {
	_ = r.udp.Close()
	_ = r.tcp.Close()
	r.names.close()
}

// answer answers a query, or returns nil.
func (r *resolver) answer(query []byte) []byte {
	return answerQuery(query, r.host, func(host egress.Host) (netip.Addr, bool) {
		return r.names.address(host, portsOf(r.policy.get(r.front.life), host), time.Now())
	})
}

// answerUDP answers queries one after the other, so that a flood takes up no memory.
func (r *resolver) answerUDP() {
	packet := make([]byte, maxQuery+1)
	for {
		n, from, err := r.udp.ReadFromUDPAddrPort(packet)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			_ = channel.Sleep(r.front.life, acceptPause)
			continue
		case n > maxQuery || !from.Addr().Unmap().IsLoopback():
			continue
		}
		if answer := r.answer(packet[:n]); answer != nil {
			_, _ = r.udp.WriteToUDPAddrPort(answer, from) // the client asks again
		}
	}
}

// answerTCP takes connections until close.
func (r *resolver) answerTCP() {
	for {
		conn, err := r.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			_ = channel.Sleep(r.front.life, acceptPause)
			continue
		}
		select {
		case r.slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		if !r.front.running.Go(func() {
			defer func() { <-r.slots }()
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(r.front.life, func() { _ = conn.Close() })()
			r.serveTCP(conn)
		}) {
			_ = conn.Close()
			return
		}
	}
}

// serveTCP answers the queries of a connection (RFC 7766).
func (r *resolver) serveTCP(conn net.Conn) {
	end := time.Now().Add(tcpClientTime)
	buf := make([]byte, maxQuery)
	for {
		deadline := time.Now().Add(tcpQueryTime)
		if deadline.After(end) {
			deadline = end
		}
		if err := conn.SetDeadline(deadline); err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			return
		}
		answer := r.answer(buf[:n])
		if answer == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil { //nolint:gosec // at most 512
			return
		}
	}
}

// latestPolicy is the policy as far as the resolver must know it. Its methods may be called
// concurrently.
type latestPolicy struct {
	egress *egressClient
	limit  *rate.Limiter

	mu     sync.Mutex
	policy egress.Summary
	tag    string
	failed time.Time // when the egress proxy last did not answer
}

// get returns the policy of this moment, or the last one that is known where the egress proxy does
// not answer at once or was asked very often.
func (l *latestPolicy) get(ctx context.Context) *egress.Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.failed) > policyPause && l.limit.Allow() {
		ctx, cancel := context.WithTimeout(ctx, policyTime)
		defer cancel()
		policy, tag, err := l.egress.policySince(ctx, l.tag)
		switch {
		case err != nil:
			l.failed = time.Now()
		case tag != l.tag:
			l.policy, l.tag = policy, tag
		}
	}
	policy := l.policy
	return &policy
}

// serve takes the connections of a name at a port. It starts a goroutine that ends when the listener
// is closed.
func (r *resolver) serve(l net.Listener, n *name, port uint16) {
	f := r.front
	f.running.Go(func() { // if Close was called, it closes the listener
		f.accept(l, func(c *client) {
			defer r.names.use(n)()
			f.connectName(c, n.host, port)
		}, func(c *client) {
			if port == portHTTP {
				c.turnAway()
				return
			}
			c.reset()
		})
	})
}

// connectName connects a client of a name, as CONNECT does.
func (f *Front) connectName(c *client, host egress.Host, port uint16) {
	t, err := f.open(f.life, c, host, port)
	if err != nil {
		f.refuseClient(c, port, refusalOf(err))
		return
	}
	defer func() { _ = c.Close() }()
	defer func() { _ = t.Close() }()
	f.carry(c, c, t, host, port)
}

// refuseClient tells a client that knows no proxy of a refusal, in the protocol that its first byte
// shows: by a response of HTTP, or the alert of TLS for a denial. A connection of another protocol
// ends; it is reset where the host is to blame, as for a host that refuses connections.
func (f *Front) refuseClient(c *client, port uint16, refused *refusal) {
	var first [1]byte
	n := 0
	if port != portSSH {
		_ = c.SetReadDeadline(time.Now().Add(firstByteTime)) // a connection that cannot have one is broken
		var err error
		if n, err = c.TCPConn.Read(first[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.Close()
			return
		}
	}
	switch {
	case n == 1 && first[0] >= 'A' && first[0] <= 'Z', n == 0 && port == portHTTP:
		_ = c.SetReadDeadline(time.Time{}) // the HTTP server sets its own
		c.first, c.refused = first[:n], refused
		if !f.handoff.give(c) {
			_ = c.Close()
		}
	case refused.denied == "":
		c.reset()
	case n == 1 && first[0] == tlsHandshake, n == 0 && port == portHTTPS:
		c.sayLast(egress.AccessDenied)
	default:
		c.sayLast(nil)
	}
}

// sayLast sends the last words, which may be none, and closes the connection once the client has read
// them: with unread data it would be reset, and they could be lost.
func (c *client) sayLast(words []byte) {
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	if _, err := c.Write(words); err == nil {
		_ = c.CloseWrite()
		_, _ = io.CopyN(io.Discard, c.TCPConn, maxLinger)
	}
	_ = c.Close()
}

// reset closes a connection so that the client sees that it broke.
func (c *client) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}
