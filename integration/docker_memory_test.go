//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

// plain is a container that runs the server as any launcher may: with a key, and
// without a driver of ours.
type plain struct {
	id, key, socket string
	dir             string // on the host, /run/s in the container
}

// startPlain starts a server in a container, with words for docker create before
// the image and flags for the server after it.
func startPlain(t *testing.T, image string, words, flags []string) *plain {
	t.Helper()
	binary, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{key: strings.Repeat("k", 32), dir: t.TempDir()}
	p.socket = filepath.Join(p.dir, "sock")
	program, err := os.ReadFile(binary)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "server"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"create", "--env", "SESSION_API_KEY=" + p.key, "--volume", p.dir + ":/run/s"}, words...)
	args = append(args, image, "/run/s/server", "--addr", "unix:/run/s/sock", "--working-dir", "/workspace")
	p.id = dockerCLI(t, append(args, flags...)...)
	t.Cleanup(func() {
		if out, err := dockerOutput("rm", "--force", "--volumes", p.id); err != nil {
			t.Error(out, err)
		}
	})
	p.start(t)
	return p
}

// start starts the container and waits until the server answers.
func (p *plain) start(t *testing.T) {
	t.Helper()
	dockerCLI(t, "start", p.id)
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := call(t.Context(), p.dial, p.key, http.MethodGet, "/alive", nil)
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the server does not answer: %v\n%s", err, dockerCLI(t, "logs", p.id))
		}
	}
}

func (p *plain) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
}

// run runs a command and returns its output.
func (p *plain) run(t *testing.T, command string) string {
	t.Helper()
	answer, err := runIn(t.Context(), p.dial, p.key, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, p.state(t))
	}
	content, _ := answer["content"].(string)
	return content
}

// state says whether the container runs, and why not.
func (p *plain) state(t *testing.T) string {
	t.Helper()
	return dockerCLI(t, "inspect", "--format", "running {{.State.Running}}, out of memory {{.State.OOMKilled}}, exit {{.State.ExitCode}}", p.id)
}

// alive fails the test where the server ended, or began anew.
func (p *plain) alive(t *testing.T, attack string) {
	t.Helper()
	if out := p.run(t, "echo $lives"); out != "same" {
		t.Fatalf("%s: got %q, want the same shell (%s)", attack, out, p.state(t))
	}
}

func small(memory string) []string { return []string{"--memory", memory, "--memory-swap", memory} }

// TestDockerUnauthenticatedMemory has clients without a key take up the memory of a
// small server: with bodies for an open route, with headers that do not end, and with
// headers of very many lines.
func TestDockerUnauthenticatedMemory(t *testing.T) {
	t.Parallel()
	p := startPlain(t, image(t, busyboxImage), small("128m"), nil)
	p.run(t, "lives=same")
	var lines strings.Builder
	for i := range 1900 {
		fmt.Fprintf(&lines, "%x: \r\n", i)
	}
	for name, request := range map[string]string{
		"bodies for /v1/claim": "POST /v1/claim HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n" +
			strings.Repeat(" ", 999_999),
		"headers that do not end":    "GET /alive HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 15<<10),
		"headers of many lines":      "GET /alive HTTP/1.1\r\nHost: x\r\n" + lines.String(),
		"bodies for a keyed route":   "POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat(" ", 999_999),
		"many lines before the body": "POST /v1/status HTTP/1.1\r\nHost: x\r\n" + lines.String() + "Content-Length: 9\r\n\r\n",
	} {
		flood(t, p, request)
		p.alive(t, name)
	}
}

// flood sends the same over many connections that stay open, and returns once all of
// it was sent or refused.
func flood(t *testing.T, p *plain, request string) {
	t.Helper()
	var sent sync.WaitGroup
	for range 900 {
		conn, err := p.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sent.Go(func() {
			_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(conn, request) // the server may close it at any moment
		})
	}
	sent.Wait()
	p.alive(t, "while the connections are open")
}

