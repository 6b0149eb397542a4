package front_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
)

const id = "0123456789ab"

// fixture is a front, the egress proxy behind it, and hosts, which are listeners on the loopback
// interface that have the public address 8.8.8.8.
type fixture struct {
	*front.Front
	egress *egress.Server
	dir    string

	mu         sync.Mutex
	hosts      map[string]string         // NAME to the address of its listener
	looked     []string                  // names that the egress proxy looked up
	names      map[netip.AddrPort]string // address of a name to that of its listener
	generation int64
}

// start starts a front whose sandbox has a policy. denied may be nil.
func start(tb testing.TB, policy string, denied func(front.Denial) string) *fixture {
	tb.Helper()
	dir, err := os.MkdirTemp("", "front") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	f := &fixture{dir: dir, hosts: map[string]string{}, names: map[netip.AddrPort]string{}}
	resolve := func(_ context.Context, name string) ([]netip.Addr, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.looked = append(f.looked, name)
		if f.hosts[name] == "" {
			return nil, &net.DNSError{Name: name, IsNotFound: true}
		}
		return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
	}
	dial := func(ctx context.Context, _ *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		f.mu.Lock()
		var host string
		for _, at := range f.hosts { // a test that dials has one host at a port
			if strings.HasSuffix(at, fmt.Sprintf("=%d", to.Port())) {
				host, _, _ = strings.Cut(at, "=")
			}
		}
		f.mu.Unlock()
		if host == "" {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", host)
	}
	log := slog.New(slog.DiscardHandler)
	f.egress = egress.New(egress.Config{RunDir: dir, Log: log, Resolve: resolve, Dial: dial})
	tb.Cleanup(f.egress.Close)
	if err := f.egress.SetHost(nil); err != nil {
		tb.Fatal(err)
	}
	f.apply(tb, policy)
	// The resolver needs one port for UDP and TCP: those of 127.0.0.1 are taken by the other tests.
	cfg := front.Config{Socket: f.socket(), Address: "127.0.0.1:0", Resolver: "127.0.0.53:0", Hosts: filepath.Join(dir, "hosts"), Log: log, Denied: denied}
	for range 10 { // the port that is free for UDP may not be for TCP
		if f.Front, err = front.StartListening(cfg, f.listen); err != nil {
			tb.Fatal(err)
		}
		if f.ResolverProblem() == nil {
			break
		}
		f.Close()
	}
	tb.Cleanup(f.Close)
	return f
}

// listen opens the listener of a name on a port that is free, as any user can.
func (f *fixture) listen(at netip.AddrPort) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.names[at] = l.Addr().String()
	}
	return l, err
}

func (f *fixture) socket() string { return filepath.Join(f.dir, id, "s") }

func (f *fixture) apply(tb testing.TB, policy string) {
	tb.Helper()
	p, err := egress.ParsePolicy([]byte(policy))
	if err != nil {
		tb.Fatal(err)
	}
	f.generation++
	if err := f.egress.Apply(id, egress.Conf{Generation: f.generation, Policy: p}); err != nil {
		tb.Fatal(err)
	}
}

// host adds a host at a port, and returns its listener.
func (f *fixture) host(tb testing.TB, name string, port int) net.Listener {
	tb.Helper()
	l := testhelp.Listen(tb)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[name] = fmt.Sprintf("%s=%d", l.Addr(), port)
	return l
}

// echo adds the host echo.example, which answers with what it reads.
func (f *fixture) echo(tb testing.TB, port int) {
	tb.Helper()
	l := f.host(tb, "echo.example", port)
	go testhelp.Echo(l)
}

// web adds a host that answers plain requests.
func (f *fixture) web(tb testing.TB, name string, port int, h http.HandlerFunc) {
	tb.Helper()
	l := f.host(tb, name, port)
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	tb.Cleanup(func() { srv.Close() })
}

// dial connects to the front.
func (f *fixture) dial(tb testing.TB) *net.TCPConn {
	tb.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(f.Address()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// answer is an answer of the front.
type answer struct {
	status       int
	denied, text string
}

// send sends a request by hand, and returns the answer. A connection is at the byte behind it.
func send(tb testing.TB, c net.Conn, request string) answer {
	tb.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		tb.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(iotest.OneByteReader(c)), &http.Request{Method: strings.Fields(request)[0]})
	if err != nil {
		tb.Fatalf("%q: %v", request, err)
	}
	defer r.Body.Close()
	a := answer{status: r.StatusCode, denied: r.Header.Get("Actiond-Denied")}
	if a.status != http.StatusOK || !strings.HasPrefix(request, "CONNECT") {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			tb.Fatal(err)
		}
		a.text = string(text)
	}
	return a
}

