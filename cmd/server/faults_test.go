package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// faultProxy passes the connections of a socket on to a server, and harms some of them at
// a random byte: it cuts both directions, stalls one for a while, ends one of them alone,
// or sends the first bytes of a request a second time, on a connection of their own.
type faultProxy struct {
	socket, server string
	seed           uint64

	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool // nil after close
	made     uint64            // connections
}

type fault int

const (
	noFault fault = iota
	cutBoth
	stall
	truncate
	repeat
	faults
)

// harm is a fault in one direction behind so many bytes.
type harm struct {
	fault fault
	after int
	wait  time.Duration
}

func startFaultProxy(t *testing.T, socket, server string, seed uint64) *faultProxy {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{socket: socket, server: server, seed: seed, listener: listener, open: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// close ends all connections.
func (p *faultProxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
	p.mu.Unlock()
	p.running.Wait()
}

// keep lists a connection for close; false where that was already.
func (p *faultProxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		_ = conn.Close()
		return false
	}
	p.open[conn] = true
	return true
}

func (p *faultProxy) end(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	delete(p.open, conn)
	p.mu.Unlock()
}

func (p *faultProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.made++
		random := rand.New(rand.NewPCG(p.seed, p.made))
		if p.keep(conn) {
			p.running.Go(func() { p.pass(conn, random) })
		}
	}
}

// dial connects to the server, which may be dead; nil where it is.
func (p *faultProxy) dial() net.Conn {
	conn, err := net.Dial("unix", p.server)
	if err != nil || !p.keep(conn) {
		return nil
	}
	return conn
}

// choose returns what happens to one direction of a connection. Most bytes after which
// something happens are few, since most requests and answers are short.
func choose(random *rand.Rand) harm {
	if random.IntN(2) > 0 {
		return harm{}
	}
	return harm{
		fault: fault(1 + random.IntN(int(faults)-1)),
		after: random.IntN(1 << (3 + random.IntN(14))),
		wait:  time.Duration(random.IntN(100)) * time.Millisecond,
	}
}

func (p *faultProxy) pass(client net.Conn, random *rand.Rand) {
	defer p.end(client)
	server := p.dial()
	if server == nil {
		return
	}
	defer p.end(server)
	request, answer := choose(random), choose(random)
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, request, client, server) })
	p.copy(client, server, answer, client, server)
	_ = server.Close() // an answer is over when the server says so, whatever is still sent
	_ = client.Close()
	both.Wait()
}

// copy copies until an end or the harm.
func (p *faultProxy) copy(to, from net.Conn, h harm, ends ...net.Conn) {
	defer func() {
		if half, ok := to.(*net.UnixConn); ok {
			_ = half.CloseWrite()
		}
	}()
	if h.fault == noFault {
		_, _ = io.Copy(to, from)
		return
	}
	var sent []byte // for repeat
	buf := make([]byte, 4<<10)
	for left := h.after; left > 0; {
		n, err := from.Read(buf[:min(len(buf), left)])
		if n > 0 {
			sent = append(sent, buf[:n]...)
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
		left -= n
	}
	switch h.fault {
	case cutBoth:
		for _, conn := range ends {
			_ = conn.Close()
		}
	case stall:
		time.Sleep(h.wait)
		_, _ = io.Copy(to, from)
	case repeat:
		if from == ends[0] { // a request
			p.running.Go(func() { p.again(sent, h.wait) })
		}
		_, _ = io.Copy(to, from)
	case truncate, noFault, faults:
	}
}

// again sends bytes on a connection of their own, and takes no more of an answer than
// comes in that time.
func (p *faultProxy) again(sent []byte, wait time.Duration) {
	conn := p.dial()
	if conn == nil {
		return
	}
	defer p.end(conn)
	_, err := conn.Write(sent)
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, err = io.Copy(io.Discard, conn)
	}
	if err != nil && !errors.As(err, new(net.Error)) {
		return
	}
}
