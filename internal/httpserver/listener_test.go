package httpserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/internal/httpserver"
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
