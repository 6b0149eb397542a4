package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/keys"
	"github.com/actiond/actiond/internal/testhelp"
)

// typist is a command line on a terminal of its own.
type typist struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File
	before unix.Termios

	screen testhelp.Buffer
	seen   int           // how much of the screen shows passed
	gone   chan struct{} // closed when the terminal is
}

// onTerminal starts the program with a command line on a terminal of 30 lines of 100 columns.
func (m localMachine) onTerminal(args ...string) *typist {
	m.t.Helper()
	return m.onTerminalWith(nil, args...)
}

// onTerminalWith does so with more variables.
func (m localMachine) onTerminalWith(env []string, args ...string) *typist {
	m.t.Helper()
	line := []string{args[0], "--on=local", "--state-dir", m.dir}
	if args[0] == "run" {
		line = append(line, "--server", filepath.Join(programs(m.t), "server"))
	}
	y := &typist{t: m.t, gone: make(chan struct{})}
	y.cmd = exec.Command(filepath.Join(programs(m.t), "runtimectl"), append(line, args[1:]...)...)
	y.cmd.Env = append(os.Environ(), env...)
	var err error
	if y.master, y.slave, err = pty.Open(); err != nil {
		m.t.Fatal(err)
	}
	y.resize(30, 100)
	y.before = y.termios()
	y.cmd.Stdin, y.cmd.Stdout, y.cmd.Stderr = y.slave, y.slave, y.slave
	y.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := y.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(y.gone)
		_, _ = io.Copy(&y.screen, y.master)
	}()
	m.t.Cleanup(func() {
		_ = y.cmd.Process.Kill()
		_ = y.slave.Close()
		_ = y.master.Close()
		<-y.gone
	})
	return y
}

func (y *typist) termios() unix.Termios {
	y.t.Helper()
	state, err := unix.IoctlGetTermios(int(y.slave.Fd()), unix.TCGETS)
	if err != nil {
		y.t.Fatal(err)
	}
	return *state
}

func (y *typist) resize(rows, cols uint16) {
	y.t.Helper()
	if err := pty.Setsize(y.master, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		y.t.Fatal(err)
	}
}

func (y *typist) types(text string) {
	y.t.Helper()
	if _, err := y.master.WriteString(text); err != nil {
		y.t.Fatal(err)
	}
}

// shows waits for a text behind what was shown before, and forgets all up to its end.
func (y *typist) shows(text string) {
	y.t.Helper()
	testhelp.Eventually(y.t, func() bool {
		at := strings.Index(y.screen.String()[y.seen:], text)
		if at >= 0 {
			y.seen += at + len(text)
		}
		return at >= 0
	}, "the screen %q shows %q", &y.screen, text)
}

// ends waits for the exit code, and for the terminal as it was before.
func (y *typist) ends(code int) {
	y.t.Helper()
	_ = y.cmd.Wait() // the state says it
	if got := y.cmd.ProcessState.ExitCode(); got != code {
		y.t.Errorf("exit code %d, want %d; the screen ends with %q", got, code, &y.screen)
	}
	if got := y.termios(); got != y.before {
		y.t.Errorf("the terminal is left as %+v, was %+v", got, y.before)
	}
}

// A command on a terminal of its own gets what is typed, byte by byte, and the size of the
// terminal; its exit code is that of the command line, and the terminal is as it was then.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	binary := make([]byte, 64<<10)
	for i := range binary {
		binary[i] = byte(255 - i%256) // the keys that leave come in the other order
	}
	for _, test := range []struct {
		name string
		args []string
		do   func(y *typist)
		code int
	}{
		{"size", []string{"sh", "-c", `trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done`}, func(y *typist) {
			y.shows("30 100\r\n")
			y.resize(41, 133)
			y.shows("41 133\r\n")
			y.types("\x03")
		}, 130},
		{"a terminal", []string{"sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo $TERM; tty; exit 9`}, func(y *typist) {
			y.shows("xterm\r\n/dev/pts/")
		}, 9},
		{"a prompt", []string{"bash", "-c", `read -p 'Name: ' name; echo "<$name>"`}, func(y *typist) {
			y.shows("Name: ")
			y.types("Änne\r")
			y.shows("<Änne>\r\n")
		}, 0},
		{"Ctrl-C", []string{"sh", "-c", `trap 'echo got; exit 7' INT; echo ready; while :; do sleep 0.05; done`}, func(y *typist) {
			y.shows("ready")
			y.types("\x03")
			y.shows("got")
		}, 7},
		{"Ctrl-C that ends", []string{"sh", "-c", `echo ready; exec sleep 1000`}, func(y *typist) {
			y.shows("ready")
			y.types("\x03")
		}, 130},
		{"Ctrl-D", []string{"cat"}, func(y *typist) {
			y.types("one\r")
			y.shows("one\r\none\r\n")
			y.types("\x04")
		}, 0},
		{"a shell's jobs", []string{"bash", "--norc", "-i"}, func(y *typist) {
			y.types("sh -c 'echo in''side; exec sleep 1000'\r")
			y.shows("inside\r\n")
			y.types("\x1a")
			y.shows("Stopped")
			y.types("kill -9 %1; echo $((6*7)); until test -z \"$(jobs -p)\"; do jobs >/dev/null; done; exit 5\r")
			y.shows("\r42\r\n")
		}, 5},
		{"a paste of bytes", []string{"sh", "-c", `stty raw -echo; echo ready; head -c 65536 | sha256sum`}, func(y *typist) {
			y.shows("ready")
			y.types(string(binary))
			y.shows(fmt.Sprintf("%x", sha256.Sum256(binary)))
		}, 0},
		{"one of the keys that leave", []string{"sh", "-c", `stty raw -echo; echo ready; head -c 3 | od -An -c`}, func(y *typist) {
			y.shows("ready")
			y.types("\x10x\x11")
			y.shows("020   x 021")
		}, 0},
		{"no such command", []string{"no-such-command"}, func(y *typist) { y.shows("not found") }, 127},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			on := m
			on.t = t
			y := on.onTerminal(append([]string{"exec", "-it", "box"}, test.args...)...)
			test.do(y)
			y.ends(test.code)
		})
	}
}

