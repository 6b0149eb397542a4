//go:build figures

package integration_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	wideBytes = 100_000_000
	wideLine  = 101 // 100 columns and the newline
)

// throughput prints much through the server and through a bare reader of the
// same kind of terminal, in turn.
func (f *figures) throughput() {
	p := f.launch("tcp")
	shell := f.startBare(f.scratch())
	wide := f.wideFile()
	for _, what := range []struct {
		name, command, reference string
		rounds                   int
	}{
		{"`seq 1 200000`", "seq 1 200000", "reference 1,165 ms", 31},
		{"100 MB of 100-column lines", "cat " + wide, "", 7},
	} {
		var ours, bare sample
		action, volume := command(what.command, ""), 0
		for i := range what.rounds + 1 {
			took, err := p.run(action)
			if err != nil {
				f.Fatal(err)
			}
			alone, n, err := shell.run(what.command)
			if err != nil {
				f.Fatal(err)
			}
			if i > 0 {
				ours, bare, volume = append(ours, took), append(bare, alone), n
			}
		}
		r := ratio(ours.median(), bare.median())
		f.table.add(row{
			name: what.name, ours: ms(ours.median()), target: "≤ 1.3 × bare", bare: ms(bare.median()) + " (reader that drains)",
			ratio: times(r), reference: what.reference, met: new(r <= 1.3),
		})
		f.table.note("%s: %.1f MB came out of the terminal, %.0f MB/s; the middle half of the rounds took %s to %s, bare %s to %s.",
			what.name, float64(volume)/1e6, float64(volume)/1e6/ours.median().Seconds(),
			ms(ours.quantile(0.25)), ms(ours.quantile(0.75)), ms(bare.quantile(0.25)), ms(bare.quantile(0.75)))
	}
	p.stop(f)
	shell.stop()
}

// wideFile makes a file of lines that fill 100 columns with changing letters.
func (f *figures) wideFile() string {
	path := filepath.Join(f.scratch(), "wide.txt")
	file, err := os.Create(path)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	line := make([]byte, wideLine)
	for i := range wideBytes / wideLine {
		for c := range line {
			line[c] = "the quick brown fox jumps over the lazy dog; "[(i+c)%45]
		}
		copy(line, fmt.Sprint(i))
		line[wideLine-1] = '\n'
		_, _ = w.Write(line) // Flush tells
	}
	if err := w.Flush(); err != nil {
		f.Fatal(err)
	}
	return path
}

// flood lets a gigabyte of output run through a fresh server and watches its
// memory.
func (f *figures) flood() {
	for _, what := range []struct{ name, command string }{
		{"plain", "yes 'a line with nothing in it but forty letters' | head -c 1G"},
		{"coloured", `yes $'\e[31mred\e[0m then \e[1;32mgreen\e[0m and a word' | head -c 1G`},
	} {
		p := f.launch("tcp")
		if _, err := p.run(command("true", "")); err != nil {
			f.Fatal(err)
		}
		before := memoryOf(p.pid())
		done := make(chan error, 1)
		begun := time.Now()
		go func() {
			_, err := p.run(command(what.command, ""))
			done <- err
		}()
		var sampled []int
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					f.Fatal(err)
				}
				running = false
			case <-time.After(50 * time.Millisecond):
				sampled = append(sampled, memoryOf(p.pid()).rss)
			}
		}
		took, after := time.Since(begun), memoryOf(p.pid())
		f.table.add(row{
			name: "1 GB of output, " + what.name + ": peak RSS", ours: mebibytes(after.peak), target: "≤ 40 MiB",
			met: new(after.peak <= 40<<10),
		})
		quarter := max(1, len(sampled)/4)
		f.table.note("1 GB of output, %s: took %s; RSS %s before, at most %s in the first quarter and %s in the last, %s after the answer.",
			what.name, ms(took), mebibytes(before.rss), mebibytes(most(sampled[:quarter])), mebibytes(most(sampled[len(sampled)-quarter:])), mebibytes(after.rss))
		p.stop(f)
	}
}

func most(values []int) int {
	m := 0
	for _, v := range values {
		m = max(m, v)
	}
	return m
}
