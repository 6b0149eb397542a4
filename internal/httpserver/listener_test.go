package httpserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
