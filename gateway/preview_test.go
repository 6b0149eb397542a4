package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// appPorts has an application on port 8080.
type appPorts struct{ address string }

func (appPorts) Ports() ([]api.Port, error) { return nil, nil }

func (a appPorts) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if port != 8080 {
		return nil, &api.Error{Status: 404, Detail: fmt.Sprintf("No process of this sandbox listens on port %d", port)}
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", a.address)
}

// previews is a gateway with a preview domain and a sandbox in which an application runs.
type previews struct {
	*fixture
	t       *testing.T
	sandbox api.Sandbox
	host    string // of the preview
	got     chan *http.Request
}

const domain = "preview.localhost"

func newPreviews(t *testing.T, app http.HandlerFunc) *previews {
	t.Helper()
	p := &previews{t: t, got: make(chan *http.Request, 100)}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.got <- r.Clone(context.WithoutCancel(r.Context()))
		app(w, r)
	}))
	t.Cleanup(h.Close)
	inside := server.New(server.Config{Ports: appPorts{h.Listener.Addr().String()}})
	p.fixture = newFixture(t, func(f *fixture, c *gateway.Config) {
		f.answer = inside.ServeHTTP
		c.PreviewDomain = domain
	})
	p.sandbox = p.make(t, `{"image":"debian"}`)
	p.host = "8080-" + p.sandbox.ID + "." + domain
	return p
}

// send sends a request to a host, with pairs of a header.
func (p *previews) send(method, host, path string, header ...string) *httptest.ResponseRecorder {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), method, "http://gateway.test"+path, nil)
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// signed is the path of a signed address of port 8080.
func (p *previews) signed(ttl string) string {
	p.t.Helper()
	w := p.ask(p.t, "POST", "/v1/sandboxes/{id}/ports/{port}/url", "/v1/sandboxes/"+p.sandbox.ID+"/ports/8080/url", `{"ttl_seconds":`+ttl+`}`)
	if w.Code != http.StatusOK {
		p.t.Fatalf("got %d %s", w.Code, w.Body)
	}
	address := into[api.PreviewURL](p.t, w).URL
	path, ok := strings.CutPrefix(address, "http://"+p.host)
	if !ok {
		p.t.Fatalf("got %s", address)
	}
	return path
}

