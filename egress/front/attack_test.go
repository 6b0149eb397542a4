package front_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
)

// socksRequest is a request of SOCKS5 to connect to a name.
func socksRequest(name string, port uint16) []byte {
	request := append([]byte{5, 1, 0, 3, byte(len(name))}, name...)
	return binary.BigEndian.AppendUint16(request, port)
}

// socks sends a method and a request, and returns the code of the reply.
func socks(tb testing.TB, c net.Conn, request []byte) byte {
	tb.Helper()
	_, _ = c.Write(append([]byte{5, 2, 2, 0}, request...))
	var reply [12]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil || !bytes.Equal(reply[:3], []byte{5, 0, 5}) {
		tb.Fatalf("%q: got %v, %v", request, reply, err)
	}
	return reply[3]
}

func TestSOCKS(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	c := f.dial(t)
	if code := socks(t, c, socksRequest("Echo.example", 7)); code != 0 {
		t.Fatalf("got %d", code)
	}
	testhelp.Exchange(t, c, "hello")
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	for _, tc := range []struct {
		request []byte
		want    byte
	}{
		{socksRequest("evil.example", 443), 2},
		{socksRequest("gone.example", 1), 4},
		{[]byte{5, 1, 0, 1, 8, 8, 4, 4, 0, 80}, 2},
		{append(append([]byte{5, 1, 0, 4}, net.ParseIP("2606:4700::1111")...), 0, 80), 2},
		{[]byte{5, 1, 0, 1, 127, 64, 0, 1, 0, 80}, 2},
		{[]byte{5, 2, 0, 1, 8, 8, 4, 4, 0, 80}, 7},
		{[]byte{5, 3, 0, 1, 8, 8, 4, 4, 0, 80}, 7},
		{[]byte{5, 1, 0, 2, 8, 8, 4, 4, 0, 80}, 8},
		{[]byte{4, 1, 0, 1, 8, 8, 4, 4, 0, 80}, 1},
		{socksRequest("echo.example", 0), 8},
		{socksRequest("", 1), 8},
		{socksRequest("echo.example\x00.evil.example", 7), 8},
		{socksRequest("echo.example\r\nX: y", 7), 8},
		{socksRequest("echo.example:7\r\n\r\n", 7), 8},
		{socksRequest(strings.Repeat("a", 255), 7), 8},
	} {
		if code := socks(t, f.dial(t), tc.request); code != tc.want {
			t.Errorf("%q: got %d, want %d", tc.request, code, tc.want)
		}
	}
	c = f.dial(t)
	_, _ = c.Write([]byte{5, 1, 2}) // user and password
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, []byte{5, 0xff}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got := len(f.Denied()); got != 4 {
		t.Errorf("got %q", f.reasons())
	}
}

// TestAttackFirst: an agent that listens on the front's address first keeps it from starting, so
// that programs are not sent to the agent's proxy.
func TestAttackFirst(t *testing.T) {
	t.Parallel()
	l := testhelp.Listen(t)
	defer l.Close()
	if f, err := front.Start(front.Config{Socket: "/none", Address: l.Addr().String()}); err == nil {
		f.Close()
		t.Error("it started")
	}
	f := start(t, allowEcho, nil)
	if l, err := net.Listen("tcp", f.Address().String()); err == nil {
		l.Close()
		t.Error("another process listens, too")
	}
}

// TestAttackBytes sends what is no request, or one that programs read in different ways.
func TestAttackBytes(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	for request, want := range map[string]int{
		connectTo("evil@echo.example:7"):                                  http.StatusBadRequest,
		connectTo("echo.example"):                                         http.StatusBadRequest,
		connectTo("echo.example:07"):                                      http.StatusBadRequest,
		connectTo("echo.example%00:7"):                                    http.StatusBadRequest,
		connectTo("echo.example\x01:7"):                                   http.StatusBadRequest,
		connectTo("echo.example\x1b[31m:7"):                               http.StatusBadRequest,
		connectTo("echo.ex\x00ample:7"):                                   http.StatusBadRequest,
		connectTo("http://echo.example:7/"):                               http.StatusBadRequest,
		"CONNECT / HTTP/1.1\r\nHost: echo.example:7\r\n\r\n":              http.StatusBadRequest,
		"CONNECT evil.example:1 HTTP/1.1\r\nHost: echo.example:7\r\n\r\n": http.StatusForbidden,
		"GET http://evil.example/ HTTP/1.1\r\nHost: echo.example\r\n\r\n": http.StatusForbidden,
		"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\n\r\n":             http.StatusBadGateway,
		"\x00\r\n\r\n":                        http.StatusBadRequest,
		"GET / HTTP/9.9\r\n\r\n":              http.StatusHTTPVersionNotSupported,
		"GET /\r\n\r\n":                       http.StatusBadRequest,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":    http.StatusNotFound,
		"GET http://echo.example\r\n\r\n\r\n": http.StatusBadRequest,
		"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 32<<10) + "\r\n\r\n": http.StatusRequestHeaderFieldsTooLarge,
	} {
		c := f.dial(t)
		_, _ = io.WriteString(c, request)
		got := make([]byte, len("HTTP/1.1 000 "))
		_, _ = io.ReadFull(c, got)
		if !strings.HasPrefix(string(got), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%.60q: got %.60q, want %d", request, got, want)
		}
	}
	for _, d := range f.Denied() {
		if strings.ContainsFunc(d.Host+d.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("got %+v", d)
		}
	}
}

