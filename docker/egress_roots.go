package docker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// The egress proxy verifies hosts with secrets by the roots that this machine, or the command, had when the
// secret came. It runs in an image without a file, so they are copied beside the policy.

// rootsFiles are where distributions keep the roots in one file, as in crypto/x509.
var rootsFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// rootsVariable names another file, for this program as for others.
const rootsVariable = "SSL_CERT_FILE"

// errNoRoots reports a machine without roots.
var errNoRoots = errors.New("this machine has no certificates of authorities: install its package ca-certificates, or name a file with them in " + rootsVariable)

// rootsForSecrets returns the roots for secrets, and refuses these where no host could be verified.
func (h *Host) rootsForSecrets() ([]byte, error) {
	data, name, err := h.roots()
	if err == nil {
		err = checkRoots(data, name)
	}
	if err != nil {
		return nil, sandbox.Invalid("secrets cannot be kept here: %v", err)
	}
	return data, nil
}

func checkRoots(data []byte, name string) error {
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return fmt.Errorf("%s has no certificate", name)
	}
	return nil
}

// roots returns the roots of this machine and the name of their file.
func (h *Host) roots() (data []byte, name string, err error) {
	names := rootsFiles
	if named := os.Getenv(rootsVariable); named != "" {
		names = []string{named}
	}
	if h.config.Roots != "" {
		names = []string{h.config.Roots}
	}
	for _, name := range names {
		data, err := readRoots(name)
		if errors.Is(err, fs.ErrNotExist) && len(names) > 1 {
			continue
		}
		return data, name, err
	}
	return nil, "", errNoRoots
}

func readRoots(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the certificates of authorities: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, egress.MaxRoots+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the certificates of authorities: %w", err)
	case len(data) > egress.MaxRoots:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, egress.MaxRoots)
	}
	return data, nil
}
