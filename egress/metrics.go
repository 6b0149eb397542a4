package egress

import "github.com/prometheus/client_golang/prometheus"

// metrics count connections. No label has a host or a sandbox.
type metrics struct {
	connections, denied *prometheus.CounterVec
	sent, received      prometheus.Counter
	seconds             prometheus.Histogram
	all                 []prometheus.Collector
}

func newMetrics(open func() float64) *metrics {
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "actiond_network_bytes_total", Help: "Bytes that sandboxes sent or received over the network.",
	}, []string{"direction"})
	m := &metrics{
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
