package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server"
)

// pipes is a listener whose connections are made of memory, so that their
// clock can be a test's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// client is one connection to a served server.
type client struct {
	net.Conn
	answers *bufio.Reader
}

// dial connects; nil where the server does not accept.
func (p *pipes) dial() *client {
	near, far := net.Pipe()
	accepted := false
	go func() {
		select {
		case p.conns <- far:
			accepted = true
		case <-p.closed:
		}
	}()
	synctest.Wait()
	if !accepted {
		return nil
	}
	return &client{near, bufio.NewReader(near)}
}

// say writes without waiting for a reader.
func (c *client) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	go func() { _, _ = io.WriteString(c, text) }()
	synctest.Wait()
}

// post says a whole action.
func (c *client) post() {
	c.say("POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(runTrue), runTrue)
}

// hear reads an answer: its status, or 0 when the connection ended.
func (c *client) hear() (status int, body string) {
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// bubble is a test of a server that serves in a time of its own.
type bubble struct {
	*testing.T
	*pipes
	server *server.Server
	stop   func() // waits until the server stopped
}

// served runs a test in a bubble, and stops the server at its end.
func served(t *testing.T, f *fake, test func(b bubble), change ...func(*server.Config)) {
	t.Helper()
	config := server.Config{Executor: f, TempDir: t.TempDir()}
	for _, c := range change {
		c(&config)
	}
	synctest.Test(t, func(t *testing.T) {
		s := server.New(config)
		p := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, p) }()
		stop := sync.OnceFunc(func() {
			begun := time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("got %v from Serve, want nil", err)
			}
			if took := time.Since(begun); took >= 5*time.Second {
				t.Errorf("stopping took %v, launchers kill after 5s", took)
			}
		})
		test(bubble{t, p, s, stop})
		stop()
	})
}

func within(tb testing.TB, begun time.Time, want time.Duration) {
	tb.Helper()
	// The clock of a bubble moves only when everybody waits.
	if took := time.Since(begun); took > want {
		tb.Errorf("took %v, want at most %v", took, want)
	}
}

func TestSlowHeader(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		begun := time.Now()
		c := t.dial()
		defer c.Close()
		c.say("GET /alive HTTP/1.1\r\nX-Slow: ")
		if status, _ := c.hear(); status == 200 {
			t.Errorf("got %d", status)
		}
		within(t, begun, 15*time.Second)
	})
}

func TestLargeHeader(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		c := t.dial()
		defer c.Close()
		c.say("GET /alive HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 2*server.MaxHeader))
		if status, body := c.hear(); status != 431 {
			t.Errorf("got %d %s, want 431", status, body)
		}
	})
}

// The one request that is not for a path is not answered by net/http.
func TestOptionsOfTheServer(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		c := t.dial()
		defer c.Close()
		c.say("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
		if status, body := c.hear(); status != 404 || body != `{"detail":"Not Found"}` {
			t.Errorf("got %d %s, want 404", status, body)
		}
	})
}

// A body that stops coming, or drips, ends; also where no handler reads it.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path string
		every      time.Duration // between bytes, 0 for silence
		status     int
	}{
		{"action, silent", "/execute_action", 0, 400},
		{"action, dripping", "/execute_action", time.Second, 400},
		{"upload, silent", "/upload_file", 0, 400},
		{"upload, dripping", "/upload_file", 20 * time.Second, 400},
		{"unknown path, silent", "/nope", 0, 404},
		{"unknown path, dripping", "/nope", time.Second, 404},
		{"nothing to read, dripping", "/vscode/connection_token", time.Second, 405},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			served(t, &fake{}, func(t bubble) {
				begun := time.Now()
				c := t.dial()
				c.say("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 100000\r\n\r\n", tt.path,
					map[bool]string{true: "multipart/form-data; boundary=x", false: jsonType}[tt.path == "/upload_file"])
				dripped := make(chan struct{})
				go func() {
					defer close(dripped)
					for tt.every > 0 {
						time.Sleep(tt.every)
						if _, err := io.WriteString(c, " "); err != nil {
							return
						}
					}
				}()
				if status, body := c.hear(); status != tt.status {
					t.Errorf("got %d %s, want %d", status, body, tt.status)
				}
				if status, _ := c.hear(); status != 0 {
					t.Errorf("got %d, want the connection closed", status)
				}
				within(t, begun, httpserver.StallTime+5*time.Second)
				c.Close()
				<-dripped
			})
		})
	}
}

