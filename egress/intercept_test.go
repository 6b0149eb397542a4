package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// The authorities of the internet and of the sandbox.
var (
	worldCA   = sync.OnceValue(mustCA)
	sandboxCA = sync.OnceValue(mustCA)
)

func mustCA() egress.CA {
	ca, err := egress.NewCA(id)
	if err != nil {
		panic(err)
	}
	return ca
}

func pool(tb testing.TB, ca egress.CA) *x509.CertPool {
	tb.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(ca.Certificate)) {
		tb.Fatal("no certificate")
	}
	return p
}

func roots(tb testing.TB) *x509.CertPool {
	tb.Helper()
	return pool(tb, worldCA())
}

// site starts a host that answers by HTTPS, in both versions.
func (f *fixture) site(tb testing.TB, name, addr string, h http.HandlerFunc) {
	tb.Helper()
	config, err := egress.ServerTLS(worldCA())
	if err != nil {
		tb.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = tls.NewListener(f.add(tb, name, addr), config)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	tb.Cleanup(s.Close)
}

// client returns one that trusts the sandbox's CA. It speaks HTTP/2 if it can.
func (f *fixture) client(tb testing.TB, h2 bool) *http.Client {
	tb.Helper()
	config := &tls.Config{RootCAs: pool(tb, sandboxCA())}
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: h2, DisableCompression: true, DialContext: func(_ context.Context, _, asked string) (net.Conn, error) {
		c, answer, body := f.connect(tb, asked)
		if answer.StatusCode != http.StatusOK {
			return nil, errors.New(body)
		}
		return c, nil
	}}
	tb.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// session opens a TLS connection to api.example through the proxy.
func (f *fixture) session(tb testing.TB, name string, protocols ...string) (*tls.Conn, error) {
	tb.Helper()
	c, answer, body := f.connect(tb, "api.example:443")
	if answer.StatusCode != http.StatusOK {
		tb.Fatal(body)
	}
	session := tls.Client(c, &tls.Config{ServerName: name, RootCAs: pool(tb, sandboxCA()), NextProtos: protocols, InsecureSkipVerify: name == ""})
	return session, session.Handshake()
}

func secret(members string) string {
	return `{"mode":"allowlist","allow":["echo.example"],"secrets":[{"name":"API","hosts":["api.example"],"value":"` + token + `"` + members + `}]}`
}

// received is a response without its body.
type received struct {
	StatusCode, ProtoMajor int
	Status, Proto          string
	Header, Trailer        http.Header
}

// get sends a request and returns its answer with all of the body.
func get(tb testing.TB, c *http.Client, r *http.Request) (got received, body string) {
	tb.Helper()
	res, err := c.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return received{res.StatusCode, res.ProtoMajor, res.Status, res.Proto, res.Header, res.Trailer}, string(text)
}

func request(tb testing.TB, method, url string, body io.Reader) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, body)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestIntercept: the host gets the request with the secret and without the agent's header, in each version.
func TestIntercept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members, header, want string
	}{
		"bearer": {"", "Authorization", "Bearer " + token},
		"basic":  {`,"format":"Basic user:{}"`, "Authorization", "Basic dXNlcjpzay0wMTIzNDU2Nzg5LythYmNkZWY9PQ=="},
		"header": {`,"header":"x-api-key","format":"{}"`, "X-Api-Key", token},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s h2=%v", name, h2), func(t *testing.T) {
				t.Parallel()
				f := start(t, secret(tc.members))
				type seen struct {
					proto, host, uri, body string
					values                 []string
					encoding, forwarded    string
				}
				got := make(chan seen, 1)
				f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					got <- seen{r.Proto, r.Host, r.RequestURI, string(body), r.Header.Values(tc.header), r.Header.Get("Accept-Encoding"), r.Header.Get("X-Forwarded-For")}
					w.Header().Set("Actiond-Denied", "forged")
					w.WriteHeader(http.StatusTeapot)
					fmt.Fprint(w, "hello")
				})
				client := f.client(t, h2)
				const uri = "/a%2Fb//c?x=1;y=%zz&z"
				for range 2 {
					r := request(t, "POST", "https://api.example"+uri, strings.NewReader("body"))
					r.Header[tc.header] = []string{"agent's", "another"}
					r.Header.Set("Accept-Encoding", "gzip")
					r.Header.Set("X-Forwarded-For", "agent")
					if !h2 {
						r.Header.Set("Connection", tc.header)
					}
					res, body := get(t, client, r)
					if res.StatusCode != http.StatusTeapot || body != "hello" || res.Header.Get("Actiond-Denied") != "" || res.ProtoMajor == 2 != h2 {
						t.Errorf("got %s %s %q %q", res.Proto, res.Status, res.Header, body)
					}
					want := seen{"HTTP/2.0", "api.example", uri, "body", []string{tc.want}, "identity", "agent"}
					if s := <-got; fmt.Sprint(s) != fmt.Sprint(want) {
						t.Errorf("got %+v, want %+v", s, want)
					}
				}
				if n := len(f.lookups); n != 1 {
					t.Errorf("%d lookups for one connection", n)
				}
				if s := f.state(t); s.Open != 1 || s.Sent == 0 || s.Received == 0 || s.Denied != 0 {
					t.Errorf("got %+v", s)
				}
				client.CloseIdleConnections()
				testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection has ended")
			})
		}
	}
}

