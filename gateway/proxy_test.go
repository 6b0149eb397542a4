package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
)

// listen serves the gateway on a real connection and gives its address.
func (h *fixture) listen(t *testing.T) string {
	t.Helper()
	l := testhelp.Listen(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// A sandbox gets the request that was sent, with its own key and no other.
func TestPassed(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-From", "sandbox")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	}
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	for i, target := range []string{"/", "/a/b?c=d&e=%20;f", "/a%2Fb/%25", "/a//b", "//etc/passwd", "/a..b/.c", "/?%zz"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+addr, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = "//" + addr + "/sandboxes/" + s.ID + target
		r.Header = http.Header{
			api.GatewayKeyHeader: {theKey}, "X-Session-Api-Key": {s.SessionKey}, "X-Mine": {"1", "2"},
			// The key must not be called something for one hop only.
			"Connection": {"X-Session-API-Key, X-Hop"}, "X-Hop": {"1"}, "Te": {"trailers"}, "Proxy-Authorization": {"x"},
			"X-Forwarded-For": {"1.2.3.4"}, "Forwarded": {"for=1.2.3.4"}, "X-Forwarded-Prefix": {"/evil", "/worse"},
			"Authorization": {"Bearer " + theKey, "Basic x"},
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusTeapot || string(body) != "body" || resp.Header.Get("X-From") != "sandbox" {
			t.Fatalf("%s: got %d %s", target, resp.StatusCode, body)
		}
		got := h.requests(s.ID)[i]
		if got.RequestURI != target || got.Method != http.MethodPut || got.Host != addr {
			t.Errorf("got %s %s %s, want %s", got.Method, got.Host, got.RequestURI, target)
		}
		if k := got.Header.Values(api.KeyHeader); len(k) != 1 || k[0] != s.SessionKey {
			t.Errorf("the sandbox got the keys %q", k)
		}
		if v := got.Header.Values("Authorization"); len(v) != 1 || v[0] != "Bearer "+s.SessionKey {
			t.Errorf("the sandbox got the tokens %q", v)
		}
		if v := got.Header.Values("X-Forwarded-Prefix"); len(v) != 1 || v[0] != "/sandboxes/"+s.ID {
			t.Errorf("the sandbox got the prefixes %q", v)
		}
		for _, name := range []string{api.GatewayKeyHeader, "X-Hop", "Proxy-Authorization", "X-Forwarded-For", "Forwarded"} {
			if v := got.Header.Values(name); v != nil {
				t.Errorf("the sandbox got %s: %q", name, v)
			}
		}
		if v := got.Header.Values("X-Mine"); len(v) != 2 {
			t.Errorf("X-Mine: got %q", v)
		}
	}
}

// Nobody replaces the program of a server of 0.1, however the path is written.
func TestProgramStays(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	for _, target := range []string{"/v1/upgrade", "/v1/%75pgrade", "/v1%2Fupgrade", "/v1/upgrade/", "/v1/upgrade?force=true"} {
		for _, key := range []string{api.KeyHeader, api.GatewayKeyHeader} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, strings.NewReader("program"))
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Opaque = "//" + addr + "/sandboxes/" + s.ID + target
			r.Header.Set(key, map[string]string{api.KeyHeader: s.SessionKey, api.GatewayKeyHeader: theKey}[key])
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s with %s: got %d", target, key, resp.StatusCode)
			}
		}
	}
}

