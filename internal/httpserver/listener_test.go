package httpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/testhelp"
)

// A deadline that passed while the machine stood still does not lose what the client had sent.
func TestReadAfterDeadline(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	inner, err := config.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := httpserver.LimitListener(inner, 2)
	defer l.Close()
	client, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const sent = "GET /alive HTTP/1.1\r\n"
	if _, err := io.WriteString(client, sent); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	part := make([]byte, 8) // net/http, too, reads a long header in parts
	if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{conn}, part); !errors.Is(err, os.ErrDeadlineExceeded) || got.String() != sent {
		t.Errorf("got %q, %v", got.String(), err)
	}
}

// A write ends soon where nothing of it is read, however long it is, and one that is read in time is
// whole.
func TestLongWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := bytes.Repeat([]byte("0123456789"), 2<<20)
		ours, theirs := net.Pipe()
		conn := httpserver.DeadlineConn(ours)
		begun := time.Now()
		if n, err := conn.Write(body); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) > time.Minute {
			t.Errorf("got %d, %v after %v", n, err, time.Since(begun))
		}
		go func() {
			n, err := conn.Write(body)
			if n != len(body) || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
			_ = conn.Close()
		}()
		if got, err := io.ReadAll(theirs); err != nil || !bytes.Equal(got, body) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	})
}

// Listeners with one bound: the one with the most connections without trust loses the oldest of them,
// and where all are trusted, a new one waits for the end of another.
func TestTotal(t *testing.T) {
	t.Parallel()
	total := httpserver.NewTotal(4)
	serve := func(trust bool) (dial func() net.Conn, stop func()) {
		var config net.ListenConfig
		inner, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := httpserver.NewServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if trust {
				httpserver.Trust(r)
			}
		}), 1<<10, slog.New(slog.DiscardHandler))
		go server.Serve(total.LimitListener(inner, 10)) // until stop
		stop = func() { server.Close() }
		t.Cleanup(stop)
		return func() net.Conn {
			conn := testhelp.Dial(t, "tcp", inner.Addr().String())
			return conn
		}, stop
	}
	ask := func(conn net.Conn) {
		t.Helper()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil { //nolint:bodyclose // it is empty
			t.Errorf("no answer: %v", err)
		}
	}
	ended := func(conn net.Conn) {
		t.Helper()
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("got %d bytes, %v, want the end", n, err)
		}
	}
	attacker, stop := serve(false)
	first, second, third := attacker(), attacker(), attacker()
	ask(first) // it is accepted before the next ones
	ask(second)
	ask(third)
	modest, _ := serve(true)
	var trusted []net.Conn
	for range 4 { // all but one take the place of an attacker's
		trusted = append(trusted, modest())
		ask(trusted[len(trusted)-1])
	}
	ended(first)
	ended(second)
	ended(third)

	blocked := attacker()
	stop() // ends its wait
	ended(blocked)
	waiting := modest()
	_ = trusted[0].Close()
	ask(waiting)
}

// TestOwners: a new connection takes the place of the oldest one of the owner that has the most, and a connection
// that is no longer trusted can be that.
func TestOwners(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	inner, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpserver.NewServer(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		httpserver.Own(r, r.URL.Path)
		switch r.URL.RawQuery {
		case "trust":
			httpserver.Trust(r)
		case "distrust":
			httpserver.Trust(r)
			httpserver.Distrust(r)
			httpserver.Distrust(r)
		}
	}), 1<<10, slog.New(slog.DiscardHandler))
	go server.Serve(httpserver.LimitListener(inner, 8)) // until the end; four without trust
	t.Cleanup(func() { server.Close() })
	ask := func(target string) net.Conn {
		t.Helper()
		conn := testhelp.Dial(t, "tcp", inner.Addr().String())
		_, _ = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil { //nolint:bodyclose // it is empty
			t.Errorf("no answer: %v", err)
		}
		return conn
	}
	ended := func(conn net.Conn) {
		t.Helper()
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("got %d bytes, %v, want the end", n, err)
		}
	}
	few, trusted := ask("/few"), ask("/many?trust")
	many := []net.Conn{ask("/many?distrust"), ask("/many"), ask("/many")}
	for i := range 5 {
		many = append(many, ask("/many"))
		ended(many[i])
	}
	for _, conn := range append(many[5:], few, trusted) {
		_, _ = io.WriteString(conn, "GET /few HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil { //nolint:bodyclose // it is empty
			t.Errorf("a connection has ended: %v", err)
		}
	}
}
