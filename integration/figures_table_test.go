//go:build figures

package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// row is one line of the table. A figure without a target has no verdict.
type row struct {
	name      string
	ours      string
	target    string
	bare      string
	ratio     string
	reference string
	met       *bool
}

// table is what a run prints: the rows, and what must be known to read them.
type table struct {
	begun   time.Time
	busy    time.Duration // processor time of the whole machine when it began
	machine []string
	rows    []row
	notes   []string
}

func (t *table) begin(f *figures) {
	t.begun, t.busy = time.Now(), machineTime()
	t.machine = []string{
		"date: " + t.begun.UTC().Format(time.RFC3339),
		fmt.Sprintf("machine: %d × %s, Linux %s, temporary files on %s", runtime.NumCPU(), cpuModel(), kernel(), fileSystem(f.scratch())),
		fmt.Sprintf("programs: %s; built with %s; %s", firstLine(f, f.binary, "version"), runtime.Version(), firstLine(f, "bash", "--version")),
		"load before (1, 5, 15 min): " + loadAverage(),
	}
}

func (t *table) end() {
	took := time.Since(t.begun)
	others := machineTime() - t.busy - ownTime()
	t.machine = append(t.machine, fmt.Sprintf("load after: %s; the run took %v, in which %.2f of %d cores went to what is not part of it (the kernel's own threads, which carry terminals, among it)",
		loadAverage(), took.Round(time.Second), others.Seconds()/took.Seconds(), runtime.NumCPU()))
}

// machineTime is the processor time that all processors were busy so far.
func machineTime() time.Duration {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	var busy time.Duration
	for i, field := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, waiting for a disk; guests are counted as users already
			continue
		}
		n, _ := strconv.Atoi(field)
		busy += time.Duration(n) * hertz
	}
	return busy
}

// ownTime is the processor time of this program and of all that ran below it
// and has ended.
func ownTime() time.Duration {
	var own time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		_ = unix.Getrusage(who, &usage)
		own += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return own
}

// hertz is the kernel's USER_HZ, in which it counts processor time.
const hertz = time.Second / 100

func (t *table) add(r row) { t.rows = append(t.rows, r) }

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

const tableHead = `| figure | ours | target | bare, same run | ours : bare | given for comparison † | verdict |
|---|---|---|---|---|---|---|
`

const tableFoot = `
† Given figures, measured by others on other machines and in other runs; "reference" is the OpenHands action execution server. They show the order of
magnitude and nothing finer. Everything else in a row was measured in this run, interleaved.
`

func (t *table) markdown() string {
	var b strings.Builder
	for _, line := range t.machine {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString("\n" + tableHead)
	for _, r := range t.rows {
		word := "–"
		if r.met != nil {
			word = map[bool]string{true: "met", false: "**missed**"}[*r.met]
		}
		cells := []string{r.name, r.ours, r.target, r.bare, r.ratio, r.reference, word}
		for i, c := range cells {
			if c == "" {
				cells[i] = "–"
			}
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	b.WriteString(tableFoot + "\n")
	for _, n := range t.notes {
		b.WriteString("- " + n + "\n")
	}
	return b.String()
}

// sample is a set of measured times.
type sample []time.Duration

// quantile returns the smallest time that at least the share q of all do not
// exceed.
func (s sample) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) median() time.Duration { return s.quantile(0.5) }

// ms prints a time in milliseconds with three digits that mean something.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case v < 10:
		return fmt.Sprintf("%.3f ms", v)
	case v < 100:
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.0f ms", v)
}

func ratio(ours, bare time.Duration) float64 { return float64(ours) / float64(bare) }

func times(r float64) string { return fmt.Sprintf("%.2f ×", r) }

func mebibytes(kib int) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }

func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(data) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	return unix.ByteSliceToString(name.Release[:])
}

func fileSystem(dir string) string {
	var fs unix.Statfs_t
	_ = unix.Statfs(dir, &fs)
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	}
	return fmt.Sprintf("a file system of type %#x", fs.Type)
}

func firstLine(f *figures, program string, args ...string) string {
	out, err := exec.CommandContext(f.Context(), program, args...).Output()
	if err != nil {
		f.Fatalf("asking %s for its version: %v", program, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
