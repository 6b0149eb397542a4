//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// gatewayProcess is runtimectl serve, as a process on a state directory.
type gatewayProcess struct {
	tb       testing.TB
	stateDir string
	cmd      *exec.Cmd
	url, key string
}

// serveGateway starts a gateway. At the end of the test it is ended; what it
// left is an error.
func serveGateway(tb testing.TB, args ...string) *gatewayProcess {
	tb.Helper()
	g := &gatewayProcess{tb: tb, stateDir: tb.TempDir()}
	g.start(args...)
	tb.Cleanup(func() {
		g.signal(syscall.SIGTERM)
		program, err := cliProgram()
		if err != nil {
			tb.Fatal(err)
		}
		left, err := exec.Command(program, "ls", "-q", "--state-dir", g.stateDir).Output()
		if err != nil {
			tb.Error(err)
		}
		for id := range strings.FieldsSeq(string(left)) {
			tb.Errorf("sandbox %s is left", id)
			_ = exec.Command(program, "rm", "--state-dir", g.stateDir, id).Run()
		}
	})
	return g
}

func (g *gatewayProcess) start(args ...string) {
	g.tb.Helper()
	program, err := cliProgram()
	if err != nil {
		g.tb.Fatal(err)
	}
	binary, err := serverBinary()
	if err != nil {
		g.tb.Fatal(err)
	}
	g.cmd = exec.Command(program, append([]string{
		"serve", "--addr", "127.0.0.1:0", "--state-dir", g.stateDir, "--server", binary,
		"--ttl", "1h",
	}, args...)...) // should the tests be killed, nothing is left for ever
	log := &logWriter{tb: g.tb}
	g.cmd.Stderr = log
	g.tb.Cleanup(log.stop)
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		g.tb.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		g.tb.Fatal(err)
	}
	if g.url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		g.tb.Fatalf("the gateway does not say where it listens: %v", err)
	}
	g.url = strings.TrimSpace(g.url)
	key := testhelp.ReadFile(g.tb, filepath.Join(g.stateDir, "gateway-key"))
	g.key = strings.TrimSpace(string(key))
}

func (g *gatewayProcess) signal(s syscall.Signal) {
	g.tb.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		return // it was killed before
	}
	if err := g.cmd.Wait(); err != nil && s == syscall.SIGTERM {
		g.tb.Errorf("ending the gateway: %v", err)
	}
}

// logWriter logs what a process says, as long as the test runs.
type logWriter struct {
	mu   sync.Mutex
	tb   testing.TB
	over bool
}

