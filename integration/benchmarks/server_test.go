package benchmarks_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// programs returns the directory of the measured programs: ACTIOND_PROGRAMS, or
// those of this version, built once as they are shipped.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("ACTIOND_PROGRAMS"); dir != "" {
		return dir, nil
	}
	dir, err := filepath.Abs("../../bin")
	if err != nil {
		return "", err
	}
	build := exec.Command("make", "-C", filepath.Dir(dir), "build", "build-kubernetes")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the programs: %w\n%s", err, said)
	}
	return dir, nil
})

// server is a running server, with one connection to it.
type server struct {
	*connection
	cmd              *exec.Cmd
	network, address string
	root, dir        string // all that it writes, and where its shells start
	log              bytes.Buffer
}

// scratch makes a directory that every user may enter.
func scratch(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		check(b, os.Chmod(d, 0o755))
	}
	return dir
}

// environment has a home without files, so that no .bashrc counts.
func environment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8", "TERM=xterm-256color"}
}

// launch starts a server and waits for its first answer. network is tcp or unix.
func launch(b *testing.B, network string, flags ...string) *server {
	b.Helper()
	s := &server{network: network, root: scratch(b)}
	s.dir = filepath.Join(s.root, "work")
	check(b, os.Mkdir(s.dir, 0o755))
	s.address = filepath.Join(s.root, "socket")
	listen := "unix:" + s.address
	if network == "tcp" {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(b)
		listen, s.address = l.Addr().String(), l.Addr().String()
		check(b, l.Close())
	}
	s.cmd = exec.Command(filepath.Join(must(programs())(b), "server"), append([]string{"--addr", listen, "--working-dir", s.dir}, flags...)...)
	s.cmd.Env, s.cmd.Stderr = environment(s.root), &s.log
	begun := time.Now()
	check(b, s.cmd.Start())
	b.Cleanup(s.stop)
	for {
		if c, err := s.dial(); err == nil {
			if _, err = c.ask(get("/alive")); err == nil {
				s.connection = c
				return s
			}
			_ = c.Close()
		}
		if time.Since(begun) > 20*time.Second {
			b.Fatalf("the server is not ready after 20 s: %s", &s.log)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// stop ends the server as a launcher does. It may be called twice.
func (s *server) stop() {
	if s.cmd.ProcessState != nil {
		return
	}
	if s.connection != nil {
		_ = s.Close()
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// metric reads one value of /metrics.
func (s *server) metric(b *testing.B, name string) (value float64) {
	b.Helper()
	for line := range strings.Lines(string(must(s.ask(get("/metrics")))(b))) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			must(fmt.Sscan(text, &value))(b)
			return value
		}
	}
	b.Fatalf("there is no metric %s", name)
	return 0
}

// connection is a kept connection. A request is one write, and the caller reads
// the answer: net/http's client hands each to two other goroutines, and their
// time would count as the server's.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func (s *server) dial() (*connection, error) {
	c, err := net.Dial(s.network, s.address)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// ask sends a whole request and returns the body of the answer, whose status must
// be 200 or 201.
func (c *connection) ask(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var data []byte
	if resp.ContentLength < 0 { // in chunks, as /metrics
		data, err = io.ReadAll(resp.Body)
	} else {
		data = make([]byte, resp.ContentLength)
		_, err = io.ReadFull(resp.Body, data)
	}
	if err == nil && resp.StatusCode > http.StatusCreated {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	return data, err
}

// do carries out an action, whose answer must contain want.
func (c *connection) do(request []byte, want string) error {
	answer, err := c.ask(request)
	if err == nil && !bytes.Contains(answer, []byte(want)) {
		err = fmt.Errorf("%.300q answered %.500q, want %q in it", request, answer, want)
	}
	return err
}

// run runs a command that must succeed.
func (c *connection) run(request []byte) error { return c.do(request, `"exit_code":0`) }

func get(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: sandbox\r\n\r\n", path)
}

// action returns the whole request for an action, with a timeout that is long enough
// for all of them.
func action(kind, session string, args map[string]any) []byte {
	a := map[string]any{"action": kind, "args": args, "timeout": 900}
	if session != "" {
		a["session"] = session
	}
	data, err := json.Marshal(map[string]any{"action": a})
	if err != nil {
		panic(err) // the arguments are texts and numbers
	}
	return append(fmt.Appendf(nil, "POST /execute_action HTTP/1.1\r\nHost: sandbox\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(data)), data...)
}

func command(text string) []byte { return action("run", "", map[string]any{"command": text}) }

// bareShell is an interactive bash without a line editor, on a terminal like the
// server's, and a reader that looks for a mark at the end of the output: the least
// that runs a command and learns that it ended.
type bareShell struct {
	master *os.File
	stop   func()
	buffer [16 << 10]byte // the server reads as much at once
	serial int
}

// bare starts a bare shell, which has run a command when it returns.
func bare(b *testing.B) *bareShell {
	b.Helper()
	home := scratch(b)
	cmd := exec.Command("bash", "--noprofile", "--norc", "--noediting", "-i")
	cmd.Dir, cmd.Env = home, append(environment(home), "PS1=", "PS2=")
	master, slave, err := pty.Open()
	check(b, err)
	defer slave.Close()
	check(b, pty.Setsize(master, &pty.Winsize{Rows: 1000, Cols: 1000}))
	modes := must(unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS))(b)
	modes.Iflag |= unix.IUTF8
	modes.Lflag &^= unix.ECHO
	check(b, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, modes))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(b, cmd.Start())
	s := &bareShell{master: master, stop: sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
	})}
	b.Cleanup(s.stop)
	check(b, s.run("PS1= PS2=; unset -v PROMPT_COMMAND MAILCHECK; set +o history +H"))
	return s
}

// run types a command and reads until its mark is the last output.
func (s *bareShell) run(text string) error {
	s.serial++
	mark := fmt.Sprintf("\x01%d\x02", s.serial)
	line := fmt.Sprintf("%s; printf '\\001%d\\002'\n", text, s.serial)
	if err := s.master.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return err
	}
	if _, err := s.master.WriteString(line); err != nil {
		return err
	}
	for end := ""; end != mark; {
		n, err := s.master.Read(s.buffer[:])
		if err != nil {
			return err
		}
		end += string(s.buffer[max(0, n-len(mark)):n])
		end = end[max(0, len(end)-len(mark)):]
	}
	return nil
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// must returns a function that returns v, and ends the benchmark if err is not nil.
func must[T any](v T, err error) func(*testing.B) T {
	return func(b *testing.B) T {
		b.Helper()
		check(b, err)
		return v
	}
}