// TestInterceptRotation: the next request of an open connection has the new value, and a policy that
// refuses the host ends the connection before the change returns.
func TestInterceptRotation(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	begun := make(chan struct{})
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-r.Context().Done()
			return
		}
		if got := r.Header.Get("Authorization"); got != "Bearer "+token+r.URL.RawQuery {
			t.Errorf("got %q", got)
		}
	})
	client := f.client(t, true)
	get(t, client, request(t, "GET", "https://api.example/", nil))
	f.apply(t, strings.ReplaceAll(secret(""), token, token+"new"))
	get(t, client, request(t, "GET", "https://api.example/?new", nil))
	res, err := client.Do(request(t, "GET", "https://api.example/long", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-begun
	if n := len(f.lookups); n != 1 {
		t.Errorf("%d connections", n)
	}
	f.apply(t, `{"mode":"allowlist"}`) // the secret admitted the host
	if s := f.state(t); s.Open != 0 || s.Denied != 1 {
		t.Errorf("after the change: %+v", s)
	}
	if rest, err := io.ReadAll(res.Body); err == nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
}

// TestInterceptMaxBytes: bytes within TLS are counted, and their limit ends the connection.
func TestInterceptMaxBytes(t *testing.T) {
	t.Parallel()
	f := start(t, strings.Replace(secret(""), `"mode"`, `"max_bytes":100000,"mode"`, 1))
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	res, err := f.client(t, false).Do(request(t, "GET", "https://api.example/", nil))
	if err == nil {
		defer res.Body.Close()
		var n int64
		n, err = io.Copy(io.Discard, res.Body)
		if n > 100000 {
			t.Errorf("%d bytes passed", n)
		}
	}
	if err == nil {
		t.Error("the response is whole")
	}
	if got, want := f.denied(t), []string{"1 api.example:443 max_bytes #7"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestInterceptAnswer: the sandbox learns that it may ask for denials.
func TestInterceptAnswer(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(http.ResponseWriter, *http.Request) {})
	if _, answer, _ := f.connect(t, "api.example:443"); answer.Header.Get(egress.HeaderIntercepted) != "unix" {
		t.Errorf("got %q", answer.Header)
	}
	if _, answer, _ := f.connect(t, "echo.example:7"); answer.Header.Get(egress.HeaderIntercepted) != "" {
		t.Errorf("got %q", answer.Header)
	}
}

// TestInterceptLimits: headers are bounded in both directions.
func TestInterceptLimits(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		f := start(t, secret(""))
		f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, _ *http.Request) {
			for i := range 300 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		})
		client := f.client(t, h2)
		if res, body := get(t, client, request(t, "GET", "https://api.example/", nil)); res.StatusCode != http.StatusBadGateway {
			t.Errorf("h2=%v: got %s %.100q", h2, res.Status, body)
		}
		r := request(t, "GET", "https://api.example/", nil)
		r.Header.Set("X", strings.Repeat("x", 80<<10))
		res, err := client.Do(r)
		if err == nil {
			res.Body.Close()
		}
		if err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("h2=%v: got %s", h2, res.Status)
		}
		if s := f.state(t); s.Denied > 0 {
			t.Errorf("h2=%v: got %+v", h2, s)
		}
	}
}