// A body that comes slowly but well comes through.
func TestLongBody(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		c := t.dial()
		defer c.Close()
		const chunk, chunks = 1 << 20, 20
		c.say("POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chunk*chunks+len(runTrue))
		blank := strings.Repeat(" ", chunk)
		for range chunks {
			time.Sleep(25 * time.Second)
			if _, err := io.WriteString(c, blank); err != nil {
				t.Fatal(err)
			}
		}
		c.say(runTrue)
		if status, body := c.hear(); status != 200 {
			t.Errorf("got %d %s, want 200", status, body)
		}
	})
}

// An action takes as long as it takes, and a connection may be idle longer
// than clients keep it.
func TestLongActionAndIdleConnection(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(ctx context.Context, _ api.Request) (api.Observation, error) {
		select {
		case <-time.After(3 * time.Hour):
			return api.ErrorObservation{Content: "done"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	served(t, f, func(t bubble) {
		c := t.dial()
		defer c.Close()
		for range 2 {
			c.post()
			if status, body := c.hear(); status != 200 || !strings.Contains(body, "done") {
				t.Errorf("got %d %s, want 200", status, body)
			}
			time.Sleep(75 * time.Second)
		}
	})
}

// A client that leaves ends the wait of its action.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	f := &fake{do: func(ctx context.Context, _ api.Request) (api.Observation, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	served(t, f, func(t bubble) {
		c := t.dial()
		c.post()
		c.Close()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want canceled", err)
			}
		default:
			t.Error("the wait goes on")
		}
	})
}

// An answer that the client does not read does not hold its connection forever.
func TestAnswerNobodyReads(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(context.Context, api.Request) (api.Observation, error) {
		return api.ErrorObservation{Content: strings.Repeat("x", 1<<20)}, nil
	}}
	served(t, f, func(t bubble) {
		c := t.dial()
		defer c.Close()
		c.post()
		time.Sleep(5 * time.Minute)
		if b, err := io.ReadAll(c); err != nil || len(b) > 1<<20 {
			t.Errorf("got %d bytes and %v, want a connection that was closed", len(b), err)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		var clients []*client
		for range server.MaxConns {
			c := t.dial()
			c.say("GET /alive HTTP/1.1\r\nHost: x\r\n\r\n") // a client with the key, or on a server without one, is trusted
			if status, _ := c.hear(); status != 200 {
				t.Fatalf("connection %d: got %d, want 200", len(clients)+1, status)
			}
			clients = append(clients, c)
		}
		more := t.dial()
		defer more.Close()
		more.say("GET /alive HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = more.SetReadDeadline(time.Now().Add(time.Second))
		if status, _ := more.hear(); status != 0 {
			t.Errorf("connection %d was answered", server.MaxConns+1)
		}
		_ = more.SetReadDeadline(time.Time{})
		clients[0].Close()
		if status, _ := more.hear(); status != 200 {
			t.Errorf("got %d once there was room, want 200", status)
		}
		for _, c := range clients {
			c.Close()
		}
		synctest.Wait()
		c := t.dial()
		defer c.Close()
		c.say("GET /alive HTTP/1.1\r\nHost: x\r\n\r\n")
		if status, _ := c.hear(); status != 200 {
			t.Errorf("got %d, want 200", status)
		}
	})
}

// Unauthenticated clients keep no client out: a new connection replaces the oldest of theirs.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	served(t, &fake{}, func(t bubble) {
		ask := func(c *client, path, key string) int {
			c.say("GET %s HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: %s\r\n\r\n", path, key)
			status, _ := c.hear()
			return status
		}
		owner := t.dial()
		defer owner.Close()
		if status := ask(owner, "/v1/status", "key"); status != 200 {
			t.Fatalf("got %d, want 200", status)
		}
		var strangers []*client
		for i := range 3 * server.MaxConns {
			c := t.dial()
			if c == nil {
				t.Fatalf("stranger %d is kept waiting", i)
			}
			defer c.Close()
			strangers = append(strangers, c)
		}
		// Open paths and wrong keys make no client trusted.
		last := strangers[len(strangers)-1]
		if status := ask(last, "/alive", "wrong"); status != 200 {
			t.Errorf("the last stranger: got %d, want 200", status)
		}
		if status := ask(last, "/v1/status", "wrong"); status != 403 {
			t.Errorf("the last stranger: got %d, want 403", status)
		}
		if status := ask(strangers[0], "/alive", ""); status != 0 {
			t.Errorf("the first stranger: got %d, want the end", status)
		}
		friend := t.dial()
		defer friend.Close()
		for name, c := range map[string]*client{"one that was there": owner, "one that came": friend} {
			if status := ask(c, "/v1/status", "key"); status != 200 {
				t.Errorf("%s: got %d, want 200", name, status)
			}
		}
	}, func(cfg *server.Config) { cfg.Key = "key" })
}

