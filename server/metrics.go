package server

import (
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/reply"
)

// unread is the name under which actions are counted that were refused before
// it was known what they are. All other names are those of api's types, so
// that a caller cannot invent one.
const unread = "unread"

// metrics counts on a registry of its own.
type metrics struct {
	handler  http.Handler
	actions  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
	received prometheus.Counter
	sent     prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_actions_total",
			Help: "Actions by name and by what came of them: happened, refused, broke, or abandoned by their client.",
		}, []string{"action", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "actiond_action_duration_seconds",
			Help: "Time from the request to the encoded observation.",
			// From a command that does nothing to one that builds something.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"action"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_http_requests_total",
			Help: "HTTP requests by method, route and class of the status; method and route are empty where no route matched.",
		}, []string{"method", "route", "code"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "actiond_http_request_bytes_total",
			Help: "Bytes of request bodies.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "actiond_http_response_bytes_total",
			Help: "Bytes of response bodies.",
		}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "actiond_build_info",
		Help: "Always 1; the labels tell the version and what it was built with.",
	}, []string{"version", "go"})
	build.WithLabelValues(s.cfg.Version, runtime.Version()).Set(1)

	registry := prometheus.NewRegistry()
	registry.MustRegister(
		m.actions, m.duration, m.requests, m.received, m.sent, build,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "actiond_sessions",
			Help: "Sessions that are open, each with a shell, a kernel, or both.",
		}, func() float64 { return float64(len(s.cfg.Executor.Sessions())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "actiond_terminals",
			Help: "Terminals that are attached.",
		}, func() float64 { return float64(len(s.terminals)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "actiond_actions_in_flight",
			Help: "Actions that run or wait.",
		}, func() float64 { return float64(len(s.actions)) }),
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

// request counts one HTTP request.
func (m *metrics) request(r *http.Request, rec *reply.Recorder) {
	method := ""
	if r.Pattern != "" {
		method = r.Method // a route matched, so it is one of the table
	}
	m.requests.WithLabelValues(method, r.Pattern, rec.Class()).Inc()
	m.sent.Add(float64(rec.Bytes))
}

// action counts one action.
func (m *metrics) action(r *http.Request, name string, err error, took time.Duration) {
	outcome := "broke"
	switch _, refused := errors.AsType[*api.Error](err); {
	case err == nil:
		outcome = "happened"
	case refused:
		outcome = "refused"
	case waitEnded(r.Context(), err), errors.Is(err, errReaderGone):
		outcome = "abandoned"
	}
	m.actions.WithLabelValues(name, outcome).Inc()
	m.duration.WithLabelValues(name).Observe(took.Seconds())
}
