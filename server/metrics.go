package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
)

// unread is the name under which actions are counted that were refused before
// their name was known. All other names are those of api's types, so that a
// client cannot add a series.
const unread = "unread"

// metrics has the counters of the server.
type metrics struct {
	*httpserver.Metrics
	actions  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	replays  prometheus.Counter
	inexact  *prometheus.CounterVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_actions_total",
			Help: "Actions by name and outcome: happened, refused, broke, or abandoned by their client.",
		}, []string{"action", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "actiond_action_duration_seconds",
			Help: "Time from the request to the encoded observation.",
			// From a command that does nothing to one that builds something.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"action"}),
	}
	m.replays = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "actiond_actions_replayed_total", Help: "Answers that were recorded before, for an id that came again.",
	})
	m.inexact = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "actiond_changes_inexact_total", Help: "Actions of which it is not known exactly what they changed, by the reason.",
	}, []string{"why"})
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.Metrics = httpserver.NewMetrics("actiond", s.cfg.Version,
		m.actions, m.duration, m.replays, m.inexact, &workspaceMetrics{s.cfg.Workspace}, &recordedMetrics{s.cfg.Journal}, s.tunnels.bytes,
		gauge("actiond_sessions", "Sessions that are open, each with a shell, a kernel, or both.",
			func() float64 { return float64(len(s.cfg.Executor.Sessions())) }),
		gauge("actiond_terminals", "Terminals that are attached.",
			func() float64 { return float64(len(s.terminals)) }),
		gauge("actiond_tunnels", "Tunnels to ports of the sandbox that are open.",
			func() float64 { return float64(len(s.tunnels.open)) }),
		gauge("actiond_actions_in_flight", "Actions that run or wait.",
			func() float64 { return float64(len(s.inFlight)) }),
	)
	return m
}

// action counts one action.
func (m *metrics) action(ctx context.Context, name string, err error, took time.Duration) {
	outcome := "broke"
	switch _, refused := errors.AsType[*api.Error](err); {
	case err == nil:
		outcome = "happened"
	case refused:
		outcome = "refused"
	case channel.EndedBy(ctx, err):
		outcome = "abandoned"
	}
	m.actions.WithLabelValues(name, outcome).Inc()
	m.duration.WithLabelValues(name).Observe(took.Seconds())
}

// changed counts inexact changes of an action by their reasons.
func (m *metrics) changed(c *api.Changes) {
	if !c.Exact {
		m.inexact.WithLabelValues(c.Why).Inc()
	}
}

// workspaceMetrics are the counts of a workspace, which may be nil.
type workspaceMetrics struct{ workspace Workspace }

var (
	changesWatches = prometheus.NewDesc("actiond_changes_watches",
		"Directories of the workspace that are watched.", nil, nil)
	changesListed = prometheus.NewDesc("actiond_changes_directories_listed_total",
		"Directories of the workspace that were listed, since something in them changed or might have.", nil, nil)
	changesStore = prometheus.NewDesc("actiond_changes_store_bytes",
		"Contents that are kept, so that changes can be taken back.", nil, nil)
	changesEvicted = prometheus.NewDesc("actiond_changes_evicted_states_total",
		"States of the workspace that went because there was no room for their contents.", nil, nil)
	changesSteps = prometheus.NewDesc("actiond_changes_step_seconds",
		"Looks at what changed in the workspace, and their time; looks that find nothing at once are left out.", nil, nil)
)

// Describe is of prometheus.Collector.
func (m *workspaceMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- changesWatches
	to <- changesListed
	to <- changesSteps
	to <- changesStore
	to <- changesEvicted
}

// Collect is of prometheus.Collector.
func (m *workspaceMetrics) Collect(to chan<- prometheus.Metric) {
	if m.workspace == nil {
		return
	}
	info := m.workspace.Info()
	if info.Mode == api.ChangesOff {
		return
	}
	if info.Store != nil {
		to <- prometheus.MustNewConstMetric(changesStore, prometheus.GaugeValue, float64(info.Store.Bytes))
		to <- prometheus.MustNewConstMetric(changesEvicted, prometheus.CounterValue, float64(info.Store.Evicted))
	}
	watches, listed, steps, stepping := m.workspace.Stats()
	to <- prometheus.MustNewConstMetric(changesWatches, prometheus.GaugeValue, float64(watches))
	to <- prometheus.MustNewConstMetric(changesListed, prometheus.CounterValue, float64(listed))
	to <- prometheus.MustNewConstSummary(changesSteps, steps, stepping.Seconds(), nil)
}

// recordedMetrics are the counts of a journal, taken together.
type recordedMetrics struct{ journal *journal.Journal }

var (
	recordedActions = prometheus.NewDesc("actiond_recorded_actions",
		"Actions that are kept, by state.", []string{"state"}, nil)
	journalBytes  = prometheus.NewDesc("actiond_journal_bytes", "Bytes that the kept actions take.", nil, nil)
	journalOldest = prometheus.NewDesc("actiond_journal_oldest_seconds",
		"Age of the oldest action that is kept; 0 without actions.", nil, nil)
	journalForgot = prometheus.NewDesc("actiond_journal_forgotten_total", "Actions that were forgotten since the start.",
		nil, nil)
	journalFails = prometheus.NewDesc("actiond_journal_failing",
		"1 where what is recorded now will not last, otherwise 0.", nil, nil)
	journalWrites = prometheus.NewDesc("actiond_journal_append_seconds",
		"Writes to the journal and their time.", nil, nil)
)

// Describe is of prometheus.Collector.
func (m *recordedMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect is of prometheus.Collector.
func (m *recordedMetrics) Collect(to chan<- prometheus.Metric) {
	stats := m.journal.Stats()
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	for state, count := range stats.States {
		gauge(recordedActions, float64(count), state.String())
	}
	gauge(journalBytes, float64(stats.Bytes))
	age, failing := 0.0, 0.0
	if !stats.Oldest.IsZero() {
		age = time.Since(stats.Oldest).Seconds()
	}
	if m.journal.Problem() != "" {
		failing = 1
	}
	gauge(journalOldest, age)
	gauge(journalFails, failing)
	to <- prometheus.MustNewConstMetric(journalForgot, prometheus.CounterValue, float64(stats.Forgotten))
	to <- prometheus.MustNewConstSummary(journalWrites, stats.Writes, stats.Writing.Seconds(), nil)
}
