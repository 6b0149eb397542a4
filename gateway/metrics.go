package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// buckets range from a claim to a pull.
var buckets = []float64{.005, .01, .02, .05, .1, .2, .35, .5, 1, 2, 5, 10, 30, 60, 300}

// metrics counts requests, creations and sandboxes.
type metrics struct {
	*httpserver.Metrics
	creations *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	changes   *prometheus.CounterVec
	passing   prometheus.Gauge
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		creations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_gateway_creations_total",
			Help: "Sandboxes asked for, by outcome: created, claimed from the pool, found, refused, failed or abandoned.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "actiond_gateway_creation_duration_seconds",
			Help:    "Time until a sandbox could be used, for those that were created, claimed or found.",
			Buckets: buckets,
		}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_gateway_network_changes_total",
			Help: "Changes of network policies asked for, by outcome: applied, unchanged, stored until the egress proxy answers, refused or failed.",
		}, []string{"outcome"}),
		passing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "actiond_gateway_proxied_in_flight", Help: "Requests that are being passed on to sandboxes.",
		}),
	}
	pool := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "actiond_gateway_pool_size", Help: "Sandboxes that the warm pool should have.",
	})
	pool.Set(float64(g.cfg.PoolSize))
	for _, outcome := range []string{"applied", "unchanged", "stored", "refused", "failed"} {
		m.changes.WithLabelValues(outcome)
	}
	m.Metrics = httpserver.NewMetrics("actiond_gateway", g.cfg.Version,
		m.creations, m.duration, m.changes, m.passing, g.cfg.Phases.duration, pool, census{g})
	return m
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
	case refusal != nil && refusal.Status < 500 && !errors.As(err, new(*sandbox.StartError)):
		outcome = "refused"
	default:
		outcome = "failed"
	}
	m.creations.WithLabelValues(outcome).Inc()
	if err == nil {
		m.duration.WithLabelValues(outcome).Observe(took.Seconds())
	}
}

// networkChanged counts a change of a network policy. before is the generation that it found.
func (m *metrics) networkChanged(ctx context.Context, n *sandbox.Network, before int64, err error) {
	outcome := "failed"
	switch refusal := refusalOf(ctx, err); {
	case err == nil && !n.Up:
		outcome = "stored"
	case err == nil && n.Generation == before:
		outcome = "unchanged"
	case err == nil:
		outcome = "applied"
	case refusal != nil && refusal.Status < 500:
		outcome = "refused"
	}
	m.changes.WithLabelValues(outcome).Inc()
}

// census counts the sandboxes of the host when it is scraped.
type census struct{ gateway *Gateway }

var (
	engineUp = prometheus.NewDesc("actiond_gateway_engine_up",
		"1 if the Docker engine can be reached; 0 if the state of the sandboxes is unknown.", nil, nil)
	sandboxes = prometheus.NewDesc("actiond_gateway_sandboxes",
		"Sandboxes of this host by state, without those in the pool.", []string{"state"}, nil)
	poolSandboxes = prometheus.NewDesc("actiond_gateway_pool_sandboxes",
		"Sandboxes in the warm pool by state; only ready ones can be claimed.", []string{"state"}, nil)
)

// Describe implements [prometheus.Collector].
func (census) Describe(descs chan<- *prometheus.Desc) {
	descs <- engineUp
	descs <- sandboxes
	descs <- poolSandboxes
}

// Collect implements [prometheus.Collector].
func (c census) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	all, err := c.gateway.cfg.Driver.List(ctx)
	if err != nil {
		c.gateway.log.WarnContext(ctx, "cannot count the sandboxes", "error", err)
		gauge(engineUp, 0)
		return
	}
	gauge(engineUp, 1)
	free, pooled := map[sandbox.State]int{}, map[sandbox.State]int{}
	for _, s := range all {
		if s.Pool != "" {
			pooled[s.State]++
		} else {
			free[s.State]++
		}
	}
	for _, state := range []sandbox.State{sandbox.Creating, sandbox.Starting, sandbox.Ready, sandbox.Paused, sandbox.Stopped, sandbox.Unknown, sandbox.Gone} {
		gauge(sandboxes, free[state], string(state))
		gauge(poolSandboxes, pooled[state], string(state))
	}
}

// Phases measures the phases of creations. A driver's Config.Progress is its Progress.
// Its methods may be called concurrently.
type Phases struct {
	duration *prometheus.HistogramVec

	mu  sync.Mutex
	all map[string]*phase // by id of the sandbox
}

type phase struct {
	state sandbox.State
	since time.Time
	waits string
}

// maxPhases limits the number of creations whose end is not reported: those of the
// pool that failed, and those of sandboxes that were claimed.
const maxPhases = 1024

// NewPhases returns Phases without a creation.
func NewPhases() *Phases {
	return &Phases{all: map[string]*phase{}, duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "actiond_gateway_creation_phase_seconds",
		Help:    "Time that creations and claims spend in each phase.",
		Buckets: buckets,
	}, []string{"phase"})}
}

// Progress records the next step that a creation waits for; "" is the end of the creation.
func (p *Phases) Progress(id string, state sandbox.State, waiting string) {
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

// waiting returns the step that a creation waits for, or "" for an unknown one.
func (p *Phases) waiting(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if current := p.all[id]; current != nil {
		return "it waits for " + current.waits
	}
	return ""
}

// end removes a creation that has ended.
func (p *Phases) end(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}
