package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

const id, otherID = "0123456789ab", "ba9876543210"

var echoAddr = netip.MustParseAddrPort("8.8.8.8:7")

// internet is a network of public addresses, which are listeners on the loopback interface. The
// proxy's own checks see the public ones.
type internet struct {
	mu      sync.Mutex
	names   map[string][]string
	hosts   map[netip.AddrPort]string
	lookups []string
	lied    string                // an address that the kernel is said to connect to
	hold    chan struct{}         // if not nil, dialing waits for its end
	dialing chan<- netip.AddrPort // if not nil, is told of it
}

// add adds a host that answers at a public address, and returns its listener.
func (n *internet) add(tb testing.TB, name, addr string) net.Listener {
	tb.Helper()
	l := testhelp.Listen(tb)
	to := netip.MustParseAddrPort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = append(n.names[name], to.Addr().String())
	n.hosts[to] = l.Addr().String()
	return l
}

func (n *internet) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups = append(n.lookups, name)
	texts, ok := n.names[name]
	if !ok {
		return nil, &net.DNSError{Name: name, IsNotFound: true}
	}
	addrs := make([]netip.Addr, len(texts))
	for i, text := range texts {
		addrs[i] = netip.MustParseAddr(text)
	}
	return addrs, nil
}

func (n *internet) dial(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	kernel, host, hold, dialing := to.String(), n.hosts[to], n.hold, n.dialing
	if n.lied != "" {
		kernel = n.lied
	}
	n.mu.Unlock()
	if err := d.ControlContext(ctx, "tcp", kernel, nil); err != nil {
		return nil, &net.OpError{Op: "dial", Err: err}
	}
	if hold != nil {
		dialing <- to
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if host == "" {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", host)
}

// set changes the network.
func (n *internet) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

type fixture struct {
	*egress.Server
	*internet
	dir        string
	generation int64
}

// start starts a proxy with a sandbox and a host echo.example at port 7.
func start(tb testing.TB, policy string) *fixture {
	tb.Helper()
	n := &internet{names: map[string][]string{}, hosts: map[netip.AddrPort]string{}}
	// The path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "egress") //nolint:usetesting // that of a test with a long name is longer
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	f := &fixture{internet: n, dir: dir}
	f.Server = egress.New(egress.Config{RunDir: dir, Log: slog.New(slog.DiscardHandler), Resolve: n.resolve, Dial: n.dial, Roots: roots(tb)})
	tb.Cleanup(f.Close)
	if err := f.SetHost(nil); err != nil {
		tb.Fatal(err)
	}
	go testhelp.Echo(n.add(tb, "echo.example", "8.8.8.8:7"))
	f.apply(tb, policy)
	return f
}

// apply sets the policy of the sandbox.
func (f *fixture) apply(tb testing.TB, policy string) {
	tb.Helper()
	f.generation++
	if err := f.Apply(id, egress.Conf{Generation: f.generation, Policy: parse(tb, policy), CA: sandboxCA()}); err != nil {
		tb.Fatal(err)
	}
}

func (f *fixture) socket(id string) string { return filepath.Join(f.dir, id, "s") }

// dialSocket connects to the socket of a sandbox.
func dialSocket(tb testing.TB, socket string) *net.UnixConn {
	tb.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// connect asks a sandbox's socket for a target. The connection is at the byte behind the answer.
func (f *fixture) connect(tb testing.TB, target string) (c *net.UnixConn, a answer, body string) {
	tb.Helper()
	c = dialSocket(tb, f.socket(id))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nActiond-Connection: 7\r\n\r\n", target, "ignored.example"); err != nil {
		tb.Fatal(err)
	}
	a, body = read(tb, c)
	return c, a, body
}

// answer is the beginning of an answer.
type answer struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// read reads an answer, and its body where it opens no connection.
func read(tb testing.TB, c net.Conn) (a answer, body string) {
	tb.Helper()
	r, err := http.ReadResponse(bufio.NewReaderSize(c, 16), &http.Request{Method: http.MethodConnect})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Body.Close()
	a = answer{r.StatusCode, r.Status, r.Header}
	if a.StatusCode == http.StatusOK {
		return a, ""
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return a, string(text)
}

// status asks for a target and returns the status of the answer.
func (f *fixture) status(tb testing.TB, target string) int {
	tb.Helper()
	c, answer, _ := f.connect(tb, target)
	c.Close()
	return answer.StatusCode
}

// denied returns the reasons of all denials with their hosts.
func (f *fixture) denied(tb testing.TB) []string {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	all, err := f.Denied(ctx, id, 0)
	if err != nil {
		tb.Fatal(err)
	}
	var texts []string
	for _, d := range all {
		texts = append(texts, fmt.Sprintf("%d %s:%d %s #%d", d.Number, d.Host, d.Port, d.Reason, d.Connection))
	}
	return texts
}

func (f *fixture) state(tb testing.TB) egress.Status {
	tb.Helper()
	s, err := f.Status(id)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestConnect(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example","gone.example","shut.example","1.2.3.4"]}`)
	f.set(func() { f.names["shut.example"] = []string{"8.8.4.4"} })
	c, answer, _ := f.connect(t, "ECHO.example.:7")
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	testhelp.Exchange(t, c, "hello")
	if s := f.state(t); s.Open != 1 || s.Sent != 5 || s.Received != 5 || s.Denied != 0 {
		t.Errorf("got %+v", s)
	}
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection is counted")

	for target, want := range map[string]string{
		"gone.example:443": "502 cannot reach gone.example:443: no such host\n",
		"shut.example:443": "502 cannot reach shut.example:443: connection refused\n",
		"1.2.3.4:80":       "502 cannot reach 1.2.3.4:80: connection refused\n",
		"u@echo.example:7": "400 the target is not HOST:PORT, with a host name or an address\n",
		"evil.example:443": "403 Blocked by this sandbox's network policy: evil.example:443 (not in the allow list). This is a rule, " +
			"not a fault of the network: retrying, other tools or addresses will not help. Go on without it, or say that access to evil.example is needed.\n",
	} {
		_, answer, body := f.connect(t, target)
		if got := fmt.Sprintf("%d %s", answer.StatusCode, body); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
		if reason := answer.Header.Get(egress.HeaderDenied); (reason != "") != (answer.StatusCode == http.StatusForbidden) {
			t.Errorf("%s: denied for %q", target, reason)
		}
	}
	if got := f.denied(t); len(got) != 1 || got[0] != "1 evil.example:443 not in the allow list #7" {
		t.Errorf("got %q", got)
	}
	for _, name := range f.lookups {
		if name == "evil.example" {
			t.Error("a refused name was looked up")
		}
	}
}

// TestNotReady: without the host's addresses nothing is connected, and that is no denial.
func TestNotReady(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	s := egress.New(egress.Config{RunDir: f.dir, Log: slog.New(slog.DiscardHandler), Resolve: f.resolve, Dial: f.dial})
	t.Cleanup(s.Close)
	if err := s.Apply(id, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, answer, body := f.connect(t, "echo.example:7"); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("got %s %q", answer.Status, body)
	}
	if err := s.SetHost(nil); err != nil {
		t.Fatal(err)
	}
	if got := f.status(t, "echo.example:7"); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	if state, err := s.Status(id); err != nil || state.Denied != 0 {
		t.Errorf("got %+v, %v", state, err)
	}
}

func TestMaxBytes(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public","max_bytes":10}`)
	c, _, _ := f.connect(t, "echo.example:7")
	testhelp.Exchange(t, c, "12345")
	_, _ = io.WriteString(c, "6")
	if rest, _ := io.ReadAll(c); len(rest) > 0 {
		t.Errorf("got %q", rest)
	}
	testhelp.Eventually(t, func() bool { return f.state(t).Denied == 1 }, "the end is a denial")
	if got := f.status(t, "echo.example:7"); got != http.StatusForbidden {
		t.Errorf("got %d", got)
	}
	if got := f.denied(t); len(got) != 2 || got[1] != "2 echo.example:7 max_bytes #7" {
		t.Errorf("got %q", got)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	c, _, _ := f.connect(t, "echo.example:7")
	testhelp.Exchange(t, c, "x")
	if err := f.Delete(id); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	if left := testhelp.Tree(t, f.dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := f.Delete(id); !errors.Is(err, egress.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if err := f.Apply("../escape", egress.Conf{}); err == nil || strings.Contains(err.Error(), "socket") {
		t.Errorf("got %v", err)
	}
}

// TestClosing: a request that comes while its sandbox is closed gets no answer, which would be that of
// an open connection.
func TestClosing(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	c := dialSocket(t, f.socket(id))
	f.Refuse(id)
	_, _ = io.WriteString(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
	if got, err := io.ReadAll(c); len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	f.Close()
	if err := f.Apply(otherID, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a sandbox of a closed server: %v", err)
	}
	if _, err := net.Dial("unix", f.socket(otherID)); err == nil {
		t.Error("its socket is open")
	}
}

// TestTimeout: a host that does not answer is no denial.
func TestTimeout(t *testing.T) {
	t.Parallel()
	n := &internet{}
	f := start(t, `{"mode":"public"}`)
	resolve := func(context.Context, string) ([]netip.Addr, error) { return nil, &net.DNSError{IsTimeout: true} }
	s := egress.New(egress.Config{RunDir: f.dir, Log: slog.New(slog.DiscardHandler), Resolve: resolve, Dial: n.dial})
	t.Cleanup(s.Close)
	_ = s.SetHost(nil)
	if err := s.Apply(id, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, answer, body := f.connect(t, "slow.example:1"); answer.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "in time") {
		t.Errorf("got %s %q", answer.Status, body)
	}
}

func TestAwaitDenials(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"no-network"}`)
	found := make(chan []egress.Denial, 1)
	go func() {
		all, _ := f.Denied(t.Context(), id, 0)
		found <- all
	}()
	f.status(t, "a.example:1")
	if all := <-found; len(all) != 1 || all[0].Host != "a.example" || time.Since(all[0].Time) > time.Hour {
		t.Errorf("got %+v", all)
	}
}

// TestPolicySummary: a sandbox may know its rules, and nothing else of its file.
func TestPolicySummary(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["a.example","*.b.example:443"],"deny":["8.8.8.8"],"max_bytes":9}`)
	ask := func(tag string) (status int, body, current string) {
		t.Helper()
		c := dialSocket(t, f.socket(id))
		fmt.Fprintf(c, "GET /policy HTTP/1.1\r\nHost: x\r\nIf-None-Match: %s\r\nConnection: close\r\n\r\n", tag)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text), r.Header.Get("Etag")
	}
	const want = `{"mode":"allowlist","allow":["a.example","*.b.example:443"],"deny":["8.8.8.8"],"max_bytes":9}`
	status, body, tag := ask("")
	if status != http.StatusOK || body != want || tag == "" {
		t.Errorf("got %d %s %s", status, body, tag)
	}
	if status, body, again := ask(tag); status != http.StatusNotModified || body != "" || again != tag {
		t.Errorf("with the tag: got %d %s %s", status, body, again)
	}
	f.apply(t, `{"mode":"public"}`)
	if status, body, other := ask(tag); status != http.StatusOK || body != `{"mode":"public"}` || other == tag {
		t.Errorf("after a change: got %d %s %s", status, body, other)
	}
}

// TestDeniedBeforeEnd: whoever sees the end of a connection finds its denial.
func TestDeniedBeforeEnd(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example"]}`)
	hello, _, _ := f.connect(t, "echo.example:7")
	_, _ = hello.Write(clientHello(t, "other.example"))
	if alert, err := io.ReadAll(hello); err != nil || string(alert) != "\x15\x03\x03\x00\x02\x02\x31" {
		t.Errorf("got %x, %v", alert, err)
	}
	if got, want := f.denied(t), []string{"1 echo.example:7 other server name #7"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	f.apply(t, `{"mode":"allowlist","allow":["echo.example"],"max_bytes":4}`)
	long, _, _ := f.connect(t, "echo.example:7")
	_, _ = io.WriteString(long, "hello")
	_, _ = io.ReadAll(long)
	if got := f.denied(t); len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

// TestCapacity: connections get the memory and the files that are there.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		memory, files uint64
		want          int
	}{
		{128 << 20, 16384, 1024},
		{0, 0, 1024},
		{64 << 20, 1 << 20, 1024},
		{512 << 20, 1 << 20, 4804},
		{1 << 30, 1 << 20, 9846},
		{1 << 30, 20_000, 8336},
		{1 << 62, 1 << 20, 522_624},
		{512 << 20, 1024, 1024},
	} {
		if got := egress.Capacity(tc.memory, tc.files); got != tc.want {
			t.Errorf("%d bytes, %d files: got %d, want %d", tc.memory, tc.files, got, tc.want)
		}
	}
}
