package server

import (
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/metric"
	"github.com/actiond/actiond/server/reply"
)

// unread is the name under which actions are counted that were refused before
// it was known what they are. All other names are those of api's types, so
// that a caller cannot invent one.
const unread = "unread"

// metrics counts what was done.
type metrics struct {
	server                            *Server
	actions, requests, received, sent *metric.Counter
	duration                          *metric.Histogram
}

func newMetrics(s *Server) *metrics {
	return &metrics{
		server: s,
		actions: metric.NewCounter("actiond_actions_total",
			"Actions by name and by what came of them: happened, refused, broke, or abandoned by their client.", "action", "outcome"),
		duration: metric.NewHistogram("actiond_action_duration_seconds", "Time from the request to the encoded observation.",
			// From a command that does nothing to one that builds something.
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}, "action"),
		requests: metric.NewCounter("actiond_http_requests_total",
			"HTTP requests by method, route and class of the status; method and route are empty where no route matched.", "code", "method", "route"),
		received: metric.NewCounter("actiond_http_request_bytes_total", "Bytes of request bodies."),
		sent:     metric.NewCounter("actiond_http_response_bytes_total", "Bytes of response bodies."),
	}
}

// serve answers /metrics.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	metric.Serve(w, r, m.expose)
	return nil
}

func (m *metrics) expose(e *metric.Exposition) {
	s := m.server
	e.Add(m.actions, m.duration, m.requests, m.received, m.sent)
	e.Gauge("actiond_build_info", "Always 1; the labels tell the version and what it was built with.", 1,
		"go", runtime.Version(), "version", s.cfg.Version)
	e.Gauge("actiond_sessions", "Sessions that are open, each with a shell, a kernel, or both.", float64(len(s.cfg.Executor.Sessions())))
	e.Gauge("actiond_terminals", "Terminals that are attached.", float64(len(s.terminals)))
	e.Gauge("actiond_actions_in_flight", "Actions that run or wait.", float64(len(s.actions)))
	e.AddProcess()
}

// request counts one HTTP request.
func (m *metrics) request(r *http.Request, rec *reply.Recorder) {
	method := ""
	if r.Pattern != "" {
		method = r.Method // a route matched, so it is one of the table
	}
	m.requests.Add(1, rec.Class(), method, r.Pattern)
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
	m.actions.Add(1, name, outcome)
	m.duration.Observe(took.Seconds(), name)
}