// A request that is two for one reader and one for another is refused.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	keys := "Host: x\r\nX-API-Key: " + theKey + "\r\n"
	const hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, head := range map[string]string{
		"two lengths":       "Content-Length: 5\r\nContent-Length: 6\r\n",
		"length list":       "Content-Length: 5, 6\r\n",
		"unknown coding":    "Transfer-Encoding: xchunked\r\n",
		"two codings":       "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"blank before":      "Transfer-Encoding : chunked\r\n",
		"line in a header":  "X-A: b\rX-API-Key: c\r\n",
		"signed length":     "Content-Length: +5\r\n",
		"length and coding": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
	} {
		conn := testhelp.Dial(t, "tcp", addr)
		_, _ = io.WriteString(conn, "POST /sandboxes/"+s.ID+"/x HTTP/1.1\r\n"+keys+head+"\r\n"+hidden)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if name != "length and coding" && !bytes.HasPrefix(answer, []byte("HTTP/1.1 400")) && !bytes.HasPrefix(answer, []byte("HTTP/1.1 501")) {
			t.Errorf("%s: got %.80q, want a refusal", name, answer)
		}
	}
	for _, r := range h.requests(s.ID) {
		if r.URL.Path != "/x" {
			t.Errorf("the sandbox got %s", r.URL)
		}
	}
}

// raw answers a request with bytes of its own, and goes on as long as a client
// takes them.
func raw(w http.ResponseWriter, head string, flood ...string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head); err != nil {
		return
	}
	for len(flood) > 0 {
		if _, err := io.WriteString(conn, flood[0]); err != nil {
			return
		}
	}
}

// A hostile sandbox gets neither the gateway's memory nor its trust.
func TestHostileSandbox(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	engine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer engine.Close()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/headers":
			raw(w, "HTTP/1.1 200 OK\r\n", "X-Flood: "+strings.Repeat("x", 1000)+"\r\n")
		case "/header":
			raw(w, "HTTP/1.1 200 OK\r\nX-Flood: ", strings.Repeat("x", 1000))
		case "/early":
			raw(w, "", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
		case "/status":
			raw(w, "HTTP/1.1 "+strings.Repeat("9", 1000)+" OK\r\n\r\n")
		case "/garbage":
			raw(w, "SSH-2.0-OpenSSH\r\n")
		case "/nothing":
			raw(w, "")
		case "/upgrade":
			raw(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		case "/length":
			raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n")
		case "/redirect":
			http.Redirect(w, r, engine.URL+"/containers/json", http.StatusTemporaryRedirect)
		case "/cut":
			raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf")
		}
	}
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	get := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/sandboxes/"+s.ID+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(api.GatewayKeyHeader, theKey)
		return http.DefaultTransport.RoundTrip(r)
	}
	for _, path := range []string{"/headers", "/header", "/early", "/status", "/garbage", "/nothing", "/upgrade", "/length", "/redirect"} {
		resp, err := get(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway || len(body) > 1000 || !strings.Contains(string(body), `"detail":"Sandbox `+s.ID) {
			t.Errorf("%s: got %d %.300s, want a short 502", path, resp.StatusCode, body)
		}
	}
	if reached.Load() {
		t.Error("the gateway followed a redirect")
	}
	resp, err := get("/cut")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks whole")
	}
}

// Bodies stream both ways, and an answer without end ends with its reader.
func TestStreams(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	left := make(chan bool)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		switch r.URL.Path {
		case "/echo":
			line, _ := bufio.NewReader(r.Body).ReadString('\n')
			_, _ = io.WriteString(w, line)
			_ = rc.Flush()
			_, _ = io.Copy(io.Discard, r.Body) // ends with the client
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: one\n\n")
			_ = rc.Flush()
			_, _ = io.Copy(io.Discard, r.Body) // ends with the client
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					break
				}
			}
		}
		left <- true
	}
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	for _, path := range []string{"/echo", "/events", "/endless"} {
		body, feed := io.Pipe()
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/sandboxes/"+s.ID+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(api.GatewayKeyHeader, theKey)
		go func() { _, _ = io.WriteString(feed, "data: one\n\n") }() // and no end
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		first := make([]byte, 10)
		if _, err := io.ReadFull(resp.Body, first); err != nil || path != "/endless" && string(first) != "data: one\n" {
			t.Errorf("%s: got %q, %v before its end", path, first, err)
		}
		leave()
		resp.Body.Close()
		feed.Close()
		<-left
	}
}

