package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/lazyregexp"
)

// Conf is the policy of one sandbox as the controller keeps it.
type Conf struct {
	// Generation grows with every change.
	Generation int64  `json:"generation"`
	Policy     Policy `json:"policy"`
	// Private are the ranges of private addresses that the operator opens.
	Private []netip.Prefix `json:"private,omitzero"`
	// CA is the sandbox's own; without one its policy can have no secrets.
	CA CA `json:"ca,omitzero"`
	// Roots verify hosts with secrets; nil: those of [Config].
	Roots *x509.CertPool `json:"-"`
	// Token is the hash of the sandbox's token, by which it is known to [Server.Serve].
	Token string `json:"token,omitzero"`

	authority  *authority // of CA; nil without one
	injections map[Host]*injection
}

// ParseConf decodes and checks a sandbox's file.
func ParseConf(data []byte) (Conf, error) {
	var c Conf
	if err := decode(data, &c); err != nil {
		return Conf{}, fmt.Errorf("decoding: %w", err)
	}
	return c, c.prepare()
}

// Encode returns the content of a sandbox's file, which has the values of secrets. It fails where
// [ParseConf] would.
func (c *Conf) Encode() ([]byte, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// Config configures a [Server].
type Config struct {
	// RunDir has a directory for each sandbox, with its socket s; empty: sandboxes come by
	// [Server.Serve] alone.
	RunDir string
	// MaxOpen bounds the open connections of all sandboxes; see [Capacity]. Default 1,024.
	MaxOpen int
	// Log gets a line for each denial, of each sandbox 10 at once and then one a second.
	Log *slog.Logger
	// Resolve looks a name up; nil: the system's name servers.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address by a dialer, whose checks it must call; nil: by TCP.
	Dial func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error)
	// Roots verify the hosts with secrets of sandboxes that have no roots of their own; nil: the system's.
	Roots *x509.CertPool
}

// Limits of a server.
const (
	defaultOpen    = 1024 // connections of all sandboxes
	maxIdle        = 3072 // further ones that have not asked for one yet, or were refused
	maxOpenSandbox = 256
	openRate       = 50 // connections a second of a sandbox, after the first maxOpenSandbox
	maxWaiting     = 32 // connections of a sandbox that have not asked for one yet, or ask for denials
	logRate        = 1  // lines of the log a second of a sandbox, after the first logBurst
	logBurst       = 10
	maxHeader      = 8 << 10
	idleTime       = time.Hour
	dialTime       = 10 * time.Second
	resolveTime    = 5 * time.Second
	maxAddresses   = 4 // of a name, that are dialed
)

// Capacity returns how many connections may be open in so many bytes of memory with so many open files.
func Capacity(memory, files uint64) int {
	const (
		connection = 40<<10 + 2*sharedBytes // with its part of the requests and buffers of all
		others     = 24 << 20
		otherFiles = maxIdle + 256
	)
	return max(defaultOpen, int(min((max(memory, others)-others)/connection, (max(files, otherFiles)-otherFiles)/2))) //nolint:gosec // both are small
}

// Server is the egress proxy. It owns a listener and the connections of each sandbox, which
// [Server.Delete] and [Server.Close] end and wait for. Its methods may be called concurrently.
type Server struct {
	cfg      Config
	metrics  *Metrics
	open     atomic.Int64
	held     atomic.Int64 // of all sandboxes
	buffered atomic.Int64 // the same
	accepted *httpserver.Total
	shared   int                          // connections of a listener by TCP, of which half may be without a token
	own      atomic.Pointer[[]netip.Addr] // nil: unknown so far

	mu        sync.Mutex
	closed    bool
	sandboxes map[string]*sandbox
}

// New returns a server without sandboxes. It refuses all connections until [Server.SetHost].
func New(cfg Config) *Server {
	if cfg.Resolve == nil {
		cfg.Resolve = lookup
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	cfg.MaxOpen = cmp.Or(cfg.MaxOpen, defaultOpen)
	s := &Server{cfg: cfg, sandboxes: map[string]*sandbox{}, accepted: httpserver.NewTotal(cfg.MaxOpen + maxIdle), shared: cfg.MaxOpen + maxIdle}
	s.metrics = NewMetrics(func() float64 { return float64(s.open.Load()) })
	s.metrics.all = append(s.metrics.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "actiond_network_open_limit", Help: "Connections of sandboxes that may be open.",
	}, func() float64 { return float64(cfg.MaxOpen) }))
	return s
}

