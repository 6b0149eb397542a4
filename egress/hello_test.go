package egress_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
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

// earlyHello says that application data follows.
func earlyHello(tb testing.TB) []byte {
	tb.Helper()
	// The extension "extended master secret", 23, becomes "early data", 42: both are empty.
	return bytes.Replace(clientHello(tb, "a.example"), []byte{0, 23, 0, 0}, []byte{0, 42, 0, 0}, 1)
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
	f.Add(append(clientHello(f, "a.example"), clientHello(f, "b.example")...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		checked, readable := 0, false
		read := func(from io.Reader) []byte {
			checked = 0
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
		case !bytes.HasPrefix(sent, passed):
			t.Fatalf("%q became %q", sent, passed)
		case isTLS && checked == 1 && !readable && len(passed) > 0:
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

// TestAttackSecondHello: each further hello that a server may answer is checked as the first one, whatever is
// before it, and nothing of it passes unless it is accepted.
func TestAttackSecondHello(t *testing.T) {
	t.Parallel()
	first, second := clientHello(t, "a.example"), clientHello(t, "evil.example")
	early := earlyHello(t)
	pieces := func(hello []byte) (all []byte) {
		for _, c := range hello[5:] {
			all = append(all, 0x16, 3, 3, 0, 1, c)
		}
		return all
	}
	together := binary.BigEndian.AppendUint16([]byte{0x16, 3, 1}, uint16(len(first)+len(second)-10))
	together = append(append(together, first[5:]...), second[5:]...)
	for name, tc := range map[string]struct {
		before, hello []byte
		want          string
	}{
		"at once":                {first, second, "a.example evil.example "},
		"after a change":         {append(bytes.Clone(first), 0x14, 3, 3, 0, 1, 1), second, "a.example evil.example "},
		"after an alert":         {append(bytes.Clone(first), 0x15, 3, 3, 0, 2, 1, 90), second, "a.example evil.example "},
		"after an empty record":  {append(bytes.Clone(first), 0x16, 3, 3, 0, 0), second, "a.example evil.example "},
		"after early data":       {append(bytes.Clone(early), 0x17, 3, 3, 0, 3, 'a', 'b', 'c'), second, "a.example evil.example "},
		"third":                  {append(bytes.Clone(first), first...), second, "a.example a.example evil.example "},
		"in pieces":              {first, pieces(second), "a.example evil.example "},
		"in pieces, both":        {pieces(first), pieces(second), "a.example evil.example "},
		"in the record of first": {nil, together, "unreadable "},
	} {
		var got string
		passed, err := io.ReadAll(egress.HelloReader(bytes.NewReader(append(bytes.Clone(tc.before), tc.hello...)), func(name string, ok bool) error {
			if !ok {
				name = "unreadable"
			}
			if got += name + " "; name != "a.example" {
				return io.ErrNoProgress
			}
			return nil
		}))
		if got != tc.want || !errors.Is(err, io.ErrNoProgress) || !bytes.Equal(passed, tc.before) {
			t.Errorf("%s: checked %s, %v; %d bytes of %d passed", name, got, err, len(passed), len(tc.before))
		}
	}
}

// counting counts calls of Read.
type counting struct {
	io.Reader

	calls int
}

func (c *counting) Read(p []byte) (int, error) {
	c.calls++
	return c.Reader.Read(p)
}

// TestEarlyDataReads: small records behind a hello with early data take one write each, and few reads.
func TestEarlyDataReads(t *testing.T) {
	t.Parallel()
	const records, most = 1000, 10
	sent := append(earlyHello(t), bytes.Repeat([]byte{0x17, 3, 3, 0, 3, 'a', 'b', 'c'}, records)...)
	from := &counting{Reader: bytes.NewReader(sent)}
	to := &counting{Reader: egress.HelloReader(from, func(string, bool) error { return nil })}
	passed, err := io.ReadAll(struct{ io.Reader }{to})
	if err != nil || !bytes.Equal(passed, sent) {
		t.Errorf("%d bytes of %d passed, %v", len(passed), len(sent), err)
	}
	if from.calls > most || to.calls > records+most {
		t.Errorf("%d records took %d reads and %d writes", records, from.calls, to.calls)
	}
}
