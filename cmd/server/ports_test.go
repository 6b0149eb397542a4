package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
)

// listenVariable makes the test program listen on that address instead, write its port
// into a file of the current directory, and answer each connection with what it reads.
const listenVariable = "TEST_LISTEN"

func listenInstead(at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return
	}
	_ = os.WriteFile("pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
	_ = os.WriteFile("port.tmp", []byte(strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), 0o600)
	_ = os.Rename("port.tmp", "port")
	testhelp.Echo(l)
}

// A program that the agent started in the background is listed and reached, also after
// it left the shell's session and its parents are gone. The server's own port is not.
func TestPorts(t *testing.T) {
	t.Parallel()
	c, dir, _ := serveForTest(t)
	command := "( " + listenVariable + "=127.0.0.1:0 setsid " + os.Args[0] + " < /dev/null > /dev/null 2>&1 & )"
	if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: command}}); err != nil {
		t.Fatal(err)
	}
	var text []byte
	testhelp.Eventually(t, func() bool { text, _ = os.ReadFile(dir + "/port"); return len(text) > 0 }, "the program listens")
	testhelp.KillAfter(t, dir+"/pid")
	port, err := api.ParsePort(string(text))
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Ports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range list {
		found = found || p.Port == int(port) && p.Forwards && p.PID > 0 && p.PID != os.Getpid() && strings.HasPrefix(p.Command, os.Args[0])
	}
	if !found {
		t.Errorf("port %d is not among %+v", port, list)
	}
	tunnel, err := c.DialPort(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	_, _ = io.WriteString(tunnel, "hello")
	_ = tunnel.CloseWrite()
	if got, err := io.ReadAll(tunnel); string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}

	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", at) // as the server's process
		if err != nil {
			t.Logf("%s: %v", at, err)
			continue
		}
		defer l.Close()
		own := l.Addr().(*net.TCPAddr).Port
		_, err = c.DialPort(t.Context(), uint16(own))
		if refused, ok := errors.AsType[*client.StatusError](err); !ok || refused.Status != 403 {
			t.Errorf("the server's own port on %s: got %v, want 403", at, err)
		}
	}
	if _, err := c.DialPort(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "No process of this sandbox listens on port 1") {
		t.Errorf("port 1: got %v", err)
	}
}
