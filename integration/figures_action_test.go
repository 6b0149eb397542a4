//go:build figures

package integration_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	latencyRounds  = 3000
	parallelShells = 8
	parallelTime   = 3 * time.Second
	parallelRounds = 3
	startRounds    = 20
)

// size tells how large the binary is.
func (f *figures) size() {
	info, err := os.Stat(f.binary)
	if err != nil {
		f.Fatal(err)
	}
	f.table.add(row{
		name: "binary, stripped", ours: fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), target: "≤ 15 MB",
		met: new(info.Size() <= 15e6),
	})
}

// start measures from fork to the first answer of /alive, beside a bash from
// fork to its first command.
func (f *figures) start() {
	var ours, bare sample
	for i := range startRounds + 1 {
		begun := time.Now()
		shell := f.startBare(f.scratch())
		took := time.Since(begun)
		shell.stop()
		p := f.launch("tcp")
		p.stop(f)
		if i > 0 { // the first warms the disk's cache
			ours, bare = append(ours, p.took), append(bare, took)
		}
	}
	f.table.add(row{
		name: "start to ready (median of 20)", ours: ms(ours.median()), target: "≤ 60 ms",
		bare: ms(bare.median()) + " (bash to its first command)", ratio: times(ratio(ours.median(), bare.median())),
		reference: "reference 1.76 s", met: new(ours.median() <= 60*time.Millisecond),
	})
}

// latency runs true over TCP, over a Unix socket and on a bare shell, in turn.
func (f *figures) latency() {
	tcp, unix := f.launch("tcp"), f.launch("unix")
	shell := f.startBare(f.scratch())
	request, alive := command("true", ""), getRequest("/alive")
	library := tcp.library()
	ways := []func() (time.Duration, error){
		func() (time.Duration, error) { return tcp.run(request) },
		func() (time.Duration, error) { return unix.run(request) },
		func() (time.Duration, error) { took, _, err := shell.run("true"); return took, err },
		func() (time.Duration, error) {
			begun := time.Now()
			_, err := tcp.ask(alive)
			return time.Since(begun), err
		},
		library,
	}
	samples := make([]sample, len(ways))
	const warm = 300
	for i := range warm + latencyRounds {
		for j := range ways {
			way := (i + j) % len(ways) // none always follows the same other
			took, err := ways[way]()
			if err != nil {
				f.Fatalf("round %d, way %d: %v", i, way, err)
			}
			if i >= warm {
				samples[way] = append(samples[way], took)
			}
		}
	}
	bare := samples[2].median()
	for way, name := range []string{"`true`, HTTP keep-alive over TCP", "`true`, HTTP keep-alive over a Unix socket"} {
		p50, p99 := samples[way].median(), samples[way].quantile(0.99)
		r := ratio(p50, bare)
		f.table.add(row{
			name: name + ", p50", ours: ms(p50), target: "≤ 0.5 ms, ≤ 6 × bare", bare: ms(bare), ratio: times(r),
			reference: map[int]string{0: "reference 625 ms; n8n 2.21, execd session 2.88, envd 4.18, `docker exec` 70, SWE-ReX 110"}[way],
			met:       new(p50 <= 500*time.Microsecond && r <= 6),
		})
		f.table.add(row{
			name: name + ", p99", ours: ms(p99), target: "≤ 5 ms", bare: ms(samples[2].quantile(0.99)),
			ratio: times(ratio(p99, samples[2].quantile(0.99))), met: new(p99 <= 5*time.Millisecond),
		})
	}
	f.table.add(row{
		name: "`true` through net/http's client over TCP, p50", ours: ms(samples[4].median()), bare: ms(bare), ratio: times(ratio(samples[4].median(), bare)),
	})
	f.table.add(row{
		name: "`GET /alive` over TCP, p50", ours: ms(samples[3].median()), reference: "reference 0.44 ms",
	})
	tcp.stop(f)
	unix.stop(f)
	shell.stop()
}

// library runs true through the client of net/http, as a controller in Go
// would.
func (p *process) library() func() (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	action := actionJSON("run", "", map[string]any{"command": "true"})
	return func() (time.Duration, error) {
		begun := time.Now()
		resp, err := client.Post("http://"+p.address+"/execute_action", "application/json", bytes.NewReader(action))
		if err != nil {
			return 0, err
		}
		_, err = body(resp)
		return time.Since(begun), err
	}
}