// Who leaves, is told to end or loses the sandbox gets the terminal back as it was.
func TestExecTerminalCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cut  func(m localMachine, y *typist)
		code int
		runs bool // the command does afterwards
	}{
		{"left", func(_ localMachine, y *typist) {
			y.types("\x10\x11")
			y.shows("left; the command goes on: 'runtimectl action follow box ")
		}, 0, true},
		{"SIGTERM", func(_ localMachine, y *typist) { _ = y.cmd.Process.Signal(syscall.SIGTERM) }, 129, false},
		{"SIGHUP", func(_ localMachine, y *typist) { _ = y.cmd.Process.Signal(syscall.SIGHUP) }, 129, false},
		{"removed", func(m localMachine, _ *typist) { m.ok("rm", "box") }, command.ExitOwn, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newLocalMachine(t)
			m.ok("create", "--name", "box")
			y := m.onTerminal("exec", "-it", "box", "--", "bash", "--norc", "-i")
			y.types("echo $((6*7))\r")
			y.shows("\r42\r\n")
			m.begun("bash")
			test.cut(m, y)
			y.ends(test.code)
			if test.name == "removed" {
				return
			}
			var running []api.RecordedAction
			testhelp.Eventually(t, func() bool {
				running = m.listed("--state", "running")
				return len(running) > 0 == test.runs
			}, "the command runs: %t", test.runs)
			if test.runs {
				m.ok("cancel", "box", running[0].ID)
			}
		})
	}
}

// cutter passes connections of a sandbox on, and cuts those that are open.
type cutter struct {
	t    *testing.T
	real string

	mu   sync.Mutex
	open map[net.Conn]bool
	cuts int
	down bool // it takes no connections
}

// cutConnections puts a cutter between the only sandbox of a machine and its clients.
func (m localMachine) cutConnections() *cutter {
	m.t.Helper()
	socket := filepath.Join(m.dir, "local", strings.TrimSpace(m.ok("ls", "-q")), "socket")
	c := &cutter{t: m.t, real: socket + "2", open: map[net.Conn]bool{}}
	if err := os.Rename(socket, c.real); err != nil {
		m.t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		m.t.Fatal(err)
	}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { c.pass(conn) })
		}
	})
	m.t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		passing.Wait()
		if err := os.Rename(c.real, socket); err != nil {
			m.t.Error(err)
		}
	})
	return c
}

func (c *cutter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", c.real)
	if err != nil {
		return
	}
	defer server.Close()
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		return
	}
	c.open[client], c.open[server] = true, true
	c.mu.Unlock()
	over := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			over <- struct{}{}
		}()
	}
	<-over
	_, _ = client.Close(), server.Close()
	<-over
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, client)
	delete(c.open, server)
}

// cut ends the connections that are open.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
		c.cuts++
	}
}

// takes says whether connections are taken from now on.
func (c *cutter) takes(connections bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = !connections
}

