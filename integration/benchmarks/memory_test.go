package benchmarks_test

import (
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// descendants returns the processes below a process.
func descendants(b *testing.B, pid int) (below []int) {
	b.Helper()
	children := map[int][]int{}
	for _, p := range must(procfs.AllProcs())(b) {
		if stat, err := p.Stat(); err == nil { // else it has ended
			children[stat.PPID] = append(children[stat.PPID], p.PID)
		}
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		below = append(below, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return below
}

// wakeUps returns how often the threads of processes left a processor.
func wakeUps(b *testing.B, pids ...int) (count uint64) {
	b.Helper()
	for _, pid := range pids {
		for _, thread := range must(procfs.AllThreads(pid))(b) {
			if status, err := thread.NewStatus(); err == nil {
				count += status.VoluntaryCtxtSwitches + status.NonVoluntaryCtxtSwitches
			}
		}
	}
	return count
}

const (
	// settleTime is longer than the time limits of the last command, at whose end the
	// runtime wakes once each.
	settleTime = 35 * time.Second
	watchTime  = 10 * time.Second
)

// BenchmarkIdle looks at a server that has run a thousand commands, and at its wake-ups.
// Its private memory is Anonymous of smaps_rollup; shells are not counted.
func BenchmarkIdle(b *testing.B) {
	s := launch(b, "tcp")
	for range 1000 {
		check(b, s.run(command("true")))
	}
	check(b, s.Close())
	time.Sleep(settleTime)
	shells := descendants(b, s.pid())
	if len(shells) != 1 {
		b.Fatalf("the server has %d processes, want its shell", len(shells))
	}
	p := must(procfs.NewProc(s.pid()))(b)
	private, resident := must(p.ProcSMapsRollup())(b).Anonymous, must(p.NewStatus())(b).VmRSS
	before := wakeUps(b, s.pid(), shells[0])
	time.Sleep(watchTime)
	woken := wakeUps(b, s.pid(), shells[0]) - before
	for b.Loop() { // there is nothing to repeat
	}
	b.ReportMetric(float64(private)/(1<<20), "private-MiB")
	b.ReportMetric(float64(resident)/(1<<20), "resident-MiB")
	b.ReportMetric(float64(woken)/watchTime.Seconds(), "wake-ups/s")
}

// BenchmarkFlood runs a gigabyte of output through a new server.
func BenchmarkFlood(b *testing.B) {
	var peak uint64
	for b.Loop() {
		for _, line := range []string{"'a line with nothing in it but forty letters'", `$'\e[31mred\e[0m then \e[1;32mgreen\e[0m and a word'`} {
			s := launch(b, "tcp")
			check(b, s.run(command("yes "+line+" | head -c 1G")))
			peak = max(peak, must(must(procfs.NewProc(s.pid()))(b).NewStatus())(b).VmHWM)
			s.stop()
		}
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-resident-MiB")
}

// belongings are what a server holds.
type belongings struct {
	descriptors []string // their targets, without the numbers of pipes and sockets
	processes   int
	files       []string
	goroutines  float64
}

// belongings waits until the counts do not change for a second, for at most ten: a
// goroutine that returns memory to the kernel lives for a moment.
func (s *server) belongings(b *testing.B, dirs ...string) (now belongings) {
	b.Helper()
	for same, tries := 0, 0; same < 10 && tries < 100; tries++ {
		last := now
		now = belongings{processes: len(descendants(b, s.pid())), goroutines: s.metric(b, "go_goroutines")}
		for _, target := range must(must(procfs.NewProc(s.pid()))(b).FileDescriptorTargets())(b) {
			name, _, _ := strings.Cut(target, ":[")
			now.descriptors = append(now.descriptors, name)
		}
		slices.Sort(now.descriptors)
		for _, dir := range append(dirs, s.root) {
			check(b, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
				now.files = append(now.files, path)
				return err
			}))
		}
		if same++; !reflect.DeepEqual(now, last) {
			same = 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return now
}

// BenchmarkEndurance runs ten thousand commands and compares what the server holds. A
// difference fails, because it does not depend on the machine.
func BenchmarkEndurance(b *testing.B) {
	for b.Loop() {
		state := scratch(b)
		s := launch(b, "tcp", "--state-dir", state)
		mix := []string{"true", "echo $((n+=1))", "(exit 0)", "cd . && pwd", "/bin/true", "echo one | cat", "export N=$n", "true # and a word"}
		each := func(n int) {
			for i := range n {
				check(b, s.run(command(mix[i%len(mix)])))
			}
		}
		each(1000)
		before, threads := s.belongings(b, state), must(procfs.AllThreads(s.pid()))(b).Len()
		each(10_000)
		after := s.belongings(b, state)
		// The runtime keeps threads.
		if grown := must(procfs.AllThreads(s.pid()))(b).Len() - threads; grown > 2 || !reflect.DeepEqual(before, after) {
			b.Fatalf("10,000 commands left %d threads and changed\n%+v to\n%+v", grown, before, after)
		}
		s.stop()
	}
}
