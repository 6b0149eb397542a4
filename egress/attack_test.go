package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestAttackRebinding: the answers of a name server flip between a public address and another
// (rows 10 to 12).
func TestAttackRebinding(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	for i, target := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe"} {
		f.set(func() { f.names["flip.example"] = []string{"8.8.8.8"} })
		if got := f.status(t, "flip.example:7"); got != http.StatusOK {
			t.Errorf("%d: got %d", i, got)
		}
		f.set(func() { f.names["flip.example"] = []string{target} })
		if _, answer, _ := f.connect(t, "flip.example:7"); answer.Header.Get(egress.HeaderDenied) != "private address" {
			t.Errorf("%s: got %s", target, answer.Status)
		}
		if _, answer, _ := f.connect(t, "["+target+"]:7"); strings.Contains(target, ":") && answer.Header.Get(egress.HeaderDenied) != "private address" {
			t.Errorf("[%s]: got %s", target, answer.Status)
		}
	}
	if n := len(f.lookups); n != 12 {
		t.Errorf("%d lookups for 12 names", n)
	}
	f.set(func() { f.names["mixed.example"] = []string{"127.0.0.1", "8.8.8.8"} })
	if got := f.status(t, "mixed.example:7"); got != http.StatusOK {
		t.Errorf("a name with one usable address: got %d", got)
	}
	// The address that the kernel connects to is checked whatever was looked up.
	f.set(func() { f.lied = "127.0.0.1:7" })
	if _, answer, _ := f.connect(t, "echo.example:7"); answer.Header.Get(egress.HeaderDenied) != "private address" {
		t.Errorf("got %s", answer.Status)
	}
}

// TestAttackAccepted: sandboxes that connect and ask nothing, or read no refusal, hold no more connections
// of the proxy than there may be, and lose them to a sandbox that has few (row 28).
func TestAttackAccepted(t *testing.T) {
	t.Parallel()
	const most, attackers, each = 24, 8, 20
	f := start(t, `{"mode":"public"}`)
	f.LimitAccepted(most)
	var ended atomic.Int32
	for i := range attackers {
		hostile := fmt.Sprintf("hostile%d", i)
		if err := f.Apply(hostile, egress.Conf{Policy: parse(t, `{"mode":"allowlist"}`)}); err != nil {
			t.Fatal(err)
		}
		for n := range each {
			c := dialSocket(t, f.socket(hostile))
			if n%2 == 0 {
				_, _ = io.WriteString(c, "GET /policy HTTP/1.1\r\nHost: a\r\n\r\n") // and is idle then
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // until its end
				ended.Add(1)
			}()
		}
	}
	modest := "modest00"
	if err := f.Apply(modest, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	c := dialSocket(t, f.socket(modest))
	_, _ = io.WriteString(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
	if answer, body := read(t, c); answer.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", answer.Status, body)
	}
	testhelp.Eventually(t, func() bool { return ended.Load() >= attackers*each-most+1 }, "the bound holds")
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("the connection of the other sandbox: %v", err)
	}
}

// TestAttackDeniedAddress: a name that is not denied leads to an address that is.
func TestAttackDeniedAddress(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public","deny":["8.8.8.0/24:7"]}`)
	if _, answer, _ := f.connect(t, "echo.example:7"); answer.Header.Get(egress.HeaderDenied) != "deny 8.8.8.0/24:7" {
		t.Errorf("got %s", answer.Status)
	}
}

