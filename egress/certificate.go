package egress

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	caLife    = 10 * 365 * 24 * time.Hour
	leafLife  = 7 * 24 * time.Hour
	leafAhead = 24 * time.Hour // before its end a leaf is made anew
	clockSkew = 24 * time.Hour // of a sandbox behind this machine
	maxLeaves = 64
)

// CA is the authority that signs the certificates which a sandbox sees in place of those of hosts with
// secrets. Each sandbox has and trusts its own.
type CA struct {
	// Certificate is PEM, for the sandbox.
	Certificate string `json:"certificate"`
	// Key is PEM (PKCS #8), for the file of the sandbox alone.
	Key Value `json:"key"`
}

// NewCA makes an authority for a sandbox, whose id is in its name.
func NewCA(id string) (CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CA{}, fmt.Errorf("making the key of a sandbox's CA: %w", err)
	}
	template := certificateFor("Actiond sandbox "+id, caLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return CA{}, fmt.Errorf("making a sandbox's CA: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return CA{}, fmt.Errorf("encoding the key of a sandbox's CA: %w", err)
	}
	return CA{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		Key:         Value(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}, nil
}

func certificateFor(name string, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(append([]byte{1}, serial...)), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(life),
	}
}

// authority makes certificates. Its methods may be called concurrently.
type authority struct {
	cert *x509.Certificate
	key  any               // of the CA
	leaf *ecdsa.PrivateKey // of all certificates
	tls  *tls.Config       // of servers that are hosts with secrets

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by name, at most maxLeaves
}

var (
	errNoCA = errors.New("the policy has secrets, and the sandbox has no CA")
	errCA   = errors.New("the sandbox's CA cannot be read")
)

// prepare checks c, and derives its injections and its authority.
func (c *Conf) prepare() error {
	if err := cmp.Or(c.Policy.Check(), c.checkToken()); err != nil {
		return err
	}
	c.injections = c.Policy.injections()
	if c.CA == (CA{}) {
		if len(c.injections) > 0 {
			return errNoCA
		}
		return nil
	}
	var err error
	c.authority, err = newAuthority(c.CA)
	return err
}

// newAuthority checks ca.
func newAuthority(ca CA) (*authority, error) {
	pair, err := tls.X509KeyPair([]byte(ca.Certificate), []byte(ca.Key))
	if err != nil || !pair.Leaf.IsCA || len(pair.Certificate) != 1 {
		return nil, errCA // crypto/tls may quote what it read
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of certificates: %w", err)
	}
	a := &authority{cert: pair.Leaf, key: pair.PrivateKey, leaf: leaf, leaves: map[string]*tls.Certificate{}}
	a.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			host, err := ParseHost(hello.ServerName)
			if err != nil {
				return nil, err
			}
			return a.certificate(host.String())
		},
	}
	return a, nil
}

// certificate returns one for a host name.
func (a *authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.leaves[name]; known != nil && time.Until(known.Leaf.NotAfter) > leafAhead {
		return known, nil
	}
	template := certificateFor("Actiond", leafLife) // a common name is shorter than a host's may be
	template.DNSNames = []string{name}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[name] = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leaf, Leaf: parsed}
	return a.leaves[name], nil
}
