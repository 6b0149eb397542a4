package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// listenVariable makes the test program listen on a port of the loopback interface
// instead, write it into a file, and answer each connection with what it reads.
const listenVariable = "TEST_LISTEN"

func listenInstead(file string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return
	}
	_ = os.WriteFile(file+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
	_ = os.WriteFile(file+".tmp", []byte(strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), 0o600)
	_ = os.Rename(file+".tmp", file)
	testhelp.Echo(l)
}

// listening starts a program in a sandbox that listens, and returns its port.
func (m localMachine) listening(box string) string {
	m.t.Helper()
	file := filepath.Join(m.dir, "port")
	m.ok("exec", box, "sh", "-c", listenVariable+"="+file+" setsid "+os.Args[0]+" < /dev/null > /dev/null 2>&1 &")
	var port []byte
	testhelp.Eventually(m.t, func() bool { port, _ = os.ReadFile(file); return len(port) > 0 }, "the program listens")
	testhelp.KillAfter(m.t, file+".pid")
	return string(port)
}

func TestPorts(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	port := m.listening("box")
	if got := m.ok("ports", "box"); !strings.HasPrefix(got, "PORT") || !strings.Contains(got, "\n"+port+" ") {
		t.Errorf("got %s, want port %s", got, port)
	}
	var list []struct {
		Port     int
		Forwards bool
	}
	if err := json.Unmarshal([]byte(m.ok("ports", "-o", "json", "box")), &list); err != nil || len(list) == 0 {
		t.Errorf("got %v, %v", list, err)
	}
}

// forward starts a forward and returns the address that it says.
func (m localMachine) forward(args ...string) (cmd *exec.Cmd, address string, notes *testhelp.Buffer) {
	m.t.Helper()
	cmd = exec.CommandContext(m.t.Context(), filepath.Join(programs(m.t), "runtimectl"), append([]string{"port-forward", "--on=local", "--state-dir", m.dir}, args...)...)
	notes = &testhelp.Buffer{}
	cmd.Stderr = notes
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		m.t.Fatalf("got %q, %v: %s", line, err, notes)
	}
	return cmd, words[1], notes
}

// ask sends a word to an address, ends its direction, and returns the answer.
func ask(t *testing.T, address string) string {
	t.Helper()
	conn := testhelp.Dial(t, "tcp", address)
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(conn)
	return string(got)
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	port := m.listening("box")
	cmd, address, _ := m.forward("box", ":"+port)
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("it listens on %s", address)
	}
	for range 3 {
		if got := ask(t, address); got != "hello" {
			t.Errorf("got %q", got)
		}
	}
	_, local, _ := net.SplitHostPort(address)
	if code, _, stderr := m.run("port-forward", "box", local+":"+port); code != command.ExitConflict || !strings.Contains(stderr, "choose another one with LOCAL:"+port) {
		t.Errorf("a port that is taken: exit code %d, %s", code, stderr)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}

	cmd, address, notes := m.forward("box", ":1")
	if got := ask(t, address); got != "" {
		t.Errorf("nothing listens: got %q", got)
	}
	m.ok("rm", "box")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != command.ExitNotFound {
		t.Errorf("the sandbox was removed: exit code %d", cmd.ProcessState.ExitCode())
	}
	for _, want := range []string{"No process of this sandbox listens on port 1", "sandbox box was removed"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("got %q, want %q in it", notes, want)
		}
	}
}

func TestPortPairs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]portPair{
		"80": {80, 80}, "8080:80": {8080, 80}, ":80": {0, 80}, "0:80": {0, 80},
	} {
		if got, err := parsePair(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", ":", "a", "80:", "80:0", "65536", "1:2:3", "127.0.0.1:80", "-1", "080", "+80"} {
		if got, err := parsePair(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