// TestAttackRedirect: the proxy follows nothing; the next request is decided again (row 15).
func TestAttackRedirect(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["redirect.example"]}`)
	site := &http.Server{Handler: http.RedirectHandler("http://evil.example/", http.StatusFound)}
	go site.Serve(f.add(t, "redirect.example", "8.8.8.8:80"))
	t.Cleanup(func() { site.Close() })
	client := &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, _, target string) (net.Conn, error) {
		c, answer, _ := f.connect(t, target)
		if answer.StatusCode != http.StatusOK {
			return nil, errors.New(answer.Header.Get(egress.HeaderDenied))
		}
		return c, nil
	}}}
	if _, err := client.Get("http://redirect.example/"); err == nil || //nolint:bodyclose // there is none
		!strings.Contains(err.Error(), "not in the allow list") {
		t.Errorf("got %v", err)
	}
}

// certificate is one for any host.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// inPieces sends every byte by itself.
type inPieces struct{ net.Conn }

func (c inPieces) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// TestAttackServerName: the TLS hello names another host than CONNECT (row 16).
func TestAttackServerName(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public","deny":["evil.example"]}`)
	l := f.add(t, "tls.example", "8.8.8.8:443")
	go testhelp.Echo(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
	for _, tc := range []struct{ target, name, reason string }{
		{"tls.example:443", "tls.example", ""},
		{"tls.example:443", "TLS.example", ""},
		{"tls.example:443", "", ""},
		{"8.8.8.8:443", "tls.example", ""},
		{"8.8.8.8:443", "evil.example", "deny evil.example"},
		{"tls.example:443", "other.example", "other server name"},
		{"tls.example:443", "evil.example", "other server name"},
		{"tls.example:443", "a.tls.example", "other server name"},
	} {
		for _, cut := range []bool{false, true} {
			c, _, _ := f.connect(t, tc.target)
			before := f.state(t)
			var conn net.Conn = c
			if cut {
				conn = inPieces{c}
			}
			session := tls.Client(conn, &tls.Config{ServerName: tc.name, InsecureSkipVerify: true})
			err := session.Handshake()
			if tc.reason == "" {
				if err != nil {
					t.Errorf("%+v: %v", tc, err)
					continue
				}
				testhelp.Exchange(t, session, "hello")
				continue
			}
			if err == nil || err.Error() != "remote error: tls: access denied" {
				t.Errorf("%+v: got %v, want the alert access denied", tc, err)
			}
			testhelp.Eventually(t, func() bool { return f.state(t).Denied > before.Denied }, "there is a denial")
			all := f.denied(t)
			if last := all[len(all)-1]; !strings.Contains(last, tc.reason) {
				t.Errorf("%+v: denied for %s", tc, last)
			}
			if sent := f.state(t).Sent; sent != before.Sent {
				t.Errorf("%+v: %d bytes passed", tc, sent-before.Sent)
			}
		}
	}
}

// laterNames is a connection whose client names another host after its first write.
type laterNames struct {
	net.Conn
	name, later string // of the same length
	written     bool
}

func (c *laterNames) Write(p []byte) (int, error) {
	if c.written {
		p = bytes.ReplaceAll(p, []byte(c.name), []byte(c.later))
	}
	c.written = true
	return c.Conn.Write(p)
}

// TestAttackServerNameLater: where a server asks for a second hello, it may take the name in that one, as
// OpenSSL does.
func TestAttackServerNameLater(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	l := f.add(t, "tls.example", "8.8.8.8:443")
	go testhelp.Echo(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate(t)}, CurvePreferences: []tls.CurveID{tls.CurveP384}}))
	for later, want := range map[string]string{"tls.example": "<nil>", "sly.example": "remote error: tls: access denied"} {
		c, _, _ := f.connect(t, "tls.example:443")
		conn := &laterNames{Conn: c, name: "tls.example", later: later}
		session := tls.Client(conn, &tls.Config{ServerName: "tls.example", InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}})
		if err := session.Handshake(); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", later, err, want)
		} else if err == nil {
			testhelp.Exchange(t, session, "hello")
		}
	}
	if all := f.denied(t); len(all) != 1 || !strings.Contains(all[0], "other server name") {
		t.Errorf("denied: %q", all)
	}
}