func connectTo(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// reasons lists the denials.
func (f *fixture) reasons() []string {
	var all []string
	for _, d := range f.Denied() {
		all = append(all, fmt.Sprintf("%s:%d %s %s", d.Host, d.Port, d.Reason, d.Process))
	}
	return all
}

const allowEcho = `{"mode":"allowlist","allow":["echo.example","web.example","gone.example"]}`

func TestConnect(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	c := f.dial(t)
	if a := send(t, c, connectTo("ECHO.example:7")); a.status != http.StatusOK {
		t.Fatalf("got %+v", a)
	}
	testhelp.Exchange(t, c, "hello")
	if f.Open() != 1 {
		t.Errorf("%d are open", f.Open())
	}
	_ = c.CloseWrite() // the host still answers
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 0 }, "the end of the connection")

	const blocked = "Blocked by this sandbox's network policy: evil.example:443 (not in the allow list)."
	a := send(t, f.dial(t), connectTo("evil.example:443"))
	if a.status != http.StatusForbidden || a.denied != "not in the allow list" || !strings.HasPrefix(a.text, blocked) {
		t.Errorf("got %+v", a)
	}
	want := answer{http.StatusBadGateway, "", "cannot reach gone.example:1: no such host\n"}
	if a := send(t, f.dial(t), connectTo("gone.example:1")); a != want {
		t.Errorf("got %+v", a)
	}
	if got, want := f.reasons(), []string{"evil.example:443 not in the allow list "}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestEarlyData: what a client sends behind its request, before the answer, is not lost.