// parallel runs true in eight sessions at once, and on eight bare shells.
func (f *figures) parallel() {
	p := f.launch("tcp")
	shells := make([]*bareShell, parallelShells)
	requests := make([][]byte, parallelShells)
	for i := range shells {
		shells[i] = f.startBare(f.scratch())
		requests[i] = command("true", fmt.Sprintf("s%d", i+1))
	}
	p.everySession(f, requests)
	var ours, bare []float64
	var used [3]time.Duration // by this program, by the server, by its shells
	for range parallelRounds {
		before := p.times()
		ours = append(ours, f.rate(func(i int) error { _, err := p.run(requests[i]); return err }))
		for i, t := range p.times() {
			used[i] += t - before[i]
		}
		bare = append(bare, f.rate(func(i int) error { _, _, err := shells[i].run("true"); return err }))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	mid := parallelRounds / 2
	f.table.add(row{
		name: "8 sessions in parallel, client included", ours: fmt.Sprintf("%.0f actions/s", ours[mid]), target: "≥ 5,000 actions/s on 2 cores",
		bare: fmt.Sprintf("%.0f commands/s", bare[mid]), ratio: times(ours[mid] / bare[mid]), met: new(ours[mid] >= 5000),
	})
	total := parallelRounds * parallelTime
	f.table.note("8 sessions in parallel, cores in use: the client %.2f, the server %.2f, its shells %.2f.",
		used[0].Seconds()/total.Seconds(), used[1].Seconds()/total.Seconds(), used[2].Seconds()/total.Seconds())
	p.stop(f)
	for _, shell := range shells {
		shell.stop()
	}
}

// everySession makes each session run a command, one after the other, and a
// connection for each.
func (p *process) everySession(f *figures, requests [][]byte) {
	for _, r := range requests {
		if _, err := p.run(r); err != nil {
			f.Fatal(err)
		}
	}
}

// times tells the processor time of this program, of the server and of its
// shells so far.
func (p *process) times() [3]time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	var shells time.Duration
	for _, pid := range descendants(p.pid()) {
		shells += cpuTime(pid)
	}
	return [3]time.Duration{time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), cpuTime(p.pid()), shells}
}

// rate counts how often work is done per second by eight at once.
func (f *figures) rate(work func(i int) error) float64 {
	var all sync.WaitGroup
	counts, failures := make([]int, parallelShells), make([]error, parallelShells)
	begun := time.Now()
	for i := range parallelShells {
		all.Go(func() {
			for time.Since(begun) < parallelTime && failures[i] == nil {
				failures[i] = work(i)
				counts[i]++
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	if err := cmp.Or(failures...); err != nil {
		f.Fatal(err)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / took.Seconds()
}

// otherUser measures what it costs that commands and file accesses have
// another user's rights, as in a sandbox. Only root can.
func (f *figures) otherUser() {
	if os.Geteuid() != 0 {
		f.table.note("Another user's rights were not measured: this run was not root's.")
		return
	}
	own, other := f.launch("tcp"), f.launch("tcp", "--username", "nobody")
	for _, what := range []struct {
		name string
		kind string
		args func(dir string, i int) map[string]any
		want string
	}{
		{"`true` as another user, p50", "run", func(string, int) map[string]any { return map[string]any{"command": "true"} }, `"exit_code":0`},
		{"read of 1,000 lines as another user, p50", "read", func(dir string, _ int) map[string]any {
			return map[string]any{"path": filepath.Join(dir, "lines.txt")}
		}, "line 1000 "},
		{"str_replace in 1,000 lines as another user, p50", "edit", func(dir string, i int) map[string]any {
			return swapWords(filepath.Join(dir, "lines.txt"), i)
		}, "has been edited"},
	} {
		var samples [2]sample
		for i := range 500 {
			for j, p := range []*process{own, other} {
				if i == 0 {
					f.writeLines(p, 1000)
				}
				took, _ := f.act(p.client, request(what.kind, "", what.args(p.dir, i)), what.want)
				samples[j] = append(samples[j], took)
			}
		}
		f.table.add(row{
			name: what.name, ours: ms(samples[1].median()),
			bare: ms(samples[0].median()) + " (as the server's own user)", ratio: times(ratio(samples[1].median(), samples[0].median())),
		})
	}
	own.stop(f)
	other.stop(f)
}