// TestAttackRecordBeforeHello: TLS servers skip a warning before the hello, which is checked all the same.
func TestAttackRecordBeforeHello(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	l := f.add(t, "tls.example", "8.8.8.8:443")
	go testhelp.Echo(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
	for name, want := range map[string]string{"tls.example": "<nil>", "other.example": "remote error: tls: access denied"} {
		c, _, _ := f.connect(t, "tls.example:443")
		_, _ = io.WriteString(c, "\x15\x03\x01\x00\x02\x01\x5a") // user canceled, a warning
		err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		if fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	// A packet of MySQL of 278 bytes begins with its length, and not with the version of TLS.
	c, _, _ := f.connect(t, "echo.example:7")
	testhelp.Exchange(t, c, "\x16\x01\x00\x01")
}

// TestAttackHello: what begins as TLS and is none does not pass, and what ends early is no denial.
func TestAttackHello(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	fragments := bytes.Repeat([]byte{0x16, 3, 1, 0, 1, 1}, 8<<10) // a hello of one byte a record, without end
	for name, text := range map[string]string{
		"long record":  "\x16\x03\x01\xff\xffGET / HTTP/1.1\r\n\r\n",
		"no handshake": "\x17\x03\x01\x00\x01a",
		"too long":     string(fragments),
		"no hello":     "\x16\x03\x01\x00\x04\x02\x00\x00\x00",
	} {
		before := f.state(t)
		c, _, _ := f.connect(t, "echo.example:7")
		_, _ = io.WriteString(c, text)
		if got, _ := io.ReadAll(c); !bytes.Equal(got, []byte{0x15, 3, 3, 0, 2, 2, 49}) && len(got) > 0 {
			t.Errorf("%s: got %q", name, got)
		}
		testhelp.Eventually(t, func() bool { return f.state(t).Denied == before.Denied+1 }, "%s is denied", name)
		if f.state(t).Sent != before.Sent {
			t.Errorf("%s: bytes passed", name)
		}
	}
	before := f.state(t)
	c, _, _ := f.connect(t, "echo.example:7")
	_, _ = io.WriteString(c, "\x16\x03\x01")
	_ = c.CloseWrite()
	_, _ = io.ReadAll(c)
	testhelp.Eventually(t, func() bool { return f.state(t).Open == 0 }, "the connection has ended")
	if got := f.state(t); got.Denied != before.Denied || got.Sent != before.Sent {
		t.Errorf("got %+v after %+v", got, before)
	}
}

// TestAttackSmuggling: the socket takes one request in one form (row 22).
func TestAttackSmuggling(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example"]}`)
	for text, want := range map[string]int{
		"GET http://evil.example/ HTTP/1.1\r\nHost: echo.example\r\n\r\n":                                       http.StatusMethodNotAllowed,
		"CONNECT evil.example:7 HTTP/1.1\r\nHost: echo.example:7\r\n\r\n":                                       http.StatusForbidden,
		"CONNECT /denied HTTP/1.1\r\nHost: echo.example:7\r\n\r\n":                                              http.StatusBadRequest,
		"CONNECT http://echo.example:7 HTTP/1.1\r\nHost: echo.example:7\r\n\r\n":                                http.StatusBadRequest,
		"CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": http.StatusOK,
		"CONNECT  echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n":                                                   http.StatusBadRequest,
		"CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":          http.StatusRequestHeaderFieldsTooLarge,
	} {
		c := dialSocket(t, f.socket(id))
		_, _ = io.WriteString(c, text)
		if answer, body := read(t, c); answer.StatusCode != want {
			t.Errorf("%.80q: got %s %q", text, answer.Status, body)
		}
	}
}

// TestAttackOtherSandbox: each sandbox has a socket and a policy of its own (row 26).
func TestAttackOtherSandbox(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"no-network"}`)
	if err := f.Apply(otherID, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := f.status(t, "echo.example:7"); got != http.StatusForbidden {
		t.Errorf("got %d", got)
	}
	c := dialSocket(t, f.socket(otherID))
	_, _ = io.WriteString(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
	if answer, _ := read(t, c); answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
	for _, id := range []string{id, otherID} {
		dir, err := os.Stat(filepath.Dir(f.socket(id)))
		if err != nil || dir.Mode().Perm()&^0o711 != 0 {
			t.Errorf("%v, %v", dir.Mode(), err)
		}
		if socket, err := os.Stat(f.socket(id)); err != nil || socket.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", socket.Mode(), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := f.Denied(ctx, otherID, 0); err != nil || len(all) > 0 {
		t.Errorf("got the denials of another sandbox: %v, %v", all, err)
	}
}

// TestAttackExhaustion: a sandbox that opens connections meets its own limit, which is no denial
// (row 28).
func TestAttackExhaustion(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	if err := f.Apply(otherID, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	for range 400 { // these say nothing
		dialSocket(t, f.socket(id))
	}
	open, busy := 0, 0
	for range 300 {
		switch _, answer, _ := f.connect(t, "echo.example:7"); answer.StatusCode {
		case http.StatusOK:
			open++
		case http.StatusServiceUnavailable:
			busy++
		}
	}
	if open != 256 || open+busy != 300 || f.state(t).Denied > 0 {
		t.Errorf("%d are open, %d were refused: %+v", open, busy, f.state(t))
	}
	c := dialSocket(t, f.socket(otherID))
	_, _ = io.WriteString(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
	if answer, _ := read(t, c); answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
}

// TestAttackShare: other sandboxes that have most connections leave a share.
func TestAttackShare(t *testing.T) {
	t.Parallel()
	for others, want := range map[int64]int{0: 256, 600: 212, 940: 64, 1000: 24} {
		f := start(t, `{"mode":"public"}`)
		f.OpenElsewhere(others)
		f.Unlimit(id)
		open := 0
		for range want + 1 {
			if _, answer, _ := f.connect(t, "echo.example:7"); answer.StatusCode == http.StatusOK {
				open++
			}
		}
		if open != want {
			t.Errorf("beside %d connections %d were opened, want %d", others, open, want)
		}
	}
}

// TestAttackPlaces: sandboxes whose clients keep the connections of failed requests, all that they can, do not shut
// another one out.
func TestAttackPlaces(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	if err := f.Delete(id); err != nil {
		t.Fatal(err)
	}
	const most = 100
	f.LimitAccepted(most)
	for _, id := range []string{id, otherID} {
		if err := f.Apply(id, egress.Conf{Policy: parse(t, `{"mode":"public"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	failed := func(id string) {
		t.Helper()
		c := dialSocket(t, f.socket(id))
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "CONNECT nowhere.example:7 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n") // a body that does not come
		if answer, _ := read(t, c); answer.StatusCode != http.StatusBadGateway {
			t.Fatal(answer.Status)
		}
	}
	for range most {
		failed(id)
	}
	failed(otherID)
}

// TestAttackLog: a sandbox with many denials does not keep those of another one out of the log.
func TestAttackLog(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"no-network"}`)
	f.Close()
	var log testhelp.Buffer
	f.Server = egress.New(egress.Config{RunDir: f.dir, Log: slog.New(slog.NewTextHandler(&log, nil)), Resolve: f.resolve, Dial: f.dial})
	t.Cleanup(f.Close)
	if err := f.SetHost(nil); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, otherID} {
		if err := f.Apply(id, egress.Conf{Policy: parse(t, `{"mode":"no-network"}`)}); err != nil {
			t.Fatal(err)
		}
		f.LogNoMore(id)
	}
	for range 100 {
		f.status(t, "noise.example:443")
	}
	c := dialSocket(t, f.socket(otherID))
	_, _ = io.WriteString(c, "CONNECT evil.example:443 HTTP/1.1\r\nHost: a\r\n\r\n")
	read(t, c)
	for what, want := range map[string]int{"sandbox=" + id + " host=noise.example": 10, "sandbox=" + otherID + " host=evil.example": 1} {
		if got := strings.Count(log.String(), what); got != want {
			t.Errorf("%d lines have %q, want %d", got, what, want)
		}
	}
}

// TestAttackKeepConnection: a change of the policy closes what it refuses before it returns (row 29),
// and what is being connected.
func TestAttackKeepConnection(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fixture){
		"mode":      func(f *fixture) { f.apply(t, `{"mode":"no-network"}`) },
		"deny":      func(f *fixture) { f.apply(t, `{"mode":"public","deny":["echo.example"]}`) },
		"address":   func(f *fixture) { f.apply(t, `{"mode":"public","deny":["8.0.0.0/8"]}`) },
		"list":      func(f *fixture) { f.apply(t, `{"mode":"allowlist","allow":["echo.example:8"]}`) },
		"max_bytes": func(f *fixture) { f.apply(t, `{"mode":"public","max_bytes":1}`) },
		"host":      func(f *fixture) { _ = f.SetHost([]netip.Addr{netip.MustParseAddr("8.8.8.8")}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, `{"mode":"public"}`)
			c, _, _ := f.connect(t, "echo.example:7")
			testhelp.Exchange(t, c, "before")
			change(f)
			if s := f.state(t); s.Open != 0 || s.Denied != 1 {
				t.Errorf("after the change: %+v", s)
			}
			_, _ = io.WriteString(c, "after")
			if rest, _ := io.ReadAll(c); len(rest) > 0 {
				t.Errorf("got %q", rest)
			}
		})
	}

	f := start(t, `{"mode":"public"}`)
	kept, _, _ := f.connect(t, "echo.example:7")
	dialing := make(chan netip.AddrPort)
	f.set(func() { f.hold, f.dialing = make(chan struct{}), dialing })
	var asked sync.WaitGroup
	asked.Go(func() {
		if _, answer, _ := f.connect(t, "9.9.9.9:7"); answer.Header.Get(egress.HeaderDenied) != "not in the allow list" {
			t.Errorf("got %s", answer.Status)
		}
	})
	<-dialing
	f.apply(t, `{"mode":"allowlist","allow":["echo.example"]}`)
	if s := f.state(t); s.Open != 1 {
		t.Errorf("after the change: %+v", s)
	}
	asked.Wait()
	testhelp.Exchange(t, kept, "kept")
}

// TestAttackDenials: what an agent asks for comes to the controller as checked names, and the latest
// 1,000 alone (row 31).
func TestAttackDenials(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"no-network"}`)
	for _, target := range []string{"evil\x1b[2J.example:443", "evil\xff.example:443", "<script>:443", strings.Repeat("a", 4000) + ".example:443"} {
		if got := f.status(t, target); got != http.StatusBadRequest {
			t.Errorf("%.20q: got %d", target, got)
		}
	}
	if got := f.denied(t); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	for i := range 3 {
		f.status(t, fmt.Sprintf("host%d.example:443", i))
	}
	c := dialSocket(t, f.socket(id))
	_, _ = io.WriteString(c, "GET /denied?after=1 HTTP/1.1\r\nHost: a\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if text := string(body); strings.Contains(text, "host0") || !strings.Contains(text, `"number":2`) || !strings.Contains(text, `"host":"host2.example"`) {
		t.Errorf("got %s", text)
	}
}

