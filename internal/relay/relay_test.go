package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/internal/relay"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// run starts a relay between two connections, and returns their far ends.
func run(ctx context.Context, t *testing.T, r relay.Relay) (a, b *net.TCPConn, ended <-chan error) {
	t.Helper()
	nearA, a := pair(t)
	nearB, b := pair(t)
	r.A, r.B = nearA, nearB
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return a, b, done
}

// TestHalfClose: a side that has sent all still receives.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	a, b, ended := run(t.Context(), t, relay.Relay{Idle: time.Hour})
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = a.Write(sent)
		_ = a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	_, _ = b.Write([]byte("thanks"))
	_ = b.Close()
	if got, err := io.ReadAll(a); err != nil || string(got) != "thanks" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	ctx, end := context.WithCancelCause(t.Context())
	a, b, ended := run(ctx, t, relay.Relay{Idle: time.Hour})
	end(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	for _, c := range []net.Conn{a, b} {
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err) // both were closed
		}
	}

	a, b, ended = run(t.Context(), t, relay.Relay{Idle: time.Hour, Count: func(fromA bool, n int) error {
		if fromA {
			return cause
		}
		return nil
	}})
	_, _ = b.Write([]byte("in"))
	_, _ = io.ReadFull(a, make([]byte, 2))
	_, _ = a.Write([]byte("out"))
	if got, err := io.ReadAll(b); len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}

	a, _, ended = run(t.Context(), t, relay.Relay{Idle: time.Hour, FromA: io.MultiReader(strings.NewReader("x"), broken{cause})})
	_, _ = io.ReadAll(a)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// TestIdle: bytes of one direction keep the other one open.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nearA, a := net.Pipe()
		nearB, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		ended := make(chan error, 1)
		r := relay.Relay{A: nearA, B: nearB, Idle: time.Hour}
		go func() { ended <- r.Run(t.Context()) }()
		begun := time.Now()
		for range 3 {
			<-time.After(59 * time.Minute)
			_, _ = b.Write([]byte("x"))
			_, _ = io.ReadFull(a, make([]byte, 1))
		}
		if err := <-ended; !errors.Is(err, relay.ErrIdle) || time.Since(begun) != 3*59*time.Minute+time.Hour {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}