func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.tb.Logf("gateway: %s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

func (l *logWriter) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// ask makes a request to the gateway, or to a sandbox behind it.
func (g *gatewayProcess) ask(ctx context.Context, method, url, body string, header ...string) (int, []byte, error) {
	if strings.HasPrefix(url, "/") {
		url = g.url + url
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-API-Key", g.key)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// want asks and reads the answer, which must have the status.
func (g *gatewayProcess) want(status int, method, url, body string, header ...string) map[string]any {
	g.tb.Helper()
	got, answer, err := g.ask(g.tb.Context(), method, url, body, header...)
	if err != nil || got != status {
		g.tb.Fatalf("%s %s: got %d %s, %v, want %d", method, url, got, answer, err, status)
	}
	var v map[string]any
	_ = json.Unmarshal(answer, &v)
	return v
}

func runBody(command string) string {
	return fmt.Sprintf(`{"action":{"action":"run","args":{"command":%q}}}`, command)
}

// TestGatewayOpenHands makes the calls that the RemoteRuntime of OpenHands makes,
// in its order, with its headers.
func TestGatewayOpenHands(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	g := serveGateway(t)
	start := `{"image":"` + busyboxImage + `","command":["/openhands/micromamba/bin/micromamba","run","-n","openhands","poetry","run","python","-u","-m",
		"openhands.runtime.action_execution_server","60000","--working-dir","/workspace","--plugins","agent_skills","jupyter",
		"--username","openhands","--user-id","1000","--no-enable-browser"],"working_dir":"/openhands/code/",
		"environment":{"DEBUG":"true","NO_CHANGE_TIMEOUT_SECONDS":"2"},"session_id":"a-session","resource_factor":1}`
	g.want(404, "GET", "/sessions/a-session", "")
	started := g.want(200, "POST", "/start", start)
	id, url, key := started["runtime_id"].(string), started["url"].(string), started["session_api_key"].(string)
	testhelp.Eventually(t, func() bool {
		return g.want(200, "GET", "/runtime/"+id, "")["pod_status"] == "ready"
	}, "the runtime is ready")
	g.want(200, "GET", url+"/alive", "", "X-Session-API-Key", key)
	runs := func(command, want string) {
		t.Helper()
		// The requests to a sandbox carry both keys.
		answer := g.want(200, "POST", url+"/execute_action", runBody(command), "X-Session-API-Key", key)
		if got, _ := answer["content"].(string); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	runs("id -un; pwd; echo $DEBUG; X=kept", "openhands\n/workspace\ntrue")
	// The settings in the environment and the command line are the server's, too.
	silent := fmt.Sprint(g.want(200, "POST", url+"/execute_action", runBody("read line"), "X-Session-API-Key", key))
	if !strings.Contains(silent, "[The command has no new output after 2 seconds.") {
		t.Errorf("a silent command: got %s", silent)
	}
	g.want(200, "POST", url+"/execute_action", `{"action":{"action":"run","args":{"command":"C-c","is_input":true}}}`, "X-Session-API-Key", key)
	if info := fmt.Sprint(g.want(200, "GET", url+"/server_info", "", "X-Session-API-Key", key)); !strings.Contains(info, "--no-enable-browser") {
		t.Errorf("the browser is not off: got %s", info)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	file, _ := w.CreateFormFile("file", "up.txt")
	_, _ = io.WriteString(file, strings.Repeat("x", 1<<20))
	_ = w.Close()
	g.want(200, "POST", url+"/upload_file?destination=/workspace", form.String(), "X-Session-API-Key", key, "Content-Type", w.FormDataContentType())
	runs("wc -c <up.txt", "1048576")
	if status, zip, err := g.ask(t.Context(), "GET", url+"/download_files?path=/workspace", "", "X-Session-API-Key", key); status != 200 || !bytes.HasPrefix(zip, []byte("PK")) {
		t.Errorf("download: got %d, %d bytes, %v", status, len(zip), err)
	}
	g.want(200, "POST", "/pause", `{"runtime_id":"`+id+`"}`)
	if got := g.want(200, "GET", "/sessions/a-session", "")["status"]; got != "paused" {
		t.Errorf("status: got %v, want paused", got)
	}
	runs("echo $X", "kept") // a request resumes it
	g.want(200, "POST", "/pause", `{"runtime_id":"`+id+`"}`)
	g.want(200, "POST", "/resume", `{"runtime_id":"`+id+`"}`)
	runs("echo $X", "kept")

	// Another gateway finds it again, killed or not, by its session.
	g.signal(syscall.SIGKILL)
	g.start()
	found := g.want(200, "GET", "/sessions/a-session", "")
	if found["runtime_id"] != id || found["session_api_key"] != key || found["status"] != "running" || found["pod_status"] != "ready" {
		t.Errorf("after a restart: got %v", found)
	}
	url = found["url"].(string)
	runs("echo $X", "kept")
	for _, other := range []string{"x", key[1:] + key[:1]} {
		g.want(403, "POST", url+"/execute_action", runBody("true"), "X-Session-API-Key", other)
	}
	dockerCLI(t, "kill", containerOf(t, id))
	testhelp.Eventually(t, func() bool {
		status, _, _ := g.ask(t.Context(), "GET", url+"/alive", "", "X-Session-API-Key", key)
		return status == 503
	}, "the gateway notices a death")
	g.want(200, "POST", "/resume", `{"runtime_id":"`+id+`"}`)
	runs("wc -c <up.txt", "1048576")
	g.want(200, "POST", "/stop", `{"runtime_id":"`+id+`"}`)
	g.want(404, "GET", "/sessions/a-session", "")
	g.want(404, "GET", url+"/alive", "")
}

func TestGatewayManyAtOnce(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	g := serveGateway(t)
	var group sync.WaitGroup
	ids := make([]string, 30)
	for i := range ids {
		group.Go(func() {
			status, answer, err := g.ask(t.Context(), "POST", "/v1/sandboxes", `{"image":"`+busyboxImage+`"}`)
			var s struct{ ID, URL string }
			if err != nil || status != 201 || json.Unmarshal(answer, &s) != nil {
				t.Errorf("got %d %s, %v", status, answer, err)
				return
			}
			ids[i] = s.ID
			word := fmt.Sprint("number ", i)
			if status, answer, err := g.ask(t.Context(), "POST", s.URL+"/execute_action", runBody("echo "+word)); status != 200 || !strings.Contains(string(answer), word) {
				t.Errorf("got %d %s, %v", status, answer, err)
			}
			if status, answer, err := g.ask(t.Context(), "DELETE", "/v1/sandboxes/"+s.ID, ""); status != 204 {
				t.Errorf("got %d %s, %v", status, answer, err)
			}
		})
	}
	group.Wait()
	slices.Sort(ids)
	if all := slices.Compact(ids); len(all) != 30 {
		t.Errorf("got %d sandboxes, want 30", len(all))
	}
}

// TestGatewayKilled kills a gateway at different moments of a creation. The next
// one settles what is left: exactly one sandbox, or none, and the key works.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	g := serveGateway(t)
	body := `{"image":"` + busyboxImage + `"}`
	for i, wait := range []int{0, 20, 60, 120, 250, 400} {
		key := fmt.Sprint("key ", i)
		go func() { _, _, _ = g.ask(t.Context(), "POST", "/v1/sandboxes", body, "Idempotency-Key", key) }()
		<-time.After(time.Duration(wait) * time.Millisecond) // any moment will do
		g.signal(syscall.SIGKILL)
		g.start()
		made := g.sandboxOf(t, body, key)
		g.want(200, "POST", made["url"].(string)+"/execute_action", runBody("true"))
		testhelp.Eventually(t, func() bool {
			list, _ := g.want(200, "GET", "/v1/sandboxes", "")["sandboxes"].([]any)
			return len(list) == 1
		}, "there is one sandbox")
		g.want(204, "DELETE", "/v1/sandboxes/"+made["id"].(string), "")
	}
}

// sandboxOf makes the sandbox of a key, or finds it.
func (g *gatewayProcess) sandboxOf(t *testing.T, body, key string) (made map[string]any) {
	t.Helper()
	status, answer, err := g.ask(t.Context(), "POST", "/v1/sandboxes", body, "Idempotency-Key", key)
	if err != nil || status != 200 && status != 201 || json.Unmarshal(answer, &made) != nil {
		t.Fatalf("got %d %s, %v", status, answer, err)
	}
	return made
}

// TestGatewayLeaves lets clients leave in mid-create.
func TestGatewayLeaves(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	g := serveGateway(t)
	for _, wait := range []int{1, 30, 100, 200} {
		ctx, leave := context.WithTimeout(t.Context(), time.Duration(wait)*time.Millisecond)
		status, answer, err := g.ask(ctx, "POST", "/v1/sandboxes", `{"image":"`+busyboxImage+`"}`)
		leave()
		if err == nil && status == 201 { // it was faster
			var s struct{ ID string }
			_ = json.Unmarshal(answer, &s)
			g.want(204, "DELETE", "/v1/sandboxes/"+s.ID, "")
		}
	}
	testhelp.Eventually(t, func() bool {
		list, _ := g.want(200, "GET", "/v1/sandboxes", "")["sandboxes"].([]any)
		return len(list) == 0
	}, "nothing is left")
}

// TestGatewayDeafReaders has clients that ask for a stream, and for a terminal,
// of a command that prints for ever, and read nothing of it.
func TestGatewayDeafReaders(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	g := serveGateway(t)
	made := g.want(201, "POST", "/v1/sandboxes", `{"image":"`+busyboxImage+`"}`)
	id, url := made["id"].(string), made["url"].(string)
	act := func(session, args string) map[string]any {
		t.Helper()
		return g.want(200, "POST", url+"/execute_action", `{"action":{"action":"run","session":"`+session+`","args":{`+args+`},"timeout":60}}`)
	}
	processes := map[string]int{"gateway": g.cmd.Process.Pid, "server": serverOf(t, id)}
	before := map[string]int{}
	for name, pid := range processes {
		before[name] = resident(t, pid)
	}
	post := func(session, form string) string {
		body := `{"action":{"action":"run","session":"` + session + `","args":{"command":"yes","blocking":true}}}`
		return "POST /sandboxes/" + id + "/v1/actions HTTP/1.1\r\nHost: x\r\nX-API-Key: " + g.key + "\r\nAccept: " + form +
			"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	for _, request := range []string{
		post("loud", "text/event-stream"),
		post("louder", "application/x-ndjson"),
		"GET /sandboxes/" + id + "/v1/sessions/loud/terminal HTTP/1.1\r\nHost: x\r\nX-API-Key: " + g.key + "\r\nConnection: Upgrade\r\n" +
			"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n",
	} {
		conn := testhelp.Dial(t, "tcp", strings.TrimPrefix(g.url, "http://"))
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
	}
	const passing = "actiond_gateway_proxied_in_flight "
	inFlight := func() string {
		_, answer, err := g.ask(t.Context(), "GET", "/metrics", "")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(answer), "\n"+passing)
		n, _, _ := strings.Cut(after, "\n")
		return n
	}
	testhelp.Eventually(t, func() bool { return inFlight() == "3" }, "all requests are passed on")
	for inFlight() != "0" { // the test's own time limit ends it
		if got, _ := act("quiet", `"command":"echo hi"`)["content"].(string); got != "hi" {
			t.Fatalf("beside it: got %q", got)
		}
		<-time.After(500 * time.Millisecond)
	}
	for name, pid := range processes {
		if now := resident(t, pid); now > before[name]+64<<10 {
			t.Errorf("the %s grew from %d to %d KiB", name, before[name], now)
		}
	}
	for _, session := range []string{"loud", "louder"} {
		act(session, `"command":"C-c","is_input":true`)
		if got, _ := act(session, `"command":"echo back"`)["content"].(string); !strings.HasSuffix(got, "back") {
			t.Errorf("%s is stuck: %.200q", session, got)
		}
	}
	g.want(204, "DELETE", "/v1/sandboxes/"+id, "")
}

// containerOf returns the container of a sandbox.
func containerOf(t *testing.T, id string) string {
	t.Helper()
	return dockerCLI(t, "ps", "--quiet", "--filter", "name=actiond-"+id+"-")
}

// serverOf is the process of a sandbox's server, the child of its init.
func serverOf(t *testing.T, id string) int {
	t.Helper()
	for line := range strings.Lines(dockerCLI(t, "top", containerOf(t, id), "-eo", "pid,comm")) {
		if words := strings.Fields(line); len(words) == 2 && words[1] == "server" {
			pid, err := strconv.Atoi(words[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the sandbox has no server")
	return 0
}

// resident is the memory of a process in KiB.
func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	status := testhelp.ReadFile(t, fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// BenchmarkGateway measures one command through the sandbox's socket and through
// the gateway in turn, and from the request for a warm sandbox to the answer of
// its first command.
func BenchmarkGateway(b *testing.B) {
	image(b, busyboxImage)
	g := serveGateway(b, "--warm", "2", busyboxImage)
	host, err := docker.Open(docker.Config{StateDir: g.stateDir, Agent: agent.Agent{}})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	made := g.want(201, "POST", "/v1/sandboxes", `{"memory":1073741824}`)
	s, err := host.Get(b.Context(), made["id"].(string))
	if err != nil {
		b.Fatal(err)
	}
	key := made["session_api_key"].(string)
	direct := &http.Client{Transport: &http.Transport{DialContext: dialerOf(s)}}
	once := func(client *http.Client, url string) time.Duration {
		begun := time.Now()
		r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, url+"/execute_action", strings.NewReader(runBody("true")))
		r.Header.Set("X-Session-API-Key", key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
		return time.Since(begun)
	}
	b.Run("true", func(b *testing.B) {
		var socket, through []time.Duration
		for b.Loop() {
			socket = append(socket, once(direct, "http://sandbox"))
			through = append(through, once(http.DefaultClient, made["url"].(string)))
		}
		b.ReportMetric(median(socket), "socket-p50-µs")
		b.ReportMetric(median(through), "gateway-p50-µs")
	})
	b.Run("claim", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			testhelp.Eventually(b, func() bool {
				_, text, _ := g.ask(b.Context(), "GET", "/metrics", "")
				return bytes.Contains(text, []byte(`actiond_gateway_pool_sandboxes{state="ready"} 2`))
			}, "a sandbox is warm")
			b.StartTimer()
			begun := time.Now()
			warm := g.want(201, "POST", "/v1/sandboxes", `{}`)
			g.want(200, "POST", warm["url"].(string)+"/execute_action", runBody("true"))
			took = append(took, time.Since(begun))
			b.StopTimer()
			if warm["warm"] != true {
				b.Error("it was not warm")
			}
			g.want(204, "DELETE", "/v1/sandboxes/"+warm["id"].(string), "")
			b.StartTimer()
		}
		b.ReportMetric(median(took)/1000, "claim-p50-ms")
	})
	g.want(204, "DELETE", "/v1/sandboxes/"+s.ID, "")
}

// median is in microseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds())
}

func dialerOf(s *sandbox.Sandbox) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) }
}