// TestAttackOldGeneration: a late change does not undo a later one, and a new proxy has the place of
// one that was killed (rows 30 and 34).
func TestAttackOldGeneration(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	if err := f.Apply(id, egress.Conf{Generation: 9, Policy: parse(t, `{"mode":"no-network"}`)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(id, egress.Conf{Generation: 8, Policy: parse(t, `{"mode":"public"}`)}); !errors.Is(err, egress.ErrStale) {
		t.Errorf("got %v", err)
	}
	if got := f.status(t, "echo.example:7"); got != http.StatusForbidden {
		t.Errorf("got %d", got)
	}
	f.Close()
	// A child that another test forks holds the listener until it runs its program.
	if c, err := net.Dial("unix", f.socket(id)); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a socket without a proxy answers")
		}
		_ = c.Close()
	}
	s := egress.New(egress.Config{RunDir: f.dir, Log: slog.New(slog.DiscardHandler), Resolve: f.resolve, Dial: f.dial})
	t.Cleanup(s.Close)
	_ = s.SetHost(nil)
	if err := s.Apply(id, egress.Conf{Generation: 10, Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := f.status(t, "echo.example:7"); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	if names := testhelp.Tree(t, filepath.Join(f.dir, id)); len(names) != 1 || !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "s ") }) {
		t.Errorf("got %q", names)
	}
}

