package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

const debianBundle = "etc/ssl/certs/ca-certificates.crt"

// trusted is a server that was claimed with an authority, in an image whose files are in a directory.
type trusted struct {
	*fake

	s                *server.Server
	image, trust, ca string
	claim            request
}

func newTrusted(t *testing.T, image map[string]string) *trusted {
	t.Helper()
	ca, err := egress.NewCA(sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	c := &trusted{fake: &fake{sessions: oneSession}, image: t.TempDir(), trust: filepath.Join(t.TempDir(), "run", "tls"), ca: ca.Certificate}
	for name, text := range image {
		testhelp.WriteFile(t, filepath.Join(c.image, name), text, 0o640)
	}
	c.s = newServer(t, withExecutor(c.fake), withClaim, withProxy, c.configure)
	t.Cleanup(c.s.CloseNetwork)
	body, err := json.Marshal(api.Claim{Key: ownersKey, Network: &api.ClaimNetwork{Egress: "unix:" + startEgress(t, `{"mode":"no-network"}`), CA: c.ca}})
	if err != nil {
		t.Fatal(err)
	}
	c.claim = post("/v1/claim", string(body))
	return c
}

func (c *trusted) configure(cfg *server.Config) { cfg.TrustDir, cfg.ImageRoot = c.trust, c.image }

func (c *trusted) claimed(t *testing.T) {
	t.Helper()
	if w := c.claim.send(c.s); w.Code != http.StatusNoContent {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
}

// named returns the files that the variables name, by variable.
func (c *trusted) named() map[string]string {
	named := map[string]string{}
	for name, value := range c.network {
		if file, ok := strings.CutPrefix(value, c.trust+"/"); ok {
			named[name] = file
		}
	}
	return named
}

func readFile(t *testing.T, parts ...string) string {
	t.Helper()
	data := testhelp.ReadFile(t, filepath.Join(parts...))
	return string(data)
}

// TestTrust: programs trust the sandbox's authority beside the image's, by variables and by the
// image's own bundle, which keeps its mode; a server that takes this one's place changes nothing more.
func TestTrust(t *testing.T) {
	t.Parallel()
	c := newTrusted(t, map[string]string{debianBundle: "the image's"})
	c.claimed(t)
	bundle := "the image's\n" + c.ca
	if got := readFile(t, c.trust, "bundle.pem"); got != bundle {
		t.Errorf("bundle.pem: %s", got)
	}
	if got := readFile(t, c.trust, "ca.pem"); got != c.ca {
		t.Errorf("ca.pem: %s", got)
	}
	if got := readFile(t, c.image, debianBundle); got != bundle {
		t.Errorf("the image's: %s", got)
	}
	for name, mode := range map[string]os.FileMode{c.trust: os.ModeDir | 0o755, c.trust + "/bundle.pem": 0o644, c.trust + "/ca.pem": 0o644, c.image + "/" + debianBundle: 0o640} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
	want := map[string]string{
		"CARGO_HTTP_CAINFO": "bundle.pem", "CURL_CA_BUNDLE": "bundle.pem", "GIT_SSL_CAINFO": "bundle.pem", "NODE_EXTRA_CA_CERTS": "ca.pem",
		"PIP_CERT": "bundle.pem", "REQUESTS_CA_BUNDLE": "bundle.pem", "SSL_CERT_FILE": "bundle.pem",
	}
	if got := c.named(); !maps.Equal(got, want) || c.network["UV_NATIVE_TLS"] != "1" {
		t.Errorf("variables: %v", c.network)
	}
	if state := networkState(t, c.s); state.TrustProblem != "" {
		t.Errorf("got %+v", state)
	}
	names, err := filepath.Glob(c.trust + "/*")
	if err != nil || len(names) != 2 {
		t.Errorf("got %q, %v", names, err)
	}
	before, err := os.Stat(filepath.Join(c.image, debianBundle))
	if err != nil {
		t.Fatal(err)
	}
	inherited := server.Snapshot{Network: &api.ClaimNetwork{Egress: "unix:/none", CA: c.ca}}
	f := &fake{sessions: oneSession}
	s := newServer(t, withExecutor(f), withClaim, withProxy, c.configure, func(cfg *server.Config) { cfg.Inherited = &inherited })
	t.Cleanup(s.CloseNetwork)
	if err := s.Resume(t.Context(), nil); err != nil || f.network["SSL_CERT_FILE"] != c.trust+"/bundle.pem" {
		t.Errorf("resumed: %v, %v", f.network, err)
	}
	after, err := os.Stat(filepath.Join(c.image, debianBundle))
	if err != nil || !os.SameFile(before, after) || readFile(t, c.trust, "bundle.pem") != bundle {
		t.Errorf("the image's bundle was replaced again: %v", err)
	}
}

// TestTrustWithoutBundle: in an image without authorities, no variable takes away those that programs
// bring.
func TestTrustWithoutBundle(t *testing.T) {
	t.Parallel()
	c := newTrusted(t, nil)
	c.claimed(t)
	named := slices.Sorted(maps.Keys(c.named()))
	if !slices.Equal(named, []string{"CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"}) || c.network["UV_NATIVE_TLS"] != "" {
		t.Errorf("variables: %v", c.network)
	}
	if readFile(t, c.trust, "bundle.pem") != c.ca {
		t.Error("bundle.pem has more than the authority")
	}
	if state := networkState(t, c.s); !strings.Contains(state.TrustProblem, "no bundle") {
		t.Errorf("got %+v", state)
	}
	var life api.Life
	q := get("/v1/status")
	q.key = ownersKey
	if w := q.send(c.s); json.Unmarshal(w.Body.Bytes(), &life) != nil || !strings.Contains(life.TrustProblem, "no bundle") {
		t.Errorf("the status: %+v", life)
	}
}

// TestTrustBehindLink: an image may have a link in place of /run, which is followed where only root or
// this process's user made it; where it cannot be, the refusal names it.
func TestTrustBehindLink(t *testing.T) {
	t.Parallel()
	link := func(to string) (c *trusted, at string) {
		c = newTrusted(t, map[string]string{debianBundle: "the image's"})
		at = filepath.Dir(c.trust)
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		return c, at
	}
	to := t.TempDir()
	c, _ := link(to)
	c.claimed(t)
	if got := readFile(t, to, "tls", "bundle.pem"); got != "the image's\n"+c.ca || c.network["SSL_CERT_FILE"] != c.trust+"/bundle.pem" {
		t.Errorf("%s, %v", got, c.network)
	}
	c, at := link(filepath.Join(to, "nowhere"))
	if w := c.claim.send(c.s); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), at+" is a link") || len(c.exported) > 0 {
		t.Errorf("a dangling link: status %d: %s", w.Code, w.Body)
	}
	if os.Geteuid() != 0 {
		return
	}
	c, at = link(to)
	if err := os.Lchown(at, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	if w := c.claim.send(c.s); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), at+" belongs to user 54321") {
		t.Errorf("the agent's link: status %d: %s", w.Code, w.Body)
	}
}

