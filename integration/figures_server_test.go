//go:build figures

package integration_test

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buildServer builds the server as it is shipped.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/server")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	if err := os.Chmod(filepath.Dir(binary), 0o755); err != nil { // for a user who is not this one
		t.Fatal(err)
	}
	return binary
}

// scratch makes a directory that every user may enter. t.TempDir is not: its
// parents are closed.
func (f *figures) scratch() string {
	dir, err := os.MkdirTemp("", "figures-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	return dir
}

// environment is what the server and the bare shells start with: a home
// without files, so that no .bashrc counts on either side.
func environment(home, temp string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + temp, "LANG=C.UTF-8", "TERM=xterm-256color"}
}

// process is a server that runs.
type process struct {
	*client
	cmd  *exec.Cmd
	dir  string // where its shells start
	root string // holds dir and everything else the server may write to
	took time.Duration
	log  *bytes.Buffer
}

// pid is that of the server.
func (p *process) pid() int { return p.cmd.Process.Pid }

// launch starts a server and waits for its first answer. network is "tcp" or
// "unix".
func (f *figures) launch(network string, flags ...string) *process {
	f.Helper()
	root := f.scratch()
	for _, dir := range []string{"home", "tmp", "work"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	address := filepath.Join(root, "socket")
	listen := "unix:" + address
	if network == "tcp" {
		address = f.freeAddress()
		listen = address
	}
	p := &process{client: &client{network: network, address: address}, dir: filepath.Join(root, "work"), root: root, log: new(bytes.Buffer)}
	p.cmd = exec.Command(f.binary, append([]string{"--addr", listen, "--working-dir", p.dir}, flags...)...)
	p.cmd.Env = environment(filepath.Join(root, "home"), filepath.Join(root, "tmp"))
	p.cmd.Stderr = p.log
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		f.Fatalf("starting the server: %v", err)
	}
	f.Cleanup(func() { p.stop(f) })
	for !p.alive() {
		if time.Since(begun) > 20*time.Second {
			f.Fatalf("the server is not ready after 20 s: %s", p.log)
		}
		time.Sleep(200 * time.Microsecond) // nothing tells a stranger that a port is bound
	}
	p.took = time.Since(begun)
	return p
}

// stop ends the server as a launcher would.
func (p *process) stop(f *figures) {
	if p.cmd.ProcessState != nil {
		return
	}
	p.hangUp()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		f.Errorf("stopping the server: %v: %s", err, p.log)
	}
}

func (f *figures) freeAddress() string {
	var config net.ListenConfig
	l, err := config.Listen(f.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// client speaks HTTP/1.1 with a server over connections that are kept. It sends
// a request in one write and reads the answer on the caller's goroutine, because
// what a client does beyond that would count as the server's time: that of
// net/http hands every request to two other goroutines and sends a large body
// in pieces of 32 KiB, each with a wake-up of its own.
type client struct {
	network, address string

	mu   sync.Mutex
	idle []*connection
}

type connection struct {
	net.Conn
	in *bufio.Reader
}

// alive asks over a connection of its own.
func (c *client) alive() bool {
	conn, err := c.connect()
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.ask(getRequest("/alive"))
	return err == nil
}

func (c *client) connect() (*connection, error) {
	conn, err := net.Dial(c.network, c.address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// ask sends a whole request and returns the body of the answer, which must
// have status 200.
func (c *client) ask(request []byte) ([]byte, error) {
	conn, err := c.take()
	if err != nil {
		return nil, err
	}
	answer, err := conn.ask(request)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
	return answer, nil
}

func (c *client) take() (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.idle) - 1; last >= 0 {
		conn := c.idle[last]
		c.idle = c.idle[:last]
		return conn, nil
	}
	return c.connect()
}

// hangUp closes the connections that are idle.
func (c *client) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		_ = conn.Close()
	}
	c.idle = nil
}

func (c *connection) ask(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	return body(resp)
}

// body reads the body of an answer, which must have status 200.
func body(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	data := make([]byte, resp.ContentLength)
	_, err := io.ReadFull(resp.Body, data)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	return data, err
}

func getRequest(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: sandbox\r\n\r\n", path)
}

// request is the whole HTTP request for an action. The timeout is long enough
// for all of them.
func request(kind, session string, args map[string]any) []byte {
	data := actionJSON(kind, session, args)
	head := fmt.Appendf(nil, "POST /execute_action HTTP/1.1\r\nHost: sandbox\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(data))
	return append(head, data...)
}

func actionJSON(kind, session string, args map[string]any) []byte {
	action := map[string]any{"action": kind, "args": args, "timeout": 900.0}
	if session != "" {
		action["session"] = session
	}
	data, err := json.Marshal(map[string]any{"action": action})
	if err != nil {
		panic(err) // maps of strings can be encoded
	}
	return data
}

func command(text, session string) []byte {
	return request("run", session, map[string]any{"command": text})
}

// run does a prepared command and times it. The command must succeed.
func (c *client) run(request []byte) (time.Duration, error) {
	begun := time.Now()
	answer, err := c.ask(request)
	took := time.Since(begun)
	if err == nil && !bytes.Contains(answer, []byte(`"exit_code":0`)) {
		err = fmt.Errorf("%s answered %s", clip(request), clip(answer))
	}
	return took, err
}

// act does a prepared action, checks that the answer contains want, and returns
// how long it took and how many bytes the answer has.
func (f *figures) act(c *client, request []byte, want string) (time.Duration, int) {
	f.Helper()
	begun := time.Now()
	answer, err := c.ask(request)
	took := time.Since(begun)
	if err != nil || !bytes.Contains(answer, []byte(want)) {
		f.Fatalf("%s answered %s, %v, want %q in it", clip(request), clip(answer), err, want)
	}
	return took, len(answer)
}

func clip(data []byte) []byte { return data[:min(len(data), 500)] }

// metric reads one value of /metrics.
func (f *figures) metric(c *client, name string) int {
	text, err := c.ask(getRequest("/metrics"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				f.Fatalf("metric %s: %v", name, err)
			}
			return int(n)
		}
	}
	f.Fatalf("there is no metric %s", name)
	return 0
}