// TestWebSocket: an upgraded connection carries bytes in both directions, and ends with its client.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	ended := make(chan struct{})
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("got %q", r.Header)
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, rw)
	})
	c, err := f.session(t, "api.example", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	testhelp.Exchange(t, c, strings.Repeat("frame", 1000))
	c.Close()
	<-ended
	testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection has ended")
}

// TestInterceptVersions: a client may speak HTTP/2 where the host does not.
func TestInterceptVersions(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	config, err := egress.ServerTLS(worldCA())
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, r.Header["Authorization"]) })}
	go site.Serve(tls.NewListener(f.add(t, "api.example", "8.8.8.8:443"), config))
	t.Cleanup(func() { site.Close() })
	client := f.client(t, true)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			res, err := client.Do(request(t, "GET", "https://api.example/", nil))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); res.ProtoMajor != 2 || string(body) != "HTTP/1.1[Bearer "+strings.Repeat("*", len(token))+"]" {
				t.Errorf("got %s %q, %v", res.Proto, body, err)
			}
		})
	}
	all.Wait()
}

// TestInterceptStreams: each part of a body passes before the next one, in both directions.
func TestInterceptStreams(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = control.Flush()
			if err != nil {
				return
			}
		}
	})
	sent, w := io.Pipe()
	res, err := f.client(t, true).Do(request(t, "POST", "https://api.example/", sent))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, text := range []string{"one\n", "two", "three\n"} {
		go io.WriteString(w, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	}
	w.Close()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
}

// closing is a listener whose first connection is closed.
type closing struct {
	net.Listener

	once   sync.Once
	closed chan struct{}
}

func (l *closing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.once.Do(func() {
			c.Close()
			close(l.closed)
		})
	}
	return c, err
}

// TestInterceptLateRequest: a browser connects before it has a request, and the host does not wait for it.
func TestInterceptLateRequest(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	config, err := egress.ServerTLS(worldCA())
	if err != nil {
		t.Fatal(err)
	}
	l := &closing{Listener: f.add(t, "api.example", "8.8.8.8:443"), closed: make(chan struct{})}
	site := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go site.Serve(tls.NewListener(l, config))
	t.Cleanup(func() { site.Close() })
	c, err := f.session(t, "api.example", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	<-l.closed
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\n\r\nx")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNotFound || len(f.lookups) != 1 {
		t.Errorf("got %s after %d lookups", res.Status, len(f.lookups))
	}
}

// TestReserve: what one sandbox and all have is bounded, and a refused part counts for neither.
func TestReserve(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	var of [6]atomic.Int64
	for _, tt := range []struct {
		by   int
		n    int64
		want bool
	}{
		{0, 60, true}, {0, 41, false}, {0, 20, true}, // at most 100
		{0, 1, false}, {1, 40, true}, {1, 1, false}, {2, 20, true}, {2, 1, false}, // at most what is left
		{3, 10, true}, {3, 1, false}, {4, 10, true}, // a sixteenth, while there is any
		{5, 1, false}, {0, -80, true}, {5, 40, true}, {5, 1, false},
	} {
		if got := egress.Reserve(tt.n, &of[tt.by], &all, 100, 160); got != tt.want {
			t.Errorf("%d has %d, and %d more: %v; all have %d", tt.by, of[tt.by].Load(), tt.n, got, all.Load())
		}
	}
	if all.Load() != 120 {
		t.Errorf("all have %d", all.Load())
	}
}
