package egress_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
)

func newCA(tb testing.TB) egress.CA {
	tb.Helper()
	ca, err := egress.NewCA(id)
	if err != nil {
		tb.Fatal(err)
	}
	return ca
}

// TestCA: crypto/x509 and OpenSSL's strict checks, which Python makes, accept the certificates.
func TestCA(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca.Certificate)) {
		t.Fatal("no certificate")
	}
	long := strings.Repeat("long-label.", 20) + "example"
	for _, host := range []string{"api.example.com", long} {
		chain, err := egress.Certificate(ca, host)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(chain[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Error(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "other.example", Roots: roots}); err == nil {
			t.Error("it is valid for another host")
		}
		openssl, err := exec.LookPath("openssl")
		if err != nil {
			continue // another oracle
		}
		dir := t.TempDir()
		_ = os.WriteFile(filepath.Join(dir, "ca"), []byte(ca.Certificate), 0o600)
		_ = os.WriteFile(filepath.Join(dir, "leaf"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[0]}), 0o600)
		verify := exec.CommandContext(t.Context(), openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", host, "-CAfile", "ca", "leaf")
		verify.Dir = dir
		if out, err := verify.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("leaf: OK")) {
			t.Errorf("openssl: %s, %v", out, err)
		}
	}
	if text := fmt.Sprintf("%+v %#v", ca, egress.Conf{CA: ca}); strings.Contains(text, "PRIVATE") || !strings.Contains(ca.Certificate, "CERTIFICATE") {
		t.Errorf("got %s", text)
	}
}

func TestConfRefusesCA(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t), newCA(t)
	secrets := parse(t, `{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"`+token+`"}]}`)
	f := start(t, `{"mode":"no-network"}`)
	for name, conf := range map[string]egress.Conf{
		"none":        {Policy: secrets},
		"other key":   {Policy: secrets, CA: egress.CA{Certificate: ca.Certificate, Key: other.Key}},
		"no key":      {Policy: secrets, CA: egress.CA{Certificate: ca.Certificate}},
		"unreadable":  {Policy: secrets, CA: egress.CA{Certificate: "x", Key: "y"}},
		"bad secrets": {Policy: egress.Policy{Mode: egress.ModePublic, Secrets: []egress.Secret{{Name: "A"}}}, CA: ca},
	} {
		conf.Generation = 9
		if err := f.Apply(id, conf); err == nil || f.state(t).Generation == 9 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := f.Apply(id, egress.Conf{Generation: 9, Policy: secrets, CA: ca}); err != nil {
		t.Error(err)
	}
}
