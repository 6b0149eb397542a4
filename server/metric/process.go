package metric

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// AddProcess tells what this process uses, by the names that Prometheus'
// libraries have for it. What the system does not say is left out.
func (e *Exposition) AddProcess() {
	e.addRuntime()
	e.addCollections()
	e.addUsage()
	e.addLimits()
	e.addTraffic()
}

// runtimeMetrics are those of Go, each the sum of some that package
// runtime/metrics documents.
var runtimeMetrics = []struct {
	name, help string
	sources    []string
}{
	{"go_gc_gogc_percent", "Growth of the heap that starts a garbage collection, as GOGC sets it.", []string{"/gc/gogc:percent"}},
	{"go_gc_gomemlimit_bytes", "Limit of the memory of the Go runtime, as GOMEMLIMIT sets it.", []string{"/gc/gomemlimit:bytes"}},
	{"go_memstats_alloc_bytes", "Bytes of objects in the heap.", []string{heapObjects}},
	{"go_memstats_alloc_bytes_total", "Bytes of objects ever allocated.", []string{"/gc/heap/allocs:bytes"}},
	{"go_memstats_buck_hash_sys_bytes", "Bytes of the hash table for profiles.", []string{"/memory/classes/profiling/buckets:bytes"}},
	{"go_memstats_frees_total", "Objects ever freed.", []string{"/gc/heap/frees:objects", tinyAllocs}},
	{"go_memstats_gc_sys_bytes", "Bytes of what the garbage collector knows.", []string{"/memory/classes/metadata/other:bytes"}},
	{"go_memstats_heap_alloc_bytes", "Bytes of objects in the heap, as go_memstats_alloc_bytes.", []string{heapObjects}},
	{"go_memstats_heap_idle_bytes", "Bytes of the heap that wait for use.", []string{heapReleased, heapFree}},
	{"go_memstats_heap_inuse_bytes", "Bytes of the heap that are in use.", []string{heapObjects, heapUnused}},
	{"go_memstats_heap_objects", "Number of objects in the heap.", []string{"/gc/heap/objects:objects"}},
	{"go_memstats_heap_released_bytes", "Bytes of the heap that were given back to the system.", []string{heapReleased}},
	{"go_memstats_heap_sys_bytes", "Bytes of the heap, those that were given back included.", []string{heapObjects, heapUnused, heapReleased, heapFree}},
	{"go_memstats_mallocs_total", "Objects ever allocated.", []string{"/gc/heap/allocs:objects", tinyAllocs}},
	{"go_memstats_mcache_inuse_bytes", "Bytes of mcache structures in use.", []string{mcacheInuse}},
	{"go_memstats_mcache_sys_bytes", "Bytes for mcache structures.", []string{mcacheInuse, "/memory/classes/metadata/mcache/free:bytes"}},
	{"go_memstats_mspan_inuse_bytes", "Bytes of mspan structures in use.", []string{mspanInuse}},
	{"go_memstats_mspan_sys_bytes", "Bytes for mspan structures.", []string{mspanInuse, "/memory/classes/metadata/mspan/free:bytes"}},
	{"go_memstats_next_gc_bytes", "Size of the heap at which the next garbage collection starts.", []string{"/gc/heap/goal:bytes"}},
	{"go_memstats_other_sys_bytes", "Bytes for other things of the runtime.", []string{"/memory/classes/other:bytes"}},
	{"go_memstats_stack_inuse_bytes", "Bytes of the stacks of goroutines.", []string{heapStacks}},
	{"go_memstats_stack_sys_bytes", "Bytes of all stacks.", []string{heapStacks, "/memory/classes/os-stacks:bytes"}},
	{"go_memstats_sys_bytes", "Bytes obtained from the system.", []string{"/memory/classes/total:bytes"}},
	{"go_sched_gomaxprocs_threads", "Threads that may run Go code at the same time, as GOMAXPROCS sets it.", []string{"/sched/gomaxprocs:threads"}},
}

const (
	heapFree     = "/memory/classes/heap/free:bytes"
	heapObjects  = "/memory/classes/heap/objects:bytes"
	heapReleased = "/memory/classes/heap/released:bytes"
	heapStacks   = "/memory/classes/heap/stacks:bytes"
	heapUnused   = "/memory/classes/heap/unused:bytes"
	mcacheInuse  = "/memory/classes/metadata/mcache/inuse:bytes"
	mspanInuse   = "/memory/classes/metadata/mspan/inuse:bytes"
	tinyAllocs   = "/gc/heap/tiny/allocs:objects"
)

