package front_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

const hostsOfSandbox = `127.0.0.1	localhost
::1 localhost ip6-localhost # ip6-loopback
127.0.0.1 localhost.localdomain Box.test. # commented.test
8.8.8.8 public.test
8.8.8.8 both.test
127.0.0.1 both.test
127.64.0.9 named.test
nonsense bad.test
127.0.0.1
`

// local starts a front in a sandbox with a server on all addresses of a port, which says welcome.
func local(t *testing.T, policy string) (f *fixture, port int) {
	t.Helper()
	f = start(t, policy, nil)
	testhelp.WriteFile(t, filepath.Join(f.dir, "hosts"), hostsOfSandbox, 0o644)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return f, l.Addr().(*net.TCPAddr).Port
}

// asking are those in which programs ask the front for a host.
var asking = map[string]func(t *testing.T, f *fixture, host string, port int) (answer string){
	"plain": func(t *testing.T, f *fixture, host string, port int) string {
		t.Helper()
		return exchange(t, f.dial(t), fmt.Sprintf("GET http://%s:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", host, port))
	},
	"CONNECT": func(t *testing.T, f *fixture, host string, port int) string {
		t.Helper()
		c := f.dial(t)
		_, _ = io.WriteString(c, connectTo(fmt.Sprintf("%s:%d", host, port)))
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Error(err)
			return ""
		}
		if res.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(res.Body)
			return res.Status + " " + string(text)
		}
		return exchange(t, c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	},
	"SOCKS5": func(t *testing.T, f *fixture, host string, port int) string {
		t.Helper()
		c := f.dial(t)
		request := socksRequest(host, uint16(port))
		if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
			kind := byte(1)
			bytes := []byte(ip.To4())
			if strings.Contains(host, ":") {
				kind, bytes = 4, ip.To16()
			}
			request = append(append([]byte{5, 1, 0, kind}, bytes...), byte(port>>8), byte(port))
		}
		if code := socks(t, c, request); code != 0 {
			return map[byte]string{2: "403", 4: "502"}[code]
		}
		return exchange(t, c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	},
}

func exchange(t *testing.T, c net.Conn, request string) string {
	t.Helper()
	_, _ = io.WriteString(c, request)
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(answer)
}

// TestLocal: servers of the sandbox are reached by each spelling of the loopback interface, in all ways and
// with every policy, and this is neither counted nor denied.
func TestLocal(t *testing.T) {
	t.Parallel()
	hosts := []string{
		"127.0.0.1", "0.0.0.0", "127.0.0.2", "127.255.255.254", "127.1.2.3", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "[::ffff:7f00:1]",
		"localhost", "LOCALHOST", "localhost.", "app.localhost", "localhost.localdomain", "box.test", "BOX.test.", "both.test",
	}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
		hosts = append(hosts, "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "ip6-localhost")
	}
	if own, err := os.Hostname(); err == nil {
		hosts = append(hosts, own)
	}
	for _, policy := range []string{allowEcho, `{"mode":"no-network"}`, `{"mode":"public","deny":["*"]}`} {
		f, port := local(t, policy)
		for _, host := range hosts {
			for way, ask := range asking {
				if got := ask(t, f, host, port); !strings.Contains(got, " 200 OK\r\n") || !strings.Contains(got, "welcome") {
					t.Errorf("%s, %s by %s: got %q", policy, host, way, got)
				}
			}
		}
		if len(f.Denied()) > 0 || len(f.looked) > 0 {
			t.Errorf("denied %q, and looked up %q", f.reasons(), f.looked)
		}
	}
}

// TestAttackLocal: what is not the loopback interface takes the way of the policy, the front does not connect to
// itself, and a list of hosts that is no file, or another user's, has nothing in it.
func TestAttackLocal(t *testing.T) {
	t.Parallel()
	f, port := local(t, allowEcho)
	own := int(f.Address().Port())
	for host, at := range map[string]int{
		"public.test": port, "named.test": port, "bad.test": port, "ip6-loopback": port, "commented.test": port, "localhost.evil.example": port,
		"notlocalhost": port, "127.0.0.1.evil.example": port, "127.64.0.1": port, "127.127.255.255": port, "10.0.0.1": port, "169.254.169.254": port,
		"[fe80::1]": port, "[::2]": port, "[::ffff:8.8.8.8]": port, "[64:ff9b::7f00:1]": port, "[::127.0.0.1]": port, "8.8.8.8": port,
		"127.0.0.1": own, "localhost": own, "0.0.0.0": own, "127.0.0.2": own, "[::ffff:127.0.0.1]": own, "box.test": own,
	} {
		for way, ask := range asking {
			before := len(f.Denied())
			if got := ask(t, f, host, at); !strings.Contains(got, "403") || len(f.Denied()) != before+1 {
				t.Errorf("%s:%d by %s: got %q and %d denials", host, at, way, got, len(f.Denied())-before)
			}
		}
	}
	for way, ask := range asking {
		if got := ask(t, f, "127.0.0.1", 1); !strings.Contains(got, "502") || way != "SOCKS5" && !strings.Contains(got, "in this sandbox: connection refused") {
			t.Errorf("a port without a server by %s: got %q", way, got)
		}
	}
	// With a name that an outside name server leads to the loopback interface.
	f, port = local(t, `{"mode":"public"}`)
	for way, ask := range asking {
		if got := ask(t, f, "rebound.example", port); strings.Contains(got, "welcome") {
			t.Errorf("by %s: got %q", way, got)
		}
	}
	if !slices.Contains(f.looked, "rebound.example") {
		t.Error("the egress proxy was not asked")
	}
	hosts := filepath.Join(f.dir, "hosts")
	for name, replace := range map[string]func() error{
		"none":      func() error { return nil },
		"directory": func() error { return os.Mkdir(hosts, 0o700) },
		"FIFO":      func() error { return syscall.Mkfifo(hosts, 0o600) },
		"long": func() error {
			return os.WriteFile(hosts, append([]byte(strings.Repeat("#", 1<<17)), "\n127.0.0.1 late.test\n"...), 0o600)
		},
	} {
		if err := os.RemoveAll(hosts); err != nil {
			t.Fatal(err)
		}
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"box.test", "late.test"} {
			if got := asking["plain"](t, f, host, port); strings.Contains(got, "welcome") {
				t.Errorf("%s: got %q", name, got)
			}
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	_ = os.RemoveAll(hosts)
	testhelp.WriteFile(t, hosts, hostsOfSandbox, 0o644)
	if err := os.Chown(hosts, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if got := asking["plain"](t, f, "box.test", port); strings.Contains(got, "welcome") {
		t.Errorf("another user's list: got %q", got)
	}
}
