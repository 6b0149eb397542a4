//go:build integration

package integration

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	actiondrandom "github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// program is one that reaches HOST, whose certificate /tmp/ca.pem has signed. What is between « and » names
// that file; without it, the program trusts the authorities that its sandbox names to it.
type program struct {
	name    string // and the executable, unless needs is given
	needs   string
	command string
	want    string // in its output
	// named marks one that knows no proxy variables, or not with this command.
	named bool
	// byProxy marks one that looks no name up where a machine has loopback addresses alone, and
	// so needs the proxy.
	byProxy bool
}

// programs are those of the first image here, then those of 'make image-programs'.
var programs = []program{
	{name: "curl", command: "curl -sS «--cacert /tmp/ca.pem» https://HOST/greeting.txt", want: "welcome"},
	{name: "git over HTTPS", needs: "git", command: "rm -rf /tmp/repo; «GIT_SSL_CAINFO=/tmp/ca.pem» git clone -q https://HOST/repo.git /tmp/repo && cat /tmp/repo/README", want: "welcome"},
	{name: "python3", command: `python3 -c 'import ssl, urllib.request as r; print(r.urlopen("https://HOST/greeting.txt", context=ssl.create_default_context(«cafile="/tmp/ca.pem"»)).read())'`, want: "welcome"},
	{name: "pip", needs: "pip3", command: "rm -rf /tmp/wheels; «PIP_CERT=/tmp/ca.pem REQUESTS_CA_BUNDLE=/tmp/ca.pem» pip3 --disable-pip-version-check --retries 0 download -q --no-deps --no-cache-dir -d /tmp/wheels -i https://HOST/simple greet && ls /tmp/wheels", want: "greet-1.0"},
	{name: "openssl s_client", needs: "openssl", command: "printf 'GET /greeting.txt HTTP/1.0\\r\\nHost: HOST\\r\\n\\r\\n' | openssl s_client -quiet -connect HOST:443 -servername HOST «-CAfile /tmp/ca.pem» -verify_return_error -ign_eof", want: "welcome", named: true},
	{name: "apt-get", command: "mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial; echo 'deb [trusted=yes] https://HOST/apt ./' >/tmp/apt/sources; " +
		"apt-get -q -o Dir::State::Lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt/cache -o Dir::Etc::SourceList=/tmp/apt/sources -o Dir::Etc::SourceParts=/dev/null " +
		"«-o Acquire::https::CAInfo=/tmp/ca.pem» -o APT::Update::Error-Mode=any -o Acquire::Retries=0 update", want: "https://HOST/apt ./ Packages"},
	{name: "bash /dev/tcp", needs: "bash", command: "bash -c 'exec 3<>/dev/tcp/HOST/7 && echo welcome >&3 && head -n 1 <&3'", want: "welcome", named: true},

	{name: "wget", command: "wget -nv -O - --tries=1 «--ca-certificate=/tmp/ca.pem» https://HOST/greeting.txt", want: "welcome"},
	{name: "curl -4", needs: "curl", command: "curl -sS -4 «--cacert /tmp/ca.pem» https://HOST/greeting.txt", want: "welcome"},
	{name: "wget -4", needs: "wget", command: "wget -nv -4 -O - --tries=1 «--ca-certificate=/tmp/ca.pem» https://HOST/greeting.txt", want: "welcome"},
	{name: "ssh", command: "ssh -v -o BatchMode=yes -o StrictHostKeyChecking=no HOST true 2>&1; true", want: "remote software version target", named: true},
	{name: "node", command: `«NODE_EXTRA_CA_CERTS=/tmp/ca.pem» node -e 'fetch("https://HOST/greeting.txt").then(r => r.text()).then(console.log, e => { console.error(e, e.cause); process.exit(1) })'`, want: "welcome", named: true},
	{name: "npm", command: "npm view greet version --fetch-retries 0 --registry https://HOST/npm/ «--cafile /tmp/ca.pem»", want: "1.0.0"},
	{name: "go", command: "cd /tmp && «SSL_CERT_FILE=/tmp/ca.pem» GOFLAGS=-mod=mod GOPROXY=https://HOST/go GONOSUMDB='*' GOCACHE=/tmp/gocache GOPATH=/tmp/gopath go list -m -versions greet.example/m", want: "v1.0.0"},
	{name: "java", command: `printf 'import java.net.*; import java.net.http.*; class Fetch { public static void main(String[] a) throws Exception { System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }' >/tmp/Fetch.java; java /tmp/Fetch.java http://HOST/greeting.txt`, want: "welcome", named: true},
	{name: "ruby", command: `ruby -rnet/http -ropenssl -e 'u = URI("https://HOST/greeting.txt"); h = Net::HTTP.new(u.host, u.port); h.use_ssl = true; «h.ca_file = "/tmp/ca.pem";» puts h.get(u.path).body'`, want: "welcome"},
	{name: "php", command: `php -r 'echo file_get_contents("https://HOST/greeting.txt", false, stream_context_create([«"ssl" => ["cafile" => "/tmp/ca.pem"]»]));'`, want: "welcome", named: true},
	{name: "perl LWP", needs: "lwp-request", command: "«PERL_LWP_SSL_CA_FILE=/tmp/ca.pem» lwp-request https://HOST/greeting.txt", want: "welcome"},
	{name: "aria2c", byProxy: true, command: "rm -f /tmp/greeting.txt; aria2c --console-log-level=error --summary-interval=0 --download-result=hide --max-tries=1 -d /tmp «--ca-certificate=/tmp/ca.pem» https://HOST/greeting.txt && cat /tmp/greeting.txt", want: "welcome"},
	{name: "lftp", command: `lftp -c 'set net:max-retries 1; «set ssl:ca-file /tmp/ca.pem;» cat https://HOST/greeting.txt'`, want: "welcome"},
	{name: "lynx", command: "lynx -dump http://HOST/greeting.txt", want: "welcome"},
	{name: "w3m", command: "w3m -dump http://HOST/greeting.txt", want: "welcome"},
	{name: "socat", command: "echo welcome | socat -t 2 - TCP:HOST:7", want: "welcome", named: true},
	{name: "gnutls-cli", command: "rm -f /tmp/fifo; mkfifo /tmp/fifo; exec 9<>/tmp/fifo; printf 'GET /greeting.txt HTTP/1.0\\r\\nHost: HOST\\r\\n\\r\\n' >&9; gnutls-cli «--x509cafile /tmp/ca.pem» HOST <&9", want: "welcome", named: true},
}

