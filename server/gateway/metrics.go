package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/metric"
	"github.com/actiond/actiond/server/reply"
)

// buckets are from a claim to a pull.
var buckets = []float64{.005, .01, .02, .05, .1, .2, .35, .5, 1, 2, 5, 10, 30, 60, 300}

// metrics counts what was done.
type metrics struct {
	gateway                             *Gateway
	creations, requests, received, sent *metric.Counter
	duration                            *metric.Histogram
	passing                             atomic.Int64
}

func newMetrics(g *Gateway) *metrics {
	return &metrics{
		gateway: g,
		creations: metric.NewCounter("actiond_gateway_creations_total",
			"Sandboxes asked for, by what came of it: created, claimed from the pool, found, refused, failed or abandoned.", "outcome"),
		duration: metric.NewHistogram("actiond_gateway_creation_duration_seconds",
			"Time until a sandbox could be used, for those that were created, claimed or found.", buckets, "outcome"),
		requests: metric.NewCounter("actiond_gateway_http_requests_total",
			"HTTP requests by method, route and class of the status; method and route are empty where no route matched.", "code", "method", "route"),
		received: metric.NewCounter("actiond_gateway_http_request_bytes_total", "Bytes of request bodies."),
		sent:     metric.NewCounter("actiond_gateway_http_response_bytes_total", "Bytes of response bodies."),
	}
}

// serve answers /metrics.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	metric.Serve(w, r, m.expose)
	return nil
}

func (m *metrics) expose(e *metric.Exposition) {
	cfg := m.gateway.cfg
	e.Add(m.creations, m.duration, m.requests, m.received, m.sent, cfg.Phases.duration)
	e.Gauge("actiond_gateway_build_info", "Always 1; the labels tell the version and what it was built with.", 1,
		"go", runtime.Version(), "version", cfg.Version)
	e.Gauge("actiond_gateway_proxied_in_flight", "Requests that are being passed on to sandboxes.", float64(m.passing.Load()))
	e.Gauge("actiond_gateway_pool_size", "Sandboxes that the warm pool should have.", float64(cfg.PoolSize))
	m.gateway.census(e)
	e.AddProcess()
}

// created counts a creation.
func (m *metrics) created(ctx context.Context, c creation, err error, took time.Duration) {
	outcome := "created"
	switch refusal := refusalOf(ctx, err); {
	case err == nil && c.warm:
		outcome = "claimed"
	case err == nil && c.known:
		outcome = "found"
	case err == nil:
	case ctx.Err() != nil:
		outcome = "abandoned"
	case refusal != nil && refusal.Status < 500 && !errors.As(err, new(*docker.StartError)):
		outcome = "refused"
	default:
		outcome = "failed"
	}
	m.creations.Add(1, outcome)
	if err == nil {
		m.duration.Observe(took.Seconds(), outcome)
	}
}

// observe counts every request and writes its line into the log: no query, no
// header and no body, as these hold secrets.
func (g *Gateway) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rec := &reply.Recorder{ResponseWriter: w}
		defer func() { g.observed(r, rec, time.Since(begun)) }()
		next.ServeHTTP(rec, r)
	})
}

func (g *Gateway) observed(r *http.Request, rec *reply.Recorder, took time.Duration) {
	method := ""
	if r.Pattern != "" {
		method = methodOf(r.Method)
	}
	g.metrics.requests.Add(1, rec.Class(), method, r.Pattern)
	g.metrics.sent.Add(float64(rec.Bytes))
	if g.log.Enabled(r.Context(), slog.LevelDebug) {
		g.log.LogAttrs(r.Context(), slog.LevelDebug, "request",
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", rec.Status),
			slog.Duration("duration", took), slog.Int64("bytes", rec.Bytes))
	}
}

// methodOf keeps callers from inventing names for the metrics: a sandbox is
// passed whatever they call a method.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// census counts the sandboxes.
func (g *Gateway) census(e *metric.Exposition) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	all, err := g.cfg.Host.List(ctx)
	up := 1.0
	if err != nil {
		g.log.WarnContext(ctx, "cannot count the sandboxes", "error", err)
		up = 0
	}
	e.Gauge("actiond_gateway_engine_up", "1 if the Docker engine can be reached; 0 says that nothing is known about the sandboxes.", up)
	if err != nil {
		return
	}
	free, pooled := map[docker.State]int{}, map[docker.State]int{}
	for _, s := range all {
		if s.Pool != "" {
			pooled[s.State]++
		} else {
			free[s.State]++
		}
	}
	for _, state := range []docker.State{docker.Creating, docker.Starting, docker.Ready, docker.Paused, docker.Stopped, docker.Gone} {
		e.Gauge("actiond_gateway_sandboxes", "Sandboxes of this host by state, those in the pool aside.",
			float64(free[state]), "state", string(state))
		e.Gauge("actiond_gateway_pool_sandboxes", "Sandboxes in the warm pool by state; only ready ones can be claimed.",
			float64(pooled[state]), "state", string(state))
	}
}

// Phases times the phases of creations. It is made before the Host, whose
// Config.Progress is its Progress. Its methods may be called concurrently.
type Phases struct {
	duration *metric.Histogram

	mu  sync.Mutex
	all map[string]*phase // by id of the sandbox
}

type phase struct {
	state docker.State
	since time.Time
	waits string
}

// maxPhases bounds what is remembered of creations whose end nobody told: the
// pool's that failed, and the births of those that were claimed.
const maxPhases = 1024

// NewPhases has seen none.
func NewPhases() *Phases {
	return &Phases{all: map[string]*phase{}, duration: metric.NewHistogram("actiond_gateway_creation_phase_seconds",
		"Time that creations and claims spend in each phase.", buckets, "phase")}
}

// Progress is told what a creation waits for next; "" is its end.
func (p *Phases) Progress(id string, state docker.State, waiting string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.all[id]
	if current != nil && (current.state != state || waiting == "") {
		p.duration.Observe(now.Sub(current.since).Seconds(), string(current.state))
		current = nil
	}
	switch {
	case waiting == "":
		delete(p.all, id)
	case current == nil:
		if len(p.all) >= maxPhases {
			clear(p.all)
		}
		p.all[id] = &phase{state, now, waiting}
	default:
		current.waits = waiting
	}
}

// waiting says what a creation waits for, "" where there is none.
func (p *Phases) waiting(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if current := p.all[id]; current != nil {
		return "it waits for " + current.waits
	}
	return ""
}

// end forgets a creation that is over.
func (p *Phases) end(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}