func (e *Exposition) addRuntime() {
	var samples []metrics.Sample
	for _, m := range runtimeMetrics {
		for _, source := range m.sources {
			samples = append(samples, metrics.Sample{Name: source})
		}
	}
	metrics.Read(samples) // all at once: so they are of one moment, and sums are right
	for _, m := range runtimeMetrics {
		sum := 0.0
		for range m.sources {
			if v := samples[0].Value; v.Kind() == metrics.KindUint64 { // all that are known are
				sum += float64(v.Uint64())
			}
			samples = samples[1:]
		}
		if strings.HasSuffix(m.name, "_total") {
			e.counter(m.name, m.help, sum)
		} else {
			e.Gauge(m.name, m.help, sum)
		}
	}
	e.Gauge("go_info", "Always 1; the label tells the version of Go.", 1, "version", runtime.Version())
	e.Gauge("go_goroutines", "Number of goroutines, without those of the runtime.", float64(runtime.NumGoroutine()))
	threads, _ := runtime.ThreadCreateProfile(nil)
	e.Gauge("go_threads", "Number of threads that were created.", float64(threads))
}

// addCollections tells of garbage collections.
func (e *Exposition) addCollections() {
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&stats)
	const name = "go_gc_duration_seconds"
	b := e.family(name, "Pauses of the program in garbage collections.", "summary")
	for i, pause := range stats.PauseQuantiles {
		sample(b, name, e.number(pause.Seconds()), "quantile", e.number(float64(i)/4))
	}
	sample(b, name+"_sum", e.number(stats.PauseTotal.Seconds()))
	sample(b, name+"_count", count(uint64(stats.NumGC))) //nolint:gosec // it counts up from zero
	e.Gauge("go_memstats_last_gc_time_seconds", "Time of the last garbage collection, in seconds since 1970.", float64(stats.LastGC.UnixNano())/1e9)
}

// ticks is what Linux counts in a second wherever it tells times to programs
// (USER_HZ in proc_pid_stat(5)).
const ticks = 100

// addUsage tells what /proc/self/stat does.
func (e *Exposition) addUsage() {
	stat, _ := os.ReadFile("/proc/self/stat")
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name of the program may hold anything
	if len(fields) < 22 {
		return
	}
	field := func(n int) float64 { return number(fields[n-3]) } // as proc_pid_stat(5) counts them
	e.counter("process_cpu_seconds_total", "Processor time that was used, in seconds.", (field(14)+field(15))/ticks)
	e.Gauge("process_virtual_memory_bytes", "Bytes of virtual memory.", field(23))
	e.Gauge("process_resident_memory_bytes", "Bytes of resident memory.", field(24)*float64(os.Getpagesize()))
	system, _ := os.ReadFile("/proc/stat")
	if _, boot, ok := bytes.Cut(system, []byte("\nbtime ")); ok {
		boot, _, _ = bytes.Cut(boot, []byte("\n"))
		e.Gauge("process_start_time_seconds", "Time of the start, in seconds since 1970.", number(boot)+field(22)/ticks)
	}
}

func (e *Exposition) addLimits() {
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		e.Gauge("process_open_fds", "Number of open file descriptors.", float64(len(open)-1)) // without the one that reads them
	}
	for _, limit := range []struct {
		name, help string
		resource   int
	}{
		{"process_max_fds", "Number of file descriptors that may be open.", syscall.RLIMIT_NOFILE},
		{"process_virtual_memory_max_bytes", "Bytes of virtual memory that there may be.", syscall.RLIMIT_AS},
	} {
		var now syscall.Rlimit
		if syscall.Getrlimit(limit.resource, &now) == nil {
			e.Gauge(limit.name, limit.help, float64(now.Cur))
		}
	}
}

// addTraffic tells what went over the network that this process is in. The file
// has pairs of lines, names above values.
func (e *Exposition) addTraffic() {
	file, _ := os.ReadFile("/proc/self/net/netstat")
	var names [][]byte
	for line := range bytes.Lines(file) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || len(fields) != len(names) || !bytes.Equal(fields[0], names[0]) {
			names = fields
			continue
		}
		if string(fields[0]) != "IpExt:" {
			continue
		}
		for i, name := range names {
			switch string(name) {
			case "InOctets":
				e.counter("process_network_receive_bytes_total", "Bytes that came over the network of this process.", number(fields[i]))
			case "OutOctets":
				e.counter("process_network_transmit_bytes_total", "Bytes that went over the network of this process.", number(fields[i]))
			}
		}
	}
}

// number reads a decimal number of /proc.
func number(digits []byte) float64 {
	v, _ := strconv.ParseFloat(string(digits), 64)
	return v
}
