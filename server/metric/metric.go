// Package metric counts and times what a server does, and answers scrapes in
// the two text formats of Prometheus: the older one and OpenMetrics.
package metric

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxLabels bounds the labels of a metric. Their values are the key of a map,
// so that counting allocates nothing.
const maxLabels = 3

type key [maxLabels]string

// metric is what counters and histograms have in common.
type metric struct {
	name, help string // the help has no quotes, backslashes and line ends
	labels     []string
}

func newMetric(name, help string, labels []string) metric {
	if len(labels) > maxLabels || !slices.IsSorted(labels) {
		panic("labels of " + name + " are too many, or not in order")
	}
	return metric{name, help, labels}
}

// key makes one of the values of all labels.
func (m *metric) key(values []string) (k key) {
	if len(values) != len(m.labels) {
		panic(fmt.Sprintf("%s has %d labels and got %d values", m.name, len(m.labels), len(values)))
	}
	copy(k[:], values)
	return k
}

// pairs are the names and values of the labels of a series, in turn.
func (m *metric) pairs(k key) []string {
	pairs := make([]string, 0, 2*maxLabels+2)
	for i, name := range m.labels {
		pairs = append(pairs, name, k[i])
	}
	return pairs
}

// Counter counts up, in a series for each combination of values of its labels.
// Its methods may be called concurrently.
type Counter struct {
	metric

	mu     sync.Mutex
	series map[key]float64
}

// NewCounter returns a counter whose name ends in _total, as OpenMetrics wants.
// There are at most three labels, in the order of the alphabet. Without labels
// there is one series, which begins at zero.
func NewCounter(name, help string, labels ...string) *Counter {
	c := &Counter{metric: newMetric(name, help, labels), series: map[key]float64{}}
	if len(labels) == 0 {
		c.series[key{}] = 0
	}
	return c
}

// Add counts n more in the series with these values of the labels.
func (c *Counter) Add(n float64, values ...string) {
	k := c.key(values)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.series[k] += n
}

func (c *Counter) expose(e *Exposition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range inOrder(c.series) {
		e.counter(c.name, c.help, c.series[k], c.pairs(k)...)
	}
}

// Histogram counts values by size, in a series for each combination of values of
// its labels. Its methods may be called concurrently.
type Histogram struct {
	metric
	bounds []float64

	mu     sync.Mutex
	series map[key]*distribution
}

type distribution struct {
	counts []uint64 // of values up to each bound and above the one before it, and of those above all
	sum    float64
}

// NewHistogram returns a histogram whose buckets end at the bounds, which are
// in order. Its labels are as those of a counter.
func NewHistogram(name, help string, bounds []float64, labels ...string) *Histogram {
	return &Histogram{metric: newMetric(name, help, labels), bounds: bounds, series: map[key]*distribution{}}
}

// Observe counts a value in the series with these values of the labels.
func (h *Histogram) Observe(value float64, values ...string) {
	k := h.key(values)
	bucket, _ := slices.BinarySearch(h.bounds, value)
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.series[k]
	if d == nil {
		d = &distribution{counts: make([]uint64, len(h.bounds)+1)}
		h.series[k] = d
	}
	d.counts[bucket]++
	d.sum += value
}

func (h *Histogram) expose(e *Exposition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range inOrder(h.series) {
		b := e.family(h.name, h.help, "histogram")
		d, pairs := h.series[k], h.pairs(k)
		var n uint64
		for i, bound := range h.bounds {
			n += d.counts[i]
			sample(b, h.name+"_bucket", count(n), append(pairs, "le", e.number(bound))...)
		}
		n += d.counts[len(h.bounds)]
		sample(b, h.name+"_bucket", count(n), append(pairs, "le", "+Inf")...)
		sample(b, h.name+"_sum", e.number(d.sum), pairs...)
		sample(b, h.name+"_count", count(n), pairs...)
	}
}

// inOrder makes two answers comparable.
func inOrder[V any](series map[key]V) []key {
	return slices.SortedFunc(maps.Keys(series), func(a, b key) int { return slices.Compare(a[:], b[:]) })
}

// Exposition is the answer to a scrape, while it is being filled.
type Exposition struct {
	open     bool // in OpenMetrics
	families map[string]*bytes.Buffer
}

// Add tells what counters and histograms hold.
func (e *Exposition) Add(metrics ...interface{ expose(*Exposition) }) {
	for _, m := range metrics {
		m.expose(e)
	}
}

// Gauge tells what something is at the moment. Labels are names and values in
// turn, in the order of the names; all series of a gauge have the same help.
func (e *Exposition) Gauge(name, help string, value float64, labels ...string) {
	sample(e.family(name, help, "gauge"), name, e.number(value), labels...)
}

func (e *Exposition) counter(name, help string, value float64, labels ...string) {
	sample(e.family(name, help, "counter"), name, e.number(value), labels...)
}

// family is where the lines of one name go, the first of which tell what it is.
func (e *Exposition) family(name, help, kind string) *bytes.Buffer {
	b := e.families[name]
	if b == nil {
		b = new(bytes.Buffer)
		e.families[name] = b
		if e.open && kind == "counter" {
			name = strings.TrimSuffix(name, "_total") // which only its series have there
		}
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	return b
}

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// sample writes the line of one series.
func sample(b *bytes.Buffer, name, value string, labels ...string) {
	b.WriteString(name)
	before := byte('{')
	for pair := range slices.Chunk(labels, 2) {
		b.WriteByte(before)
		before = ','
		b.WriteString(pair[0])
		b.WriteString(`="`)
		_, _ = escaper.WriteString(b, pair[1])
		b.WriteByte('"')
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
	b.WriteString(value)
	b.WriteByte('\n')
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// number writes a value. In OpenMetrics one that is no count has a point, also
// where it stands for a bound.
func (e *Exposition) number(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if e.open && !strings.ContainsAny(s, ".eIN") { // 1, but not 1.5, 1e+06, +Inf, NaN
		s += ".0"
	}
	return s
}

// Serve answers a scrape with what fill adds.
func Serve(w http.ResponseWriter, r *http.Request, fill func(*Exposition)) {
	contentType := negotiate(r.Header.Get("Accept"))
	e := &Exposition{open: contentType != textFormat, families: map[string]*bytes.Buffer{}}
	fill(e)
	var body []byte
	for _, name := range slices.Sorted(maps.Keys(e.families)) {
		body = append(body, e.families[name].Bytes()...)
	}
	if e.open {
		body = append(body, "# EOF\n"...)
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Vary", "Accept")
	_, _ = w.Write(body) // an error means that the client is gone, which is its affair
}

const (
	textFormat = "text/plain; version=0.0.4; charset=utf-8"
	openFormat = "application/openmetrics-text; version=%s; charset=utf-8"
)

// negotiate returns the content type that a scraper likes best of those that
// there are, the text format if it names none of them. The two versions of
// OpenMetrics differ in nothing that is used here.
func negotiate(accept string) string {
	best, most := textFormat, 0.0
	for entry := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(entry)
		if err != nil {
			continue
		}
		quality, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		if err != nil || quality <= most {
			continue
		}
		switch version := params["version"]; {
		case kind == "text/plain" && (version == "" || version == "0.0.4"):
			best, most = textFormat, quality
		case kind == "application/openmetrics-text" && (version == "" || version == "0.0.1" || version == "1.0.0"):
			best, most = fmt.Sprintf(openFormat, cmp.Or(version, "0.0.1")), quality
		}
	}
	return best
}