// TestAttackTrust: what an agent with rights to the image's files made of its bundle is neither
// followed nor read without end, and where the certificates would be the agent's the claim is refused.
func TestAttackTrust(t *testing.T) {
	t.Parallel()
	const private = "a file that only root may read"
	for name, attack := range map[string]func(c *trusted, bundle string) error{
		"link":          func(_ *trusted, bundle string) error { return os.Symlink("../../private", bundle) },
		"dangling link": func(_ *trusted, bundle string) error { return os.Symlink("nowhere", bundle) },
		"link above": func(c *trusted, bundle string) error {
			dir := filepath.Dir(bundle)
			if err := os.WriteFile(filepath.Join(c.image, "ca-certificates.crt"), []byte(private), 0o600); err != nil {
				return err
			}
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(c.image, dir)
		},
		"FIFO":      func(_ *trusted, bundle string) error { return syscall.Mkfifo(bundle, 0o600) },
		"directory": func(_ *trusted, bundle string) error { return os.Mkdir(bundle, 0o700) },
		"huge":      func(_ *trusted, bundle string) error { return os.WriteFile(bundle, make([]byte, 4<<20+1), 0o600) },
		"sparse": func(_ *trusted, bundle string) error {
			if err := os.WriteFile(bundle, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(bundle, 1<<40)
		},
	} {
		c := newTrusted(t, map[string]string{"private": private, "etc/ssl/certs/other": ""})
		if err := os.Remove(filepath.Join(c.image, "etc/ssl/certs/other")); err != nil {
			t.Fatal(err)
		}
		if err := attack(c, filepath.Join(c.image, debianBundle)); err != nil {
			t.Fatal(err)
		}
		c.claimed(t)
		if got := readFile(t, c.trust, "bundle.pem"); got != c.ca {
			t.Errorf("%s: bundle.pem has %.100q", name, got)
		}
		if readFile(t, c.image, "private") != private {
			t.Errorf("%s: the file was changed", name)
		}
		if state := networkState(t, c.s); state.TrustProblem == "" {
			t.Errorf("%s: there is no problem", name)
		}
	}

	c := newTrusted(t, map[string]string{debianBundle: "the image's", "x": ""})
	if err := os.Link(filepath.Join(c.image, debianBundle), filepath.Join(c.image, "other")); err != nil {
		t.Fatal(err)
	}
	c.claimed(t)
	if state := networkState(t, c.s); readFile(t, c.image, "other") != "the image's" || !strings.Contains(state.TrustProblem, "other names") {
		t.Errorf("a bundle with another name: %+v", state)
	}
	if got := readFile(t, c.trust, "bundle.pem"); got != "the image's\n"+c.ca {
		t.Errorf("a bundle with another name: %s", got)
	}

	c = newTrusted(t, nil)
	if err := os.MkdirAll(c.trust, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.trust, 0o777); err != nil {
		t.Fatal(err)
	}
	if w := c.claim.send(c.s); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "can be changed by other users") || len(c.exported) > 0 {
		t.Errorf("a directory of the agent: status %d: %s", w.Code, w.Body)
	}
	for _, ca := range []string{"x", c.ca + c.ca, strings.Replace(c.ca, "CERTIFICATE", "PRIVATE KEY", 2), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		w := post("/v1/claim", fmt.Sprintf(`{"key":%q,"network":{"egress":"unix:/s","ca":%q}}`, ownersKey, ca)).send(c.s)
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "ca is no") {
			t.Errorf("%.30q: status %d: %s", ca, w.Code, w.Body)
		}
	}
}
