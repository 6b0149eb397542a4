package egress_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestAttackDescriptors: root of a sandbox sends sockets whose close would hold the proxy's threads.
func TestAttackDescriptors(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	tunnel, _, _ := f.connect(t, "echo.example:7")
	testhelp.Exchange(t, tunnel, "hello")
	for _, c := range []*net.UnixConn{tunnel, dialSocket(t, f.socket(id))} {
		if _, err := testhelp.SendLingering(t, c); err == nil { // a kernel before 6.16
			testhelp.Eventually(t, func() bool { _, err := c.Write([]byte("a")); return err != nil }, "the connection ends")
		} else if !errors.Is(err, syscall.EPERM) {
			t.Error(err)
		}
	}
	f.apply(t, `{"mode":"no-network"}`) // which waits for the end of the tunnel
	if err := f.Delete(id); err != nil {
		t.Error(err)
	}
}

// writesUntilFull returns how many writes of a size a Unix socket takes whose other end reads nothing.
func writesUntilFull(t *testing.T, size int) (n int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for data := make([]byte, size); err == nil; n++ {
		_, err = unix.Write(pair[0], data)
	}
	return n - 1
}

// TestAttackUnread: a sandbox that does not read the answer to its CONNECT delays neither a change of
// its policy nor its end, during which no other sandbox can be changed.
func TestAttackUnread(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	const ask = "GET /denied HTTP/1.1\r\nHost: a\r\n\r\n"
	c := dialSocket(t, f.socket(id))
	_, _ = io.WriteString(c, ask)
	one := make([]byte, 4096)
	size, err := c.Read(one)
	if err != nil {
		t.Fatal(err)
	}
	c = dialSocket(t, f.socket(id))
	_, _ = io.WriteString(c, strings.Repeat(ask, writesUntilFull(t, size))+"CONNECT echo.example:7 HTTP/1.1\r\nHost: a\r\n\r\n")
	testhelp.Eventually(t, func() bool { return f.state(t).Open == 1 }, "the connection is open")
	f.apply(t, `{"mode":"no-network"}`)
	if open := f.state(t).Open; open != 0 {
		t.Errorf("%d are open", open)
	}
}
