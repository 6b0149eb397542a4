//go:build integration

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// secureTarget answers at 443 by TLS, with a certificate for the names, and at 80: what a request had
// as Authorization, reversed, so that it is no echo, or with /echo as it was.
const secureTarget = `
import http.server, json, ssl, threading
sent = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"): return self.upgrade()
        key = self.headers.get("Authorization", "nothing")
        body = (json.dumps(sent) if self.path == "/sent" else key if self.path == "/echo" else key[::-1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_HEAD(self):
        status, again = (self.path.split("/") + [""])[1:3]
        key = self.headers.get("Authorization", "nothing")
        self.wfile.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
        if again: self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        self.wfile.write(key.removeprefix("Bearer ").encode())
    # The control plane of a worker: what it was sent is at /sent, and each answer has work, and an
    # address for a connection that is kept.
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent.append([self.headers["Host"] + self.path, self.headers.get("Authorization", "nothing")[::-1], body])
        work = json.dumps({"command": "id -un; printf '%s ' $KEY; cat /proc/*/environ 2>/dev/null | grep -ac actiond-test-secre[t]", "url": "/connect?token=signed"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(work)))
        self.end_headers()
        self.wfile.write(work)
    def upgrade(self):
        sent.append([self.headers["Host"] + self.path, self.headers.get("Authorization", "nothing")[::-1], ""])
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        self.wfile.write(self.rfile.readline())
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer): daemon_threads = True
plain, secure = Server(("", 80), Handler), Server(("", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/chain.pem", "/tls/key.pem")
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=plain.serve_forever).start()
secure.serve_forever()
`

// startSecure starts a container with the target, and returns its address and the file of the
// authority that signed its certificate.
func startSecure(t *testing.T, names ...string) (addr, roots string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "target-") //nolint:usetesting // the engine mounts it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	authority, err := egress.NewCA("world")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.X509KeyPair([]byte(authority.Certificate), []byte(authority.Key))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	roots = filepath.Join(dir, "ca.pem")
	for name, data := range map[string][]byte{
		"ca.pem": []byte(authority.Certificate), "chain.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}),
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "target.py": []byte(secureTarget),
	} {
		testhelp.WriteFile(t, filepath.Join(dir, name), data, 0o600)
	}
	id := dockerCLI(t, "run", "-d", "--name", "actiond-test-secure-"+random.Hex(4), "-v", dir+":/tls:ro", "--user", "0:0", "--entrypoint", "python3", image(t, fullImage), "/tls/target.py")
	t.Cleanup(func() {
		if out, err := dockerOutput("rm", "-f", id); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	addr = dockerCLI(t, "inspect", "-f", "{{.NetworkSettings.IPAddress}}", id)
	testhelp.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort(addr, "443"))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "the target listens")
	return addr, roots
}

// secretHost is a host whose sandboxes reach the target as several names.
type secretHost struct {
	*docker.Host

	state, addr string
	names       []string
	private     []netip.Prefix
}

