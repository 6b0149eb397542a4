package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

func (b *bench) size() {
	for _, program := range []struct {
		name string
		most int64 // MB
	}{{"server", 32}, {"runtimectl", 35}, {"runtimectl-kubernetes", 65}} {
		n := must(os.Stat(filepath.Join(b.programs, program.name))).Size()
		b.add(row{
			name: program.name + ", stripped", ours: fmt.Sprintf("%.1f MB", float64(n)/1e6),
			target: fmt.Sprintf("≤ %d MB", program.most), missed: n > program.most*1e6,
		})
	}
}

// start measures from fork to the first answer, and a bash to its first command.
func (b *bench) start() {
	s := interleave(1, 20,
		func(int) time.Duration {
			p := b.launch("tcp")
			p.stop()
			return p.took
		},
		func(int) time.Duration {
			begun := time.Now()
			shell := b.bare()
			defer shell.stop()
			return time.Since(begun)
		})
	b.compare(row{name: "start to ready", reference: "1.76 s"}, s[0].median(), 30*time.Millisecond, s[1].median())
}

func (b *bench) latency() {
	tcp, socket, shell := b.launch("tcp"), b.launch("unix"), b.bare()
	request := command("true")
	s := interleave(300, 3000,
		func(int) time.Duration { return tcp.run(request) },
		func(int) time.Duration { return socket.run(request) },
		func(int) time.Duration { return shell.run("true") })
	const limit = 500 * time.Microsecond
	b.compare(row{name: "`true`, p50", reference: "625 ms"}, s[0].median(), limit, s[2].median())
	b.compare(row{name: "`true`, p99"}, s[0].quantile(0.99), 5*time.Millisecond, s[2].quantile(0.99))
	b.compare(row{name: "`true` over a Unix socket, p50"}, s[1].median(), limit, s[2].median())
}

// parallel runs true in eight sessions at once, and in eight bare shells.
func (b *bench) parallel() {
	ours := b.eight(b.launch("tcp"))
	var bare [8]func() error
	for i := range bare {
		shell := b.bare()
		bare[i] = func() error { _, err := shell.try("true"); return err }
	}
	median, bareMedian, ratio := rates(3, 3*time.Second, ours, bare)
	b.add(row{
		name: "8 sessions in parallel, client included", ours: fmt.Sprintf("%.0f/s", median), target: "≥ 5,000/s",
		bare: fmt.Sprintf("%.0f/s", bareMedian), ratio: ratio, missed: median < 5000,
	})
}

// eight returns workers that run true, each in a session of its own.
func (b *bench) eight(p *server) (work [8]func() error) {
	for i := range work {
		c := must(p.dial())
		b.stops = append(b.stops, func() { _ = c.Close() })
		request := action("run", fmt.Sprint("s", i), map[string]any{"command": "true"})
		c.run(request)
		work[i] = func() error {
			answer, err := c.ask(request)
			if err == nil && !bytes.Contains(answer, []byte(succeeded)) {
				err = fmt.Errorf("true answered %.500q", answer)
			}
			return err
		}
	}
	return work
}

// rates returns the medians of so many rates each, measured in turn, and that of their
// ratios, which noise that lasts longer than a pair does not change.
func rates(pairs int, limit time.Duration, ours, bare [8]func() error) (median, bareMedian, ratio float64) {
	var all, bares, ratios []float64
	for i := range pairs {
		var now [2]float64
		for j := range now {
			k := (i + j) % len(now)
			now[k] = rate(limit, [2][8]func() error{ours, bare}[k])
		}
		all, bares, ratios = append(all, now[0]), append(bares, now[1]), append(ratios, now[0]/now[1])
	}
	for _, list := range [][]float64{all, bares, ratios} {
		slices.Sort(list)
	}
	return all[pairs/2], bares[pairs/2], ratios[pairs/2]
}

// rate returns how often eight workers do their work per second.
func rate(limit time.Duration, work [8]func() error) float64 {
	var all sync.WaitGroup
	var counts [8]int
	var errs [8]error
	begun := time.Now()
	for i := range work {
		all.Go(func() {
			for time.Since(begun) < limit && errs[i] == nil {
				errs[i] = work[i]()
				counts[i]++
			}
		})
	}
	all.Wait()
	check(errors.Join(errs[:]...))
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(begun).Seconds()
}