// At shutdown a request that ends soon is answered, one that does not is told
// so, and nothing new begins.
func TestShutdown(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(ctx context.Context, req api.Request) (api.Observation, error) {
		select {
		case <-time.After(time.Duration(*req.Timeout) * time.Second):
			return api.ErrorObservation{Content: "done"}, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting: %w", ctx.Err())
		}
	}}
	act := func(c *client, seconds int) {
		body := fmt.Sprintf(`{"action":{"action":"run","args":{"command":"x"},"timeout":%d}}`, seconds)
		c.say("POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	served(t, f, func(t bubble) {
		short, long, idle := t.dial(), t.dial(), t.dial()
		act(short, 2)
		act(long, 3600)
		idle.say("GET /alive HTTP/1.1\r\nHost: x\r\n\r\n")
		if status, _ := idle.hear(); status != 200 {
			t.Errorf("got %d before, want 200", status)
		}
		stopped := make(chan struct{})
		go func() { t.stop(); close(stopped) }()
		time.Sleep(time.Second)
		if w := post("/execute_action", runTrue).send(t.server); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("got %d for a new action, want 429", w.Code)
		}
		if w := get("/health").send(t.server); w.Code != 500 {
			t.Errorf("/health: got %d", w.Code)
		}
		if w := get("/alive").send(t.server); w.Code != 500 {
			t.Errorf("got alive %d, want 500", w.Code)
		}
		if w := get("/readyz").send(t.server); w.Code != 503 {
			t.Errorf("got readyz %d, want 503", w.Code)
		}
		if c := t.dial(); c != nil {
			t.Error("a new connection was accepted")
		}
		if status, _ := idle.hear(); status != 0 {
			t.Errorf("got %d, want the idle connection closed", status)
		}
		if status, body := short.hear(); status != 200 || !strings.Contains(body, "done") {
			t.Errorf("got %d %s for the short action, want 200", status, body)
		}
		if status, body := long.hear(); status != 500 || !strings.Contains(body, "unknown") {
			t.Errorf("got %d %s for the long action, want 500 and that its outcome is unknown", status, body)
		}
		<-stopped
	})
}

// An executor that does not listen does not hold the shutdown.
func TestShutdownOfTheDeaf(t *testing.T) {
	t.Parallel()
	f := &fake{}
	served(t, f, func(t bubble) {
		release := make(chan struct{})
		f.do = func(context.Context, api.Request) (api.Observation, error) {
			<-release
			return api.ErrorObservation{}, nil
		}
		c := t.dial()
		c.post()
		t.stop()
		if status, _ := c.hear(); status != 0 {
			t.Errorf("got %d, want the connection closed", status)
		}
		close(release)
	})
}

// A listener that fails is an error, and not the end that was asked for.
func TestServeFails(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	if err := newServer(t).Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v, want an error that names the address", err)
	}
}