func newSecretHost(t *testing.T, names ...string) *secretHost {
	t.Helper()
	addr, roots := startSecure(t, names...)
	dir, err := os.MkdirTemp("/tmp", "policy-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := testHost(t, func(c *docker.Config) { c.StateDir, c.Roots = dir, roots })
	neighbors := dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge")
	return &secretHost{Host: h, state: dir, addr: addr, names: names, private: []netip.Prefix{netip.MustParsePrefix(neighbors)}}
}

// box makes a sandbox with a secret for api.example.
func (h *secretHost) box(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	return h.boxWith(t, spec, fmt.Sprintf(`{"mode":"allowlist","allow":["api.example:80","other.example"],"secrets":[{"name":"API","hosts":["api.example"],"var":"API_KEY","value":%q}]}`, secretValue))
}

// boxWith makes a sandbox with a policy.
func (h *secretHost) boxWith(t *testing.T, spec sandbox.Spec, policy string) *sandbox.Sandbox {
	t.Helper()
	p, err := egress.ParsePolicy([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	spec.Policy, spec.Private = &p, h.private
	s := create(t, h.Host, spec)
	h.know(t)
	return s
}

// know makes the egress proxy know the names of the target.
func (h *secretHost) know(t *testing.T) {
	t.Helper()
	proxies := egressProxies(t, h.state)
	if len(proxies) != 1 {
		t.Fatalf("there are %d egress proxies", len(proxies))
	}
	hosts := map[string]string{"impostor.example": h.addr}
	for _, name := range h.names {
		hosts[name] = h.addr
	}
	nameHosts(t, proxies[0], hosts)
}

func reversed(text string) string {
	b := []byte(text)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

const secretValue = "actiond-test-secret-value-0123456789"

// TestDockerNetworkSecrets: a host with a secret gets it, by programs that the sandbox's authority is
// named to and by those that read the image's bundle; it is changed and removed while they run.
func TestDockerNetworkSecrets(t *testing.T) {
	t.Parallel()
	h := newSecretHost(t, "api.example", "other.example")
	s := h.box(t, sandbox.Spec{Image: image(t, fullImage)})
	const python = `python3 -c 'import urllib.request as u; print(u.urlopen("https://api.example/").read().decode())'`
	const unset = "env -u SSL_CERT_FILE -u CURL_CA_BUNDLE -u REQUESTS_CA_BUNDLE -u GIT_SSL_CAINFO "
	want := reversed("Bearer " + secretValue)
	for _, command := range []string{
		"curl -sS https://api.example/", "curl -sS -H 'Authorization: Bearer mine' https://api.example/", "curl -sS --http1.1 https://api.example/",
		unset + "curl -sS https://api.example/", python, unset + python,
	} {
		if got, code := run(t, s, command); code != 0 || strings.TrimSpace(got) != want {
			t.Errorf("%s: exit code %d, %s", command, code, got)
		}
	}
	for command, want := range map[string]string{
		"echo $API_KEY":                     "actiond-secret-API",
		"curl -sS https://api.example/echo": "Bearer " + strings.Repeat("*", len(secretValue)),
		"curl -sS -H 'Authorization: Bearer mine' http://api.example/":       reversed("Bearer mine"),
		"curl -sS http://api.example/":                                       "gnihton",
		"curl -sS -k -H 'Authorization: Bearer mine' https://other.example/": reversed("Bearer mine"),
		"git ls-remote https://api.example/x 2>&1 | grep -c certificate":     "0",
	} {
		if got, _ := run(t, s, command); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}

	value := secretValue + "-rotated"
	n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Secrets[0].Value = egress.Value(value); return nil })
	if err != nil || !n.Up {
		t.Fatalf("SetNetwork: %+v, %v", n, err)
	}
	if got, _ := run(t, s, "curl -sS https://api.example/"); got != reversed("Bearer "+value) {
		t.Errorf("after the rotation: %s", got)
	}
	if err := errors.Join(h.Stop(t.Context(), s, 0), h.Start(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, s, unset+"curl -sS https://api.example/; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; echo $API_KEY"); !strings.HasPrefix(got, reversed("Bearer "+value)) || !strings.HasSuffix(got, "actiond-secret-API") {
		t.Errorf("after stop and start: %s", got)
	}
	if n, err = h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Secrets = nil; return nil }); err != nil || !n.Up {
		t.Fatalf("SetNetwork: %+v, %v", n, err)
	}
	if got, code := run(t, s, "curl -sS https://api.example/"); code == 0 || !strings.Contains(got, "403") {
		t.Errorf("after its removal: exit code %d, %s", code, got)
	}

	// Without a writable root, and in an image without authorities, the bundle of the sandbox remains.
	for image, spec := range map[string]sandbox.Spec{"read-only": {Image: image(t, fullImage), ReadOnly: true}, "debian": {Image: image(t, debianImage)}} {
		s := h.box(t, spec)
		key := keyOf(t, s)
		state, err := call(t.Context(), s.Dial, key, http.MethodGet, "/v1/status", nil)
		if err != nil || !bytes.Contains(state, []byte(`"trust_problem":`)) {
			t.Errorf("%s: %s, %v", image, state, err)
		}
		if image == "read-only" {
			if got, _ := run(t, s, "curl -sS https://api.example/"); got != want {
				t.Errorf("%s: %s", image, got)
			}
		}
	}
}

// TestDockerNetworkSecretAttacks: the agent, root of the sandbox included, gets a secret neither sent
// to another host nor back, and finds it nowhere (rows 17 to 20, 22 to 24 and 30 of the attacks).
func TestDockerNetworkSecretAttacks(t *testing.T) {
	t.Parallel()
	h := newSecretHost(t, "api.example", "other.example")
	s := h.box(t, sandbox.Spec{Image: image(t, fullImage), User: "root"})
	const raw = `python3 - 2>&1 <<'E'
import socket, ssl
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n"); s.recv(4096)
s = ssl.create_default_context().wrap_socket(s, server_hostname=%q)
s.sendall(%q.encode()); print(s.recv(65536).decode())
E`
	script := func(name, request string) string { return fmt.Sprintf(raw, name, request) }
	for command, want := range map[string]string{
		"curl -sS -H 'Host: other.example' https://api.example/":                                                           "other host in the request",
		"curl -sS --http1.1 -H 'Host: other.example' https://api.example/":                                                 "other host in the request",
		script("api.example", "GET https://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"):                        "other host in the request",
		script("api.example", "GET https://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n"):                          "other host in the request",
		script("api.example", "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: h2c\r\n\r\n"):                               "upgrade not allowed",
		script("api.example", "GET / HTTP/1.1\r\nHost: api.example\r\nHost: other.example\r\n\r\n"):                        "400 Bad Request",
		script("other.example", "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"):                                           "ssl",
		"curl -sS -X TRACE https://api.example/":                                                                           "method not allowed",
		"curl -sS --resolve api.example:443:127.0.0.1 --connect-to api.example:443:other.example:443 https://api.example/": "other server name",
		"rm -f /run/actiond-egress/s 2>/dev/null; ls /run/actiond-tls":                                                     "bundle.pem  ca.pem",
	} {
		got, _ := run(t, s, command)
		if !strings.Contains(strings.ToLower(got), strings.ToLower(want)) && !(want == "other server name" && strings.Contains(got, "alert")) {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
		if strings.Contains(got, secretValue) || strings.Contains(got, reversed(secretValue)) {
			t.Errorf("%s: got the secret: %s", command, got)
		}
	}
	if got, _ := run(t, s, "(sleep 1000 & sleep 1000 & python3 -c 'import urllib.request as u, time; x = u.urlopen(\"https://api.example/echo\").read(); print(x); time.sleep(1000)' & ) ; curl -sS https://api.example/echo"); !strings.Contains(got, "****") {
		t.Errorf("an echo: %s", got)
	}
	// A host that sends bytes behind a response, which belong to no request: net/http logs them.
	if got, _ := run(t, s, "codes=$(for path in 200 200/again 204 304 404; do curl -sSI --http1.1 -o /dev/null -w '%{http_code} ' https://api.example/$path; sleep 0.1; done); echo $codes"); !strings.Contains(got, "200 200 204 304 404") {
		t.Errorf("HEAD: got %s", got)
	}
	if logs, err := exec.Command("docker", "logs", egressProxies(t, h.state)[0]).CombinedOutput(); err != nil || bytes.Contains(logs, []byte(secretValue)) || !bytes.Contains(logs, []byte("serving")) {
		t.Errorf("the log of the egress proxy: %v, %s", err, logs)
	}
	name := filepath.Join(h.state, "egress/conf", s.ID+".json")
	conf := readConf(t, name)
	searchSandbox(t, s, secretValue, strings.Split(string(conf.CA.Key), "\n")[1])
	if !h.proxyHas(t, secretValue) {
		t.Error("the search does not find the secret where it is")
	}

	// An upstream with another certificate gets nothing.
	n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error {
		host, err := egress.ParseHost("impostor.example")
		n.Policy.Secrets = append(n.Policy.Secrets, egress.Secret{Name: "IMP", Hosts: []egress.Host{host}, Value: secretValue})
		return err
	})
	if err != nil || !n.Up {
		t.Fatalf("SetNetwork: %+v, %v", n, err)
	}
	if got, _ := run(t, s, "curl -sS https://impostor.example/"); !strings.Contains(got, "its certificate is not valid") {
		t.Errorf("an impostor: %s", got)
	}

	// A controller that is killed between the file and the apply leaves the old policy; the next call applies the new one.
	conf = readConf(t, name)
	conf.Generation++
	conf.Policy.Secrets = conf.Policy.Secrets[:1]
	conf.Policy.Secrets[0].Value = secretValue + "-next"
	data, err := conf.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(name+".new", data, 0o600), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, s, "curl -sS https://api.example/"); got != reversed("Bearer "+secretValue) {
		t.Errorf("before the apply: %s", got)
	}
	if n, err := h.Network(t.Context(), s); err != nil || !n.Up || n.Generation != conf.Generation {
		t.Errorf("Network: %+v, %v", n, err)
	}
	if got, _ := run(t, s, "curl -sS https://api.example/"); got != reversed("Bearer "+secretValue+"-next") {
		t.Errorf("after the apply: %s", got)
	}

	// A proxy that is killed leaves nothing open, and comes back with the secret.
	proxy := egressProxies(t, h.state)[0]
	pid, err := strconv.Atoi(dockerCLI(t, "inspect", "-f", "{{.State.Pid}}", proxy))
	if err != nil || pid <= 1 {
		t.Fatalf("the proxy is process %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool {
		state := dockerCLI(t, "inspect", "-f", "{{.State.Running}} {{.State.Pid}}", proxy)
		return strings.HasPrefix(state, "true ") && state != "true 0" && state != "true "+strconv.Itoa(pid)
	}, "the engine starts the proxy again")
	h.know(t) // its names are those of an earlier start
	testhelp.Eventually(t, func() bool {
		got, _ := run(t, s, "curl -sS https://api.example/")
		return got == reversed("Bearer "+secretValue+"-next")
	}, "the secret is sent again")
	searchSandbox(t, s, secretValue)
}