func TestEarlyData(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	c := f.dial(t)
	if a := send(t, c, connectTo("echo.example:7")+"early "); a.status != http.StatusOK {
		t.Fatalf("got %+v", a)
	}
	_, _ = io.WriteString(c, "late")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "early late" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestClient: net/http's client uses the front for both schemes, as most programs do.
func TestClient(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.web(t, "web.example", 80, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %q %q %s", r.Method, r.Host, r.URL.RequestURI(), body, r.Header.Get("X-Forwarded-For"), r.Header.Get("Proxy-Connection"), r.UserAgent())
	})
	proxy := &url.URL{Scheme: "http", Host: f.Address().String()}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	for range 2 {
		req, _ := http.NewRequest(http.MethodPut, "http://Web.example/a%2fb?q=;x&y", strings.NewReader("body"))
		req.Header.Set("X-Forwarded-For", "mine")
		req.Header.Set("User-Agent", "me")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if want := `PUT Web.example /a%2fb?q=;x&y body "mine" "" me`; err != nil || string(body) != want {
			t.Errorf("got %s, %v, want %s", body, err, want)
		}
	}
	res, err := client.Get("http://evil.example/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden || res.Header.Get("Actiond-Denied") != "not in the allow list" || !strings.Contains(string(body), "evil.example:80") {
		t.Errorf("got %v %v %s", res.Status, res.Header, body)
	}
	if _, err := client.Get("https://evil.example/"); err == nil || !strings.Contains(err.Error(), "Forbidden") { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
	if got := f.reasons(); len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

// TestTell: an agent asks for its rules, and gets no other document.
func TestTell(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["*.a.example:443"],"deny":["8.8.4.4"],"max_bytes":7}`, nil)
	const want = "This sandbox reaches the allowed hosts alone, over TCP by this proxy.\nmode: allowlist\nallow: *.a.example:443\ndeny: 8.8.4.4\nmax_bytes: 7\n"
	if a := send(t, f.dial(t), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); a.status != http.StatusOK || a.text != want {
		t.Errorf("got %+v", a)
	}
	for request, want := range map[string]int{
		"GET /denied HTTP/1.1\r\nHost: x\r\n\r\n":                    http.StatusNotFound,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":    http.StatusNotFound,
		"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n": http.StatusBadRequest,
		"GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":   http.StatusBadRequest,
		"GET http://a@b:0/ HTTP/1.1\r\nHost: a.example\r\n\r\n":      http.StatusBadRequest,
		"GET http://2130706433/ HTTP/1.1\r\nHost: a.example\r\n\r\n": http.StatusBadRequest,
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n":              http.StatusNotFound,
	} {
		if a := send(t, f.dial(t), request); a.status != want || a.denied != "" {
			t.Errorf("%q: got %+v", request, a)
		}
	}
}

// TestDown: without the egress proxy nothing is reached, and nothing is a denial.
func TestDown(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	if err := f.egress.Delete(id); err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{connectTo("echo.example:7"), "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if a, want := send(t, f.dial(t), request), (answer{http.StatusServiceUnavailable, "", "the egress proxy does not answer\n"}); a != want {
			t.Errorf("%q: got %+v", request, a)
		}
	}
	if len(f.Denied()) > 0 {
		t.Errorf("got %q", f.reasons())
	}
}

// TestProcess: a client is found while it waits for its answer, also inside a connection that the
// egress proxy ends.
func TestProcess(t *testing.T) {
	t.Parallel()
	var f *fixture
	var mu sync.Mutex
	waits := map[netip.AddrPort]bool{}
	f = start(t, allowEcho, func(d front.Denial) string {
		mu.Lock()
		defer mu.Unlock()
		if d.Front != f.Address() || !waits[d.Client] {
			return "gone"
		}
		return "curl"
	})
	f.echo(t, 443)
	dial := func() *net.TCPConn {
		c := f.dial(t)
		mu.Lock()
		defer mu.Unlock()
		waits[c.LocalAddr().(*net.TCPAddr).AddrPort()] = true
		return c
	}
	answered := func(c *net.TCPConn) {
		mu.Lock()
		defer mu.Unlock()
		delete(waits, c.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	c := dial()
	send(t, c, connectTo("evil.example:443"))
	answered(c)
	c = dial()
	if a := send(t, c, connectTo("echo.example:443")); a.status != http.StatusOK {
		t.Fatalf("got %+v", a)
	}
	err := tls.Client(c, &tls.Config{ServerName: "other.example"}).Handshake()
	answered(c)
	if alert, ok := errors.AsType[*net.OpError](err); !ok || !strings.Contains(alert.Error(), "access denied") {
		t.Errorf("got %v", err)
	}
	want := []string{"evil.example:443 not in the allow list curl", "echo.example:443 other server name curl"}
	if got := f.reasons(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestClose: a front that was closed has no connection left, and its address is free.
func TestClose(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	f.echo(t, 7)
	open := f.dial(t)
	send(t, open, connectTo("echo.example:7"))
	silent := f.dial(t)
	socks := f.dial(t)
	_, _ = socks.Write([]byte{5, 1})
	half := f.dial(t)
	_, _ = io.WriteString(half, "CONNECT echo")
	testhelp.Eventually(t, func() bool { return f.Open() == 4 }, "4 clients")
	f.Close()
	f.Close() // is idempotent
	for i, c := range []net.Conn{open, silent, socks, half} {
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	testhelp.Eventually(t, func() bool { return f.Open() == 0 }, "the end of all connections")
	l, err := net.Listen("tcp", f.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestAcceptWhileClosing: a client that comes while the front closes is not kept.
func TestAcceptWhileClosing(t *testing.T) {
	t.Parallel()
	f := start(t, allowEcho, nil)
	defer f.Refuse()()
	if rest, err := io.ReadAll(f.dial(t)); err != nil || len(rest) > 0 || f.Open() > 0 {
		t.Errorf("got %q, %v; %d are open", rest, err, f.Open())
	}
}

// TestDeniedLate: the policy ends a connection after the client has sent all, and a plain request
// that takes too many bytes; both are recorded.
func TestDeniedLate(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example","web.example"],"max_bytes":100000}`, nil)
	l := f.host(t, "echo.example", 7)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write(make([]byte, 200000))
		c.Close()
	}()
	c := f.dial(t)
	if a := send(t, c, connectTo("echo.example:7")); a.status != http.StatusOK {
		t.Fatalf("got %+v", a)
	}
	_ = c.CloseWrite()
	if got, _ := io.ReadAll(c); len(got) >= 200000 {
		t.Errorf("got %d bytes", len(got))
	}
	if got, want := f.reasons(), []string{"echo.example:7 max_bytes "}; !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}

	f.apply(t, `{"mode":"allowlist","allow":["web.example"],"max_bytes":1000000}`)
	f.web(t, "web.example", 80, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		_, _ = w.Write(make([]byte, 2000000))
	})
	get := "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"
	c = f.dial(t)
	_, _ = io.WriteString(c, get)
	if got, _ := io.ReadAll(c); len(got) >= 2000000 {
		t.Errorf("got %d bytes", len(got))
	}
	if got, want := f.reasons(), []string{"echo.example:7 max_bytes ", "web.example:80 max_bytes "}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	a := send(t, f.dial(t), get)
	if a.status != http.StatusForbidden || a.denied != "max_bytes" {
		t.Errorf("afterwards: got %+v", a)
	}
}

// TestDeniedUpload: a plain request whose body is too long for the policy gets its reason in words.
func TestDeniedUpload(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["web.example"],"max_bytes":100000}`, nil)
	f.web(t, "web.example", 80, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	c := f.dial(t)
	go func() {
		_, _ = io.WriteString(c, "POST http://web.example/ HTTP/1.1\r\nHost: web.example\r\nContent-Length: 10000000\r\n\r\n")
		_, _ = c.Write(make([]byte, 10000000))
	}()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden || r.Header.Get("Actiond-Denied") != "max_bytes" || !strings.Contains(string(text), "web.example:80 (max_bytes)") {
		t.Errorf("got %s %q", r.Status, text)
	}
	if got, want := f.reasons(), []string{"web.example:80 max_bytes "}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
