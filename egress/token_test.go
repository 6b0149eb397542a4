package egress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// shared is a proxy that sandboxes reach by TCP, with two sandboxes.
type shared struct {
	*egress.Server
	addr          string
	token, second string // of id, which may reach echo.example, and of otherID, which may not
	hash          string // of token
}

func startShared(t *testing.T) *shared {
	t.Helper()
	return startSharedOf(t, 4096)
}

// startSharedOf takes so many connections at a time.
func startSharedOf(t *testing.T, most int) *shared {
	t.Helper()
	n := &internet{names: map[string][]string{}, hosts: map[netip.AddrPort]string{}}
	go testhelp.Echo(n.add(t, "echo.example", "8.8.8.8:7"))
	s := &shared{Server: egress.New(egress.Config{Log: slog.New(slog.DiscardHandler), Resolve: n.resolve, Dial: n.dial})}
	s.LimitShared(most)
	if err := s.SetHost(nil); err != nil {
		t.Fatal(err)
	}
	var hash string
	s.token, s.hash = egress.NewToken(id)
	s.second, hash = egress.NewToken(otherID)
	s.set(t, 1, `{"mode":"public"}`)
	if err := s.Apply(otherID, egress.Conf{Generation: 1, Policy: parse(t, `{"mode":"no-network"}`), Token: hash}); err != nil {
		t.Fatal(err)
	}
	l := testhelp.Listen(t)
	s.addr = l.Addr().String()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		s.Close()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shared) set(t *testing.T, generation int64, policy string) {
	t.Helper()
	if err := s.Apply(id, egress.Conf{Generation: generation, Policy: parse(t, policy), Token: s.hash}); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request with a header, and returns the connection behind the answer.
func (s *shared) ask(t *testing.T, request, header string) (c net.Conn, a answer, body string) {
	t.Helper()
	c = testhelp.Dial(t, "tcp", s.addr)
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: egress\r\n%s\r\n", request, header); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(request, http.MethodConnect) {
		a, body = read(t, c)
		return c, a, body
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return c, answer{r.StatusCode, r.Status, r.Header}, string(text)
}

func bearer(token string) string { return "Proxy-Authorization: Bearer " + token + "\r\n" }

// TestToken: a token names its sandbox, whose policy decides; without one nothing is answered, not
// even what a policy is.
func TestToken(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	secret := strings.TrimPrefix(s.token, id+".")
	if len(secret) != 64 || strings.Contains(s.hash, secret) {
		t.Fatalf("the token %q of hash %q", s.token, s.hash)
	}
	for name, header := range map[string]string{
		"none": "", "another scheme": "Proxy-Authorization: Basic " + s.token + "\r\n", "the header of servers": "Authorization: Bearer " + s.token + "\r\n",
		"its hash": bearer(s.hash), "the hash with the id": bearer(id + "." + s.hash), "the id alone": bearer(id), "empty": bearer(id + "."),
		"cut": bearer(s.token[:len(s.token)-1]), "longer": bearer(s.token + "0"), "the secret alone": bearer(secret),
		"of an unknown sandbox": bearer("aaaaaaaaaaaa." + secret), "with the other's id": bearer(otherID + "." + secret),
	} {
		for _, request := range []string{"CONNECT echo.example:7", "GET /policy", "GET /denied", "GET /status", "DELETE /" + id, "POST /apply/" + id} {
			if _, a, body := s.ask(t, request, header); a.StatusCode != http.StatusProxyAuthRequired || strings.Contains(body, "public") {
				t.Errorf("%s, %s: got %s %s", name, request, a.Status, body)
			}
		}
	}
	c, a, _ := s.ask(t, "CONNECT echo.example:7", bearer(s.token))
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	testhelp.Exchange(t, c, "hello")
	if _, a, _ := s.ask(t, "CONNECT echo.example:7", bearer(s.second)); a.StatusCode != http.StatusForbidden || a.Header.Get(egress.HeaderDenied) != "mode no-network" {
		t.Errorf("the other sandbox: %s %v", a.Status, a.Header)
	}
	var denied struct{ Denied []egress.Denial }
	for token, want := range map[string]int{s.token: 0, s.second: 1} {
		if _, _, body := s.ask(t, "GET /denied?wait=0", bearer(token)); json.Unmarshal([]byte(body), &denied) != nil || len(denied.Denied) != want {
			t.Errorf("denied: %s, want %d", body, want)
		}
	}
	var status egress.Status
	if _, _, body := s.ask(t, "GET /status", bearer(s.token)); json.Unmarshal([]byte(body), &status) != nil || status.Generation != 1 || status.Open != 1 || status.Sent != 5 {
		t.Errorf("status: %s", body)
	}
	if _, a, _ := s.ask(t, "GET /metrics", bearer(s.token)); a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("another path: %s", a.Status)
	}

	s.set(t, 2, `{"mode":"no-network"}`)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the policy")
	}
	if _, _, body := s.ask(t, "GET /status", bearer(s.token)); !strings.Contains(body, `"generation":2,"open":0`) {
		t.Errorf("status: %s", body)
	}
	s.set(t, 3, `{"mode":"public"}`)
	if c, a, _ = s.ask(t, "CONNECT echo.example:7", bearer(s.token)); a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	if err := s.Delete(id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its sandbox")
	}
	if _, a, _ := s.ask(t, "CONNECT echo.example:7", bearer(s.token)); a.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("a sandbox that was removed: %s", a.Status)
	}
	if err := s.Apply(id, egress.Conf{Generation: 1, Policy: parse(t, `{"mode":"public"}`), Token: "abc"}); err == nil {
		t.Error("a token without a hash was taken")
	}
	// A sandbox without a token has none that fits.
	if err := s.Apply(id, egress.Conf{Generation: 1, Policy: parse(t, `{"mode":"public"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, a, _ := s.ask(t, "CONNECT echo.example:7", bearer(id+".")); a.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("a sandbox without a token: %s", a.Status)
	}
}

// TestTokenFlood: clients that wait without a token, and a sandbox that asks for all it may, shut no
// other sandbox out, nor the controller.
func TestTokenFlood(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	for range 300 { // without a token, and a header that does not end
		c := testhelp.Dial(t, "tcp", s.addr)
		defer c.Close()
		fmt.Fprint(c, "CONNECT echo.example:7 HTTP/1.1\r\n")
	}
	for range 256 + 32 { // they wait for a denial
		c := testhelp.Dial(t, "tcp", s.addr)
		defer c.Close()
		fmt.Fprintf(c, "GET /denied?wait=60 HTTP/1.1\r\nHost: egress\r\n%s\r\n", bearer(s.token))
	}
	testhelp.Eventually(t, func() bool { return s.Asking(id) == 256+32 }, "the sandbox is at its limit")
	if _, a, _ := s.ask(t, "GET /policy", bearer(s.token)); a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("beyond its limit: %s", a.Status)
	}
	if _, a, _ := s.ask(t, "GET /status", bearer(s.token)); a.StatusCode != http.StatusOK {
		t.Errorf("its state: %s", a.Status)
	}
	// The controller reads the denials all the same, and is not kept waiting for more.
	if _, a, body := s.ask(t, "GET /denied?after=0&wait=60", bearer(s.token)); a.StatusCode != http.StatusOK || body != `{"denied":[]}` {
		t.Errorf("its denials: %s %s", a.Status, body)
	}
	if _, a, _ := s.ask(t, "GET /policy", bearer(s.second)); a.StatusCode != http.StatusOK {
		t.Errorf("the other sandbox: %s", a.Status)
	}
	if got := s.Asking(id); got != 256+32 {
		t.Errorf("%d connections count", got)
	}
}

// TestAttackTokenHold: a sandbox whose clients keep connections after their answers, or never send the
// body that they announced, holds no more of them than it may, and shuts no other sandbox out.
func TestAttackTokenHold(t *testing.T) {
	t.Parallel()
	s := startSharedOf(t, 700)
	for name, request := range map[string]string{
		"kept":                      "GET /policy HTTP/1.1\r\nHost: egress\r\nConnection: keep-alive\r\n",
		"the state, kept":           "GET /status HTTP/1.1\r\nHost: egress\r\nConnection: keep-alive\r\n",
		"without its body":          "GET /policy HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
		"the state, without a body": "GET /status HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
		"denials, without a body":   "GET /denied HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
		"refused, without its body": "CONNECT nowhere.example:7 HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
	} {
		s.Unlimit(id)
		for range 800 {
			c := testhelp.Dial(t, "tcp", s.addr)
			defer c.Close()
			if _, err := fmt.Fprint(c, request+bearer(s.token)+"\r\n"); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
			if err != nil {
				t.Fatalf("%s: the proxy does not answer: %v", name, err)
			}
			res.Body.Close() // the connection stays
		}
		if _, a, _ := s.ask(t, "GET /policy", bearer(s.second)); a.StatusCode != http.StatusOK {
			t.Errorf("%s: the other sandbox: %s", name, a.Status)
		}
	}
}

// TestAttackTokenPlaces: sandboxes that hold all connections that they can, in whatever way, do not shut another one
// out.
func TestAttackTokenPlaces(t *testing.T) {
	t.Parallel()
	const each = 256 + 32
	for name, request := range map[string]string{
		"waits for denials":        "GET /denied?wait=60 HTTP/1.1\r\nHost: egress\r\n",
		"fails, without its body":  "CONNECT nowhere.example:7 HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
		"denied, without its body": "CONNECT 127.0.0.1:7 HTTP/1.1\r\nHost: egress\r\nContent-Length: 5\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSharedOf(t, 2*each)
			for _, noisy := range []string{"cccccccccccc", "dddddddddddd"} {
				token, hash := egress.NewToken(noisy)
				if err := s.Apply(noisy, egress.Conf{Generation: 1, Policy: parse(t, `{"mode":"public"}`), Token: hash}); err != nil {
					t.Fatal(err)
				}
				s.Unlimit(noisy)
				for range each {
					c := testhelp.Dial(t, "tcp", s.addr)
					defer c.Close()
					if _, err := fmt.Fprint(c, request+bearer(token)+"\r\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range each / 2 { // the first ones may take the place of some that are not known yet
				c := testhelp.Dial(t, "tcp", s.addr)
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(c, "CONNECT echo.example:7 HTTP/1.1\r\nHost: egress\r\n"+bearer(s.token)+"\r\n")
				if a, _ := read(t, c); a.StatusCode != http.StatusOK {
					t.Fatal(a.Status)
				}
			}
		})
	}
}

// TestAttackTokenUnread: a sandbox that reads no answers does not delay its end, during which no other sandbox is
// answered.
func TestAttackTokenUnread(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	var rules []string
	for i := range 1000 {
		rules = append(rules, fmt.Sprintf(`"%d.%sexample"`, i, strings.Repeat(strings.Repeat("a", 60)+".", 3)))
	}
	s.set(t, 2, `{"mode":"allowlist","allow":[`+strings.Join(rules, ",")+`]}`)
	for range 16 {
		c, err := (&net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1), unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536))
			})
			return errors.Join(failed, err)
		}}).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /policy HTTP/1.1\r\nHost: egress\r\n"+bearer(s.token)+"\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is being answered
			t.Fatal(err)
		}
	}
	deleted := make(chan error, 1)
	go func() { deleted <- s.Delete(id) }()
	select {
	case err := <-deleted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the sandbox does not end")
	}
}

// TestTokenCount: a connection that has ended no longer counts, whatever its request was.
func TestTokenCount(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	s.Unlimit(id)
	for range 256 + 32 + 10 {
		for _, request := range []string{"CONNECT echo.example:7", "CONNECT nowhere.example:7", "GET /policy"} {
			c, a, _ := s.ask(t, request, bearer(s.token))
			if a.StatusCode == http.StatusServiceUnavailable {
				t.Fatalf("%s: %s", request, a.Status)
			}
			c.Close()
		}
	}
	testhelp.Eventually(t, func() bool { return s.Asking(id) == 0 }, "all connections have ended")
}