// reached returns the request that the application got, nil where it got none.
func (p *previews) reached() *http.Request {
	select {
	case r := <-p.got:
		return r
	default:
		return nil
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// A preview is for those with a key or a signature, and for all where its creator says so.
func TestPreviewIsPrivate(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	public := p.make(t, `{"image":"debian","labels":{"public-ports":"3000, 8080"}}`)
	labelled := p.make(t, `{"image":"debian","labels":{"public-ports":"3000_8080"}}`) // as on Kubernetes
	other := p.make(t, `{"image":"debian"}`)
	path := "/sandboxes/" + p.sandbox.ID + "/ports/8080/x"
	token := strings.TrimPrefix(p.signed("60"), "/?")
	cookie := token
	for _, tt := range []struct {
		name, host, path string
		header           []string
		status           int
	}{
		{"path, without a key", "gw", path, nil, 403},
		{"path, gateway's key", "gw", path, []string{"X-API-Key", theKey}, 200},
		{"path, session key", "gw", path, []string{"X-Session-API-Key", p.sandbox.SessionKey}, 200},
		{"path, key of another sandbox", "gw", path, []string{"X-Session-API-Key", other.SessionKey}, 403},
		{"path, signature", "gw", path + "?" + token, nil, 200},
		{"path, signature of another port", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/8081/?" + token, nil, 403},
		{"path, cookie", "gw", path, []string{"Cookie", cookie}, 403},
		{"path, public", "gw", "/sandboxes/" + public.ID + "/ports/8080/", nil, 403},
		{"path, service worker", "gw", path, []string{"X-API-Key", theKey, "Service-Worker", "script"}, 403},
		{"path, no slash", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/8080", []string{"X-API-Key", theKey}, 404},
		{"path, no port", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/http/", []string{"X-API-Key", theKey}, 400},
		{"path, an address for a port", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/10.0.0.1:8080/", []string{"X-API-Key", theKey}, 400},
		{"path, up", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/8080/%2e%2e/x", []string{"X-API-Key", theKey}, 400},
		{"path, nothing listens", "gw", "/sandboxes/" + p.sandbox.ID + "/ports/81/", []string{"X-API-Key", theKey}, 502},
		{"path, no sandbox", "gw", "/sandboxes/000000000000/ports/8080/", nil, 403},

		{"host, without a key", p.host, "/x", nil, 403},
		{"host, gateway's key", p.host, "/x", []string{"X-API-Key", theKey}, 200},
		{"host, session key", p.host, "/x", []string{"X-Session-API-Key", p.sandbox.SessionKey}, 200},
		{"host, signature", p.host, "/x?" + token, nil, 200},
		{"host, cookie", p.host, "/x", []string{"Cookie", "a=b; " + cookie}, 200},
		{"host, cookie of one who tosses cookies", p.host, "/x", []string{"Cookie", "actiond_preview=1.x; " + cookie}, 200},
		{"host, cookie of another port", "8081-" + p.sandbox.ID + "." + domain, "/x", []string{"Cookie", cookie}, 403},
		{"host, cookie of another sandbox", "8080-" + other.ID + "." + domain, "/x", []string{"Cookie", cookie}, 403},
		{"host, public", "8080-" + public.ID + "." + domain, "/x", nil, 200},
		{"host, public by a label of Kubernetes", "8080-" + labelled.ID + "." + domain, "/x", nil, 200},
		{"host, another port of it", "8081-" + public.ID + "." + domain, "/x", nil, 403},
		{"host with a port, in capitals", strings.ToUpper(p.host) + ":8700", "/x", []string{"Cookie", cookie}, 200},
		{"host with a dot", p.host + ".", "/x", []string{"Cookie", cookie}, 200},
		{"host, no sandbox", "8080-000000000000." + domain, "/x", nil, 403},
		{"host, no port", "0-" + p.sandbox.ID + "." + domain, "/x", []string{"X-API-Key", theKey}, 404},
		{"host, port too large", "65536-" + p.sandbox.ID + "." + domain, "/x", []string{"X-API-Key", theKey}, 404},
		{"host, port with a zero", "08080-" + p.sandbox.ID + "." + domain, "/x", []string{"X-API-Key", theKey}, 404},
	} {
		w := p.send("GET", tt.host, tt.path, tt.header...)
		if w.Code != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
		if reached := p.reached(); (reached != nil) != (tt.status == 200) {
			t.Errorf("%s: the application got %v", tt.name, reached)
		}
	}
}

// A browser that is refused shows a page for people, the same for a sandbox that does not
// exist; programs get what they got before.
func TestPreviewRefusedPage(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	page := p.send("GET", p.host, "/", "Accept", browser)
	if got := page.Body.String(); page.Code != 403 || !strings.Contains(got, "The link has run out") || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
		t.Errorf("got %d %v %s", page.Code, page.Header(), got)
	}
	expired := "/?" + "actiond_preview=1.x"
	for _, tt := range []struct {
		host, path, method, accept string
		page                       bool
	}{
		{p.host, expired, "GET", browser, true},
		{"8080-000000000000." + domain, "/", "GET", browser, true},
		{"gw", "/sandboxes/" + p.sandbox.ID + "/ports/8080/", "GET", browser, true},
		{p.host, "/", "GET", "*/*", false},
		{p.host, "/", "POST", browser, false},
	} {
		w := p.send(tt.method, tt.host, tt.path, "Accept", tt.accept)
		same := w.Body.String() == page.Body.String() && w.Header().Get("Cache-Control") == "no-store"
		if w.Code != 403 || same != tt.page || !tt.page && !strings.Contains(w.Body.String(), "Invalid API Key") {
			t.Errorf("%s %s%s: got %d %v %s", tt.method, tt.host, tt.path, w.Code, w.Header(), w.Body)
		}
	}
	if p.reached() != nil {
		t.Error("the application was reached")
	}
}

// Signatures end with their time, and fit nothing else.
func TestPreviewSignatures(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	good := p.signed("60")
	if w := p.send("GET", p.host, good); w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	expires, mac, _ := strings.Cut(strings.TrimPrefix(good, "/?actiond_preview="), ".")
	for _, token := range []string{"", ".", expires, expires + ".", "99999999999." + mac, "0." + mac, expires + "." + mac + "x", expires + "." + mac[1:], " " + expires + "." + mac, "0" + expires + "." + mac, "+" + expires + "." + mac} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://gw/", nil)
		q := r.URL.Query()
		q.Set("actiond_preview", token)
		if w := p.send("GET", p.host, "/?"+q.Encode()); w.Code != 403 {
			t.Errorf("%q: got %d", token, w.Code)
		}
	}
	short := p.signed("1")
	testhelp.Eventually(t, func() bool { return p.send("GET", p.host, short).Code != 200 }, "the signature expires")
	if w := p.send("GET", p.host, short); w.Code != 403 {
		t.Errorf("after its end: got %d", w.Code)
	}
	at, route := "/v1/sandboxes/"+p.sandbox.ID+"/ports/8080/url", "/v1/sandboxes/{id}/ports/{port}/url"
	for _, body := range []string{`{"ttl_seconds":0}`, `{"ttl_seconds":-1}`, `{"ttl_seconds":604801}`, `{}`, `x`} {
		want(t, p.ask(t, "POST", route, at, body), 400, "")
	}
	want(t, p.ask(t, "POST", route, strings.Replace(at, "8080", "0", 1), `{"ttl_seconds":60}`), 400, "1 to 65535")
	want(t, p.ask(t, "POST", route, at, `{"ttl_seconds":60}`, api.GatewayKeyHeader, ""), 403, "")
	want(t, p.ask(t, "POST", route, at, `{"ttl_seconds":60}`, api.GatewayKeyHeader, "", api.KeyHeader, p.sandbox.SessionKey), 403, "")
	want(t, p.ask(t, "POST", route, "/v1/sandboxes/000000000000/ports/8080/url", `{"ttl_seconds":60}`), 404, "")
}

// A browser that opens a signed address gets a cookie, and an address without it.
func TestPreviewEnter(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	token := strings.TrimPrefix(p.signed("60"), "/?")
	w := p.send("GET", p.host, "/a%20b?x=1&"+token+"&y=%2F", "Accept", "text/html,*/*")
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/a%20b?x=1&y=%2F" || len(cookies) != 1 || p.reached() != nil {
		t.Fatalf("got %d to %q, cookies %v", w.Code, w.Header().Get("Location"), cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" || c.Secure {
		t.Errorf("got the cookie %v", c)
	}
	if w := p.send("GET", p.host, w.Header().Get("Location"), "Cookie", cookies[0].Name+"="+cookies[0].Value); w.Code != 200 {
		t.Errorf("with the cookie: got %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"//evil.example/", "/%2Fevil.example/", "/\\evil.example/"} {
		w := p.send("GET", p.host, path+"?"+token, "Accept", "text/html")
		if to := w.Header().Get("Location"); w.Code == http.StatusSeeOther && (strings.HasPrefix(to, "//") || strings.HasPrefix(to, "/\\")) {
			t.Errorf("%s leads to %s", path, to)
		}
	}
}

// A page of one sandbox must not use the cookie that a person has for another one.
func TestPreviewForeignPages(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	cookie := strings.TrimPrefix(p.signed("60"), "/?")
	for _, tt := range []struct {
		name, method string
		header       []string
		status       int
	}{
		{"its own", "POST", []string{"Origin", "http://" + p.host, "Sec-Fetch-Site", "same-origin"}, 200},
		{"typed by a person", "GET", []string{"Sec-Fetch-Site", "none"}, 200},
		{"a link", "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"a frame", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"a script", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, 403},
		{"a form", "POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"a socket", "GET", []string{"Origin", "http://8080-ffffffffffff." + domain, "Upgrade", "websocket", "Connection", "Upgrade"}, 403},
		{"nowhere", "GET", []string{"Origin", "null"}, 403},
	} {
		if w := p.send(tt.method, p.host, "/", append(tt.header, "Cookie", cookie)...); w.Code != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
}

// A name that an attacker makes lead here, as after DNS rebinding, reaches nothing
// without a key, whatever else the request says of its host.
func TestPreviewHostAttacks(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	public := p.make(t, `{"image":"debian","labels":{"public-ports":"8080"}}`)
	name := "8080-" + public.ID + "." + domain
	for _, host := range []string{"evil.example", name + ".evil.example", "evil" + domain, "127.0.0.1", "", "[::1]:8700", name + "@evil.example"} {
		for _, header := range [][]string{nil, {"X-Forwarded-Host", name}, {"X-Original-Host", name}, {"Forwarded", "host=" + name}} {
			if w := p.send("GET", host, "/", header...); w.Code == 200 || p.reached() != nil {
				t.Errorf("%q %q: got %d", host, header, w.Code)
			}
		}
	}
	// The gateway's own API is on no host of the domain, with whatever key.
	for _, host := range []string{domain, "api." + domain, name, "8080-" + public.ID + ".x." + domain} {
		for _, path := range []string{"/v1/sandboxes", "/alive", "/metrics", "/sandboxes/" + public.ID + "/alive"} {
			w := p.send("GET", host, path, "X-API-Key", theKey)
			if host != name && w.Code != 404 || strings.Contains(w.Body.String(), `"sandboxes"`) || strings.Contains(w.Body.String(), "actiond_gateway") {
				t.Errorf("%s%s: got %d %s", host, path, w.Code, w.Body)
			}
		}
	}
	addr := p.listen(t)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: " + name + "\r\nHost: evil.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + name + " \r\n evil.example\r\n\r\n",
		"GET http://evil.example/ HTTP/1.1\r\nHost: " + name + "\r\n\r\n",
		"CONNECT " + name + ":80 HTTP/1.1\r\nHost: " + name + "\r\n\r\n",
	} {
		conn := testhelp.Dial(t, "tcp", addr)
		for p.reached() != nil { // of before
		}
		_, _ = io.WriteString(conn, request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		conn.Close()
		if resp.StatusCode == http.StatusOK || p.reached() != nil {
			t.Errorf("%q: got %d", request, resp.StatusCode)
		}
	}
}

// A client's credential does not reach the application, and the application's answer has
// no effect beyond its preview.
func TestPreviewHeaders(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Service-Worker-Allowed", "Set-Cookie2", api.KeyHeader} {
			h.Set(name, "x")
		}
		h.Set("Trailer", "X-Sum")
		h.Add("Set-Cookie", "a=b; Domain="+domain+"; Path=/")
		h.Add("Set-Cookie", "actiond_preview=stolen; domain="+domain)
		h.Set("Content-Security-Policy", "default-src 'self'")
		_, _ = io.WriteString(w, "text")
		h.Set("X-Sum", "x")
		h.Set(http.TrailerPrefix+"Set-Cookie", "a=b")
	})
	token := strings.TrimPrefix(p.signed("60"), "/?")
	_, value, _ := strings.Cut(token, "=")
	secrets := []string{theKey, p.sandbox.SessionKey, value}
	for _, form := range []struct{ host, path string }{{p.host, "/x"}, {"gw", "/sandboxes/" + p.sandbox.ID + "/ports/8080/x"}} {
		w := p.send("GET", form.host, form.path+"?q=%2F;&"+token+"&r",
			"X-API-Key", theKey, "X-Session-API-Key", p.sandbox.SessionKey, "Authorization", "Bearer "+p.sandbox.SessionKey,
			"Cookie", "c=\"d\"; "+token, "Referer", "http://"+p.host+"/y?"+token+"&z=1", "Origin", "http://"+p.host, "X-Forwarded-Prefix", "/evil")
		r := p.reached()
		if w.Code != 200 || r == nil {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		said := r.RequestURI + fmt.Sprint(r.Header)
		for _, secret := range secrets {
			if strings.Contains(said, secret) {
				t.Errorf("%s: the application sees %q in %s", form.host, secret, said)
			}
		}
		onHost := form.host == p.host
		for name, want := range map[string]string{
			"X-Forwarded-Host": form.host, "X-Forwarded-Proto": "http", "Referer": "http://" + p.host + "/y?z=1", "Authorization": "",
			"Cookie": map[bool]string{true: `c="d"`}[onHost], "X-Forwarded-Prefix": map[bool]string{false: "/sandboxes/" + p.sandbox.ID + "/ports/8080"}[onHost],
			"Origin": map[bool]string{true: "http://localhost:8080", false: "http://" + p.host}[onHost],
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s: got %q, want %q", form.host, name, got, want)
			}
		}
		if r.Host != "localhost:8080" || r.RequestURI != "/x?q=%2F;&r" {
			t.Errorf("%s: the application got %s%s", form.host, r.Host, r.RequestURI)
		}
		h := w.Header()
		for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Set-Cookie2", api.KeyHeader, "Trailer", "X-Sum", http.TrailerPrefix + "Set-Cookie"} {
			if h.Get(name) != "" {
				t.Errorf("%s: %s came through", form.host, name)
			}
		}
		cookies, policies := strings.Join(h.Values("Set-Cookie"), "|"), strings.Join(h.Values("Content-Security-Policy"), "|")
		if onHost && (cookies != "a=b; Path=/" || policies != "default-src 'self'") {
			t.Errorf("on the host: cookies %q, policies %q", cookies, policies)
		}
		if !onHost && (cookies != "" || policies != "default-src 'self'|sandbox" || h.Get("Service-Worker-Allowed") != "") {
			t.Errorf("on the path: cookies %q, policies %q", cookies, policies)
		}
	}
	p.send("GET", p.host, "/", "X-API-Key", theKey, "Authorization", "Bearer of the application")
	if r := p.reached(); r == nil || r.Header.Get("Authorization") != "Bearer of the application" {
		t.Error("the application's own token is lost")
	}
	p.send("GET", p.host, "/", "X-API-Key", theKey, "Authorization", "Basic cGVyc29uOnBhc3N3b3Jk")
	if r := p.reached(); r == nil || r.Header.Get("Authorization") != "" {
		t.Error("a password reaches the application")
	}
}

// Redirects stay within the preview, or are refused to clients that send a key with them.
func TestPreviewRedirects(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	token := strings.TrimPrefix(p.signed("60"), "/?")
	prefix := "/sandboxes/" + p.sandbox.ID + "/ports/8080"
	for _, tt := range []struct{ to, path, host, keyedHost string }{
		{"/login", prefix + "/login", "/login", "/login"},
		{"b?c=d#e", prefix + "/a/b?c=d#e", "/a/b?c=d#e", "/a/b?c=d#e"},
		{"../../../../v1/sandboxes", prefix + "/v1/sandboxes", "/v1/sandboxes", "/v1/sandboxes"},
		{"http://localhost:8080/x", prefix + "/x", "/x", "/x"},
		{"http://127.0.0.1:8080/x", prefix + "/x", "/x", "/x"},
		{"http://LOCALHOST:8080/x", prefix + "/x", "/x", "/x"},
		{"http://0.0.0.0:8080/x", prefix + "/x", "/x", "/x"},
		{"http://[::]:8080/x", prefix + "/x", "/x", "/x"},
		{"http://127.0.0.2:8080/x", prefix + "/x", "/x", "/x"},
		{"http://[::ffff:127.0.0.1]:8080/x", prefix + "/x", "/x", "/x"},
		{"http://localhost:8081/x", "", "http://localhost:8081/x", ""},
		{"http://localhost/x", "", "http://localhost/x", ""},
		{"/%252e%252e/%252E./v1/sandboxes", "", "", ""},
		{"http://localhost:8080/x/%252e%252e/%252e%252e/stop", "", "", ""},
		{"http://evil.example/", "", "http://evil.example/", ""},
		{"//evil.example/", "", "//evil.example/", ""},
		{"http://localhost:8080//evil.example/", prefix + "/evil.example/", "/evil.example/", "/evil.example/"},
		{"http://gw" + prefix + "/y", prefix + "/y", "http://gw" + prefix + "/y", ""},
		{"http://" + p.host + "/y", "", "/y", "/y"},
	} {
		query := "?to=" + strings.NewReplacer("#", "%23", "?", "%3F").Replace(tt.to)
		for _, sent := range []struct {
			name string
			w    *httptest.ResponseRecorder
			want string
		}{
			{"path", p.send("GET", "gw", prefix+"/a/z"+query, "X-API-Key", theKey), tt.path},
			{"host", p.send("GET", p.host, "/a/z"+query, "Cookie", token), tt.host},
			{"host with a key", p.send("GET", p.host, "/a/z"+query, "X-API-Key", theKey), tt.keyedHost},
		} {
			status := http.StatusTemporaryRedirect
			if sent.want == "" {
				status = http.StatusBadGateway
			}
			if got := sent.w.Header().Get("Location"); sent.w.Code != status || got != sent.want {
				t.Errorf("%s, %s: got %d to %q, want %q", tt.to, sent.name, sent.w.Code, got, sent.want)
			}
		}
	}
}

// An answer that is no redirect is passed on, whatever address it tells: the application did
// what it was asked to.
func TestPreviewLocations(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusCreated)
	})
	prefix := "/sandboxes/" + p.sandbox.ID + "/ports/8080"
	for to, want := range map[string]string{
		"/items/7":                           prefix + "/items/7",
		"http://localhost:8080/items/7":      prefix + "/items/7",
		"https://other.example/items/7":      "https://other.example/items/7",
		"http://localhost:8080/%252e%252e/x": "",
		"http://[":                           "",
	} {
		w := p.send("POST", "gw", prefix+"/items?to="+to, "X-API-Key", theKey)
		if got := w.Header().Get("Location"); w.Code != http.StatusCreated || got != want {
			t.Errorf("%s: got %d with %q, want 201 with %q", to, w.Code, got, want)
		}
	}
}

// A signed address is opened with its path and query as they were written, but the signature.
func TestPreviewSignedPath(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, hello)
	token := strings.TrimPrefix(p.signed("60"), "/?")
	for asked, want := range map[string]string{
		"/a%2Fb?" + token:              "/a%2Fb",
		"/a%20b?x=%2F&" + token:        "/a%20b?x=%2F",
		"//evil.example/%2F?" + token:  "/evil.example/%2F",
		"/%2F%2Fevil.example?" + token: "/%2F%2Fevil.example",
	} {
		w := p.send("GET", p.host, asked, "Accept", "text/html")
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("%s: got %d to %q, want 303 to %q", asked, w.Code, got, want)
		}
	}
}

