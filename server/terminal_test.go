package server_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server"
)

// screen is a terminal that shows nothing, and takes what is typed as long as
// taken gives leave.
type screen struct {
	taken  chan bool
	closed chan time.Time
}

func (*screen) Read(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func (s *screen) Type(ctx context.Context, _ []byte) error {
	select {
	case <-s.taken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (*screen) Resize(int, int) {}
func (s *screen) Close()        { s.closed <- time.Now() }

// watched runs a test with a server that has one screen.
func watched(t *testing.T, test func(b bubble, s *screen)) {
	t.Helper()
	var s *screen
	served(t, &fake{}, func(b bubble) {
		s = &screen{make(chan bool), make(chan time.Time, 1)} // of this bubble
		test(b, s)
	}, func(c *server.Config) {
		c.Attach = func(context.Context, string, bool) (server.Terminal, error) { return s, nil }
	})
}

// A client that is there and says nothing, as after a broken line, is noticed.
func TestTerminalClientIsSilent(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"it reads": true, "it does not read": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watched(t, func(b bubble, s *screen) {
				c := b.dial()
				defer c.Close()
				c.say("GET /v1/sessions/x/terminal HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
				resp, err := http.ReadResponse(c.answers, nil) //nolint:bodyclose // it has none
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					b.Fatalf("got %v, %v", resp, err)
				}
				begun := time.Now()
				if reads {
					go func() { _, _ = io.Copy(io.Discard, c.answers) }()
				}
				select {
				case <-s.closed:
				case <-time.After(2 * httpserver.StallTime):
					b.Errorf("it is attached after %v", time.Since(begun))
				}
			})
		})
	}
}

// buffered has room for what is written, as a line has and a pipe has not.
type buffered struct {
	net.Conn
	room chan []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	b.room <- bytes.Clone(p)
	return len(p), nil
}

func buffer(c net.Conn) *buffered {
	b := &buffered{c, make(chan []byte, 1000)}
	go func() {
		for p := range b.room {
			_, _ = c.Write(p) // fails at the end
		}
	}()
	return b
}

// A client that answers stays, also while no program reads what it typed.
func TestTerminalClientAnswers(t *testing.T) {
	t.Parallel()
	watched(t, func(b bubble, s *screen) {
		line := buffer(b.dial())
		defer close(line.room)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return line, nil }}
		//nolint:bodyclose // Dial closes it
		conn, _, err := websocket.Dial(b.Context(), "ws://x/v1/sessions/x/terminal", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			b.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, _, err := conn.Read(context.Background())
			read <- err
		}()
		for _, step := range []string{"idle", "typing", "typed"} {
			switch step {
			case "typing":
				if err := conn.Write(b.Context(), websocket.MessageBinary, []byte("x")); err != nil {
					b.Error(err)
				}
			case "typed":
				s.taken <- true
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			select {
			case <-s.closed:
				b.Fatalf("%s: the client was left", step)
			default:
			}
		}
		_ = conn.CloseNow()
		<-s.closed
		<-read
	})
}