// lookup asks for the name itself, and not for it below a search domain.
func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
}

// SetHost sets the addresses of the host, which are never reached. Connections to them end
// before it returns.
func (s *Server) SetHost(addrs []netip.Addr) error {
	local, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("listing the addresses of this proxy: %w", err)
	}
	var own []netip.Addr
	for _, a := range local {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	for _, a := range addrs {
		own = append(own, a.Unmap())
	}
	s.own.Store(&own)
	for _, b := range s.all() {
		b.recheck()
	}
	return nil
}

func (s *Server) all() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*sandbox, 0, len(s.sandboxes))
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	return all
}

// Errors of Apply, Delete and Status.
var (
	ErrUnknown = errors.New("no such sandbox")
	ErrStale   = errors.New("a later generation was applied")
	errID      = errors.New("an id has 8 to 64 digits and lower-case letters")
)

// The controller's other files have shorter names.
var idPattern = lazyregexp.New(`^[0-9a-z]{8}[0-9a-z]*$`)

const maxID = 64

func isID(id string) bool { return len(id) <= maxID && idPattern().MatchString(id) }

// Apply sets the policy of a sandbox. The first one opens its socket, if it has one; with a later one,
// connections that it refuses have ended when Apply returns. The error wraps ErrStale for a
// generation before the present one.
func (s *Server) Apply(id string, c Conf) error {
	if !isID(id) {
		return errID
	}
	if err := c.prepare(); err != nil {
		return err
	}
	s.mu.Lock()
	b, known := s.sandboxes[id]
	if !known && s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	if !known {
		b = newSandbox(s, id, c)
		if s.cfg.RunDir != "" {
			if err := b.listen(filepath.Join(s.cfg.RunDir, id)); err != nil {
				s.mu.Unlock()
				return fmt.Errorf("opening the socket of sandbox %s: %w", id, err)
			}
		}
		s.sandboxes[id] = b
	}
	s.mu.Unlock()
	return b.apply(c)
}

// Delete closes the socket and all connections of a sandbox, and forgets it.
func (s *Server) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock() // a new sandbox with this id would lose its socket
	b, ok := s.sandboxes[id]
	if !ok {
		return ErrUnknown
	}
	b.close()
	delete(s.sandboxes, id)
	if s.cfg.RunDir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.cfg.RunDir, id))
}

// Disconnect ends the connections of a sandbox, which may open others.
func (s *Server) Disconnect(id string) error {
	b, err := s.sandbox(id)
	if err == nil {
		b.endWhere(func(*connection) error { return errGone })
	}
	return err
}

// Close ends all connections, and opens no further socket. The sockets stay, for the next server to
// replace.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, b := range s.all() {
		b.close()
	}
}

// Status is the state of a sandbox's network.
type Status struct {
	// Generation is that of the policy which all connections obey.
	Generation int64 `json:"generation"`
	Open       int   `json:"open"`
	Sent       int64 `json:"sent"`
	Received   int64 `json:"received"`
	Denied     int64 `json:"denied"` // the number of the last denial
}

// Status returns the state of a sandbox's network.
func (s *Server) Status(id string) (Status, error) {
	b, err := s.sandbox(id)
	if err != nil {
		return Status{}, err
	}
	return b.status(), nil
}

// Denied returns the denials of a sandbox after a number, the oldest first, once there are any
// or ctx ends. The last 1,000 are kept.
func (s *Server) Denied(ctx context.Context, id string, after int64) ([]Denial, error) {
	b, err := s.sandbox(id)
	if err != nil {
		return nil, err
	}
	return b.denials.await(ctx, after), nil
}

func (s *Server) sandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.sandboxes[id]; ok {
		return b, nil
	}
	return nil, ErrUnknown
}