// TestDockerHugeDirectory has a small server list, search and pack a directory whose
// names do not fit into its memory.
func TestDockerHugeDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Links need no inode each; a file has at most 65,000 of them on ext4.
	first := ""
	for i := range 250_000 {
		name := filepath.Join(dir, fmt.Sprintf("%0250d", i))
		if first == "" || os.Link(first, name) != nil {
			testhelp.WriteFile(t, name, "x\n", 0o644)
			first = name
		}
	}
	p := startPlain(t, image(t, busyboxImage), append(small("128m"), "--volume", dir+":/huge:ro"), nil)
	p.run(t, "lives=same")
	for _, tt := range []struct {
		name, method, path string
		body               any
		status             int
	}{
		{"list", http.MethodPost, "/list_files", map[string]any{"path": "/huge"}, http.StatusRequestEntityTooLarge},
		{"download", http.MethodGet, "/download_files?path=/huge", nil, http.StatusRequestEntityTooLarge},
		{"download from above", http.MethodGet, "/download_files?path=/huge/..", nil, http.StatusRequestEntityTooLarge},
		{"view", http.MethodPost, "/execute_action", action("read", map[string]any{"path": "/huge", "impl_source": "oh_aci"}), http.StatusOK},
		{"list_directory", http.MethodPost, "/execute_action", action("list_directory", map[string]any{"path": "/huge"}), http.StatusOK},
		{"glob", http.MethodPost, "/execute_action", action("glob", map[string]any{"path": "/huge", "pattern": "**/*9"}), http.StatusOK},
		{"grep", http.MethodPost, "/execute_action", action("grep", map[string]any{"path": "/huge", "pattern": "y"}), http.StatusOK},
	} {
		_, err := call(t.Context(), p.dial, p.key, tt.method, tt.path, tt.body)
		if tt.status == http.StatusOK && err != nil || tt.status != http.StatusOK && !strings.Contains(fmt.Sprint(err), fmt.Sprint(tt.status)) {
			t.Errorf("%s: got %v, want %d", tt.name, err, tt.status)
		}
		p.alive(t, tt.name)
	}
}

func action(name string, args map[string]any) map[string]any {
	return map[string]any{"action": map[string]any{"action": name, "args": args}}
}

// rss is the resident memory of the sandbox's server in MiB.
func (p *plain) rss(t *testing.T) (mib int) {
	t.Helper()
	text := p.run(t, `awk '/^VmRSS/ {print int($2 / 1024)}' /proc/1/status`)
	if _, err := fmt.Sscan(text, &mib); err != nil {
		t.Fatalf("got %q: %v", text, err)
	}
	return mib
}

// TestDockerLargeRequests has small servers work on the largest bodies, one after the other
// and at once: each is answered, and the server is small again soon afterwards, also where
// it is not idle.
func TestDockerLargeRequests(t *testing.T) {
	t.Parallel()
	p := startPlain(t, image(t, busyboxImage), small("256m"), []string{"--state-dir", "/var/lib/actiond"})
	p.run(t, "lives=same")
	text := strings.Repeat("0123456789abcde\n", 24<<20/16)
	write := func(i int) error {
		_, err := call(t.Context(), p.dial, p.key, http.MethodPost, "/execute_action", action("write", map[string]any{"path": fmt.Sprintf("/workspace/%d", i), "content": text}))
		return err
	}
	for range 2 { // the second keeps the first one's text for undo
		if err := write(0); err != nil {
			t.Error(err)
		}
		before := time.Now()
		for mib := p.rss(t); mib > 40; mib = p.rss(t) {
			if time.Since(before) > time.Minute {
				t.Fatalf("the server keeps %d MiB", mib)
			}
		}
	}
	var sent sync.WaitGroup
	for i := range 8 {
		sent.Go(func() {
			// The client may learn of the refusal, or that its body is no longer read.
			err := write(i)
			refused := err != nil && strings.Contains(err.Error(), "429") || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
			if err != nil && !refused {
				t.Error(err)
			}
		})
	}
	sent.Wait()
	p.alive(t, "eight large bodies")
	p.run(t, "yes 'hello world' | head -c 31000000 > /workspace/large")
	for range 8 {
		sent.Go(func() {
			if _, err := call(t.Context(), p.dial, p.key, http.MethodPost, "/execute_action", action("grep", map[string]any{"path": "/workspace/large", "pattern": "nope"})); err != nil {
				t.Error(err)
			}
		})
	}
	sent.Wait()
	p.alive(t, "eight searches")
}

// TestDockerUnmappedMemory has an agent fill memory that is in no process' size, after a
// large request: the kernel ends the agent's process and not the server.
func TestDockerUnmappedMemory(t *testing.T) {
	t.Parallel()
	p := startPlain(t, image(t, debianImage), small("256m"), []string{"--state-dir", "/var/lib/actiond", "--username", "agent"})
	p.run(t, "lives=same")
	text := strings.Repeat("0123456789abcde\n", 20<<20/16)
	if _, err := call(t.Context(), p.dial, p.key, http.MethodPost, "/execute_action", action("write", map[string]any{"path": "/tmp/large", "content": text})); err != nil {
		t.Error(err)
	}
	out := p.run(t, `perl -e 'my $nr = qx(uname -m) =~ /x86_64/ ? 319 : 279; my $name = "x";
		while ((my $fd = syscall($nr, $name, 0)) >= 0) { open(my $f, ">&=", $fd); push @kept, $f; for (1 .. 1024) { syswrite($f, "x" x 65536) // last } }'; echo $?`)
	if !strings.HasSuffix(out, "137") {
		t.Errorf("got %q, want the program killed", out)
	}
	p.alive(t, "unmapped memory")
}