func readConf(t *testing.T, name string) egress.Conf {
	t.Helper()
	data := testhelp.ReadFile(t, name)
	conf, err := egress.ParseConf(data)
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

// searchSandbox looks for texts in all that the engine tells of a sandbox, in its files, and in the
// environment, the arguments and the memory of its processes.
func searchSandbox(t *testing.T, s *sandbox.Sandbox, texts ...string) {
	t.Helper()
	var forms [][]byte
	for _, text := range texts {
		forms = append(forms, []byte(text), []byte(base64.StdEncoding.EncodeToString([]byte(text)))[:32])
	}
	search := func(what string, r io.Reader) (read int64) {
		const portion, most = 1 << 20, 64
		buf := make([]byte, 0, portion+most)
		for {
			n, err := io.ReadAtLeast(r, buf[len(buf):cap(buf)], 1)
			buf = buf[:len(buf)+n]
			read += int64(n)
			for _, form := range forms {
				if bytes.Contains(buf, form) {
					t.Errorf("%s has the secret", what)
					n, _ := io.Copy(io.Discard, r)
					return read + n
				}
			}
			if err != nil {
				return read
			}
			buf = buf[:copy(buf[:cap(buf)], buf[max(0, len(buf)-most):])]
		}
	}
	search("inspect", strings.NewReader(dockerCLI(t, "inspect", s.Instance)))
	logs, err := exec.Command("docker", "logs", s.Instance).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	search("the server's log", bytes.NewReader(logs))
	export := exec.Command("docker", "export", s.Instance)
	archive, err := export.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := export.Start(); err != nil {
		t.Fatal(err)
	}
	if read := search("a file", archive); read < 1<<20 {
		t.Errorf("the files have %d bytes", read)
	}
	if err := export.Wait(); err != nil {
		t.Error(err)
	}
	key := keyOf(t, s)
	for _, path := range []string{"/v1/network", "/v1/status", "/v1/actions", "/metrics"} {
		body, err := call(t.Context(), s.Dial, key, http.MethodGet, path, nil)
		if err != nil {
			t.Error(err)
		}
		search(path, bytes.NewReader(body))
	}
	var processes int
	var read int64
	for line := range strings.Lines(dockerCLI(t, "top", s.Instance, "-o", "pid")) {
		pid := strings.TrimSpace(line)
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(filepath.Join("/proc", pid, name))
			if err != nil {
				t.Error(err)
			}
			search(name+" of a process", bytes.NewReader(data))
		}
		read += searchMemory(t, pid, search)
		processes++
	}
	if processes < 4 || read < 1<<20 {
		t.Errorf("searched %d bytes of %d processes", read, processes)
	}
	t.Logf("searched %d bytes of memory of %d processes", read, processes)
}

