// Package gateway answers HTTP for sandboxes: it creates, lists and removes them
// for remote controllers, and passes requests on to the server in each. It has a
// REST API of its own and the runtime API of OpenHands; api/gateway.yaml describes
// both.
//
// It is stateless: the platform holds all state. The driver's Prune removes the
// unfinished creations of a gateway that was killed.
package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// Config configures a Gateway. Driver and Key are required.
type Config struct {
	// Driver manages the sandboxes. Requests for an ability that it lacks are refused.
	Driver sandbox.Driver
	// Key must be in the X-API-Key header of every request, except requests to open
	// routes and those with the key of a sandbox. It is never logged.
	Key string
	// Defaults has the values of the fields that a creation does not set. Mounts,
	// Runtime, SecurityOpts and the nodes and image pull secrets of Pods apply to all
	// sandboxes, because callers cannot set them. Private and NoNames apply to every network policy,
	// and callers may ask for policies that admit no more than Policy, or for any if it is nil.
	Defaults sandbox.Spec
	// Secrets are the operator's, which policies of callers name, as they do those of
	// Defaults.Policy. They have values.
	Secrets []egress.Secret
	// Pool has the warm sandboxes for creations with its specification. Default: none.
	Pool *sandbox.Pool
	// PoolSize is reported in the metrics.
	PoolSize int
	// GPUs are those that creations may ask for: names of GPUs, each for one sandbox at a time, or a number
	// where the platform chooses. Default: none.
	GPUs sandbox.GPUs
	// MaxSandboxes limits the sandboxes on this host, without those in the pool; 0
	// sets no limit.
	MaxSandboxes int
	// RemoveMade has Serve remove, when it ends, the sandboxes that this gateway created.
	RemoveMade bool
	// PublicURL is the address by which callers reach this gateway through a reverse
	// proxy. Default: the host of each request.
	PublicURL string
	// PreviewDomain is DOMAIN or DOMAIN:PORT, where PORT-ID.DOMAIN are hosts of this
	// gateway. There, and nowhere else, web pages of sandboxes work. Default: none.
	PreviewDomain string
	// Version is reported in the metrics.
	Version string
	// Phases receives the progress of the driver. Default: phases are not measured.
	Phases *Phases
	// Logger receives one debug line per request, and errors. Default: discard.
	Logger *slog.Logger
}

const (
	// maxHeader is that of the server in a sandbox, which gets the header next.
	maxHeader = 16 << 10
	// maxConns is for some hundred sandboxes with several sessions each.
	maxConns = 4096
	// maxMetricsConns is for some monitoring systems.
	maxMetricsConns = 16
	// maxBody bounds the bodies that are for the gateway itself. Those of a
	// sandbox are bounded by its own server.
	maxBody = 1 << 20

	// drainTime bounds the wait for running requests at shutdown, answerTime the wait
	// for the refusals that end them.
	drainTime  = 5 * time.Second
	answerTime = time.Second

	// reapTime is the time between two removals of expired sandboxes, for those whose
	// own server did not end them.
	reapTime = 30 * time.Second
	// refillTime is the time between two checks of the pool for dead members; a claim
	// triggers one at once.
	refillTime = 30 * time.Second
)

// errStopping is the cause that ends the wait of requests at shutdown.
var errStopping = errors.New("the gateway is shutting down")

// Gateway answers requests. It is an http.Handler; Serve adds the bounds on
// connections and the background work. It may be used concurrently.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	key      [sha256.Size]byte
	below    string // before the ids of sandboxes, in the paths that clients see
	handler  http.Handler
	proxy    *httputil.ReverseProxy
	preview  *previewDomain // nil: none
	previews *httputil.ReverseProxy
	metrics  *metrics
	known    *directory
	made     *made // nil: they stay
	// ownSecrets are the operator's.
	ownSecrets []egress.Secret

	stopping  atomic.Bool
	admission chan struct{} // held while it is counted how many sandboxes there are
	making    map[string]int
	// makingGPUs are the GPUs that the platform is to choose for these, by id.
	makingGPUs map[string]int

	mu     sync.Mutex
	starts map[string]*start // by id of the sandbox
	begun  sync.WaitGroup    // of those
}