// TestAttackSlowHosts: connections that wait for their hosts are not replaced by further ones, up to
// the limit of the sandbox.
func TestAttackSlowHosts(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	hold, dialing := make(chan struct{}), make(chan netip.AddrPort)
	f.set(func() { f.hold, f.dialing = hold, dialing })
	const n = 256
	first := make(chan string, n)
	for range n {
		c := dialSocket(t, f.socket(id))
		_, _ = io.WriteString(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
		<-dialing
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			first <- line
		}()
	}
	close(hold)
	for range n {
		if line := <-first; line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("got %q", line)
		}
	}
}

// TestAttackDeniedMemory: a sandbox that asks for its denials on many connections and reads nothing
// holds little memory of the proxy: an answer has at most 100 denials (row 28).
func TestAttackDeniedMemory(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"no-network"}`)
	f.Unlimit(id)
	for i := range 120 {
		f.status(t, fmt.Sprintf("host%d.example:443", i))
	}
	ask := func(query string) (numbers []int64) {
		t.Helper()
		c := dialSocket(t, f.socket(id))
		_, _ = io.WriteString(c, "GET /denied?"+query+" HTTP/1.1\r\nHost: a\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var body struct{ Denied []egress.Denial }
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		for _, d := range body.Denied {
			numbers = append(numbers, d.Number)
		}
		return numbers
	}
	if got := ask("after=5"); len(got) != 100 || got[0] != 6 {
		t.Errorf("got %d from %v", len(got), got[:1])
	}
	if got := ask("after=105"); len(got) != 15 || got[0] != 106 {
		t.Errorf("got %v", got)
	}
	if got := ask("connection=7"); len(got) != 100 {
		t.Errorf("got %d", len(got))
	}
}
