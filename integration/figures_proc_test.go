//go:build figures

package integration_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field returns a number of a file such as /proc/PID/status, which has lines
// "Name:	number unit"; -1 where it is not there.
func field(path, name string) int {
	data, _ := os.ReadFile(path)
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			if n, err := strconv.Atoi(string(bytes.Fields(rest)[0])); err == nil {
				return n
			}
		}
	}
	return -1
}

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// memory is what a process holds, in KiB.
type memory struct{ rss, anonymous, pss, peak int }

func memoryOf(pid int) memory {
	status := procPath(pid, "status")
	return memory{
		rss: field(status, "VmRSS"), anonymous: field(status, "RssAnon"), peak: field(status, "VmHWM"),
		pss: field(procPath(pid, "smaps_rollup"), "Pss"),
	}
}

// stat returns the fields of /proc/PID/stat behind the name, the first of them
// the state; nil where the process is gone.
func stat(pid int) []string {
	data, _ := os.ReadFile(procPath(pid, "stat"))
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.Fields(rest)
}

// descendants lists the processes below pid.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s := stat(child); len(s) > 1 {
			parent, _ := strconv.Atoi(s[1])
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		all = append(all, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return all
}

// cpuTime is the processor time of a process so far.
func cpuTime(pid int) time.Duration {
	s := stat(pid)
	if len(s) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(s[11])
	system, _ := strconv.Atoi(s[12])
	return time.Duration(user+system) * hertz
}

// wakeUps counts how often the threads of the processes have been put on a
// processor, as far as the kernel tells: switches away, of either kind.
func wakeUps(pids ...int) int {
	total := 0
	for _, pid := range pids {
		tasks, _ := filepath.Glob(procPath(pid, "task/*/status"))
		for _, task := range tasks {
			total += max(0, field(task, "voluntary_ctxt_switches")) + max(0, field(task, "nonvoluntary_ctxt_switches"))
		}
	}
	return total
}

// belongings is what a server holds.
type belongings struct {
	descriptors []string // what they lead to, sorted
	processes   int      // below it
	files       []string // in every directory it writes to
	threads     int
	goroutines  int
}

// belongings counts what p holds, which writes to dirs too. It closes the
// connections of this program first, and opens one for the question about
// goroutines.
func (f *figures) belongings(p *process, dirs ...string) belongings {
	f.hangUp(p)
	b := belongings{goroutines: f.goroutines(p)}
	f.hangUp(p)
	b.descriptors = descriptorsOf(p.pid(), "")
	b.processes = len(descendants(p.pid()))
	b.threads = field(procPath(p.pid(), "status"), "Threads")
	for _, dir := range append(dirs, p.root) {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			b.files = append(b.files, path)
			return err
		})
		if err != nil {
			f.Fatalf("listing what the server wrote: %v", err)
		}
	}
	return b
}

// goroutines counts those of the server once the count stays the same for ten
// looks: one that gives memory back, five seconds after the last action, is there
// only for a moment.
func (f *figures) goroutines(p *process) int {
	n, same := f.metric(p.client, "go_goroutines"), 0
	f.settle(func() bool {
		last := n
		n = f.metric(p.client, "go_goroutines")
		if same++; n != last {
			same = 0
		}
		return same >= 10
	})
	return n
}

// hangUp closes the connections of this program and waits until the server has
// closed its ends.
func (f *figures) hangUp(p *process) {
	p.hangUp()
	f.settle(func() bool { return len(descriptorsOf(p.pid(), "socket:")) <= 1 }) // the one that listens
	f.pause(100 * time.Millisecond)                                              // its goroutines end right after
}

// settle waits until something holds, at most two seconds; what does not hold
// then shows in what is measured next.
func (f *figures) settle(holds func() bool) {
	for range 200 {
		if holds() {
			return
		}
		f.pause(10 * time.Millisecond)
	}
}

// pause waits.
func (f *figures) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.Context().Done():
		f.Fatal("the run was ended")
	}
}

// descriptorsOf lists what the descriptors of a process lead to, as far as it
// begins with kind. The numbers of pipes and sockets are left out, as they
// differ between two that serve the same end.
func descriptorsOf(pid int, kind string) []string {
	dir := procPath(pid, "fd")
	entries, _ := os.ReadDir(dir)
	var all []string
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(to, kind) {
			continue
		}
		name, _, _ := strings.Cut(to, ":[")
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
