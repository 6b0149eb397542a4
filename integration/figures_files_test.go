//go:build figures

package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const fileRounds = 300

// lines is a text of n lines of 60 bytes. One in the middle holds a word that
// edits can find.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := 1; i <= n; i++ {
		word := "some"
		if i == n/2 {
			word = "ping"
		}
		line := fmt.Sprintf("line %d holds %s words of no importance, and so it goes on", i, word)
		b.WriteString(line[:59] + "\n")
	}
	return b.Bytes()
}

const (
	thousand = 1000
	megabyte = 1_000_000 / 60 // lines of 60 bytes
)

// swapWords edits the one line of lines that can be found, forth and back.
func swapWords(path string, i int) map[string]any {
	words := [2]string{"holds ping words", "holds pong words"}
	return map[string]any{
		"command": "str_replace", "path": path, "impl_source": "oh_aci",
		"old_str": words[i%2], "new_str": words[(i+1)%2],
	}
}

// writeLines writes lines.txt with n lines where p works, and returns its path.
func (f *figures) writeLines(p *process, n int) string {
	path := filepath.Join(p.dir, "lines.txt")
	_ = os.Remove(path)
	f.act(p.client, request("write", "", map[string]any{"path": path, "content": string(lines(n))}), `"observation":"write"`)
	return path
}

// files measures the actions that never wait for a shell, beside what the disk
// takes for the same bytes.
func (f *figures) files() {
	p := f.launch("tcp")
	f.read(p)
	f.replace(p, "str_replace in 1,000 lines", thousand, "≤ 1.5 ms", 1500*time.Microsecond, "reference 4.39 ms")
	f.replace(p, "str_replace in 1 MB", megabyte, "≤ 8 ms with fsync", 8*time.Millisecond, "reference 33.9 ms")
	f.write(p)
	p.stop(f)
	p = f.launch("tcp", "--state-dir", filepath.Join(f.scratch(), "state"))
	f.replace(p, "str_replace in 1 MB, undo kept on disk", megabyte, "", 0, "")
	p.stop(f)
}

func (f *figures) read(p *process) {
	path := f.writeLines(p, thousand)
	action := request("read", "", map[string]any{"path": path})
	var ours, bare sample
	for range fileRounds {
		took, _ := f.act(p.client, action, "line 1000 ")
		ours = append(ours, took)
		begun := time.Now()
		if _, err := os.ReadFile(path); err != nil {
			f.Fatal(err)
		}
		bare = append(bare, time.Since(begun))
	}
	f.table.add(row{
		name: "read of 1,000 lines (60 kB), p50", ours: ms(ours.median()), target: "≤ 0.5 ms",
		bare: ms(bare.median()) + " (open, read)", ratio: times(ratio(ours.median(), bare.median())),
		reference: "reference 1.54 ms", met: new(ours.median() <= 500*time.Microsecond),
	})
}

// replace edits a file of n lines.
func (f *figures) replace(p *process, name string, n int, target string, limit time.Duration, reference string) {
	path := f.writeLines(p, n)
	f.besideFlush(row{name: name + ", p50", target: target, reference: reference}, limit, path, func(i int) (time.Duration, int) {
		return f.act(p.client, request("edit", "", swapWords(path, i)), "has been edited")
	})
}

// write writes a megabyte, as a new file and over another one.
func (f *figures) write(p *process) {
	path := f.writeLines(p, megabyte)
	content := lines(megabyte)
	save := func(content []byte) []byte {
		return request("write", "", map[string]any{"path": path, "content": string(content)})
	}
	first := save(content)
	oneLine := save(bytes.Replace(content, []byte("ping"), []byte("pong"), 1))
	allLines := save(bytes.ReplaceAll(content, []byte("holds"), []byte("keeps")))
	for _, what := range []struct {
		name, reference string
		requests        [2][]byte
		anew            bool
	}{
		{"write of 1 MB, a new file, p50", "reference 13.3 ms", [2][]byte{first, first}, true},
		{"write of 1 MB over another, one line changes, p50", "", [2][]byte{oneLine, first}, false},
		{"write of 1 MB over another, all lines change, p50", "", [2][]byte{allLines, first}, false},
	} {
		f.besideFlush(row{name: what.name, target: "≤ 5 ms", reference: what.reference}, 5*time.Millisecond, path, func(i int) (time.Duration, int) {
			if what.anew {
				_ = os.Remove(path)
			}
			return f.act(p.client, what.requests[i%2], `"observation":"write"`)
		})
	}
}

// besideFlush times an action that changes a file beside the least that makes
// such a change last: a temporary file, a flush and a rename.
func (f *figures) besideFlush(r row, limit time.Duration, path string, act func(i int) (time.Duration, int)) {
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	var ours, bare, flush, without sample
	size := 0
	for i := range fileRounds {
		acted, n := act(i)
		ours, size = append(ours, acted), max(size, n)
		took, flushed, err := replaceFile(filepath.Join(filepath.Dir(path), "bare.txt"), data)
		if err != nil {
			f.Fatal(err)
		}
		bare, flush, without = append(bare, took), append(flush, flushed), append(without, took-flushed)
	}
	r.ours, r.bare, r.ratio = ms(ours.median()), ms(bare.median())+" (write, fsync, rename)", times(ratio(ours.median(), bare.median()))
	if limit > 0 {
		r.met = new(ours.median() <= limit)
	}
	f.table.add(r)
	f.table.note("%s: fsync alone took %s of the bare write's %s, so about %.0f %% of ours; everything else in ours took %s, in the bare write %s. The answer has %d bytes.",
		r.name, ms(flush.median()), ms(bare.median()), 100*ratio(flush.median(), ours.median()), ms(ours.median()-flush.median()), ms(without.median()), size)
}

// replaceFile puts data in the place of path, and tells how long that took and
// how much of it was the flush.
func replaceFile(path string, data []byte) (took, flush time.Duration, err error) {
	begun := time.Now()
	temp := path + ".tmp"
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return 0, 0, err
	}
	flushed := time.Now()
	if err := file.Sync(); err != nil {
		return 0, 0, err
	}
	flush = time.Since(flushed)
	if err := file.Close(); err != nil {
		return 0, 0, err
	}
	err = os.Rename(temp, path)
	return time.Since(begun), flush, err
}
