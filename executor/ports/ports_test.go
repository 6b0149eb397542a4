package ports_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/ports"
	"github.com/actiond/actiond/internal/testhelp"
)

// listenVariable makes the test program listen on an address instead, print its port,
// and answer each connection with what it reads.
const listenVariable = "TEST_LISTEN"

func TestMain(m *testing.M) {
	if at := os.Getenv(listenVariable); at != "" {
		serve(at)
		return
	}
	os.Exit(m.Run())
}

func serve(at string) {
	network, address, _ := strings.Cut(at, " ")
	l, err := net.Listen(network, address)
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_, _ = os.Stdout.WriteString(port + "\n")
	testhelp.Echo(l)
}

// start starts a process that listens, "tcp 127.0.0.1:0" for instance, and returns its
// port. It skips the test where the address cannot be listened on.
func start(t *testing.T, at string) (port uint16, pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listenVariable+"="+at)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	number, parseErr := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil || parseErr != nil {
		t.Skipf("listening on %s: %s, %v", at, line, err)
	}
	return uint16(number), cmd.Process.Pid
}

// echo reports whether a port is reached and answers.
func echo(t *testing.T, f *ports.Finder, port uint16) error {
	t.Helper()
	conn, err := f.Dial(t.Context(), port)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello")
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("port %d answers %q, %v", port, got, err)
	}
	return nil
}

func find(t *testing.T, f *ports.Finder, port uint16) (ports.Port, bool) {
	t.Helper()
	list, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(p ports.Port) bool { return p.Port == port })
	if i < 0 {
		return ports.Port{}, false
	}
	return list[i], true
}

// A child's port is listed and reached, whichever loopback address it listens on.
func TestChild(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"tcp4 127.0.0.1:0", "tcp4 0.0.0.0:0", "tcp6 [::1]:0", "tcp [::]:0", "tcp4 127.0.0.5:0"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			port, pid := start(t, at)
			f := &ports.Finder{}
			got, ok := find(t, f, port)
			host, _, _ := net.SplitHostPort(strings.Fields(at)[1])
			if !ok || got.PID != pid || got.Process == "" || !strings.HasPrefix(got.Command, os.Args[0][:min(200, len(os.Args[0]))]) || !got.Forwards || !slices.Equal(got.Addresses, []netip.Addr{netip.MustParseAddr(host)}) {
				t.Errorf("got %+v, %v, want process %d on %s", got, ok, pid, host)
			}
			if err := echo(t, f, port); err != nil {
				t.Error(err)
			}
		})
	}
}

// A port of another address than the loopback interface's is listed, and not reached.
func TestOtherAddress(t *testing.T) {
	t.Parallel()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLoopback() || network.IP.To4() == nil {
			continue
		}
		port, _ := start(t, "tcp4 "+net.JoinHostPort(network.IP.String(), "0"))
		f := &ports.Finder{}
		if got, ok := find(t, f, port); !ok || got.Forwards {
			t.Errorf("got %+v, %v, want one that is not forwarded", got, ok)
		}
		if err := echo(t, f, port); !errors.Is(err, ports.ErrNotLoopback) {
			t.Errorf("got %v, want ErrNotLoopback", err)
		}
		return
	}
	t.Skip("this machine has the loopback interface only")
}

// The program's own ports are not listed and not reached, also where a child listens on
// another address of the same number.
func TestOwn(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"tcp4 127.0.0.1:0", "tcp4 0.0.0.0:0", "tcp6 [::1]:0", "tcp [::]:0"} {
		network, address, _ := strings.Cut(at, " ")
		l, err := net.Listen(network, address)
		if err != nil {
			t.Logf("%s: %v", at, err)
			continue
		}
		defer l.Close()
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		f := &ports.Finder{}
		if got, ok := find(t, f, port); ok {
			t.Errorf("%s: got %+v", at, got)
		}
		if err := echo(t, f, port); !errors.Is(err, ports.ErrOwn) {
			t.Errorf("%s: got %v, want ErrOwn", at, err)
		}
		if at == "tcp4 127.0.0.1:0" {
			start(t, "tcp4 127.0.0.7:"+strconv.Itoa(int(port)))
			if err := echo(t, f, port); !errors.Is(err, ports.ErrOwn) {
				t.Errorf("beside a child: got %v, want ErrOwn", err)
			}
		}
	}
}

// A process outside of the sandbox, with the same user, has no port here; one that left
// the tree and has the mark does. The shell ends and leaves its child to another parent.
func TestStranger(t *testing.T) {
	t.Parallel()
	mark := "TEST_MARK=" + t.Name()
	for _, marked := range []bool{false, true} {
		cmd := exec.Command("sh", "-c", `setsid "$0" & echo $!`, os.Args[0])
		cmd.Env = append(os.Environ(), listenVariable+"=tcp4 127.0.0.1:0")
		if marked {
			cmd.Env = append(cmd.Env, mark)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var numbers []int
		for len(numbers) < 2 && lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(lines.Text())
			}
			numbers = append(numbers, n)
		}
		// The process's own line may come first.
		first, second := uint16(numbers[0]), uint16(numbers[1])
		pid, port := numbers[0], second
		if syscall.Kill(pid, 0) != nil || !strings.Contains(readlink(pid), os.Args[0]) {
			pid, port = numbers[1], first
		}
		t.Cleanup(func() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		f := &ports.Finder{Mark: mark}
		awaitOrphan(t, pid, cmd.Process.Pid)
		_, listed := find(t, f, port)
		err = echo(t, f, port)
		if listed != marked || marked && err != nil || !marked && !errors.Is(err, ports.ErrNotListening) {
			t.Errorf("marked %v: listed %v, %v", marked, listed, err)
		}
	}
}

func readlink(pid int) string {
	target, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return target
}

// awaitOrphan waits until a process has another parent than a shell.
func awaitOrphan(t *testing.T, pid, shell int) {
	t.Helper()
	testhelp.Eventually(t, func() bool {
		data := testhelp.ReadFile(t, "/proc/"+strconv.Itoa(pid)+"/stat")
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		return fields[1] != strconv.Itoa(shell)
	}, "process %d gets another parent", pid)
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	f := &ports.Finder{}
	for _, port := range []uint16{0, 1} {
		if conn, err := f.Dial(t.Context(), port); !errors.Is(err, ports.ErrNotListening) {
			t.Errorf("port %d: got %v, %v", port, conn, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	port, _ := start(t, "tcp4 127.0.0.1:0")
	if _, err := f.Dial(ctx, port); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: got %v", err)
	}
}
