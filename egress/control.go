package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/internal/httpserver"
)

const (
	hostFile = "host.json"
	maxConf  = MaxPolicy + 64<<10 // bytes of a file
	maxWait  = 60                 // seconds
)

// hostConf is the content of the host's file.
type hostConf struct {
	// Addresses are those of the host itself.
	Addresses []netip.Addr `json:"addresses"`
}

// Control is the controller's side of a server: it reads the files in a directory, ID.json for each
// sandbox and host.json for the host, when the controller says that they have changed.
type Control struct {
	server  *Server
	dir     string
	metrics *httpserver.Metrics
}

// NewControl returns the control of a server. version is that of the program.
func NewControl(s *Server, dir, version string) *Control {
	return &Control{s, dir, httpserver.NewMetrics("actiond_egress", version, s.metrics.Collectors()...)}
}

// Load applies all files. Sandboxes whose files cannot be applied have no network; the error names
// them all.
func (c *Control) Load() error {
	err := c.host()
	entries, dirErr := os.ReadDir(c.dir)
	err = errors.Join(err, dirErr)
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), ".json"); ok && idPattern.MatchString(id) {
			err = errors.Join(err, c.apply(id))
		}
	}
	return err
}

// host applies the host's file.
func (c *Control) host() error {
	data, err := readBounded(filepath.Join(c.dir, hostFile))
	if err != nil {
		return err
	}
	addrs, err := ParseHostAddresses(data)
	if err != nil {
		return err
	}
	return c.server.SetHost(addrs)
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
	if !idPattern.MatchString(id) {
		return errID
	}
	data, err := readBounded(filepath.Join(c.dir, id+".json"))
	if err != nil {
		return err
	}
	conf, err := ParseConf(data)
	if err != nil {
		return fmt.Errorf("file of sandbox %s: %w", id, err)
	}
	return c.server.Apply(id, conf)
}

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxConf+1))
	if err == nil && len(data) > maxConf {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxConf)
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
