package front_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
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
	c := testhelp.Dial(t, "tcp", f.Resolver().String())
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

// TestNames: a connection to the address of a name is one to the name, and a refused one says why.
func TestNames(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example","site.example:8080","gone.example"]}`, func(d front.Denial) string {
		return fmt.Sprint(d.Client.IsValid() && d.Front.IsValid())
	})
	f.echo(t, 443)
	f.web(t, "site.example", 8080, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "welcome to "+r.Host) })
	testhelp.Exchange(t, f.dialName(t, "Echo.example.", 443), "good day")
	got := send(t, f.dialName(t, "site.example.", 8080), "GET / HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n")
	if want := (answer{http.StatusOK, "", "welcome to site.example"}); got != want {
		t.Errorf("got %+v", got)
	}
	if len(f.Denied()) > 0 {
		t.Fatalf("got %q", f.reasons())
	}

	got = send(t, f.dialName(t, "evil.example.", 80), "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	const blocked = "Blocked by this sandbox's network policy: evil.example:80 (not in the allow list)."
	if got.status != http.StatusForbidden || got.denied != "not in the allow list" || !strings.HasPrefix(got.text, blocked) {
		t.Errorf("got %+v", got)
	}
	err := tls.Client(f.dialName(t, "evil.example.", 443), &tls.Config{ServerName: "evil.example"}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("got %v", err)
	}
	if rest, err := io.ReadAll(f.dialName(t, "evil.example.", 22)); err != nil || len(rest) > 0 {
		t.Errorf("ssh: got %q, %v", rest, err)
	}
	silent := f.dialName(t, "evil.example.", 443)
	if rest, err := io.ReadAll(silent); err != nil || string(rest) != string(egress.AccessDenied) {
		t.Errorf("a client that waits: got %q, %v", rest, err)
	}
	_ = f.dialName(t, "evil.example.", 80) // waits longer than any client would; Close ends it
	got = send(t, f.dialName(t, "gone.example.", 80), "GET / HTTP/1.1\r\nHost: gone.example\r\n\r\n")
	if want := (answer{http.StatusBadGateway, "", "cannot reach gone.example:80: no such host\n"}); got != want {
		t.Errorf("got %+v", got)
	}
	if err := breaks(f.at(t, "gone.example.", 443)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a failure: got %v", err)
	}
	const reason = " not in the allow list true"
	want := []string{"evil.example:80" + reason, "evil.example:443" + reason, "evil.example:22" + reason, "evil.example:443" + reason}
	testhelp.Eventually(t, func() bool { return len(f.Denied()) == 5 }, "5 denials")
	if got := f.reasons(); !slices.Equal(got[:4], want) {
		t.Errorf("got %q", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.looked, "evil.example") {
		t.Errorf("the egress proxy looked up %q", f.looked)
	}
}

// TestNamesOtherServerName: the name in a hello must be that of the connection.
func TestNamesOtherServerName(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 443)
	err := tls.Client(f.dialName(t, "echo.example.", 443), &tls.Config{ServerName: "other.example"}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("got %v", err)
	}
	if got := f.reasons(); !slices.Equal(got, []string{"echo.example:443 other server name "}) {
		t.Errorf("got %q", got)
	}
}