// proxyHas reports whether the text is in the memory of the egress proxy, where the search must find it.
func (h *secretHost) proxyHas(t *testing.T, text string) (found bool) {
	t.Helper()
	searchMemory(t, dockerCLI(t, "inspect", "-f", "{{.State.Pid}}", egressProxies(t, h.state)[0]), func(_ string, r io.Reader) int64 {
		data, _ := io.ReadAll(r) // what can be read
		found = found || bytes.Contains(data, []byte(text))
		return int64(len(data))
	})
	return found
}

// searchMemory searches what a process has in memory.
func searchMemory(t *testing.T, pid string, search func(what string, r io.Reader) int64) (read int64) {
	t.Helper()
	maps := testhelp.ReadFile(t, filepath.Join("/proc", pid, "maps"))
	memory, err := os.Open(filepath.Join("/proc", pid, "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		from, to, _ := strings.Cut(fields[0], "-")
		first, err := strconv.ParseUint(from, 16, 64)
		last, err2 := strconv.ParseUint(to, 16, 64)
		if err != nil || err2 != nil || !strings.HasPrefix(fields[1], "rw") || first > 1<<62 {
			continue
		}
		read += search("memory of process "+pid, io.NewSectionReader(memory, int64(first), int64(last-first)))
	}
	return read
}

// TestDockerNetworkSecretDenied: what was denied inside TLS is in the observation of the action, and in
// no other.
func TestDockerNetworkSecretDenied(t *testing.T) {
	t.Parallel()
	h := newSecretHost(t, "api.example", "other.example")
	s := h.box(t, sandbox.Spec{Image: image(t, fullImage)})
	key := keyOf(t, s)
	for command, want := range map[string]string{
		"curl -sS https://api.example/":                                              "",
		"curl -sS -H 'Host: evil.example' https://api.example/ https://api.example/": `{"attributed":true,"denied":[{"count":2,"host":"evil.example","port":443,"process":"curl","reason":"other host in the request"}],"more":0}`,
		"true": "",
	} {
		answer, err := runIn(t.Context(), s.Dial, key, command)
		if err != nil {
			t.Fatal(err)
		}
		network, _ := answer["network"].(map[string]any)
		if denied, _ := network["denied"].([]any); len(denied) == 1 {
			delete(denied[0].(map[string]any), "first_ms")
		}
		got, err := json.Marshal(network)
		if err != nil || strings.TrimPrefix(string(got), "null") != want {
			t.Errorf("%s: got %s, %v, want %s", command, got, err, want)
		}
	}
}

// worker stands for a vendor's: it takes work from its control plane with the key that it has, runs it and
// sends the result; then it keeps a connection to another host, whose address is all that it needs there.
// That host's authority is the test's, which the sandbox does not know.
const worker = `
import json, os, socket, ssl, subprocess, time, urllib.request
plane, kept, key = "https://" + os.environ["PLANE"], os.environ["KEPT"], os.environ["KEY"]
def send(path, body):
    r = urllib.request.Request(plane + path, json.dumps(body).encode(), {"Authorization": "Bearer " + key})
    return json.load(urllib.request.urlopen(r))
work = send("/v1/environments/env_1/work/poll", {})
send("/v1/sessions/s_1/events", {"output": subprocess.run(work["command"], shell=True, capture_output=True, text=True).stdout})
if kept:
    c = ssl._create_unverified_context().wrap_socket(socket.create_connection((kept, 443)), server_hostname=kept)
    c.sendall(f"GET {work['url']} HTTP/1.1\r\nHost: {kept}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nkept\n".encode())
    answer = b""
    while not answer.endswith(b"kept\n"): answer += c.recv(1000)
print("done", flush=True)
time.sleep(1000)
`

// TestDockerNetworkWorkers: what docs/guides/workers.md says of vendors' workers, with a program that stands
// for theirs and a control plane that has their hosts' names.
func TestDockerNetworkWorkers(t *testing.T) {
	t.Parallel()
	const claude, openai, kept = "api.anthropic.com", "api.openai.com", "codex-cloud-environments.chatgpt.com"
	h := newSecretHost(t, claude, openai, kept)
	for _, tt := range []struct{ policy, plane, kept, variable string }{
		{`{"mode":"allowlist","secrets":[{"name":"CLAUDE","hosts":["` + claude + `"],"var":"ANTHROPIC_ENVIRONMENT_KEY","value":"` + secretValue + `"}]}`, claude, "", "ANTHROPIC_ENVIRONMENT_KEY"},
		{`{"mode":"allowlist","allow":["` + kept + `"],"secrets":[{"name":"CODEX","hosts":["` + openai + `"],"var":"CODEX_API_KEY","value":"` + secretValue + `"}]}`, openai, kept, "CODEX_API_KEY"},
	} {
		s := h.boxWith(t, sandbox.Spec{Image: image(t, fullImage), Env: map[string]string{"PLANE": tt.plane, "KEPT": tt.kept}}, tt.policy)
		placeholder, _ := run(t, s, "echo $"+tt.variable)
		if got, code := run(t, s, "cat >worker.py <<'EOF'"+worker+"EOF"); code != 0 {
			t.Fatal(got)
		}
		if got, code := run(t, s, "(KEY=$"+tt.variable+" python3 worker.py >out 2>&1 &); until [ -s out ]; do sleep .1; done; cat out"); code != 0 || got != "done" {
			t.Fatalf("%s: exit code %d, %s", tt.plane, code, got)
		}
		got, _ := run(t, s, "curl -sS https://"+tt.plane+"/sent")
		key := reversed("Bearer " + secretValue)
		want := [][]string{
			{tt.plane + "/v1/environments/env_1/work/poll", key, "{}"},
			{tt.plane + "/v1/sessions/s_1/events", key, `{"output": "agent\n` + placeholder + ` 0\n"}`},
		}
		if tt.kept != "" {
			want = append(want, []string{tt.kept + "/connect?token=signed", reversed("nothing"), ""})
		}
		var sent [][]string
		if err := json.Unmarshal([]byte(got), &sent); err != nil || len(sent) < len(want) || !reflect.DeepEqual(sent[len(sent)-len(want):], want) || !strings.HasPrefix(placeholder, "actiond-secret-") {
			t.Errorf("%s: the control plane got %s, %v, want %v", tt.plane, got, err, want)
		}
		if got, code := run(t, s, "curl -sS https://evil.example"); code == 0 || !strings.Contains(got, "response 403") {
			t.Errorf("another host: exit code %d, %s", code, got)
		}
		searchSandbox(t, s, secretValue) // its worker still runs
	}
}