// TestAttackForged: a host denies nothing, neither in a connection nor to a plain request.
func TestAttackForged(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	forged := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Actiond-Denied", "mode no-network")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "Blocked by this sandbox's network policy")
	}
	f.web(t, "web.example", 80, forged)
	a := send(t, f.dial(t), "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
	if want := (answer{http.StatusForbidden, "", "Blocked by this sandbox's network policy"}); a != want {
		t.Errorf("got %+v", a)
	}
	c := f.dial(t)
	send(t, c, connectTo("web.example:80"))
	if a := send(t, c, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n"); a.status != http.StatusForbidden || a.denied == "" {
		t.Errorf("the connection is not transparent: got %+v", a)
	}
	f.host(t, "echo.example", 81) // whose first bytes are those of the egress proxy
	l := f.host(t, "gone.example", 82)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Write([]byte{0x15, 3, 3, 0, 2, 2, 49})
			c.Close()
		}
	}()
	c = f.dial(t)
	send(t, c, connectTo("gone.example:82"))
	if alert, err := io.ReadAll(c); err != nil || len(alert) != 7 {
		t.Errorf("got %x, %v", alert, err)
	}
	if len(f.Denied()) > 0 {
		t.Errorf("got %q", f.reasons())
	}
}

// TestAttackFlood: clients beyond the limit are told, and the limit is free again afterwards.
func TestAttackFlood(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	var all []net.Conn
	for range 256 {
		all = append(all, f.dial(t))
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 256 }, "256 clients")
	for range 10 {
		got, err := io.ReadAll(f.dial(t))
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") || !strings.Contains(string(got), "Retry-After: 1") {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	for _, c := range all {
		c.Close()
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 0 }, "the end of all clients")
	c := f.dial(t)
	if a := send(t, c, connectTo("echo.example:7")); a.status != http.StatusOK {
		t.Errorf("got %+v", a)
	}
	if len(f.Denied()) > 0 {
		t.Errorf("got %q", f.reasons())
	}
}

// TestAttackDenials: what an agent can make the front keep is bounded.
func TestAttackDenials(t *testing.T) {
	t.Parallel()
	kept := front.NewDenials()
	for n := range 5000 {
		kept.Add(front.Denial{Port: uint16(n)})
	}
	all := kept.All()
	if len(all) != 1000 || all[0].Port != 4000 || all[999].Port != 4999 {
		t.Errorf("got %d from %+v", len(all), all[0])
	}
}

// TestAttackSlow: a client that does not send all of its header loses its connection.
func TestAttackSlow(t *testing.T) {
	t.Parallel()
	f, err := front.StartWithin(front.Config{Socket: "/none", Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, begin := range []string{"", "\x05", "\x05\x01", "\x05\x01\x00\x05\x01\x00\x03\x09abc", "C", "CONNECT a.example:1 HTTP/1.1\r\nA: "} {
		c := (&fixture{Front: f}).dial(t)
		_, _ = io.WriteString(c, begin)
		_, _ = io.ReadAll(c) // until the front closes it
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 0 }, "the end of all clients")
}

// TestAttackUnread: a client that reads nothing does not keep the front from closing.
func TestAttackUnread(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	l := f.host(t, "web.example", 80)
	var sent atomic.Int64
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		for part := make([]byte, 64<<10); err == nil; {
			var n int
			n, err = c.Write(part)
			sent.Add(int64(n))
		}
	}()
	c := f.dial(t)
	_, _ = io.WriteString(c, "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	before, same := int64(0), 0
	testhelp.Eventually(t, func() bool {
		same++
		if now := sent.Load(); now == 0 || now != before {
			before, same = now, 0
		}
		return same == 10
	}, "the host can send no more")
	f.Close()
}
