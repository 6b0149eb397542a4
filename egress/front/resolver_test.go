package front_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// result is what an answer says.
type result struct {
	code dnsmessage.RCode
	addr netip.Addr
}

// decode decodes an answer to a query of one question.
func decode(tb testing.TB, packet []byte) (r result) {
	tb.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || m.ID != 7 || !m.Response || !m.RecursionDesired || !m.RecursionAvailable || len(m.Questions) != 1 || len(m.Answers) > 1 {
		tb.Fatalf("got %+v, %v", m, err)
	}
	r.code = m.RCode
	for _, a := range m.Answers {
		if a.Header.TTL != 10 {
			tb.Errorf("TTL %d", a.Header.TTL)
		}
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			r.addr = netip.AddrFrom4(body.A)
		case *dnsmessage.AAAAResource:
			r.addr = netip.AddrFrom16(body.AAAA)
		}
	}
	return r
}

// resolve asks by UDP.
func (f *fixture) resolve(tb testing.TB, name string, kind dnsmessage.Type) result {
	tb.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(f.Resolver()))
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	packet := make([]byte, 600)
	for range 60 { // the kernel drops packets of a flood
		if _, err := c.Write(query(tb, name, kind)); err != nil {
			tb.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(packet)
		if err == nil {
			return decode(tb, packet[:n])
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			tb.Fatal(err)
		}
	}
	tb.Fatalf("%s: no answer", name)
	return result{}
}

// at looks a name up, and returns the listener for its port; "" where there is none.
func (f *fixture) at(tb testing.TB, name string, port uint16) string {
	tb.Helper()
	r := f.resolve(tb, name, dnsmessage.TypeA)
	if r.code != dnsmessage.RCodeSuccess || !namesRange.Contains(r.addr) {
		tb.Fatalf("%s: got %+v", name, r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[netip.AddrPortFrom(r.addr, port)]
}

// dialName connects to a name as a program does that knows no proxy.
func (f *fixture) dialName(tb testing.TB, name string, port uint16) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", f.at(tb, name, port))
	if err != nil {
		tb.Fatalf("%s:%d: %v", name, port, err)
	}
	tb.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// TestResolve: each name has an address of its own, which does not change.
func TestResolve(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first := f.resolve(t, "echo.example.", dnsmessage.TypeA)
	other := f.resolve(t, "evil.example.", dnsmessage.TypeA)
	if !namesRange.Contains(first.addr) || !namesRange.Contains(other.addr) || first == other {
		t.Errorf("got %v and %v", first, other)
	}
	none := result{}
	missing := result{code: dnsmessage.RCodeNameError}
	for _, tc := range []struct {
		name string
		kind dnsmessage.Type
		want result
	}{
		{"echo.example.", dnsmessage.TypeA, first},
		{"ECHO.Example.", dnsmessage.TypeA, first},
		{"echo.example.", dnsmessage.TypeAAAA, none},
		{"echo.example.", dnsmessage.TypeHTTPS, none},
		{"echo.example.", dnsmessage.TypeTXT, none},
		{"echo.example.", dnsmessage.TypeALL, none},
		{"localhost.", dnsmessage.TypeA, result{addr: netip.MustParseAddr("127.0.0.1")}},
		{"a.LOCALHOST.", dnsmessage.TypeA, result{addr: netip.MustParseAddr("127.0.0.1")}},
		{"localhost.", dnsmessage.TypeAAAA, result{addr: netip.MustParseAddr("::1")}},
		{own + ".", dnsmessage.TypeA, result{addr: netip.MustParseAddr("127.0.0.1")}},
		{own + ".", dnsmessage.TypeAAAA, none},
		{"single.", dnsmessage.TypeA, missing},
		{".", dnsmessage.TypeA, missing},
		{"8.8.8.8.", dnsmessage.TypeA, missing},
		{"127.1.", dnsmessage.TypeA, missing},
		{"a.0x7f.", dnsmessage.TypeA, missing},
		{"1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR, none},
	} {
		if got := f.resolve(t, tc.name, tc.kind); got != tc.want {
			t.Errorf("%s %v: got %+v, want %+v", tc.name, tc.kind, got, tc.want)
		}
	}
	if !f.Resolves() {
		t.Error("the resolver does not run")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.looked) > 0 {
		t.Errorf("the egress proxy looked up %q", f.looked)
	}
}

// TestResolveTCP: a connection has several queries.
func TestResolveTCP(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	c, err := net.Dial("tcp", f.Resolver().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := f.resolve(t, "echo.example.", dnsmessage.TypeA)
	for range 3 {
		q := query(t, "echo.example.", dnsmessage.TypeA)
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			t.Fatal(err)
		}
		packet := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, packet); err != nil {
			t.Fatal(err)
		}
		if got := decode(t, packet); got != want {
			t.Errorf("got %+v", got)
		}
	}
}
