package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

func mebibytes(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// memory returns a process's private and resident memory, and the most that was
// resident, in bytes.
func memory(pid int) (private, resident, peak uint64) {
	p := must(procfs.NewProc(pid))
	status := must(p.NewStatus())
	return must(p.ProcSMapsRollup()).Anonymous, status.VmRSS, status.VmHWM
}

// descendants returns the processes below a process.
func descendants(pid int) (below []int) {
	children := map[int][]int{}
	for _, p := range must(procfs.AllProcs()) {
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
func wakeUps(pids ...int) (count uint64) {
	for _, pid := range pids {
		for _, thread := range must(procfs.AllThreads(pid)) {
			if status, err := thread.NewStatus(); err == nil {
				count += status.VoluntaryCtxtSwitches + status.NonVoluntaryCtxtSwitches
			}
		}
	}
	return count
}

// settleTime is longer than the time limits of the last command, at whose end the
// runtime wakes once each.
const settleTime = 35 * time.Second

// idle looks at a server that has run one command.
func (b *bench) idle() {
	p := b.launch("tcp")
	p.run(command("true"))
	check(p.Close())
	time.Sleep(settleTime)
	shells := descendants(p.pid())
	if len(shells) != 1 {
		check(fmt.Errorf("the server has %d processes, want its shell", len(shells)))
	}
	private, resident, _ := memory(p.pid())
	b.add(row{
		name: "idle private memory, shells not counted", ours: mebibytes(private) + " (" + mebibytes(resident) + " resident)", target: "≤ 12 MiB", missed: private > 12<<20,
	})
	const watched = 10 * time.Second
	before := wakeUps(p.pid(), shells[0])
	time.Sleep(watched)
	woken := float64(wakeUps(p.pid(), shells[0])-before) / watched.Seconds()
	b.add(row{name: "wake-ups per second when idle", ours: fmt.Sprint(woken), target: "0", missed: woken > 0})
}

// flood runs a gigabyte of output through a new server.
func (b *bench) flood() {
	var most uint64
	for _, line := range []string{"'a line with nothing in it but forty letters'", `$'\e[31mred\e[0m then \e[1;32mgreen\e[0m and a word'`} {
		p := b.launch("tcp")
		p.run(command("yes " + line + " | head -c 1G"))
		_, _, peak := memory(p.pid())
		most = max(most, peak)
		p.stop()
	}
	b.add(row{name: "1 GB of output, peak resident memory", ours: mebibytes(most), target: "≤ 40 MiB", missed: most > 40<<20})
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
func (s *server) belongings(dirs ...string) (now belongings) {
	for same, tries := 0, 0; same < 10 && tries < 100; tries++ {
		last := now
		now = belongings{processes: len(descendants(s.pid())), goroutines: s.metric("go_goroutines")}
		for _, target := range must(must(procfs.NewProc(s.pid())).FileDescriptorTargets()) {
			name, _, _ := strings.Cut(target, ":[")
			now.descriptors = append(now.descriptors, name)
		}
		slices.Sort(now.descriptors)
		for _, dir := range append(dirs, s.root) {
			check(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
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

// endurance runs many commands and compares what the server holds. A difference fails
// the run, because it does not depend on the machine.
func (b *bench) endurance() {
	state := b.scratch()
	p := b.launch("tcp", "--state-dir", state)
	var mix [][]byte
	for _, text := range []string{"true", "echo $((n+=1))", "(exit 0)", "cd . && pwd", "/bin/true", "echo one | cat", "export N=$n", "true # and a word"} {
		mix = append(mix, command(text))
	}
	each := func(n int) {
		for i := range n {
			p.run(mix[i%len(mix)])
		}
	}
	each(1000)
	before := p.belongings(state)
	threads := must(procfs.AllThreads(p.pid())).Len()
	each(10_000)
	after := p.belongings(state)
	left := "nothing"
	if grown := must(procfs.AllThreads(p.pid())).Len() - threads; grown > 2 || !reflect.DeepEqual(before, after) { // the runtime keeps threads
		left = "something"
		b.wrong = errors.Join(b.wrong, fmt.Errorf("10,000 commands left %d threads and changed\n%+v to\n%+v", grown, before, after))
	}
	b.add(row{name: "left after 10,000 commands", ours: left, target: "nothing", missed: left != "nothing"})
}