// New returns a gateway that is ready to serve. Close ends its background work.
func New(cfg Config) (*Gateway, error) {
	if cfg.Driver == nil || cfg.Key == "" {
		return nil, errors.New("opening the gateway: it needs a driver and a key")
	}
	below := proxyPrefix
	var public *url.URL
	if cfg.PublicURL != "" {
		var err error
		public, err = url.Parse(cfg.PublicURL)
		if err != nil || public.Scheme != "http" && public.Scheme != "https" || public.Host == "" || public.RawQuery != "" || public.Fragment != "" {
			return nil, fmt.Errorf("public URL %q: must be http://host or https://host, with a path if need be", cfg.PublicURL)
		}
		cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
		below = strings.TrimRight(public.EscapedPath(), "/") + proxyPrefix
	}
	var preview *previewDomain
	if cfg.PreviewDomain != "" {
		var err error
		if preview, err = newPreviewDomain(cfg.PreviewDomain, public); err != nil {
			return nil, err
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Phases == nil {
		cfg.Phases = NewPhases()
	}
	g := &Gateway{
		cfg: cfg, log: cfg.Logger, key: sha256.Sum256([]byte(cfg.Key)), below: below, preview: preview,
		known:     newDirectory(cfg.Driver),
		admission: make(chan struct{}, 1), making: map[string]int{}, makingGPUs: map[string]int{}, starts: map[string]*start{},
	}
	g.ownSecrets = slices.Clone(cfg.Secrets)
	if cfg.Defaults.Policy != nil {
		g.ownSecrets = append(g.ownSecrets, cfg.Defaults.Policy.Secrets...)
	}
	if cfg.RemoveMade {
		g.made = &made{instances: map[string]string{}}
	}
	g.metrics = newMetrics(g)
	g.proxy, g.previews = g.newServerProxy(), g.newPreviewProxy()
	g.handler = g.router()
	return g, nil
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Serve answers the connections of l until ctx ends, keeps the pool full and
// removes expired sandboxes. It then waits a few seconds for running requests and
// rolls unfinished creations back; sandboxes keep running, but for those that
// [Config.RemoveMade] names. It closes l and waits for its goroutines. The error is nil
// after ctx ended.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	return errors.Join(g.serve(ctx, l), g.removeMade(ctx))
}

func (g *Gateway) serve(ctx context.Context, l net.Listener) error {
	var background sync.WaitGroup
	backgroundCtx, endBackground := context.WithCancel(ctx)
	defer background.Wait()
	defer endBackground()
	if watcher, ok := g.cfg.Driver.(sandbox.Watcher); ok {
		background.Go(func() { g.known.watch(backgroundCtx, watcher, g.log) })
	}
	if pruner, ok := g.cfg.Driver.(sandbox.Pruner); ok {
		background.Go(func() { sandbox.Reap(backgroundCtx, pruner, reapTime, g.log) })
	}
	if g.cfg.Pool != nil {
		background.Go(func() { g.cfg.Pool.Run(backgroundCtx, refillTime) })
	}
	defer g.Close()

	base, stopWaiting := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWaiting(errStopping)
	srv := httpserver.NewServer(base, g, maxHeader, g.log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(httpserver.LimitListener(l, maxConns)) }()
	g.log.InfoContext(ctx, "serving", slog.String("address", l.Addr().String()), slog.String("platform", g.cfg.Driver.Platform()), slog.String("version", g.cfg.Version))
	defer g.log.InfoContext(ctx, "stopped serving")
	select {
	case err := <-served:
		_ = srv.Close() // the error that ended serving is the one to tell
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}

	g.log.InfoContext(ctx, "stopping: running requests may go on for some seconds")
	g.stopping.Store(true)
	err := httpserver.Shutdown(ctx, srv, drainTime)
	stopWaiting(errStopping) // also handlers that hijacked their connection, which Shutdown does not know
	if err != nil {
		err = httpserver.Shutdown(ctx, srv, answerTime)
	}
	if err != nil {
		g.log.WarnContext(ctx, "closing connections that did not end in time", "error", err)
		_ = srv.Close() // nothing can be done about a connection that fails to close
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	}
	return nil
}

// ServeMetrics answers /metrics at l without a key, until stop is called, which
// closes l and waits. Of ctx it uses only the values.
func (g *Gateway) ServeMetrics(ctx context.Context, l net.Listener) (stop func() error) {
	mux := httpserver.NewRouter([]httpserver.Route{httpserver.Open(http.MethodGet, "/metrics", g.metrics.Serve)}, g.protocol())
	srv := httpserver.NewServer(context.WithoutCancel(ctx), mux, maxHeader, g.log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(httpserver.LimitListener(l, maxMetricsConns)) }()
	return func() error {
		err := srv.Close()
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}
}

// Close rolls unfinished creations back, ends builds and drops idle connections.
// Sandboxes keep running.
func (g *Gateway) Close() {
	g.stopping.Store(true)
	g.mu.Lock()
	for _, s := range g.starts {
		s.cancel(errStopping)
	}
	g.mu.Unlock()
	g.begun.Wait()
	g.known.close()
}
