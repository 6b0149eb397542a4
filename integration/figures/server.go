package main

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
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// server is a server that runs, with one connection to it.
type server struct {
	*connection
	cmd              *exec.Cmd
	network, address string
	root, dir        string // all that it writes, and where its shells start
	took             time.Duration
	log              bytes.Buffer
}

// environment has a home without files, so that no .bashrc counts.
func environment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8", "TERM=xterm-256color"}
}

// launch starts a server and waits for its first answer. network is tcp or unix.
func (b *bench) launch(network string, flags ...string) *server {
	s := &server{network: network, root: b.scratch()}
	s.dir = filepath.Join(s.root, "work")
	check(os.Mkdir(s.dir, 0o755))
	listen := "unix:" + filepath.Join(s.root, "socket")
	s.address = filepath.Join(s.root, "socket")
	if network == "tcp" {
		l := must(new(net.ListenConfig).Listen(b.ctx, "tcp", "127.0.0.1:0"))
		listen, s.address = l.Addr().String(), l.Addr().String()
		check(l.Close())
	}
	s.cmd = exec.CommandContext(b.ctx, filepath.Join(b.programs, "server"), append([]string{"--addr", listen, "--working-dir", s.dir}, flags...)...)
	s.cmd.Env, s.cmd.Stderr = environment(s.root), &s.log
	begun := time.Now()
	check(s.cmd.Start())
	b.stops = append(b.stops, s.stop)
	for {
		if c, err := s.dial(); err == nil {
			if _, err = c.ask(get("/alive")); err == nil {
				s.connection, s.took = c, time.Since(begun)
				return s
			}
			_ = c.Close()
		}
		if time.Since(begun) > 20*time.Second {
			check(fmt.Errorf("the server is not ready after 20 s: %s", &s.log))
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

// ask sends a whole request and returns the body of the answer, whose status must be
// 200.
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
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	return data, err
}

// do does an action and returns how long it took. The answer must contain want.
func (c *connection) do(request []byte, want string) time.Duration {
	begun := time.Now()
	answer, err := c.ask(request)
	took := time.Since(begun)
	if err == nil && !bytes.Contains(answer, []byte(want)) {
		err = fmt.Errorf("%.300q answered %.500q, want %q in it", request, answer, want)
	}
	check(err)
	return took
}

// run does a command that must succeed.
func (c *connection) run(request []byte) time.Duration { return c.do(request, succeeded) }

const succeeded = `"exit_code":0`

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
	data := must(json.Marshal(map[string]any{"action": a}))
	return append(fmt.Appendf(nil, "POST /execute_action HTTP/1.1\r\nHost: sandbox\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(data)), data...)
}

func command(text string) []byte {
	return action("run", "", map[string]any{"command": text})
}

// bareShell is an interactive bash without a line editor, on a terminal like the
// server's, and a reader that looks for a mark at the end of the output: the least
// that runs a command and learns that it ended.
type bareShell struct {
	cmd    *exec.Cmd
	master *os.File
	buffer [16 << 10]byte // the server reads as much at once
	serial int
}

// bare starts a bare shell, which has run a command when it returns.
func (b *bench) bare() *bareShell {
	home := b.scratch()
	s := &bareShell{cmd: exec.CommandContext(b.ctx, "bash", "--noprofile", "--norc", "--noediting", "-i")}
	s.cmd.Dir, s.cmd.Env = home, append(environment(home), "PS1=", "PS2=")
	master, slave, err := pty.Open()
	check(err)
	defer slave.Close()
	s.master = master
	check(pty.Setsize(master, &pty.Winsize{Rows: 1000, Cols: 1000}))
	modes := must(unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS))
	modes.Iflag |= unix.IUTF8
	modes.Lflag &^= unix.ECHO
	check(unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, modes))
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(s.cmd.Start())
	b.stops = append(b.stops, s.stop)
	s.run("PS1= PS2=; unset -v PROMPT_COMMAND MAILCHECK; set +o history +H")
	return s
}

func (s *bareShell) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = s.master.Close()
	}
}

// run runs a command and returns how long it took.
func (s *bareShell) run(text string) time.Duration {
	took, err := s.try(text)
	check(err)
	return took
}

// try types a command and reads until its mark is the last output.
func (s *bareShell) try(text string) (time.Duration, error) {
	s.serial++
	mark := fmt.Sprintf("\x01%d\x02", s.serial)
	line := fmt.Sprintf("%s; printf '\\001%d\\002'\n", text, s.serial)
	if err := s.master.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return 0, err
	}
	begun := time.Now()
	if _, err := s.master.WriteString(line); err != nil {
		return 0, err
	}
	for end := ""; end != mark; {
		n, err := s.master.Read(s.buffer[:])
		if err != nil {
			return 0, err
		}
		end += string(s.buffer[max(0, n-len(mark)):n])
		end = end[max(0, len(end)-len(mark)):]
	}
	return time.Since(begun), nil
}

// metric reads one value of /metrics.
func (s *server) metric(name string) (value float64) {
	for line := range strings.Lines(string(must(s.ask(get("/metrics"))))) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			_ = must(fmt.Sscan(text, &value))
			return value
		}
	}
	check(fmt.Errorf("there is no metric %s", name))
	return 0
}
