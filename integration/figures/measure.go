package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// lines returns n lines of 60 bytes. One in the middle has a word of its own.
func lines(n int) string {
	var out strings.Builder
	for i := 1; i <= n; i++ {
		word := map[bool]string{true: "ping", false: "some"}[i == n/2]
		out.WriteString(fmt.Sprintf("line %d holds %s words of no importance, and so it goes on", i, word)[:59] + "\n")
	}
	return out.String()
}

const (
	thousand = 1000
	megabyte = 1_000_000 / 60 // lines
)

// write returns the path of lines.txt, and the action that writes it.
func (s *server) write(content string) (path string, request []byte) {
	path = filepath.Join(s.dir, "lines.txt")
	return path, action("write", "", map[string]any{"path": path, "content": content})
}

const written = `"observation":"write"`

// replace changes one word of lines.txt, forth and back.
func (s *server) replace() way {
	words := [2]string{"holds ping words", "holds pong words"}
	return func(i int) time.Duration {
		return s.do(action("edit", "", map[string]any{
			"command": "str_replace", "path": filepath.Join(s.dir, "lines.txt"), "impl_source": "oh_aci", "old_str": words[i%2], "new_str": words[(i+1)%2],
		}), "has been edited")
	}
}

func (b *bench) files() {
	p := b.launch("tcp")
	path, request := p.write(lines(thousand))
	p.do(request, written)
	read := action("read", "", map[string]any{"path": path})
	s := interleave(0, 300,
		func(int) time.Duration { return p.do(read, "line 1000 ") },
		func(int) time.Duration {
			begun := time.Now()
			_ = must(os.ReadFile(path))
			return time.Since(begun)
		})
	b.compare(row{name: "read of 1,000 lines, p50", reference: "1.54 ms"}, s[0].median(), 500*time.Microsecond, s[1].median())

	content := lines(megabyte)
	_, whole := p.write(content)
	_, changed := p.write(strings.Replace(content, "ping", "pong", 1))
	replaceAll := [2][]byte{changed, whole}
	for _, m := range []struct {
		row   row
		limit time.Duration
		first []byte
		act   way
	}{
		{row{name: "str_replace in 1,000 lines, p50", reference: "4.39 ms"}, 1500 * time.Microsecond, request, p.replace()},
		{row{name: "str_replace in 1 MB, p50", reference: "33.9 ms"}, 8 * time.Millisecond, whole, p.replace()},
		{row{name: "write of 1 MB, new file, p50", reference: "13.3 ms"}, 5 * time.Millisecond, whole, func(int) time.Duration {
			check(os.Remove(path))
			return p.do(whole, written)
		}},
		{row{name: "write of 1 MB over another, p50"}, 5 * time.Millisecond, whole, func(i int) time.Duration { return p.do(replaceAll[i%2], written) }},
	} {
		p.do(m.first, written)
		data := must(os.ReadFile(path))
		s := interleave(0, 300, m.act, func(int) time.Duration { return replaceFile(filepath.Join(p.dir, "bare.txt"), data) })
		b.compare(m.row, s[0].median(), m.limit, s[1].median())
	}
}

// replaceFile replaces a file durably.
func replaceFile(path string, data []byte) time.Duration {
	begun := time.Now()
	f := must(os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600))
	_ = must(f.Write(data))
	check(errors.Join(f.Sync(), f.Close(), os.Rename(path+".tmp", path)))
	return time.Since(begun)
}

// notebook needs ipykernel.
func (b *bench) notebook() {
	p := b.launch("tcp")
	cell := func(code string) []byte { return action("run_ipython", "", map[string]any{"code": code}) }
	begun := time.Now()
	answer := must(p.ask(cell("1")))
	first := time.Since(begun)
	if bytes.Contains(answer, []byte(`"observation":"error"`)) {
		fmt.Fprintf(os.Stderr, "left out: there is no kernel: %.500s\n", answer)
		return
	}
	b.compare(row{name: "first cell, with the start of its kernel"}, first, 0, 0)
	one := cell("1+1")
	s := interleave(0, 1000, func(int) time.Duration { return p.do(one, `"content":"2\n[`) })
	b.compare(row{name: "`1+1` in a running kernel, p50"}, s[0].median(), 5*time.Millisecond, 0)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, `%d\n`, i)
	}
	p.do(cell("for i in range(1000): print(i, flush=True)"), `"content":"`+want.String()+`[`)
}

// otherUser measures commands with the rights of another user. It needs root.
func (b *bench) otherUser() {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "left out: not root")
		return
	}
	own, other, request := b.launch("tcp"), b.launch("tcp", "--username", "nobody"), command("true")
	s := interleave(50, 500, func(int) time.Duration { return other.run(request) }, func(int) time.Duration { return own.run(request) })
	b.compare(row{name: "`true` as another user, p50", bare: " as the server's"}, s[0].median(), 0, s[1].median())
}

func (b *bench) throughput() {
	p, shell := b.launch("tcp"), b.bare()
	wide := filepath.Join(b.scratch(), "wide.txt")
	f := must(os.Create(wide))
	out := bufio.NewWriter(f)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog; ", 3)
	for i := range 100_000_000 / 101 { // 100 columns and the line feed
		_ = must(fmt.Fprintf(out, "%-10d%s\n", i, text[:90]))
	}
	check(errors.Join(out.Flush(), f.Close()))
	for _, m := range []struct {
		row     row
		command string
		rounds  int
	}{{row{name: "`seq 1 200000`", reference: "1,165 ms"}, "seq 1 200000", 31}, {row{name: "100 MB of lines"}, "cat " + wide, 7}} {
		request := command(m.command)
		s := interleave(1, m.rounds, func(int) time.Duration { return p.run(request) }, func(int) time.Duration { return shell.run(m.command) })
		m.row.target, m.row.missed = "≤ 1.3 × bare", float64(s[0].median()) > 1.3*float64(s[1].median())
		b.compare(m.row, s[0].median(), 0, s[1].median())
	}
}
