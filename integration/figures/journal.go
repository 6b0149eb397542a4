package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// buildWithoutJournal builds a server whose journal writes nothing, and returns its
// directory.
func (b *bench) buildWithoutJournal() string {
	dir := b.scratch()
	find := exec.CommandContext(b.ctx, "go", "list", "-f", "{{.Dir}}", "github.com/actiond/actiond/executor/journal")
	path := filepath.Join(strings.TrimSpace(string(must(find.Output()))), "segment.go")
	const writes = "func (s *segment) append(p []byte) error {\n"
	text, rest, found := strings.Cut(string(must(os.ReadFile(path))), writes)
	if !found {
		check(fmt.Errorf("%s no longer has %q", path, writes))
	}
	changed, overlay := filepath.Join(dir, "segment.go"), filepath.Join(dir, "overlay.json")
	check(os.WriteFile(changed, []byte(text+writes+"\tif true {\n\t\treturn nil\n\t}\n"+rest), 0o600))
	check(os.WriteFile(overlay, must(json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})), 0o600))
	build := exec.CommandContext(b.ctx, "go", "build", "-overlay", overlay, "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "github.com/actiond/actiond/cmd/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		check(fmt.Errorf("building without the journal: %w\n%s", err, said))
	}
	return dir
}

// launchOf is launch of the server in another directory.
func (b *bench) launchOf(programs string, flags ...string) *server {
	own := b.programs
	defer func() { b.programs = own }()
	b.programs = programs
	return b.launch("tcp", append(flags, "--state-dir", b.scratch())...)
}

// journal measures what the journal of actions costs, each beside the same without it.
func (b *bench) journal() {
	without := b.buildWithoutJournal()
	with, bare := b.launchOf(b.programs), b.launchOf(without)
	request := command("true")
	s := interleave(300, 3000, func(int) time.Duration { return with.run(request) }, func(int) time.Duration { return bare.run(request) })
	b.compare(row{
		name: "`true` with the journal, p50", target: "≤ 1.15 × without", missed: float64(s[0].median()) > 1.15*float64(s[1].median()),
	}, s[0].median(), 0, s[1].median())

	ours, plain, ratio := rates(9, time.Second, b.eight(with), b.eight(bare))
	b.add(row{
		name: "8 sessions with the journal", ours: fmt.Sprintf("%.0f/s", ours), target: "≥ 0.9 × without",
		bare: fmt.Sprintf("%.0f/s", plain), ratio: ratio, missed: ratio < 0.9,
	})

	lasting := b.launchOf(b.programs, "--journal-sync")
	file := must(os.Create(filepath.Join(b.scratch(), "synced")))
	defer file.Close()
	s = interleave(20, 300, func(int) time.Duration { return lasting.run(request) }, func(int) time.Duration { return with.run(request) },
		func(int) time.Duration {
			begun := time.Now()
			_ = must(file.Write(request))
			check(file.Sync())
			return time.Since(begun)
		})
	b.compare(row{
		name: "`true` with `--journal-sync`, p50, beside without", target: "≤ one fsync (" + ms(s[2].median()) + ") more",
		missed: s[0].median() > s[1].median()+s[2].median(),
	}, s[0].median(), 0, s[1].median())
	b.stopAll()
	b.idleWithJournal(without)
	b.fullJournal()
}

// idleWithJournal compares the private memory of idle servers that ran one command.
func (b *bench) idleWithJournal(without string) {
	with, bare := b.launchOf(b.programs), b.launchOf(without)
	for _, p := range []*server{with, bare} {
		p.run(command("true"))
		check(p.Close())
	}
	time.Sleep(settleTime)
	private, _, _ := memory(with.pid())
	plain, _, _ := memory(bare.pid())
	b.add(row{
		name: "idle private memory with the journal", ours: mebibytes(private), target: "≤ 1 MiB more", bare: mebibytes(plain),
		ratio: float64(private) / float64(plain), missed: private > plain+1<<20,
	})
	b.stopAll()
}

// fullJournal starts servers with a journal of ten thousand actions, and with none.
func (b *bench) fullJournal() {
	full := b.scratch()
	p := b.launch("tcp", "--state-dir", full)
	work := b.eight(p)
	var all sync.WaitGroup
	var errs [len(work)]error
	for i := range work {
		all.Go(func() {
			for n := 0; n < 10_000/len(work) && errs[i] == nil; n++ {
				errs[i] = work[i]()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		check(err)
	}
	b.stopAll()
	start := func(dir func() string) way {
		return func(int) time.Duration {
			p := b.launch("tcp", "--state-dir", dir())
			p.stop()
			return p.took
		}
	}
	s := interleave(1, 20, start(func() string { return full }), start(b.scratch))
	b.compare(row{
		name: "start with 10,000 recorded actions, beside none", target: "≤ 20 ms more", missed: s[0].median() > s[1].median()+20*time.Millisecond,
	}, s[0].median(), 0, s[1].median())
}
