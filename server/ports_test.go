package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/actiond/actiond/api"
	apiclient "github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// onePort has one port, 8080, whose connections a test serves.
type onePort struct{ serve func(conn *net.TCPConn) }

func (*onePort) Ports() ([]api.Port, error) {
	return []api.Port{{Port: 8080, Addresses: []string{"127.0.0.1"}, PID: 7, Process: "node", Command: "node app.js", Forwards: true}}, nil
}

func (p *onePort) DialPort(_ context.Context, port uint16) (net.Conn, error) {
	if port != 8080 {
		return nil, &api.Error{Status: http.StatusNotFound, Detail: "nothing listens"}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, err
	}
	go p.serve(far.(*net.TCPConn))
	return conn, nil
}

func withPorts(serve func(*net.TCPConn)) func(*server.Config) {
	return func(cfg *server.Config) { cfg.Ports = &onePort{serve} }
}

// hold leaves a connection open until its other side closes it.
func hold(conn *net.TCPConn) {
	defer conn.Close()
	_, _ = io.Copy(io.Discard, conn)
}

// listen serves on a real connection, with the bounds that go with it.
func listen(t *testing.T, s *server.Server) *apiclient.Client {
	t.Helper()
	l := testhelp.Listen(t)
	return listenOn(t, s, l)
}

func listenOn(t *testing.T, s *server.Server, l net.Listener) *apiclient.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := apiclient.New(apiclient.Config{BaseURL: "http://" + l.Addr().String(), Key: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func dialPort(t *testing.T, c *apiclient.Client) *apiclient.Tunnel {
	t.Helper()
	tunnel, err := c.DialPort(t.Context(), 8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tunnel.Close() })
	return tunnel
}

// Each side ends its own direction alone, and every byte between arrives.
func TestTunnelHalves(t *testing.T) {
	t.Parallel()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	c := listen(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		defer conn.Close()
		_, _ = io.WriteString(conn, "first")
		all, _ := io.ReadAll(conn) // to the end of the other direction
		_, _ = conn.Write(all)
		_ = conn.CloseWrite()
	})))
	tunnel := dialPort(t, c)
	first := make([]byte, 5)
	if _, err := io.ReadFull(tunnel, first); err != nil || string(first) != "first" {
		t.Fatalf("got %q, %v", first, err)
	}
	if _, err := tunnel.Write(sent); err != nil {
		t.Fatal(err)
	}
	if n, err := tunnel.Write(nil); n != 0 || err != nil { // which is no end
		t.Fatal(n, err)
	}
	if _, err := io.WriteString(tunnel, "!"); err != nil {
		t.Fatal(err)
	}
	if err := tunnel.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tunnel, "x"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing after the end: %v", err)
	}
	got, err := io.ReadAll(tunnel)
	if err != nil || !bytes.Equal(got, append(sent, '!')) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(sent)+1)
	}
}

// The port ends first, and still gets what comes.
func TestTunnelPortEndsFirst(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	c := listen(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		defer conn.Close()
		_ = conn.CloseWrite()
		all, _ := io.ReadAll(conn)
		got <- string(all)
	})))
	tunnel := dialPort(t, c)
	if all, err := io.ReadAll(tunnel); len(all) > 0 || err != nil {
		t.Errorf("got %q, %v", all, err)
	}
	_, _ = io.WriteString(tunnel, "late")
	_ = tunnel.CloseWrite()
	if got := <-got; got != "late" {
		t.Errorf("the port got %q", got)
	}
}

// A client that leaves ends the connection to the port, also where the client had ended
// its direction before, and a port that breaks ends the tunnel.
func TestTunnelBreaks(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := listen(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn)
		for {
			if _, err := io.WriteString(conn, "x"); err != nil {
				return
			}
		}
	})))
	tunnel := dialPort(t, c)
	_ = tunnel.CloseWrite()
	_, _ = tunnel.Read(make([]byte, 1))
	tunnel.Close()
	<-ended
	if _, err := tunnel.Read(make([]byte, 1<<20)); err == nil {
		t.Error("a closed tunnel is read")
	}

	c = listen(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		_ = conn.SetLinger(0) // resets it
		conn.Close()
	})))
	if _, err := dialPort(t, c).Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the port broke: got %v", err)
	}
}

// A client that takes nothing makes the port wait, and the server holds little.
func TestTunnelSlowReader(t *testing.T) {
	t.Parallel()
	wrote := make(chan int, 1)
	c := listen(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		defer conn.Close()
		total, piece := 0, make([]byte, 64<<10)
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
			n, err := conn.Write(piece)
			if total += n; err != nil {
				wrote <- total
				return
			}
		}
	})))
	dialPort(t, c)
	// The bytes on the way fit into the buffers of two connections of the kernel.
	if total := <-wrote; total > 32<<20 {
		t.Errorf("the port could write %d bytes", total)
	}
}

