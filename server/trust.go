package server

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/hostpath"
)

// The egress proxy opens TLS to hosts with secrets by certificates of the sandbox's own authority.
// Programs trust it by a bundle in a directory that the agent cannot change, which variables name,
// and by the image's own bundle.

const (
	defaultTrustDir = "/run/actiond-tls"
	bundleFile      = "bundle.pem" // the image's authorities and the sandbox's
	caFile          = "ca.pem"     // the sandbox's alone
	maxBundle       = 4 << 20      // bytes
)

// imageBundles are where distributions keep their authorities in one file, without links.
var imageBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt",
	"/var/lib/ca-certificates/ca-bundle.pem", "/etc/ca-certificates/extracted/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	"/etc/ssl/cert.pem",
}

// replacingVariables name a bundle for programs that have authorities of their own otherwise.
var replacingVariables = []string{"PIP_CERT", "REQUESTS_CA_BUNDLE"}

// bundleVariables name a bundle for programs that use the image's otherwise.
var bundleVariables = []string{"CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "SSL_CERT_FILE"}

func (c *Config) trustDir() string { return cmp.Or(c.TrustDir, defaultTrustDir) }

func (c *Config) imageRoot() string { return cmp.Or(c.ImageRoot, "/") }

// trusting is the sandbox's trust in its authority.
type trusting struct {
	variables map[string]string
	problem   string // why the image's bundle does not have the authority; empty: it has
}

// trust writes the bundles for an authority in PEM, "" for none.
func (s *Server) trust(ca string) (t trusting, err error) {
	if ca == "" {
		return t, nil
	}
	block, rest := pem.Decode([]byte(ca))
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return t, errors.New("ca is not a PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !cert.IsCA {
		return t, errors.New("ca is no certificate of an authority")
	}
	own := pem.EncodeToMemory(block)
	root, err := os.Open(s.cfg.imageRoot())
	if err != nil {
		return t, err
	}
	defer func() { _ = root.Close() }() // a directory
	name, image, problem := findBundle(root)
	bundle := withCA(image, own)
	dir, above, err := s.openTrust()
	if err != nil {
		return t, fmt.Errorf("writing the certificates of the sandbox: %w", err)
	}
	defer func() { _ = dir.Close() }() // a directory
	if err := errors.Join(s.writeTrust(dir, above, caFile, own), s.writeTrust(dir, above, bundleFile, bundle)); err != nil {
		return t, fmt.Errorf("writing the certificates of the sandbox: %w", err)
	}
	t.problem = problem
	if name != "" && !bytes.Equal(bundle, image) {
		if err := s.replaceBundle(root, name, image, bundle); err != nil {
			t.problem = name + " cannot be replaced: " + plainly(err)
		}
	}
	at := s.cfg.trustDir()
	t.variables = map[string]string{"NODE_EXTRA_CA_CERTS": filepath.Join(at, caFile)}
	for _, variable := range bundleVariables {
		t.variables[variable] = filepath.Join(at, bundleFile)
	}
	if len(image) > 0 { // without the image's, they would take away authorities that programs bring
		for _, variable := range replacingVariables {
			t.variables[variable] = filepath.Join(at, bundleFile)
		}
		t.variables["UV_NATIVE_TLS"] = "1"
	}
	return t, nil
}

// plainly is an error of the file system without a path, which may be that of a descriptor.
func plainly(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	return err.Error()
}

// withCA returns a bundle with an authority, which it may have already.
func withCA(bundle, ca []byte) []byte {
	if bytes.Contains(bundle, ca) {
		return bundle
	}
	all := bytes.Clone(bundle)
	if len(all) > 0 && all[len(all)-1] != '\n' {
		all = append(all, '\n')
	}
	return append(all, ca...)
}

// findBundle returns the image's bundle. It follows no link, which the agent may have made before the
// sandbox was started again; problem is why no bundle can be used.
func findBundle(root *os.File) (name string, data []byte, problem string) {
	problem = "the image has no bundle of certificates"
	for _, name := range imageBundles {
		data, err := readBundle(root, name)
		switch {
		case err == nil:
			return name, data, ""
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, hostpath.ErrLink):
			problem = name + ": " + plainly(err)
		}
	}
	return "", nil, problem
}

func readBundle(root *os.File, name string) ([]byte, error) {
	found, err := hostpath.OpenIn(root, name, hostpath.NoLinks)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }() // it was only read
	if info, err := found.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(osfiles.ErrNotRegular, err)
	}
	f, err := found.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(data) > maxBundle {
		err = fmt.Errorf("it is larger than %d bytes", maxBundle)
	}
	return data, err
}

// openTrust opens the directory of the bundles, and makes it where it is missing; at has no links.
// Only this process may be able to write to it. Images may have a link in place of /run.
func (s *Server) openTrust() (root *os.Root, at string, err error) {
	name := s.cfg.trustDir()
	above, err := hostpath.Open(filepath.Dir(name), hostpath.OwnLinks)
	switch info, linkErr := os.Lstat(filepath.Dir(name)); {
	case err == nil:
		name = filepath.Join(above.Path(), filepath.Base(name))
		_ = above.Close() // it was only looked at
	case linkErr == nil && info.Mode()&fs.ModeSymlink != 0:
		return nil, "", fmt.Errorf("%s is a link that cannot be followed: %w", filepath.Dir(name), err)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	made, dir, err := osfiles.MkdirNoFollow(name)
	for _, one := range made {
		defer func() { _ = one.Close() }() // a directory
		err = errors.Join(err, one.Chmod(0o755))
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = dir.Close() }() // a directory
	info, err := dir.Stat()
	if err != nil {
		return nil, "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return nil, "", fmt.Errorf("%s can be changed by other users", s.cfg.trustDir())
	}
	root, err = os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	return root, name, err
}

func (s *Server) writeTrust(dir *os.Root, above, name string, data []byte) error {
	return s.cfg.Temps.Replace(osfiles.Replacement{
		Dir: dir, Above: above, Name: name, Mode: 0o600, Fill: func(f *os.File) error {
			_, err := f.Write(data)
			return errors.Join(err, f.Chmod(0o644)) // whatever the umask
		},
	})
}

var errChanged = errors.New("it changed meanwhile")

// replaceBundle replaces the image's bundle. It follows no link, and leaves mounted files, which may
// be a file of the host.
func (s *Server) replaceBundle(root *os.File, name string, old, data []byte) error {
	above, base := path.Split(name)
	fd, err := osfiles.OpenBeneath(int(root.Fd()), strings.Trim(above, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // a directory
	dir, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // a directory
	file, err := osfiles.OpenBeneath(fd, base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(file), name)
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular() || info.Size() != int64(len(old)):
		return errChanged
	case stat.Nlink > 1 || osfiles.HasAttributes(f):
		return errors.New("it has other names or attributes, which would be lost")
	}
	return s.cfg.Temps.Replace(osfiles.Replacement{ // without Old, and so never in place: the file may be the host's
		Dir: dir, Above: path.Join(s.cfg.imageRoot(), above), Name: base, Mode: 0o600,
		Fill: func(f *os.File) error {
			_, err := f.Write(data)
			return errors.Join(err, osfiles.Give(f, int(stat.Uid), int(stat.Gid)), f.Chmod(info.Mode()&osfiles.ModeBits))
		},
		Check: func() error {
			if now, err := dir.Lstat(base); err != nil || !os.SameFile(now, info) {
				return errors.Join(errChanged, err)
			}
			return nil
		},
	})
}
