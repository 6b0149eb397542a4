package metric_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/actiond/actiond/server/metric"
)

// scrape asks a handler for its metrics.
func scrape(h http.Handler, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ours serves what fill adds.
func ours(fill func(*metric.Exposition)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { metric.Serve(w, r, fill) })
}

// theirs serves what Prometheus' own library makes of collectors.
func theirs(cs ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(cs...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true})
}

// values are such as labels may have.
var values = []string{"", "plain", `a "quoted" one`, `C:\dir`, "two\nlines", "ö\U0001f600", "{route}", "a,b=c"}

// TestFormats compares with what Prometheus' own library writes.
func TestFormats(t *testing.T) {
	t.Parallel()
	bounds := []float64{.0005, .25, 1, 2.5, 10, 1e6}
	counter := metric.NewCounter("requests_total", "Requests: by all of it.", "code", "method", "route")
	plain := metric.NewCounter("bytes_total", "Bytes.")
	unused := metric.NewCounter("unused_total", "Without a series, it is not there.", "label")
	histogram := metric.NewHistogram("took_seconds", "Time.", bounds, "action")
	theirCounter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests: by all of it."}, []string{"code", "method", "route"})
	theirPlain := prometheus.NewCounter(prometheus.CounterOpts{Name: "bytes_total", Help: "Bytes."})
	theirUnused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "unused_total", Help: "Without a series, it is not there."}, []string{"label"})
	theirHistogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: bounds}, []string{"action"})
	theirGauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "level", Help: "How high."}, []string{"at", "of"})
	levels := []float64{0, 1, -1, 14, 1.5, -2.25, 8388608, 123456, 1e300, 5e-324, math.MaxUint64, math.Inf(1), math.Inf(-1), math.NaN()}
	for i, value := range values {
		counter.Add(float64(i), "2xx", value, values[i/2])
		theirCounter.WithLabelValues("2xx", value, values[i/2]).Add(float64(i))
		for _, seconds := range []float64{0, .0005, .0006, 1, 2, 9.75, 10, 11, 2e6} {
			histogram.Observe(seconds*float64(i+1), value)
			theirHistogram.WithLabelValues(value).Observe(seconds * float64(i+1))
		}
	}
	for i, level := range levels {
		theirGauge.WithLabelValues(strconv.Itoa(10+i), "a").Set(level)
	}
	us := ours(func(e *metric.Exposition) {
		e.Add(counter, plain, unused, histogram)
		for i, level := range levels {
			e.Gauge("level", "How high.", level, "at", strconv.Itoa(10+i), "of", "a")
		}
	})
	them := theirs(theirCounter, theirPlain, theirUnused, theirHistogram, theirGauge)
	for _, c := range []struct{ name, accept string }{
		{"nothing", ""},
		{"anything", "*/*"},
		{"text", "text/plain"},
		{"text of this version", "text/plain;version=0.0.4"},
		{"text of another version", "text/plain;version=1.0.0"},
		{"OpenMetrics", "application/openmetrics-text"},
		{"OpenMetrics 1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"},
		{"OpenMetrics 0.0.1", "application/openmetrics-text;version=0.0.1"},
		{"OpenMetrics 7", "application/openmetrics-text;version=7"},
		{"rather text, but another version", "text/plain;version=1.0.0, application/openmetrics-text;q=0.5"},
		{"rather text", "application/openmetrics-text;q=0.1, text/plain;q=0.2"},
		{"anything, or OpenMetrics", "*/*, application/openmetrics-text;q=0.5"},
		{"the first of two", "application/openmetrics-text;version=0.0.1,text/plain"},
		{"Prometheus 2", "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"},
		{"Prometheus 3", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
			"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"},
		{"a browser", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{"junk", "/;;=,,q"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, want := scrape(us, c.accept), scrape(them, c.accept)
			// Which characters names may have is of no interest: they have none but letters and lines.
			wantType, _, _ := strings.Cut(want.Header().Get("Content-Type"), "; escaping=")
			if got.Code != 200 || got.Header().Get("Content-Type") != wantType || got.Header().Get("Vary") != want.Header().Get("Vary") {
				t.Errorf("got %d %v, want %v", got.Code, got.Header(), want.Header())
			}
			if got, want := got.Body.String(), want.Body.String(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestProcess compares with what Prometheus' own collectors tell of a process.
// It runs alone, so that little changes from one scrape to the next.
func TestProcess(t *testing.T) {
	us := ours((*metric.Exposition).AddProcess)
	them := theirs(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	end := make(chan struct{})
	defer close(end)
	for range 100 { // beside which those of their collectors are few
		go func() { <-end }()
	}
	for valueOf(t, scrape(them, "").Body.String(), "process_cpu_seconds_total") < .2 { // it is counted in hundredths
	}
	for _, accept := range []string{"text/plain", "application/openmetrics-text"} {
		got, want := scrape(us, accept).Body.String(), scrape(them, accept).Body.String()
		if got, want := outline(got), outline(want); !slices.Equal(got, want) {
			t.Errorf("got %s\n\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, name := range []string{
			"go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_sched_gomaxprocs_threads",
			"process_max_fds", "process_virtual_memory_max_bytes", "process_start_time_seconds",
		} {
			if got, want := valueOf(t, got, name), valueOf(t, want, name); got != want {
				t.Errorf("%s: got %g, want %g", name, got, want)
			}
		}
		for _, name := range []string{
			"go_goroutines", "go_memstats_alloc_bytes_total", "go_memstats_heap_sys_bytes", "go_memstats_mallocs_total",
			"go_memstats_stack_sys_bytes", "go_memstats_sys_bytes", "go_threads", "process_cpu_seconds_total",
			"process_network_receive_bytes_total", "process_network_transmit_bytes_total", "process_open_fds",
			"process_resident_memory_bytes", "process_virtual_memory_bytes",
		} {
			if got, want := valueOf(t, got, name), valueOf(t, want, name); got > 1.5*want || got < want/1.5 {
				t.Errorf("%s: got %g, want about %g", name, got, want)
			}
		}
	}
}

// outline is a page without values and helps.
func outline(page string) []string {
	var lines []string
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# HELP "), strings.HasPrefix(line, "# UNIT "): // OpenMetrics knows it by the name
		case strings.HasPrefix(line, "#"):
			lines = append(lines, line)
		default:
			series, _, _ := strings.Cut(line, " ")
			lines = append(lines, series)
		}
	}
	return lines
}

func valueOf(t *testing.T, page, name string) float64 {
	t.Helper()
	_, after, ok := strings.Cut(page, "\n"+name+" ")
	digits, _, _ := strings.Cut(after, "\n")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil {
		t.Errorf("no %s: %v", name, err)
	}
	return v
}

// Nothing is lost when many count at once, also while a scrape is answered.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	counter := metric.NewCounter("n_total", "N.", "who")
	histogram := metric.NewHistogram("s_seconds", "S.", []float64{1}, "who")
	h := ours(func(e *metric.Exposition) { e.Add(counter, histogram) })
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 1000 {
				counter.Add(1, strconv.Itoa(i%2))
				histogram.Observe(1, strconv.Itoa(i%2))
			}
			scrape(h, "")
		})
	}
	group.Wait()
	got := scrape(h, "").Body.String()
	for _, want := range []string{`n_total{who="0"} 4000`, `n_total{who="1"} 4000`, `s_seconds_count{who="0"} 4000`, `s_seconds_sum{who="1"} 4000`} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
	}
}

// Counting is on the way of every request.
func BenchmarkAdd(b *testing.B) {
	counter := metric.NewCounter("n_total", "N.", "code", "method", "route")
	b.ReportAllocs()
	for b.Loop() {
		counter.Add(1, "2xx", "POST", "/execute_action")
	}
}