// A WebSocket of the application works in both forms.
func TestPreviewWebSocket(t *testing.T) {
	t.Parallel()
	p := newPreviews(t, func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil) // which wants the origin to be its own
		if err != nil {
			return
		}
		kind, data, err := ws.Read(r.Context())
		if err == nil {
			_ = ws.Write(r.Context(), kind, data)
		}
		_, _, _ = ws.Read(r.Context())
	})
	addr := p.listen(t)
	cookie := strings.TrimPrefix(p.signed("60"), "/?")
	for _, form := range []struct {
		host, path string
		header     http.Header
	}{
		{p.host, "/ws", http.Header{"Cookie": {cookie}, "Origin": {"http://" + p.host}}},
		{"gw", "/sandboxes/" + p.sandbox.ID + "/ports/8080/ws", http.Header{"X-Api-Key": {theKey}}},
	} {
		ws, _, err := websocket.Dial(t.Context(), "ws://"+addr+form.path, &websocket.DialOptions{Host: form.host, HTTPHeader: form.header}) //nolint:bodyclose // Dial closes it
		if err != nil {
			t.Fatalf("%s: %v", form.host, err)
		}
		if err := ws.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, data, err := ws.Read(t.Context()); err != nil || string(data) != "hello" {
			t.Errorf("%s: got %q, %v", form.host, data, err)
		}
		_ = ws.CloseNow()
	}
}

