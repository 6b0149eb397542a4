package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count connections, on either side of the socket between a sandbox and its proxy. No label
// has a host or a sandbox. Their methods may be called concurrently.
type Metrics struct {
	connections, denied *prometheus.CounterVec
	sent, received      prometheus.Counter
	seconds             prometheus.Histogram
	all                 []prometheus.Collector
}

// NewMetrics returns metrics without connections. open returns the number of those that are open.
func NewMetrics(open func() float64) *Metrics {
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "actiond_network_bytes_total", Help: "Bytes that sandboxes sent or received over the network.",
	}, []string{"direction"})
	m := &Metrics{
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_network_connections_total", Help: "Connections that sandboxes asked for, by outcome.",
		}, []string{"outcome"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_network_denied_total", Help: "Connections that a policy refused, by reason.",
		}, []string{"reason"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "actiond_network_connect_seconds", Help: "Time to look a host up and to connect.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10},
		}),
		sent: bytes.WithLabelValues("sent"), received: bytes.WithLabelValues("received"),
	}
	m.all = []prometheus.Collector{bytes, m.connections, m.denied, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "actiond_network_open", Help: "Open connections of sandboxes.",
	}, open)}
	return m
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector { return m.all }

// Connected counts a connection that took so long to open.
func (m *Metrics) Connected(took time.Duration) {
	m.connections.WithLabelValues("connected").Inc()
	m.seconds.Observe(took.Seconds())
}

// Failed counts a connection that was not opened for another reason than a policy.
func (m *Metrics) Failed(status int) {
	m.connections.WithLabelValues(strings.ToLower(http.StatusText(status))).Inc()
}

// Denied counts a denial. The rule in its reason is left out.
func (m *Metrics) Denied(reason string) {
	if class, _, _ := strings.Cut(reason, " "); class == reasonDeny {
		reason = class
	}
	m.connections.WithLabelValues("denied").Inc()
	m.denied.WithLabelValues(reason).Inc()
}

// Carried counts bytes.
func (m *Metrics) Carried(sent bool, n int) {
	if sent {
		m.sent.Add(float64(n))
	} else {
		m.received.Add(float64(n))
	}
}

// ReadMetrics returns figures of the metrics of a proxy; memory is in bytes. Missing figures are zero.
func ReadMetrics(metrics []byte) (version string, open int, memory float64) {
	for line := range strings.SplitSeq(string(metrics), "\n") {
		name, value, _ := strings.Cut(line, " ")
		number, _ := strconv.ParseFloat(value, 64) // 0: it is no number
		switch {
		case strings.HasPrefix(name, "actiond_egress_build_info{"):
			_, version, _ = strings.Cut(name, `version="`)
			version, _, _ = strings.Cut(version, `"`)
		case name == "actiond_network_open":
			open = int(number)
		case name == "process_resident_memory_bytes":
			memory = number
		}
	}
	return version, open, memory
}