// TestDockerNetworkPrograms: programs reach an allowed host, with proxy variables and without, and fail
// at another one at once. ACTIOND_PROGRAMS names an image with more of them than the one of CI, which
// 'make programs' makes; -v prints the table of docs/reference/network-programs.md.
func TestDockerNetworkPrograms(t *testing.T) {
	t.Parallel()
	ref, all := os.Getenv("ACTIOND_PROGRAMS"), programs
	if ref == "" {
		ref, all = image(t, fullImage), programs[:7]
	}
	addr, ca := programTarget(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	writeTarget(t, filepath.Dir(roots), filepath.Base(roots), ca)
	state, err := os.MkdirTemp("/tmp", "policy-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	h := testHost(t, func(c *docker.Config) { c.StateDir, c.Roots = state, roots })
	subnet := netip.MustParsePrefix(dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))
	policy, err := egress.ParsePolicy([]byte(`{"mode":"allowlist","allow":["target.example","target.example:7"],
		"secrets":[{"name":"API","hosts":["secret.example"],"value":"` + programSecret + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, h, sandbox.Spec{Image: ref, Policy: &policy, Private: []netip.Prefix{subnet}})
	nameHosts(t, egressProxies(t, state)[0], map[string]string{"target.example": addr, "secret.example": addr})
	if got, code := run(t, s, "cat >/tmp/ca.pem <<'END'\n"+ca+"END"); code != 0 {
		t.Fatal(got)
	}
	table := "| program | by name | by proxy | with a secret, by name | with a secret, by proxy | refused, by name | refused, by proxy |\n|---|---|---|---|---|---|---|\n"
	for _, p := range all {
		row := "| " + p.name + " "
		for _, host := range []string{"target.example", "secret.example", "evil.example"} {
			for _, proxied := range []bool{false, true} {
				plain := host == "secret.example" && !strings.Contains(p.command, "«")
				if proxied && p.named || !proxied && p.byProxy || plain {
					row += "| – "
					continue
				}
				row += "| " + p.try(t, h, s, host, proxied) + " "
			}
		}
		table += row + "|\n"
	}
	t.Log("\n" + table)
}

var authorityOption = regexp.MustCompile("«[^»]*»")

// commandFor returns the command for a host.
func (p program) commandFor(host string) string {
	command := p.command
	if host == "secret.example" { // with a certificate of the sandbox's own authority
		command = authorityOption.ReplaceAllString(command, "")
	}
	return strings.NewReplacer("«", "", "»", "", "HOST", host).Replace(command)
}

// try runs a program, and returns the cell of the table.
func (p program) try(t *testing.T, h *docker.Host, s *sandbox.Sandbox, host string, proxied bool) string {
	t.Helper()
	needs := p.needs
	if needs == "" {
		needs = p.name
	}
	if got, code := run(t, s, "command -v "+needs); code != 0 {
		t.Errorf("%s: the image has no %s %s", p.name, needs, got)
		return "?"
	}
	before, err := h.Network(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	prefix := ""
	if !proxied {
		prefix = noProxy
	}
	begun := time.Now()
	got, code := run(t, s, "("+prefix+p.commandFor(host)+") 2>&1 </dev/null")
	took := time.Since(begun)
	after, err := h.Network(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	reached := strings.Contains(got, strings.ReplaceAll(p.want, "HOST", host))
	if host != "evil.example" {
		if code != 0 || !reached || after.Denied != before.Denied {
			t.Errorf("%s (by proxy: %v): exit code %d, %d denials, %s", p.name, proxied, code, after.Denied-before.Denied, got)
			return "no"
		}
		return "yes"
	}
	if reached && p.name != "apt-get" || after.Denied == before.Denied {
		t.Errorf("%s reached %s (by proxy: %v): exit code %d, %d denials, %s", p.name, host, proxied, code, after.Denied-before.Denied, got)
	}
	return fmt.Sprintf("%.1f s: %s", took.Seconds(), words(got))
}

// words are those of a program about a refused connection, shortened for a table: its last line with
// a word about that, or its last line.
func words(text string) string {
	last, rank := "(nothing)", 0
	for line := range strings.Lines(text) {
		now := 1
		if strings.Contains(line, "403") || strings.Contains(strings.ToLower(line), "denied") {
			now = 2
		}
		if line = strings.TrimSpace(line); line != "" && now >= rank {
			last, rank = line, now
		}
	}
	if at := strings.LastIndex(last, "denied"); at > 90 {
		last = "…" + last[at-60:]
	}
	return "`" + strings.NewReplacer("|", "/", "`", "'").Replace(strings.ToValidUTF8(last[:min(len(last), 100)], "")) + "`"
}

// programSecret is what the target wants as secret.example, and no program knows.
const programSecret = "actiond-test-secret-of-programs"

// programTarget starts the target of programs in a container. It returns its address and the
// certificate that signs its own.
func programTarget(tb testing.TB) (addr, ca string) {
	tb.Helper()
	dir := tb.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "target"), "./target")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no C library
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	ca = signTarget(tb, dir)
	fillTarget(tb, filepath.Join(dir, "www"))
	if err := exec.Command("chmod", "-R", "a+rX", filepath.Dir(dir)).Run(); err != nil {
		tb.Fatal(err)
	}
	id := dockerCLI(tb, "run", "-d", "--name", "actiond-test-target-"+actiondrandom.Hex(4), "-v", dir+":/t:ro", image(tb, busyboxImage), "/t/target", "/t/www", "/t/cert.pem", "/t/key.pem", programSecret)
	tb.Cleanup(func() {
		if out, err := dockerOutput("rm", "-f", id); err != nil {
			tb.Errorf("%v: %s", err, out)
		}
	})
	addr = dockerCLI(tb, "inspect", "-f", "{{.NetworkSettings.IPAddress}}", id)
	testhelp.Eventually(tb, func() bool {
		for _, port := range []string{"443", "80", "22", "7"} {
			conn, err := net.Dial("tcp", net.JoinHostPort(addr, port))
			if err != nil {
				return false
			}
			conn.Close()
		}
		return true
	}, "the target listens")
	return addr, ca
}

// signTarget writes a certificate for the names of the target, and returns that of its authority.
func signTarget(tb testing.TB, dir string) (ca string) {
	tb.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			tb.Fatal(err)
		}
		return k
	}
	block := func(kind string, der []byte, err error) string {
		if err != nil {
			tb.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	authority, own := key(), key()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"target.example", "secret.example"}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	ca = block("CERTIFICATE", rootDER, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, own.Public(), authority)
	cert := block("CERTIFICATE", leafDER, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(own)
	writeTarget(tb, dir, "cert.pem", cert)
	writeTarget(tb, dir, "key.pem", block("PRIVATE KEY", keyDER, err))
	return ca
}

func writeTarget(tb testing.TB, dir, name, text string) {
	tb.Helper()
	testhelp.WriteFile(tb, filepath.Join(dir, name), text, 0o644)
}

// fillTarget writes what programs fetch: a page, a git repository, and the indexes of package managers.
func fillTarget(tb testing.TB, dir string) {
	tb.Helper()
	writeTarget(tb, dir, "greeting.txt", "welcome\n")
	writeTarget(tb, dir, "apt/Packages", "")
	writeTarget(tb, dir, "go/greet.example/m/@v/list", "v1.0.0\n")
	writeTarget(tb, dir, "go/greet.example/m/@latest", `{"Version":"v1.0.0"}`)
	writeTarget(tb, dir, "go/greet.example/m/@v/v1.0.0.info", `{"Version":"v1.0.0"}`)
	writeTarget(tb, dir, "go/greet.example/m/@v/v1.0.0.mod", "module greet.example/m\n")
	writeTarget(tb, dir, "npm/greet", `{"name":"greet","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"greet","version":"1.0.0"}}}`)
	writeTarget(tb, dir, "simple/greet/index.html", `<a href="../../greet-1.0-py3-none-any.whl">greet-1.0-py3-none-any.whl</a>`)
	var wheel bytes.Buffer
	archive := zip.NewWriter(&wheel)
	for name, text := range map[string]string{
		"greet.py": "", "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
		"greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "greet-1.0.dist-info/RECORD": "",
	} {
		w, err := archive.Create(name)
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprint(w, text)
	}
	if err := archive.Close(); err != nil {
		tb.Fatal(err)
	}
	writeTarget(tb, dir, "greet-1.0-py3-none-any.whl", wheel.String())
	out, err := exec.Command("sh", "-ec", `work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"; git init -q .; echo welcome >README; git add README
		git -c user.name=test -c user.email=test@example.com commit -q -m first; git clone -q --bare . "$1"; cd "$1"; git update-server-info`, "sh", filepath.Join(dir, "repo.git")).CombinedOutput()
	if err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
}