// Cut connections are not seen on a terminal: what is typed meanwhile arrives once, and no
// output is lost or shown twice.
func TestExecTerminalReconnects(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	c := m.cutConnections()
	y := m.onTerminal("exec", "-it", "box", "--", "bash", "--norc", "-i")
	y.types("PS1=; echo $((6*7))\r")
	y.shows("\r42\r\n")
	for i := range 20 {
		y.types(fmt.Sprintf("echo \"<$((%d+1000))>\"", i))
		c.cut()
		y.types("\r")
		y.shows(fmt.Sprintf("<%d>\r\n", i+1000))
	}
	y.types("seq 1 30000; echo the''end\r")
	y.shows("\r1\r\n2\r\n")
	c.cut()
	y.shows("theend")
	y.types("history | grep -c 'echo \"<'\r")
	y.shows("21\r\n") // with this one
	y.types("exit 6\r")
	c.cut()
	y.ends(6)
	if c.cuts == 0 {
		t.Error("nothing was cut")
	}
}

// Where no connection comes back, the terminal does, with a sentence that says how to go on.
func TestExecTerminalStaysCut(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"exec", "-it", "box", "--", "bash", "--norc", "-i"},
		{"exec", "-i", "box", "--", "sh"},
		{"exec", "--session", "s", "box", "--", "sh", "-c", "echo 42; sleep 1000"},
	} {
		t.Run(args[1], func(t *testing.T) {
			t.Parallel()
			m := newLocalMachine(t)
			m.ok("create", "--name", "box")
			c := m.cutConnections()
			y := m.onTerminal(args...)
			y.types("echo $((6*7))\r")
			y.shows("42")
			c.takes(false)
			c.cut()
			y.types("echo lost\r") // the client gives up its input before its output
			y.shows("runtimectl action follow box ")
			y.ends(command.ExitOwn)
			c.takes(true) // what it says is true
			running := m.listed("--state", "running")
			if len(running) != 1 {
				t.Fatalf("running are %+v", running)
			}
			m.ok("cancel", "box", running[0].ID)
		})
	}
}

// Ctrl-C while no connection can be made says that the command may go on.
func TestExecInterruptedWhileCut(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	c := m.cutConnections()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan ending, 1)
	go func() {
		code, stdout, stderr := inProcess(ctx, nil, "exec", "--on=local", "--state-dir", m.dir, "box", "--", "sleep", "1000")
		ended <- ending{code, stdout, stderr}
	}()
	a := m.begun("sleep")
	c.takes(false)
	c.cut()
	cancel()
	got := <-ended
	if want := "interrupted; the command may go on: 'runtimectl action follow box " + a.ID; got.code != command.ExitInterrupted || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
	c.takes(true)
	if running := m.listed("--state", "running"); len(running) != 1 || running[0].ID != a.ID {
		t.Errorf("running are %+v", running)
	}
	m.ok("cancel", "box", a.ID)
}

// Ctrl-C before the action has reached the server cancels it as well.
func TestExecInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := inProcess(ctx, nil, "exec", "--on=local", "--state-dir", m.dir, "box", "--", "sleep", "1000")
	if code != command.ExitInterrupted {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if running := m.listed("--state", "running"); len(running) != 0 {
		t.Errorf("running are %+v", running)
	}
}

// A terminal for the output alone needs none here, and one to type into does.
func TestExecTerminalWithout(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	if got := m.ok("exec", "-t", "-e", "TERM=dumb", "box", "--", "sh", "-c", `test -t 1 && test -t 0 && stty size; echo $TERM >&2`); got != "24 80\r\ndumb\r\n" {
		t.Errorf("got %q", got)
	}
	for _, test := range []struct{ line, want string }{
		{"exec -it box cat", "the input is not a terminal: run this in one, or leave out --tty"},
		{"exec -t --session s box cat", "--tty: the session has a terminal already; to type into it use 'runtimectl sh --session s'"},
		{"exec -di box cat", "--detach: a command that is not waited for gets no --interactive"},
		{"exec -d --session s --timeout 1s box cat", "--detach: nothing would end a session's command after --timeout; leave out one of them"},
		{"run -it", "the input is not a terminal: run this in one, or leave out --tty"},
		{"run -t", "the command to run is missing: runtimectl run [flags] IMAGE -- COMMAND [ARGUMENT...]"},
	} {
		code, _, stderr := m.run(strings.Fields(test.line)...)
		if code != command.ExitOwn || !strings.HasPrefix(stderr, "runtimectl: "+test.want+"\n") {
			t.Errorf("%s: exit code %d, %q", test.line, code, stderr)
		}
	}
}

// run -it is a shell in a sandbox that is gone afterwards.
func TestRunTerminal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	y := m.onTerminal("run", "-it", "--rm")
	y.types("echo $((6*7)) $(test -t 0 && echo typed)\r")
	y.shows("\r42 typed\r\n")
	y.types("exit 3\r")
	y.ends(3)
	if got := m.ok("ls", "-q"); got != "" {
		t.Errorf("left is %q", got)
	}
}

