package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// server answers with a status and a body, after as many answers of 503 as it starts, and
// remembers the last request.
type server struct {
	status, starts  int
	refused         int
	body, got, keys string
	third           func() // called by the third 503
}

func (s *server) start(t *testing.T) sandbox.DialFunc {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		s.got, s.keys = r.URL.Path+" "+string(data), r.Header.Get("X-Session-Api-Key")
		w.Header().Set("Content-Type", "application/json")
		status := s.status
		if s.starts > 0 {
			s.starts, status = s.starts-1, http.StatusServiceUnavailable
			if s.refused++; s.refused == 3 && s.third != nil {
				s.third()
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, s.body)
	}))
	t.Cleanup(h.Close)
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", h.Listener.Addr().String())
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	const ran = `{"observation":"run","content":"%s","extras":{"command":"true","metadata":{"exit_code":%d}}}`
	for name, tt := range map[string]struct {
		key  string
		s    server
		path string
		want string // in the error; empty: none
	}{
		"a command ran":     {"k", server{status: 200, body: fmt.Sprintf(ran, "", 0)}, "/execute_action", ""},
		"the shell is bad":  {"k", server{status: 200, body: fmt.Sprintf(ran, `no \u001b[2J home`, 3)}, "/execute_action", `status 3: "no \x1b[2J home"`},
		"another result":    {"k", server{status: 200, body: `{"observation":"error","content":"no","extras":{}}`}, "/execute_action", "ErrorObservation"},
		"without an owner":  {"", server{status: 200, body: `{}`}, "/readyz", ""},
		"its shell starts":  {"", server{status: 200, starts: 3, body: `{"status":"starting"}`}, "/readyz", ""},
		"the server is not": {"", server{status: 500, body: `{"detail":"not yet"}`}, "/readyz", "not yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := agent.Agent{}.Ready(t.Context(), tt.s.start(t), tt.key)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if !strings.HasPrefix(tt.s.got, tt.path) || tt.s.keys != tt.key {
				t.Errorf("the server got %s with the key %q", tt.s.got, tt.s.keys)
			}
		})
	}
}

// The end of the wait says what was waited for.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	over := errors.New("its time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := server{starts: 1 << 30, body: `{"status":"starting","waiting_for":"the shell"}`, third: func() { cancel(over) }}
	err := agent.Agent{}.Ready(ctx, s.start(t), "")
	if !errors.Is(err, over) || !strings.Contains(err.Error(), "waiting for the shell") {
		t.Errorf("got %v", err)
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	s := &server{status: http.StatusConflict, body: `{"detail":"claimed"}`}
	dial := s.start(t)
	claim := sandbox.Claim{Ticket: "t", Key: strings.Repeat("k", 32), TTL: 1500 * time.Millisecond}
	if err := (agent.Agent{}).Claim(t.Context(), dial, claim); !errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("got %v, want ErrClaimed", err)
	}
	if !strings.Contains(s.got, `"ttl_seconds":2`) || s.keys != "t" { // rounded up: 0 would mean no limit
		t.Errorf("the server got %s with the key %q", s.got, s.keys)
	}
}

// slowly serves HTTP on connections without a network, so that time can be a bubble's,
// and answers each request after wait.
func slowly(t *testing.T, wait time.Duration) sandbox.DialFunc {
	t.Helper()
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { // ends with the client's side
			defer far.Close()
			if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
				return
			}
			time.Sleep(wait)
			_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		}()
		return near, nil
	}
}

// TestDialAsks has a driver that asks its platform by HTTP where the server is, as
// Docker's does. What is due of the platform's answer is not due of the server's.
func TestDialAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		platform := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return slowly(t, 0)(ctx)
		}}
		dial := func(ctx context.Context) (net.Conn, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://platform/", http.NoBody)
			if err != nil {
				return nil, err
			}
			answer, err := platform.RoundTrip(request)
			if err != nil {
				return nil, err
			}
			if err := answer.Body.Close(); err != nil {
				return nil, err
			}
			return slowly(t, 30*time.Second)(ctx)
		}
		c, err := agent.Client(dial, "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Renew(t.Context(), time.Minute); err != nil {
			t.Errorf("a call of 30 s: %v", err)
		}
	})
}

// ended is a connection that its server closed before the request was written.
type ended struct {
	net.Conn

	closed chan struct{}
	once   sync.Once
}

func (e *ended) Read([]byte) (int, error) { return 0, io.EOF }

// Close also says that net/http knows of the end.
func (e *ended) Close() error {
	e.once.Do(func() { close(e.closed) })
	return e.Conn.Close()
}

// TestClaimCut has connections that end between the dial and the request, as a port forwarding of
// Kubernetes does while nothing listens. The error is one after which drivers claim again, and
// not net/http's own, which wraps nothing.
func TestClaimCut(t *testing.T) {
	t.Parallel()
	s := &server{status: http.StatusOK, body: `{}`}
	dial, cuts := s.start(t), 3
	var cut *ended
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if cut != nil {
			<-cut.closed
		}
	}})
	cutting := func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		cut = nil
		if err != nil || cuts == 0 {
			return conn, err
		}
		cuts--
		cut = &ended{Conn: conn, closed: make(chan struct{})}
		return cut, nil
	}
	if err := sandbox.UntilListening(ctx, func() error { return agent.Agent{}.Claim(ctx, cutting, sandbox.Claim{Ticket: "t"}) }); err != nil {
		t.Error(err)
	}
	if cuts != 0 || !strings.HasPrefix(s.got, "/v1/claim ") {
		t.Errorf("%d cuts left, and the server got %q", cuts, s.got)
	}
}
