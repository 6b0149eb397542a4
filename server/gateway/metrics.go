package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/reply"
)

// buckets are from a claim to a pull.
var buckets = []float64{.005, .01, .02, .05, .1, .2, .35, .5, 1, 2, 5, 10, 30, 60, 300}

// metrics counts on a registry of its own.
type metrics struct {
	handler   http.Handler
	creations *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	requests  *prometheus.CounterVec
	passing   prometheus.Gauge
	received  prometheus.Counter
	sent      prometheus.Counter
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		creations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_gateway_creations_total",
			Help: "Sandboxes asked for, by what came of it: created, claimed from the pool, found, refused, failed or abandoned.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "actiond_gateway_creation_duration_seconds", Buckets: buckets,
			Help: "Time until a sandbox could be used, for those that were created, claimed or found.",
		}, []string{"outcome"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_gateway_http_requests_total",
			Help: "HTTP requests by method, route and class of the status; method and route are empty where no route matched.",
		}, []string{"method", "route", "code"}),
		passing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "actiond_gateway_proxied_in_flight",
			Help: "Requests that are being passed on to sandboxes.",
		}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "actiond_gateway_http_request_bytes_total", Help: "Bytes of request bodies.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "actiond_gateway_http_response_bytes_total", Help: "Bytes of response bodies.",
		}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "actiond_gateway_build_info",
		Help: "Always 1; the labels tell the version and what it was built with.",
	}, []string{"version", "go"})
	build.WithLabelValues(g.cfg.Version, runtime.Version()).Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		m.creations, m.duration, m.requests, m.passing, m.received, m.sent, build, g.cfg.Phases.duration,
		&census{host: g.cfg.Host, pool: g.cfg.PoolSize, log: g.log},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true})
	return m
}

// serve answers /metrics.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handler.ServeHTTP(w, r)
	return nil
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
	m.creations.WithLabelValues(outcome).Inc()
	if err == nil {
		m.duration.WithLabelValues(outcome).Observe(took.Seconds())
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
	g.metrics.requests.WithLabelValues(method, r.Pattern, rec.Class()).Inc()
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

// census counts sandboxes when it is asked.
type census struct {
	host *docker.Host
	pool int
	log  *slog.Logger
}

var (
	sandboxesDesc = prometheus.NewDesc("actiond_gateway_sandboxes", "Sandboxes of this host by state, those in the pool aside.", []string{"state"}, nil)
	pooledDesc    = prometheus.NewDesc("actiond_gateway_pool_sandboxes", "Sandboxes in the warm pool by state; only ready ones can be claimed.", []string{"state"}, nil)
	poolSizeDesc  = prometheus.NewDesc("actiond_gateway_pool_size", "Sandboxes that the warm pool should have.", nil, nil)
	engineDesc    = prometheus.NewDesc("actiond_gateway_engine_up", "1 if the Docker engine can be reached; 0 says that nothing is known about the sandboxes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *census) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sandboxesDesc, pooledDesc, poolSizeDesc, engineDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *census) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	all, err := c.host.List(ctx)
	up := 1.0
	if err != nil {
		c.log.WarnContext(ctx, "cannot count the sandboxes", "error", err)
		up = 0
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(engineDesc, up)
	gauge(poolSizeDesc, float64(c.pool))
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
		gauge(sandboxesDesc, float64(free[state]), string(state))
		gauge(pooledDesc, float64(pooled[state]), string(state))
	}
}

// Phases times the phases of creations. It is made before the Host, whose
// Config.Progress is its Progress. Its methods may be called concurrently.
type Phases struct {
	duration *prometheus.HistogramVec

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
	return &Phases{all: map[string]*phase{}, duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "actiond_gateway_creation_phase_seconds", Buckets: buckets,
		Help: "Time that creations and claims spend in each phase.",
	}, []string{"phase"})}
}

// Progress is told what a creation waits for next; "" is its end.
func (p *Phases) Progress(id string, state docker.State, waiting string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.all[id]
	if current != nil && (current.state != state || waiting == "") {
		p.duration.WithLabelValues(string(current.state)).Observe(now.Sub(current.since).Seconds())
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