// TestNamesPolicy: the ports of rules are those of the policy at the time of the query.
func TestNamesPolicy(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	if at := f.at(t, "echo.example.", 7); at != "" {
		t.Fatalf("port 7 is at %s without a rule", at)
	}
	f.apply(t, `{"mode":"allowlist","allow":["echo.example:7"]}`)
	c := f.dialName(t, "echo.example.", 7)
	testhelp.Exchange(t, c, "hello")
	refused := f.dialName(t, "evil.example.", 7)
	_, _ = refused.Write([]byte{0})
	if rest, err := io.ReadAll(refused); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	at := f.at(t, "echo.example.", 7)
	f.apply(t, `{"mode":"no-network"}`)
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	f.at(t, "echo.example.", 80)
	if again, err := net.Dial("tcp", at); err == nil {
		again.Close()
		t.Error("port 7 is open without a rule")
	}
	if err := f.egress.Delete(id); err != nil {
		t.Fatal(err)
	}
	got := send(t, f.dialName(t, "echo.example.", 80), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if want := (answer{http.StatusServiceUnavailable, "", "the egress proxy does not answer\n"}); got != want {
		t.Errorf("without the egress proxy: got %+v", got)
	}
}

// TestResolverProblem: where the resolver cannot listen, the proxy works without it.
func TestResolverProblem(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f, err := front.Start(front.Config{Socket: "/none", Address: "127.0.0.1:0", Resolver: taken.LocalAddr().String(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Resolves() || !errors.Is(f.ResolverProblem(), syscall.EADDRINUSE) {
		t.Errorf("got %v, %v", f.Resolves(), f.ResolverProblem())
	}
	(&fixture{Front: f}).dial(t)
}

// TestNamesClose: afterwards nothing is open and nothing listens.
func TestNamesClose(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 443)
	open := f.dialName(t, "echo.example.", 443)
	testhelp.Exchange(t, open, "hello")
	waiting := f.dialName(t, "evil.example.", 80)
	asking := testhelp.Dial(t, "tcp", f.Resolver().String())
	defer asking.Close()
	f.Close()
	for i, c := range []net.Conn{open, waiting, asking} {
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, listener := range f.names {
		if c, err := net.DialTimeout("tcp", listener, time.Minute); err == nil {
			c.Close()
			t.Errorf("%s listens", at)
		}
	}
	if f.Open() != 0 {
		t.Errorf("%d are open", f.Open())
	}
}

// TestNamesMany: connections of names count as those of the proxy do.
func TestNamesMany(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	at80, at443 := f.at(t, "echo.example.", 80), f.at(t, "echo.example.", 443)
	for range 256 {
		f.dial(t)
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 256 }, "256 clients")
	c := testhelp.Dial(t, "tcp", at80)
	defer c.Close()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Fatalf("got %+v, %v", res, err)
	}
	res.Body.Close()
	if err := breaks(at443); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// breaks returns the error by which a connection ends, which may be that of connecting.
func breaks(address string) error {
	c, err := net.Dial("tcp", address)
	if err == nil {
		_, err = io.ReadAll(c)
		c.Close()
	}
	return err
}

// TestAttackResolver: floods of packets and connections leave the resolver as it was.
func TestAttackResolver(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	want := f.resolve(t, "echo.example.", dnsmessage.TypeA)
	c := testhelp.Dial(t, "udp", f.Resolver().String())
	defer c.Close()
	before := runtime.NumGoroutine()
	for i := range 3000 {
		_, _ = c.Write(query(t, fmt.Sprintf("n%d.example.", i), dnsmessage.TypeA))
		_, _ = c.Write(make([]byte, i))
	}
	_, _ = c.Write(make([]byte, 65000))
	if got := f.resolve(t, "echo.example.", dnsmessage.TypeA); got != want {
		t.Errorf("got %+v", got)
	}
	if more := runtime.NumGoroutine() - before; more > 1000 { // other tests have some; a goroutine for each query would be 6,000
		t.Errorf("%d more goroutines", more)
	}
	dial := func() net.Conn {
		c := testhelp.Dial(t, "tcp", f.Resolver().String())
		return c
	}
	// Each of these ends, and leaves its place to the next one.
	for _, sent := range []string{"\xff\xff", "\x05\x01", "\x00\x00", "\x00\x01a", "\x00\x0c\x00\x07\x81\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		c := dial()
		_, _ = io.WriteString(c, sent)
		if rest, err := io.ReadAll(c); err != nil && !isReset(err) || len(rest) > 0 {
			t.Errorf("%q: got %q, %v", sent, rest, err)
		}
	}
	for range 8 {
		_, _ = dial().Write([]byte{0})
	}
	if rest, err := io.ReadAll(dial()); err != nil && !isReset(err) || len(rest) > 0 {
		t.Errorf("the ninth client: got %q, %v", rest, err)
	}
	if got := f.resolve(t, "echo.example.", dnsmessage.TypeA); got != want {
		t.Errorf("got %+v", got)
	}
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }
