package httpserver

import (
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts the requests of a server. Its methods may be called concurrently.
type Metrics struct {
	requests       *prometheus.CounterVec
	received, sent prometheus.Counter
	registry       *prometheus.Registry
	scrapes        func() http.Handler
}

// NewMetrics returns metrics whose names begin with prefix, and those of the build, of the
// Go runtime, of the process, and of more collectors.
func NewMetrics(prefix, version string, more ...prometheus.Collector) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_http_requests_total",
			Help: "HTTP requests by method, route and class of the status; method and route are empty where no route matched.",
		}, []string{"code", "method", "route"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "_http_request_bytes_total", Help: "Bytes of request bodies."}),
		sent:     prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "_http_response_bytes_total", Help: "Bytes of response bodies."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        prefix + "_build_info",
		Help:        "Always 1; the labels tell the version and what it was built with.",
		ConstLabels: prometheus.Labels{"go": runtime.Version(), "version": version},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.received, m.sent, build)
	registry.MustRegister(more...)
	m.registry = registry
	m.scrapes = sync.OnceValue(func() http.Handler { // a start does not need it
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true})
	})
	return m
}

// Register adds collectors.
func (m *Metrics) Register(more ...prometheus.Collector) { m.registry.MustRegister(more...) }

// Serve responds with all metrics.
func (m *Metrics) Serve(w http.ResponseWriter, r *http.Request) error {
	m.scrapes().ServeHTTP(w, r)
	return nil
}

// Received counts bytes of a request body.
func (m *Metrics) Received(n int64) { m.received.Add(float64(n)) }

// noSniff prevents browsers from guessing types. All responses share it, because the server
// only reads a header value.
var noSniff = []string{"nosniff"}

// Observe returns a middleware that counts requests, and logs them at the level debug,
// without query, headers and body, which may have secrets.
func (m *Metrics) Observe(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun := time.Now()
			w.Header()["X-Content-Type-Options"] = noSniff
			response := &response{ResponseWriter: w}
			defer func() { m.observed(r, response, log, time.Since(begun)) }()
			next.ServeHTTP(response, r)
		})
	}
}

func (m *Metrics) observed(r *http.Request, response *response, log *slog.Logger, took time.Duration) {
	m.requests.WithLabelValues(class(response.status), knownMethod(r), r.Pattern).Inc()
	m.sent.Add(float64(response.bytes))
	if !log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	log.LogAttrs(r.Context(), slog.LevelDebug, "request",
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", response.status),
		slog.Duration("duration", took), slog.Int64("bytes", response.bytes))
}

// Begun reports whether a part of the response was sent.
func Begun(w http.ResponseWriter) bool {
	response, ok := w.(*response)
	return ok && response.status != 0
}

// response counts what is sent. Package middleware of chi has such a type too, but links the
// profiler and its templates: see homePage. The connection is found by [http.ResponseController].
type response struct {
	http.ResponseWriter
	status int // 0 until the header is sent
	bytes  int64
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader sends the header, unless it is sent. There may be any number of informational
// ones before.
func (r *response) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(p []byte) (int, error) {
	r.begin()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// ReadFrom lets the kernel copy files to connections.
func (r *response) ReadFrom(from io.Reader) (int64, error) {
	r.begin()
	n, err := io.Copy(r.ResponseWriter, from)
	r.bytes += n
	return n, err
}

// FlushError is for [http.ResponseController].
func (r *response) FlushError() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

func (r *response) begin() {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
}

// class returns the class of a status for metrics, such as "2xx". A WebSocket is "1xx",
// a connection that ended without a response is "cut".
func class(status int) string {
	switch status / 100 {
	case 0:
		return "cut"
	case 1, 2, 3, 4:
		return strconv.Itoa(status/100) + "xx"
	}
	return "5xx"
}

// knownMethod returns the method of a request that a route matched. Clients can invent
// methods, and each would be a series of its own.
func knownMethod(r *http.Request) string {
	if r.Pattern == "" {
		return ""
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}
