// Figures measures the server and prints the first table of docs/performance.md:
//
//	go run ./integration/figures [-o FILE] [-against DIR] [PART...]
//
// With -against it measures the programs in DIR, of another version, and those of this
// one in turn, five times each, and prints the medians of both side by side.
//
// It builds the programs as they are shipped, starts servers and measures them
// over their sockets, in turn with the least that does the same work: a bash on
// a terminal, a read of a file, a write with its fsync. It fails on a wrong
// answer and on anything that ten thousand commands leave behind. It does not
// fail on a time, which depends on the machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

type part struct {
	name    string
	measure func(*bench)
}

// parts are the measurements, in order.
var parts = []part{
	{"size", (*bench).size},
	{"start", (*bench).start},
	{"latency", (*bench).latency},
	{"parallel", (*bench).parallel},
}

func main() {
	out := flag.String("o", "", "write the table to this `file` too")
	against := flag.String("against", "", "measure the programs in this `directory` in turn with those of this version")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *out, *against, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// run measures the named parts, or all of them, of this version, and of the programs in
// against if that is not empty.
func run(ctx context.Context, out, against string, only []string) (err error) {
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	b := &bench{ctx: ctx}
	defer b.cleanUp()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	b.build()
	var text strings.Builder
	begun, busy := time.Now(), machineTime()
	describe(&text, b.dir)
	if against == "" {
		text.WriteString("\n| | ours | target | bare | ratio | reference |\n|---|---|---|---|---|---|\n")
		for _, r := range b.measure(only) {
			text.WriteString(r.markdown())
		}
	} else {
		b.sideBySide(&text, must(filepath.Abs(against)), only)
	}
	took := time.Since(begun).Seconds()
	fmt.Fprintf(&text, "\nThe run took %.0f s, in which %.2f of %d cores did other work.\n", took, (machineTime()-busy-ownTime())/took, runtime.NumCPU())
	if out != "" {
		check(os.WriteFile(out, []byte(text.String()), 0o644))
	}
	_, err = io.WriteString(os.Stdout, text.String())
	return errors.Join(err, b.wrong)
}

// measure returns the rows of the named parts, or of all.
func (b *bench) measure(only []string) []row {
	b.rows = nil
	for _, part := range parts {
		if len(only) > 0 && !slices.Contains(only, part.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, part.name)
		part.measure(b)
		b.stopAll()
	}
	return b.rows
}

// sideBySide writes a table of both versions: of each row the median of five measurements
// of each, in turn.
func (b *bench) sideBySide(out io.Writer, before string, only []string) {
	const rounds = 5
	after := b.programs
	figures := map[string]*[2][]string{} // by the name of the row: before and after
	var names []string
	for range rounds {
		for version, dir := range []string{before, after} {
			b.programs = dir
			for _, r := range b.measure(only) {
				if figures[r.name] == nil {
					figures[r.name] = new([2][]string)
					names = append(names, r.name)
				}
				figures[r.name][version] = append(figures[r.name][version], r.ours)
			}
		}
	}
	fmt.Fprint(out, "\n| | before | after | ratio |\n|---|---|---|---|\n")
	for _, name := range names {
		old, now := middle(figures[name][0]), middle(figures[name][1])
		fmt.Fprintf(out, "| %s | %s | %s | %.2f |\n", name, old, now, number(now)/number(old))
	}
}

// middle returns the median of figures by the numbers that they begin with, "" if there
// are no figures: the other version has no such row.
func middle(figures []string) string {
	if len(figures) == 0 {
		return ""
	}
	slices.SortFunc(figures, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return figures[len(figures)/2]
}

// number returns the number that a figure begins with, not a number if it has none.
func number(figure string) float64 {
	word, _, _ := strings.Cut(strings.ReplaceAll(figure, ",", ""), " ")
	n, err := strconv.ParseFloat(strings.TrimSuffix(word, "/s"), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// failure is a panic that ends the run with an error.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// bench is one run.
type bench struct {
	ctx      context.Context //nolint:containedctx // it is the run's
	dir      string          // of this version's programs and of all working directories
	programs string          // the directory of the programs that are measured
	rows     []row
	stops    []func() // of what the current part started
	wrong    error    // what was found beside the figures
	number   int      // of directories
}

func (b *bench) build() {
	b.dir = must(os.MkdirTemp("", "figures-"))
	b.programs = b.dir
	check(os.Chmod(b.dir, 0o755)) // another user must enter
	build := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.dir+"/", "github.com/actiond/actiond/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		check(fmt.Errorf("building the programs: %w\n%s", err, said))
	}
}

// scratch makes a directory that every user may enter.
func (b *bench) scratch() string {
	b.number++
	dir := filepath.Join(b.dir, fmt.Sprint("d", b.number))
	check(os.Mkdir(dir, 0o755))
	return dir
}

func (b *bench) stopAll() {
	for _, stop := range b.stops {
		stop()
	}
	b.stops = nil
}

func (b *bench) cleanUp() {
	b.stopAll()
	_ = os.RemoveAll(b.dir)
}

// row is one line of the table.
type row struct {
	name, ours, target, bare string
	ratio                    float64 // 0: none
	reference                string
	missed                   bool
}

func (r row) markdown() string {
	if r.missed {
		r.target += ", **missed**"
	}
	ratio := ""
	if r.ratio > 0 {
		ratio = fmt.Sprintf("%.2f", r.ratio)
	}
	return "| " + strings.Join([]string{r.name, r.ours, r.target, r.bare, ratio, r.reference}, " | ") + " |\n"
}

func (b *bench) add(r row) { b.rows = append(b.rows, r) }

// compare adds the row of a time with its limit, 0 for none, and of the bare time,
// 0 for none.
func (b *bench) compare(r row, ours, limit, bare time.Duration) {
	r.ours = ms(ours)
	if limit > 0 {
		r.target, r.missed = fmt.Sprintf("≤ %g ms", float64(limit)/float64(time.Millisecond)), ours > limit
	}
	if bare > 0 {
		r.bare, r.ratio = ms(bare)+r.bare, float64(ours)/float64(bare)
	}
	b.add(r)
}

// sample is a list of measured times.
type sample []time.Duration

// quantile returns the smallest time that at least the share q does not exceed.
func (s sample) quantile(q float64) time.Duration {
	return slices.Sorted(slices.Values(s))[min(int(q*float64(len(s))), len(s)-1)]
}

func (s sample) median() time.Duration { return s.quantile(0.5) }

// way does some work in a round and returns how long it took.
type way func(round int) time.Duration

// interleave measures ways in turn. Each round begins with another one, so that
// none always follows the same other. The first rounds do not count.
func interleave(warm, rounds int, ways ...way) []sample {
	samples := make([]sample, len(ways))
	for i := range warm + rounds {
		for j := range ways {
			k := (i + j) % len(ways)
			if took := ways[k](i); i >= warm {
				samples[k] = append(samples[k], took)
			}
		}
	}
	return samples
}

func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	return fmt.Sprintf("%.*f ms", map[bool]int{true: 3}[v < 10]+map[bool]int{true: 1}[v >= 10 && v < 100], v)
}

// describe writes what a reader must know of the machine.
func describe(out io.Writer, dir string) {
	proc := must(procfs.NewDefaultFS())
	cpus, load := must(proc.CPUInfo()), must(proc.LoadAvg())
	release := must(os.ReadFile("/proc/sys/kernel/osrelease"))
	var fs syscall.Statfs_t
	check(syscall.Statfs(dir, &fs))
	fmt.Fprintf(out, "%s, %d × %s, Linux %s, file system %#x, %s, load %.2f %.2f %.2f\n",
		time.Now().UTC().Format(time.RFC3339), len(cpus), cpus[0].ModelName, strings.TrimSpace(string(release)), fs.Type, runtime.Version(), load.Load1, load.Load5, load.Load15)
}

// machineTime returns for how long all processors were busy since the start, in seconds.
func machineTime() float64 {
	t := must(must(procfs.NewDefaultFS()).Stat()).CPUTotal
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
}

// ownTime returns the processor time of this program and of all processes that it
// waited for, in seconds.
func ownTime() (seconds float64) {
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		check(syscall.Getrusage(of, &u))
		seconds += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	return seconds
}
