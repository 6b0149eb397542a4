package front_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
)

// inside is a front with a host whose TLS the egress proxy opens, and what was told of denials.
type inside struct {
	*front.Front

	fixture *fixture
	roots   *x509.CertPool

	mu     sync.Mutex
	opened []netip.AddrPort // clients, by connection
	told   []string
}

func startInside(t *testing.T) *inside {
	t.Helper()
	i := &inside{fixture: start(t, `{"mode":"no-network"}`, nil), roots: x509.NewCertPool()}
	ca, err := egress.NewCA(id)
	if err != nil || !i.roots.AppendCertsFromPEM([]byte(ca.Certificate)) {
		t.Fatal(err)
	}
	p, err := egress.ParsePolicy([]byte(`{"mode":"allowlist","secrets":[{"name":"API","hosts":["api.example"],"value":"0123456789"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	i.fixture.generation++
	if err := i.fixture.egress.Apply(id, egress.Conf{Generation: i.fixture.generation, Policy: p, CA: ca}); err != nil {
		t.Fatal(err)
	}
	i.fixture.host(t, "api.example", 443) // denials need no answer of it
	i.Front, err = front.Start(front.Config{Socket: i.fixture.socket(), Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Opened: i.note})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

func (i *inside) note(client, _ netip.AddrPort) func(front.Denial) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.opened = append(i.opened, client)
	number := len(i.opened)
	return func(d front.Denial) string {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.told = append(i.told, fmt.Sprintf("%d %s:%d %s", number, d.Host, d.Port, d.Reason))
		return "curl"
	}
}

func (i *inside) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.told)
}

// client has a connection of its own.
func (i *inside) client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: i.Address().String()}), TLSClientConfig: &tls.Config{RootCAs: i.roots}, ForceAttemptHTTP2: true, // whose connection outlives a refusal
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// refused asks api.example for another host, and wants the refusal.
func refused(t *testing.T, c *http.Client, host string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://api.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusForbidden {
		t.Fatalf("got %d, %v", res.StatusCode, err)
	}
}

// TestCollect: denials inside TLS are told once, for the client whose connection they were in, also
// after its end; what the front saw by itself is not told again.
func TestCollect(t *testing.T) {
	t.Parallel()
	i := startInside(t)
	begun := time.Now()
	i.Collect(begun) // no connection was open
	var want []string
	for n := range 120 { // more than an answer of the egress proxy has
		refused(t, i.client(t), fmt.Sprintf("h%d.example", n))
		want = append(want, fmt.Sprintf("%d h%d.example:443 other host in the request", n+1, n))
	}
	if answer := i.answer(t, "evil.example:443"); answer != http.StatusForbidden {
		t.Errorf("got %d", answer)
	}
	for range 2 {
		i.Collect(begun)
		if got := i.all(); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	}
	all := i.Denied()
	if len(all) != len(want)+1 {
		t.Fatalf("got %d denials", len(all))
	}
	if d := all[0]; d.Host != "h0.example" || d.Process != "curl" || !d.Client.IsValid() || d.Time.Before(begun) {
		t.Errorf("got %+v", d)
	}
}

// TestCollectIdle: only where a connection was open since, the egress proxy is asked.
func TestCollectIdle(t *testing.T) {
	t.Parallel()
	i := startInside(t)
	if i.OpenedSince(time.Time{}) {
		t.Error("a connection was open")
	}
	begun := time.Now()
	c := i.client(t)
	refused(t, c, "a.example")
	if !i.OpenedSince(begun) {
		t.Error("no connection was open")
	}
	testhelp.Eventually(t, func() bool { return i.Open() == 0 && !i.OpenedSince(time.Now()) }, "the connection ends")
	if !i.OpenedSince(begun) {
		t.Error("the connection is forgotten")
	}
	i.Collect(time.Time{})
	if got := i.all(); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestAttackManyOpened: connections whose denials are never asked for take bounded memory.
func TestAttackManyOpened(t *testing.T) {
	t.Parallel()
	if got := front.OpenAndClose(5000); got != 1024 {
		t.Errorf("%d connections are kept", got)
	}
}

// answer asks for a connection.
func (i *inside) answer(t *testing.T, target string) int {
	t.Helper()
	c := &fixture{Front: i.Front}
	conn := c.dial(t)
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	var version string
	var status int
	if _, err := fmt.Fscanf(conn, "%s %d", &version, &status); err != nil {
		t.Fatal(err)
	}
	return status
}
