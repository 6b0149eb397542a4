package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// stage is a gateway on a real connection, with one sandbox.
type stage struct {
	*fixture
	sandbox api.Sandbox
	addr    string
}

func newStage(t *testing.T, answer http.HandlerFunc) *stage {
	t.Helper()
	h := newFixture(t)
	h.answer = answer
	s := h.make(t, `{"image":"debian"}`)
	return &stage{h, s, h.listen(t)}
}

// say opens a connection and writes bytes, {id} and {key} being the sandbox's.
func (s *stage) say(t *testing.T, text string) net.Conn {
	t.Helper()
	conn := testhelp.Dial(t, "tcp", s.addr)
	if _, err := io.WriteString(conn, strings.NewReplacer("{id}", s.sandbox.ID, "{key}", s.sandbox.SessionKey).Replace(text)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// metric is the line of a metric, "" where there is none.
func (s *stage) metric(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(s.ask(t, "GET", "/metrics", "/metrics", "").Body.String()) {
		if strings.HasPrefix(line, name+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// idle waits until no request is being passed on.
func (s *stage) idle(t *testing.T) {
	t.Helper()
	const name = "actiond_gateway_proxied_in_flight"
	testhelp.Eventually(t, func() bool { return s.metric(t, name) == name+" 0" }, "the gateway passes no request on")
}

// keep takes the connection of a request over and does nothing with it until
// the test is over.
func keep(t *testing.T, answer string, held *sync.WaitGroup) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, answer)
		held.Done()
		<-t.Context().Done()
		conn.Close()
	}
}

// A sandbox that takes no more of a body does not hold the gateway, nor does one
// that goes on with an upgraded connection whose client left.
func TestSandboxTakesNothing(t *testing.T) {
	t.Parallel()
	var held sync.WaitGroup
	held.Add(1)
	s := newStage(t, keep(t, "", &held))
	conn := s.say(t, "POST /sandboxes/{id}/upload_file HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nContent-Length: 100000000\r\n\r\n")
	// It writes until everything on the way is full, and leaves.
	held.Wait()
	var err error
	for piece := make([]byte, 1<<20); err == nil; {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = conn.Write(piece)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing: %v", err)
	}
	conn.Close()
	s.idle(t)
}

func TestUpgradedClientLeaves(t *testing.T) {
	t.Parallel()
	var held sync.WaitGroup
	held.Add(1)
	s := newStage(t, keep(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", &held))
	conn := s.say(t, "GET /sandboxes/{id}/v1/sessions/x/terminal HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "101") {
		t.Fatalf("got %q, %v", line, err)
	}
	held.Wait()
	conn.Close()
	s.idle(t)
}

// A sandbox cannot send the client's keys elsewhere, and neither gets nor sets
// what a browser or a proxy in front of the gateway keeps for the whole host.
func TestSandboxReachesForTheHost(t *testing.T) {
	t.Parallel()
	names := []string{"Set-Cookie", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Service-Worker-Allowed", "Set-Cookie2", api.KeyHeader}
	s := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range names {
			h.Set(name, "x")
		}
		h.Set("Location", "http://evil.example/")
		h.Set("Trailer", "Set-Cookie")
		status := http.StatusOK
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "text")
		h.Set("Set-Cookie", "x")
		h.Set(http.TrailerPrefix+"Clear-Site-Data", "x")
	})
	for status := 200; status < 400; status++ {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/sandboxes/%s/%d", s.addr, s.sandbox.ID, status), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{api.GatewayKeyHeader: {theKey}, "Cookie": {"login=x"}, "Authorization": {"Basic eDp5"}}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		want := status
		if status >= 300 && status != http.StatusNotModified {
			want = http.StatusBadGateway
		}
		if len(resp.Trailer) > 0 {
			t.Fatalf("%d: the trailers are %v", status, resp.Trailer)
		}
		if resp.StatusCode != want || want != status && resp.Header.Get("Location") != "" {
			t.Errorf("%d: got %d to %q, want %d", status, resp.StatusCode, resp.Header.Get("Location"), want)
		}
		for _, name := range names {
			if v := resp.Header.Values(name); v != nil {
				t.Fatalf("%d: the sandbox says %s: %q", status, name, v)
			}
		}
	}
	for _, r := range s.requests(s.sandbox.ID) {
		if r.Header.Get("Cookie") != "" || strings.Contains(r.Header.Get("Authorization"), "Basic") {
			t.Fatalf("the sandbox got %v", r.Header)
		}
	}
}

// A request that can be read in two ways reaches a sandbox in one, and its own only.
func TestReadInTwoWays(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	type seen struct{ id, target, body, a, b string }
	var mu sync.Mutex
	var got []seen
	a, b := h.make(t, `{"image":"debian"}`), h.make(t, `{"image":"debian"}`)
	h.answer = func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // of a request that was refused meanwhile, perhaps after the next one came
		}
		id := a.ID
		if r.Header.Get(api.KeyHeader) == b.SessionKey {
			id = b.ID
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{id, r.RequestURI, string(body), r.Header.Get("X-A"), r.Header.Get("X-B")})
	}
	addr := h.listen(t)
	const post = "POST /sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n"
	for _, tt := range []struct {
		name, text string
		want       *seen // nil: it is refused
	}{
		{"line ends without CR", "POST /sandboxes/{a}/x HTTP/1.1\nHost: x\nX-Session-API-Key: {key}\nX-A: 1\nContent-Length: 2\n\nab", &seen{a.ID, "/x", "ab", "1", ""}},
		{"continued header", post + "X-A: 1\r\n X-B: 2\r\nContent-Length: 0\r\n\r\n", &seen{a.ID, "/x", "", "1 X-B: 2", ""}},
		{"continued key", "POST /sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key:\r\n {key}\r\nContent-Length: 0\r\n\r\n", &seen{a.ID, "/x", "", "", ""}},
		{"chunk extensions", post + "Transfer-Encoding: chunked\r\n\r\n2;a=\"b\r\nab\r\n0\r\nX-B: 2\r\n\r\n", &seen{a.ID, "/x", "ab", "", ""}},
		{"chunk extensions without end", post + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 1<<20) + "\r\na\r\n0\r\n\r\n", nil},
		{"chunk size with a sign", post + "Transfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n", nil},
		{"chunk size too large", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nab\r\n0\r\n\r\n", nil},
		{"another host in the target", "GET http://evil.example/sandboxes/{a}/x HTTP/1.1\r\nHost: y\r\nX-Session-API-Key: {key}\r\n\r\n", &seen{a.ID, "/x", "", "", ""}},
		{"another protocol", "GET /sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", &seen{a.ID, "/x", "", "", ""}},
		{"up to the other", "GET /sandboxes/{a}/../{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"up to the other, encoded", "GET /sandboxes/{a}/%2e%2E/{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"up to the other, twice encoded", "GET /sandboxes/{a}/%252e%252e/{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", &seen{a.ID, "/%252e%252e/{b}/x", "", "", ""}},
		{"up to the other, slash encoded", "GET /sandboxes/{a}/..%2f{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", &seen{a.ID, "/..%2f{b}/x", "", "", ""}},
		{"up to the gateway", "GET /sandboxes/{a}/..%2f..%2fv1/sandboxes HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", &seen{a.ID, "/..%2f..%2fv1/sandboxes", "", "", ""}},
		{"backslashes", "GET /sandboxes/{a}/..\\..\\{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", &seen{a.ID, "/..%5C..%5C{b}/x", "", "", ""}},
		{"an encoded id", "GET /sandboxes/%2e%2e/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"two slashes", "GET //sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"a slash in the id", "GET /sandboxes/{a}%2fx HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"the other's id, this key", "GET /sandboxes/{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"two keys", "GET /sandboxes/{b}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nX-Session-API-Key: {bkey}\r\n\r\n", nil},
		{"no host", "GET /sandboxes/{a}/x HTTP/1.1\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"two hosts", "GET /sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nHost: y\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
		{"a null in a header", post + "X-A: a\x00b\r\nContent-Length: 0\r\n\r\n", nil},
		{"a tunnel", "CONNECT /sandboxes/{a}/x HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n", nil},
	} {
		fill := strings.NewReplacer("{a}", a.ID, "{b}", b.ID, "{key}", a.SessionKey, "{bkey}", b.SessionKey)
		conn := testhelp.Dial(t, "tcp", addr)
		mu.Lock()
		got = nil
		mu.Unlock()
		_, _ = io.WriteString(conn, fill.Replace(tt.text)) // it may be refused before its end
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: no answer: %v", tt.name, err)
		}
		answer.Body.Close()
		conn.Close()
		mu.Lock()
		reached := got
		mu.Unlock()
		switch {
		case tt.want == nil:
			if answer.StatusCode == http.StatusOK {
				t.Errorf("%s: got %s and the sandbox %q, want a refusal", tt.name, answer.Status, reached)
			}
		case len(reached) != 1 || answer.StatusCode != http.StatusOK:
			t.Errorf("%s: got %s and the sandbox %q", tt.name, answer.Status, reached)
		default:
			want := *tt.want
			want.target = fill.Replace(want.target)
			if reached[0] != want {
				t.Errorf("%s: the sandbox got %q, want %q", tt.name, reached[0], want)
			}
		}
	}
}

// A stranger keeps no connection after an answer, and so none of the places for
// those of others; who has a key keeps it.
func TestStrangersKeepNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(http.ResponseWriter, *http.Request) {})
	for _, tt := range []struct {
		path, key string
		closed    bool
	}{
		{"/alive", "", true},
		{"/v1/sandboxes", "", true},
		{"/nowhere", "X-API-Key: wrong\r\n", true},
		{"/sandboxes/{id}/x", "X-Session-API-Key: wrong\r\n", true},
		{"/sandboxes/x/x", "", true},
		{"/alive", "X-API-Key: " + theKey + "\r\n", false},
		{"/v1/sandboxes", "X-API-Key: " + theKey + "\r\n", false},
		{"/sandboxes/{id}/x", "X-Session-API-Key: {key}\r\n", false},
	} {
		conn := s.say(t, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n"+tt.key+"\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.path, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.Close != tt.closed {
			t.Errorf("%s with %q: the connection ends: %v", tt.path, tt.key, resp.Close)
		}
		if !tt.closed {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s with %q: the connection stays: %v", tt.path, tt.key, err)
		}
	}
}

// Names that callers invent leave nothing behind.
func TestTenThousandNames(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.listen(t) // it watches the engine
	series := func() int {
		return strings.Count(h.ask(t, "GET", "/metrics", "/metrics", "").Body.String(), "\nactiond_")
	}
	round := func(from, to int) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("%012x", i)
			for _, path := range []string{"/sandboxes/" + id + "/x", "/v1/sandboxes/" + id, "/sessions/" + id, "/runtime/" + id, "/" + id} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					r.Method = fmt.Sprintf("GET%d", i)
				}
				r.Header.Set(api.KeyHeader, id)
				h.ServeHTTP(&discard{header: http.Header{}}, r)
			}
		}
	}
	round(0, 10)
	series() // counts itself
	before := series()
	round(10, 10_000)
	if after := series(); after > before {
		t.Errorf("the metrics grew from %d to %d series", before, after)
	}
	if entries, err := os.ReadDir(h.stateDir + "/locks"); err != nil || len(entries) > 2 {
		t.Errorf("got %d locks, %v", len(entries), err)
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