// deadlines records how late the write deadlines of accepted connections are.
type deadlines struct {
	net.Listener

	latest atomic.Int64 // from the call
}

func (l *deadlines) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &deadlineConn{conn, l}, err
}

type deadlineConn struct {
	net.Conn
	to *deadlines
}

func (c *deadlineConn) SetWriteDeadline(at time.Time) error {
	c.to.latest.Store(max(c.to.latest.Load(), int64(time.Until(at))))
	return c.Conn.SetWriteDeadline(at)
}

// A client that reads nothing holds up the port until the tunnel was idle for too long,
// and is not cut like the client of another request.
func TestTunnelBackPressure(t *testing.T) {
	t.Parallel()
	l := testhelp.Listen(t)
	recorded := &deadlines{Listener: l}
	c := listenOn(t, newServer(t, withKey, withPorts(func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "hello")
		hold(conn)
	})), recorded)
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(recorded.latest.Load()); got > 10*time.Minute {
		t.Errorf("another request's client may read nothing for %v", got)
	}
	if _, err := io.ReadFull(dialPort(t, c), make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(recorded.latest.Load()); got < 50*time.Minute {
		t.Errorf("the client of a tunnel may read nothing for %v, want its idle time", got)
	}
}

func TestTunnelLimits(t *testing.T) {
	t.Parallel()
	s := newServer(t, withKey, withPorts(hold))
	c := listen(t, s)
	status := func(err error) int {
		refused, ok := errors.AsType[*apiclient.StatusError](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		return refused.Status
	}
	tunnels := make([]*apiclient.Tunnel, 0, server.MaxTunnels)
	for range server.MaxTunnels {
		tunnels = append(tunnels, dialPort(t, c))
	}
	s.SetTunnelRate(rate.Inf, time.Millisecond)
	_, err := c.DialPort(t.Context(), 8080)
	if got := status(err); got != 429 {
		t.Errorf("one too many: got %d", got)
	}
	s.SetTunnelRate(rate.Inf, time.Hour)
	next := make(chan error)
	go func() {
		tunnel, err := c.DialPort(t.Context(), 8080)
		if err == nil {
			tunnel.Close()
		}
		next <- err
	}()
	tunnels[0].Close()
	if err := <-next; err != nil {
		t.Errorf("one that waits until another is closed: got %v", err)
	}
	if life, err := c.Status(t.Context()); err != nil || !life.Busy {
		t.Errorf("with tunnels: got %+v, %v, want busy", life, err)
	}
	for _, tunnel := range tunnels {
		tunnel.Close()
	}
	for life := (api.Life{Busy: true}); life.Busy; {
		if life, err = c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if life, err := c.Status(t.Context()); err != nil || life.IdleSince == nil {
		t.Errorf("without tunnels: got %+v, %v", life, err)
	}
	if _, err := c.DialPort(t.Context(), 81); status(err) != 404 {
		t.Errorf("nothing listens: got %v", err)
	}
	s.SetTunnelRate(1000, time.Hour) // far more than are opened meanwhile
	for range 50 {
		dialPort(t, c).Close()
	}
	s.SetTunnelRate(1e-6, time.Minute)
	dialPort(t, c).Close()
	if _, err := c.DialPort(t.Context(), 8080); status(err) != 429 {
		t.Errorf("too fast: got %v", err)
	}
}

func TestTunnelIdle(t *testing.T) {
	t.Parallel()
	s := newServer(t, withKey, withPorts(hold))
	s.SetTunnelIdle(time.Millisecond)
	_, err := io.ReadAll(dialPort(t, listen(t, s)))
	if err == nil || !strings.Contains(err.Error(), "nothing was sent for too long") {
		t.Errorf("got %v", err)
	}
}

// The end of the server ends tunnels, and says so.
func TestTunnelAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t, withKey, withPorts(hold))
	l := testhelp.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	c, err := apiclient.New(apiclient.Config{BaseURL: "http://" + l.Addr().String(), Key: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	tunnel := dialPort(t, c)
	cancel()
	if _, err := io.ReadAll(tunnel); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("got %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A port is a number and nothing else.
func TestTunnelOfNoPort(t *testing.T) {
	t.Parallel()
	s := newServer(t, withPorts(hold))
	for _, port := range []string{
		"0", "00", "080", "65536", "99999999999999999999", "-1", "+80", "8e1", "0x50", "http", "80:8000",
		"10.0.0.1:80", "localhost", "[::1]:80", "127.0.0.1", "%2e%2e", "80%2f..", "8%30", "%20", "８０", "", "..",
	} {
		if w := tunnelTo(port, nil).send(s); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", port, w.Code, w.Body)
		}
	}
}

// A deadline ends a read.
func TestTunnelDeadline(t *testing.T) {
	t.Parallel()
	tunnel := dialPort(t, listen(t, newServer(t, withKey, withPorts(hold))))
	_ = tunnel.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := tunnel.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the deadline", err)
	}
}