// A detached command is known by its id alone.
func TestExecDetached(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	id := strings.TrimSpace(m.ok("exec", "-d", "box", "--", "sh", "-c", "echo out; echo err >&2; until test -e go; do sleep 0.05; done; exit 4"))
	if a := m.begun("echo out"); a.ID != id {
		t.Errorf("got %q, %q runs", id, a.ID)
	}
	m.ok("exec", "box", "touch", "go")
	if code, stdout, stderr := m.run("follow", "box", id); code != 4 || stdout != "out\n" || stderr != "err\n" {
		t.Errorf("got %d, %q, %q", code, stdout, stderr)
	}
	id = strings.TrimSpace(m.ok("exec", "-dt", "box", "--", "sh", "-c", "test -t 1; echo $?"))
	if code, stdout, _ := m.run("follow", "box", id); code != 0 || stdout != "0\r\n" {
		t.Errorf("on a terminal: got %d, %q", code, stdout)
	}
	id = strings.TrimSpace(m.ok("exec", "-d", "--timeout", "100ms", "box", "sleep", "1000"))
	if code, _, _ := m.run("follow", "box", id); code != command.ExitTimeout {
		t.Errorf("after its time: got %d", code)
	}
	id = strings.TrimSpace(m.ok("exec", "-d", "--session", "s", "box", "sh", "-c", "echo here; exit 6"))
	if code, stdout, _ := m.run("follow", "box", id); code != 6 || stdout != "here\n" {
		t.Errorf("in a session: got %d, %q", code, stdout)
	}
	id = strings.TrimSpace(m.ok("exec", "-d", "box", "no-such-command"))
	if code, _, stderr := m.run("follow", "box", id); code != 127 || !strings.Contains(stderr, "not found") {
		t.Errorf("without a program: got %d, %q", code, stderr)
	}
	id = strings.TrimSpace(m.ok("exec", "-d", "box", "sleep", "1000"))
	m.ok("cancel", "box", id)
	if a := m.listed()[0]; a.ID != id || a.State != api.StateDone {
		t.Errorf("cancelled: got %+v", a)
	}
}

// Programs that draw a screen work in a real terminal.
func TestExecScreen(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"tmux", "less", "vi"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box"))
	work := filepath.Join(m.dir, "local", id, "work")
	s := &tmux{t: t, socket: filepath.Join(m.dir, "tmux")}
	on := fmt.Sprintf("%s exec --on=local --state-dir %s -it box -- ", filepath.Join(programs(t), "runtimectl"), m.dir)
	s.run("new-session", "-d", "-x", "80", "-y", "24", "env -i PATH=/usr/bin:/bin PS1='local$ ' sh -i")
	t.Cleanup(func() { s.run("kill-server") })
	for name, text := range map[string]string{"short": "one\ntwo\n", "long": numbers(500)} {
		testhelp.WriteFile(t, filepath.Join(work, name), text, 0o600)
	}
	s.shows("local$")
	s.types("clear; "+on+"less long", "Enter")
	s.shows("22", "23", "long")
	s.types("G")
	s.shows("499", "500", "(END)")
	s.resize(60, 10)
	s.wait("\n:") // less forgets keys that come before it has drawn anew
	s.types("g")
	s.shows("7", "8", "9", ":")
	s.types("q")
	s.shows("local$")
	s.types("clear; "+on+"vi short", "Enter")
	s.wait("two")
	s.types("Gothree", "Escape")
	s.types(":wq", "Enter")
	s.shows("local$")
	if got, err := os.ReadFile(filepath.Join(work, "short")); err != nil || string(got) != "one\ntwo\nthree\n" {
		t.Errorf("vi wrote %q, %v", got, err)
	}
	s.types("stty -a | grep -o ' -icanon'; echo cooked", "Enter")
	s.shows("cooked", "local$")
	if strings.Contains(s.last, "\n-icanon") {
		t.Errorf("the terminal is left raw:\n%s", s.last)
	}
}

// wait waits until a text is anywhere on the screen.
func (m *tmux) wait(text string) {
	m.t.Helper()
	testhelp.Eventually(m.t, func() bool {
		m.last = m.run("capture-pane", "-p")
		return strings.Contains(m.last, text)
	}, "the screen\n%s\nhas %q", m, text)
}

// A typed text passes whole, however short the reads are, up to the keys that leave.
func TestTyping(t *testing.T) {
	t.Parallel()
	typed := &typing{in: strings.NewReader("ab\x10\x10c\x10\x11rest"), size: &windowSize{}, detector: keys.Detector{Keys: leaveKeys}}
	var got []byte
	var err error
	for one := make([]byte, 1); err == nil; {
		var n int
		n, err = typed.Read(one)
		got = append(got, one[:n]...)
	}
	if string(got) != "ab\x10\x10c" || !errors.Is(err, errLeft) {
		t.Errorf("got %q, %v", got, err)
	}
}