func TestPreviewConfig(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for name, ok := range map[string]bool{
		"preview.example.com": true, "Preview.Example.com:8443": true, "localhost": true, "preview.example.com.": true,
		"": true, "127.0.0.1": false, "[::1]": false, "a b": false, "*.example.com": false, "example.com:http": false, "http://example.com": false, "-": false,
	} {
		if _, err := gateway.New(gateway.Config{Driver: h.host, Key: "x", PreviewDomain: name}); (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for public, ok := range map[string]bool{"https://gw.example.com": true, "https://example.com": false, "https://gw.pre.example.com": false} {
		domain := "example.com"
		if ok {
			domain = "pre.example.com"
		}
		if _, err := gateway.New(gateway.Config{Driver: h.host, Key: "x", PublicURL: public, PreviewDomain: domain}); (err == nil) != ok {
			t.Errorf("%s beside %s: got %v", public, domain, err)
		}
	}
}

// Clients without a key cannot take the tunnels from those with one.
func TestPreviewPublicShare(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	p := newPreviews(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-goOn
		}
		hello(w, r)
	})
	host := "8080-" + p.make(t, `{"image":"debian","labels":{"public-ports":"8080"}}`).ID + "." + domain
	const clients = 3 * gateway.PublicConns
	codes := make(chan int, clients)
	for range clients {
		go func() { codes <- p.send("GET", host, "/hold").Code }()
	}
	for range gateway.PublicConns {
		<-p.got
	}
	if w := p.send("GET", host, "/", "X-API-Key", theKey); w.Code != http.StatusOK || w.Body.String() != "hello" {
		t.Errorf("with a key: got %d %s", w.Code, w.Body)
	}
	<-p.got
	if r := p.reached(); r != nil {
		t.Errorf("one more request without a key reached the application: %s", r.URL)
	}
	close(goOn)
	for range clients {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a client without a key: got %d", code)
		}
	}
}