// An upgraded connection is passed on both ways, and ends with the gateway.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "echo "+line)
		}
	}
	s := h.make(t, `{"image":"debian"}`)
	l := testhelp.Listen(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l) }()
	conn := testhelp.Dial(t, "tcp", l.Addr().String())
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /sandboxes/"+s.ID+"/v1/sessions/default/terminal HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"X-Session-API-Key: "+s.SessionKey+"\r\n\r\n")
	read := bufio.NewReader(conn)
	status, _ := read.ReadString('\n')
	if !strings.HasPrefix(status, "HTTP/1.1 101 ") {
		t.Fatalf("got %q", status)
	}
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = read.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := read.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := read.ReadByte(); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the connection outlives the gateway: %v", err)
	}
}

// A request that a sandbox may have begun is not sent again, also where a client says that
// it may be: the sandbox's server does not know that header.
func TestNotTwice(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var begun atomic.Int32
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/warm" {
			return
		}
		begun.Add(1)
		raw(w, "")
	}
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	for _, path := range []string{"/warm", "/execute_action"} { // the second goes over the first's connection
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/sandboxes/"+s.ID+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(api.GatewayKeyHeader, theKey)
		r.Header.Set("Idempotency-Key", "x")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if path != "/warm" && resp.StatusCode != http.StatusBadGateway {
			t.Errorf("got %d, want 502", resp.StatusCode)
		}
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("begun %d times", n)
	}
}

// The states of a sandbox that a client takes for different things.
func TestStates(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	h.listen(t) // it watches the engine
	change := func(verb string) {
		want(t, h.ask(t, "POST", "/v1/sandboxes/{id}/"+verb, "/v1/sandboxes/"+s.ID+"/"+verb, ""), 200, "")
	}
	through := func() *httptest.ResponseRecorder { return h.through(t, s.ID, "GET", "/x") }
	want(t, through(), 200, "")
	change("pause")
	want(t, through(), 503, "paused; resume it")
	change("resume")
	want(t, through(), 200, "")
	change("stop")
	want(t, through(), 503, "stopped; start it")
	change("start")
	want(t, through(), 200, "")
	// By others:
	if err := h.host.Pause(t.Context(), find(t, h, s.ID)); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return through().Code == 503 }, "the sandbox cannot be reached")
	if err := h.host.Resume(t.Context(), find(t, h, s.ID)); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return through().Code == 200 }, "the sandbox answers")
	h.engine.Kill(h.container(s.ID), false)
	testhelp.Eventually(t, func() bool { return through().Code == 503 }, "the sandbox cannot be reached")
	if err := h.host.Delete(t.Context(), find(t, h, s.ID)); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return through().Code == 404 }, "the sandbox is gone")
}

// Without the engine's word a dead sandbox is found out by its connection.
func TestDiedUnnoticed(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	want(t, h.through(t, s.ID, "GET", "/x"), 200, "")
	h.engine.Kill(h.container(s.ID), false)
	testhelp.Eventually(t, func() bool { return h.through(t, s.ID, "GET", "/x").Code == 503 }, "the sandbox cannot be reached") // its last connection is a 502
}

// Who drips a header or a body is sent away, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	var slow []net.Conn
	for range 50 {
		conn := testhelp.Dial(t, "tcp", addr)
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-A: ")
		slow = append(slow, conn)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/sandboxes/"+s.ID+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(api.GatewayKeyHeader, theKey)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("beside slow clients: %v, %v", resp, err)
	}
	resp.Body.Close()
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("a slow client is kept: %v", err)
		}
	}
	big := testhelp.Dial(t, "tcp", addr)
	defer big.Close()
	_, _ = io.WriteString(big, "GET / HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 100<<10)+"\r\n\r\n")
	if answer, _ := io.ReadAll(big); !bytes.HasPrefix(answer, []byte("HTTP/1.1 431")) {
		t.Errorf("a large header: got %.80q", answer)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for name, config := range map[string]gateway.Config{
		"no host":    {Key: "x"},
		"no key":     {Driver: h.host},
		"public URL": {Driver: h.host, Key: "x", PublicURL: "gateway.example"},
		"query":      {Driver: h.host, Key: "x", PublicURL: "https://gateway.example/?x"},
	} {
		if _, err := gateway.New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
