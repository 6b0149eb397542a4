package egress

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/internal/httpserver"
)

const (
	hostFile = "host.json"
	maxConf  = MaxPolicy + 64<<10 // bytes of a file
	maxWait  = 60                 // seconds

	// MaxRoots bounds a file of roots, in bytes.
	MaxRoots = 4 << 20
)

// hostConf is the content of the host's file.
type hostConf struct {
	// Addresses are those of the host itself.
	Addresses []netip.Addr `json:"addresses"`
}

// Control is the controller's side of a server: it reads the files in a directory, ID.json for each
// sandbox, ID.pem for the roots that verify its hosts with secrets, and host.json for the host, when
// the controller says that they have changed.
type Control struct {
	server  *Server
	dir     string
	metrics *httpserver.Metrics

	mu    sync.Mutex
	pools map[[sha256.Size]byte]weak.Pointer[x509.CertPool] // by their files: most sandboxes have the same
}

// NewControl returns the control of a server. version is that of the program.
func NewControl(s *Server, dir, version string) *Control {
	return &Control{server: s, dir: dir, pools: map[[sha256.Size]byte]weak.Pointer[x509.CertPool]{}, metrics: httpserver.NewMetrics("actiond_egress", version, s.metrics.Collectors()...)}
}

// Load applies all files. Sandboxes whose files cannot be applied have no network; the error names
// them all.
func (c *Control) Load() error {
	err := c.host()
	entries, dirErr := os.ReadDir(c.dir)
	err = errors.Join(err, dirErr)
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), ".json"); ok && isID(id) {
			err = errors.Join(err, c.apply(id))
		}
	}
	return err
}

// host applies the host's file.
func (c *Control) host() error {
	data, err := readBounded(filepath.Join(c.dir, hostFile), maxConf)
	if err != nil {
		return err
	}
	addrs, err := ParseHostAddresses(data)
	if err != nil {
		return err
	}
	return c.server.SetHost(addrs)
}

// roots returns the roots of a sandbox.
func (c *Control) roots(id string) (*x509.CertPool, error) {
	data, err := readBounded(filepath.Join(c.dir, id+".pem"), MaxRoots)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if pool := c.pools[sum].Value(); pool != nil {
		return pool, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s.pem has no certificate", id)
	}
	maps.DeleteFunc(c.pools, func(_ [sha256.Size]byte, p weak.Pointer[x509.CertPool]) bool { return p.Value() == nil })
	c.pools[sum] = weak.Make(pool)
	return pool, nil
}

// ParseHostAddresses decodes the host's file.
func ParseHostAddresses(data []byte) ([]netip.Addr, error) {
	var h hostConf
	if err := json.Unmarshal(data, &h, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", hostFile, err)
	}
	return h.Addresses, nil
}

// apply applies the file of a sandbox.
func (c *Control) apply(id string) error {
	if !isID(id) {
		return errID
	}
	data, err := readBounded(filepath.Join(c.dir, id+".json"), maxConf)
	if err != nil {
		return err
	}
	conf, err := ParseConf(data)
	if err == nil && len(conf.Policy.Secrets) > 0 {
		conf.Roots, err = c.roots(id)
	}
	if err != nil {
		return fmt.Errorf("file of sandbox %s: %w", id, err)
	}
	return c.server.Apply(id, conf)
}

func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return data, err
}

// Handler answers the controller. It asks for no key: its socket is in a directory of the controller.
func (c *Control) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(*http.Request) (any, error){
		"POST /apply/{id}": func(r *http.Request) (any, error) {
			// A new host's address must not be reached by a new policy.
			if err := errors.Join(c.host(), c.apply(r.PathValue("id"))); err != nil {
				return nil, err
			}
			return c.server.Status(r.PathValue("id"))
		},
		"POST /host":            func(*http.Request) (any, error) { return struct{}{}, c.host() },
		"POST /disconnect/{id}": func(r *http.Request) (any, error) { return struct{}{}, c.server.Disconnect(r.PathValue("id")) },
		"DELETE /{id}":          func(r *http.Request) (any, error) { return struct{}{}, c.server.Delete(r.PathValue("id")) },
		"GET /{id}":             func(r *http.Request) (any, error) { return c.server.Status(r.PathValue("id")) },
		"GET /{id}/denied": func(r *http.Request) (any, error) {
			after, wait := queryNumber(r, "after"), min(queryNumber(r, "wait"), maxWait)
			ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Second)
			defer cancel()
			all, err := c.server.Denied(ctx, r.PathValue("id"), after)
			return deniedBody{all}, err
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := handle(r)
			if err == nil {
				err = httpserver.WriteJSON(w, http.StatusOK, body, encode)
			}
			if err != nil {
				http.Error(w, err.Error(), status(err))
			}
		})
	}
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { _ = c.metrics.Serve(w, r) }) // never fails
	return mux
}

// Watched answers a monitor, which may read and not change anything, and whether the server is ready.
// The handler asks for no key.
func (c *Control) Watched(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { _ = c.metrics.Serve(w, r) }) // never fails
	mux.HandleFunc("GET /alive", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "The policies were not read yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// status is the status of an error.
func status(err error) int {
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, os.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, ErrStale):
		return http.StatusConflict
	case errors.Is(err, errID):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
