package egress_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"github.com/actiond/actiond/egress"
)

// clientHello is what a client sends first.
func clientHello(tb testing.TB, name string) []byte {
	tb.Helper()
	near, far := net.Pipe()
	go func() { _ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() }()
	defer near.Close()
	buf := make([]byte, 16<<10)
	n, err := far.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	return buf[:n]
}

// FuzzHello: what passes is what was sent, and TLS passes with the name that was checked or not at all.
func FuzzHello(f *testing.F) {
	for _, name := range []string{"", "a.example", "127.0.0.1"} {
		f.Add(clientHello(f, name))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0x16, 3, 1, 0, 4, 2, 0, 0, 0})
	f.Add(append([]byte{0x15, 3, 1, 0, 2, 1, 90}, clientHello(f, "a.example")...))
	f.Add([]byte{0x16, 1, 0, 1})
	f.Fuzz(func(t *testing.T, sent []byte) {
		checked, readable := 0, false
		read := func(from io.Reader) []byte {
			passed, _ := io.ReadAll(egress.HelloReader(from, func(_ string, ok bool) error {
				checked++
				if readable = ok; !ok {
					return io.ErrNoProgress
				}
				return nil
			}))
			return passed
		}
		passed := read(bytes.NewReader(sent))
		isTLS := len(sent) > 1 && sent[0] >= 0x14 && sent[0] <= 0x18 && sent[1] == 3
		switch {
		case !isTLS && (checked > 0 || !bytes.Equal(passed, sent)):
			t.Fatalf("%q became %q after %d checks", sent, passed, checked)
		case isTLS && readable && !bytes.Equal(passed, sent):
			t.Fatalf("%q became %q", sent, passed)
		case isTLS && !readable && len(passed) > 0:
			t.Fatalf("%q passed", passed)
		}
		if again := read(iotest.OneByteReader(bytes.NewReader(sent))); !bytes.Equal(again, passed) {
			t.Fatalf("in pieces %q became %q", passed, again)
		}
	})
}

func TestHelloName(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"", "a.example"} {
		sent := append(clientHello(t, want), "behind it"...)
		var got string
		passed, err := io.ReadAll(egress.HelloReader(bytes.NewReader(sent), func(name string, _ bool) error { got = name; return nil }))
		if err != nil || got != want || !bytes.Equal(passed, sent) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}
