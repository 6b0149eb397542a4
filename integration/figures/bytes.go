package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// execute returns the request for a program in pipes.
func execute(line string) []byte { return action("exec", "", map[string]any{"command": line}) }

// piped runs a line of sh and reads its output from a pipe.
func piped(line string) time.Duration {
	begun := time.Now()
	cmd := exec.Command("/bin/sh", "-c", line)
	out := must(cmd.StdoutPipe())
	check(cmd.Start())
	_ = must(io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 64<<10)))
	check(cmd.Wait())
	return time.Since(begun)
}

// execs measures exec beside a bare pipe.
func (b *bench) execs() {
	p := b.launch("tcp")
	big := filepath.Join(b.scratch(), "big")
	check(os.WriteFile(big, bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog, and over.\n"), 100_000_000/55), 0o600))
	for _, m := range []struct {
		name, line string
		limit      time.Duration
		ratio      float64 // the largest
		rounds     int
	}{
		{"`exec` of `true`, p50", "true", 0, 0, 300},
		{"`exec` of `seq 1 200000`", "seq 1 200000", 0, 2, 31},
		{"`exec` of 100 MB", "cat " + big, 350 * time.Millisecond, 0, 7},
	} {
		request := execute(m.line)
		s := interleave(2, m.rounds, func(int) time.Duration { return p.run(request) }, func(int) time.Duration { return piped(m.line) })
		r := row{name: m.name}
		if m.ratio > 0 {
			r.target, r.missed = fmt.Sprintf("≤ %g × bare", m.ratio), float64(s[0].median()) > m.ratio*float64(s[1].median())
		}
		b.compare(r, s[0].median(), m.limit, s[1].median())
	}
}

// wholeFiles measures /v1/files with a megabyte beside writing and reading it.
func (b *bench) wholeFiles() {
	p := b.launch("tcp", "--state-dir", b.scratch())
	content := []byte(lines(megabyte))
	path := filepath.Join(p.dir, "file.bin")
	target := "/v1/files?path=" + url.QueryEscape(path)
	put := append(fmt.Appendf(nil, "PUT %s HTTP/1.1\r\nHost: sandbox\r\nContent-Length: %d\r\n\r\n", target, len(content)), content...)
	bare := filepath.Join(p.dir, "bare.bin")
	p.request(put, http.StatusCreated)
	s := interleave(2, 200, func(int) time.Duration { return p.request(put, http.StatusOK) }, func(int) time.Duration { return replaceFile(bare, content) })
	b.compare(row{
		name: "`PUT` of 1 MB over another, p50", target: "≤ 1.7 × bare", missed: float64(s[0].median()) > 1.7*float64(s[1].median()),
	}, s[0].median(), 0, s[1].median())
	s = interleave(2, 200, func(int) time.Duration { return p.request(get(target), http.StatusOK) }, func(int) time.Duration {
		begun := time.Now()
		_ = must(os.ReadFile(bare))
		return time.Since(begun)
	})
	b.compare(row{name: "`GET` of 1 MB, p50"}, s[0].median(), 1600*time.Microsecond, s[1].median())
}

// request sends a whole request and reads the answer, which must have a status.
func (c *connection) request(request []byte, status int) time.Duration {
	begun := time.Now()
	_ = must(c.Write(request))
	resp, err := http.ReadResponse(c.in, nil)
	check(err)
	defer resp.Body.Close()
	_ = must(io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 64<<10)))
	if resp.StatusCode != status {
		check(fmt.Errorf("%.200q: status %d", request, resp.StatusCode))
	}
	return time.Since(begun)
}

// sessions measures a hundred clients with a session each.
func (b *bench) sessions() {
	const clients = 100
	p := b.launch("tcp")
	connections := make([]*connection, clients)
	for i := range connections {
		connections[i] = must(p.dial())
		b.stops = append(b.stops, func() { _ = connections[i].Close() })
	}
	round := func() time.Duration {
		var all sync.WaitGroup
		begun := time.Now()
		for i, c := range connections {
			all.Go(func() { c.run(action("run", fmt.Sprint("s", i), map[string]any{"command": "sleep 0.1"})) })
		}
		all.Wait()
		return time.Since(begun)
	}
	first := round()
	shells := make([]*bareShell, clients)
	begun := time.Now()
	var all sync.WaitGroup
	for i := range shells { // one after the other, as their list of what to stop is not locked
		shells[i] = b.bare()
		all.Go(func() { shells[i].run("sleep 0.1") })
	}
	all.Wait()
	bare := time.Since(begun)
	b.compare(row{
		name: "100 clients, `sleep 0.1`, with the start of their sessions", target: "≤ 1.6 × bare", missed: float64(first) > 1.6*float64(bare),
	}, first, 0, bare)
	again := make(sample, 5)
	for i := range again {
		again[i] = round()
	}
	b.compare(row{name: "100 clients, `sleep 0.1`, in sessions that run"}, again.median(), 230*time.Millisecond, 0)
}
