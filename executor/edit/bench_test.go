package edit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/testhelp"
)

// source is a text of numbered lines that looks like code.
func source(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "\tif err := step%d(ctx, value); err != nil { return err } // %d\n", i, i)
	}
	return b.String()
}

func benchEditor(b *testing.B, flush bool, content string) (*edit.Editor, string) {
	b.Helper()
	dir := b.TempDir()
	e := newEditor(b, edit.Config{StateDir: filepath.Join(dir, "state")})
	if !flush {
		e.SetFlush(func(*os.File) error { return nil })
	}
	path := filepath.Join(dir, "file.go")
	testhelp.WriteFile(b, path, content, 0o644)
	b.ReportAllocs()
	return e, path
}

// flushModes are the benchmarks with and without bringing every file to the disk.
var flushModes = []struct {
	name  string
	flush bool
}{{"fsync", true}, {"no-fsync", false}}

func benchReplace(b *testing.B, lines int) {
	b.Helper()
	for _, mode := range flushModes {
		b.Run(mode.name, func(b *testing.B) {
			e, path := benchEditor(b, mode.flush, source(lines))
			words := [2]string{fmt.Sprintf("step%d(", lines/2), "another("}
			for i := 0; b.Loop(); i++ {
				if _, err := e.Do(edit.Command{Name: "str_replace", Path: path, OldStr: &words[i%2], NewStr: &words[1-i%2]}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReplace1000Lines(b *testing.B) { benchReplace(b, 1000) }

func BenchmarkReplace1MB(b *testing.B) { benchReplace(b, 15000) }

// BenchmarkWrite1MB writes 1 MB over a file of which every line is another one, so that the diff is of 2 MB.
func BenchmarkWrite1MB(b *testing.B) {
	for _, mode := range flushModes {
		b.Run(mode.name, func(b *testing.B) {
			e, path := benchEditor(b, mode.flush, "")
			texts := [2]string{source(15000), strings.ReplaceAll(source(15000), "err", "problem")}
			for i := 0; b.Loop(); i++ {
				if _, err := e.Write(path, "/", texts[i%2], 0, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteNew1MB(b *testing.B) {
	for _, mode := range flushModes {
		b.Run(mode.name, func(b *testing.B) {
			e, path := benchEditor(b, mode.flush, "")
			text := source(15000)
			for i := 0; b.Loop(); i++ {
				if _, err := e.Write(fmt.Sprint(path, i), "/", text, 0, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead1000Lines(b *testing.B) {
	e, path := benchEditor(b, false, source(1000))
	for b.Loop() {
		if _, err := e.Read(path, "/", 0, -1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView1000Lines(b *testing.B) {
	e, path := benchEditor(b, false, source(1000))
	for b.Loop() {
		if _, err := e.Do(edit.Command{Name: "view", Path: path}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiffUnlike10MB(b *testing.B) {
	before := strings.Repeat(source(1000), 150)
	after := strings.Repeat(strings.ReplaceAll(source(1000), "\n", "x\n"), 150)
	b.ReportAllocs()
	for b.Loop() {
		edit.UnifiedDiff("p", before, after)
	}
}

func BenchmarkDiffShuffled10MB(b *testing.B) {
	lines := strings.SplitAfter(source(150000), "\n")
	before := strings.Join(lines, "")
	for i := range lines {
		j := (i*7919 + 13) % len(lines)
		lines[i], lines[j] = lines[j], lines[i]
	}
	after := strings.Join(lines, "")
	b.ReportAllocs()
	for b.Loop() {
		edit.UnifiedDiff("p", before, after)
	}
}

// BenchmarkDialects2_5MB edits a file of 2.5 MB in each way, without the disk.
func BenchmarkDialects2_5MB(b *testing.B) {
	text := source(37_000)
	line := func(n, m int) string { return fmt.Sprintf("step%d(ctx, value); err != nil { return err } // %d", n, m) }
	words := [2]string{line(20_000, 20_000), line(20_000, -1)}
	for _, d := range []edit.Dialect{edit.OpenHands, edit.OpenHandsV1, edit.Gemini} {
		b.Run(string(d)+"/exact", func(b *testing.B) {
			e, path := benchEditor(b, false, text)
			name := "str_replace"
			if d == edit.Gemini {
				name = "replace"
			}
			for i := 0; b.Loop(); i++ {
				if _, err := e.Do(edit.Command{Dialect: d, Name: name, Path: path, OldStr: &words[i%2], NewStr: &words[1-i%2]}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("gemini/flexible", func(b *testing.B) {
		e, path := benchEditor(b, false, text)
		for i := 0; b.Loop(); i++ {
			old, replacement := "  if err := "+words[i%2], "if err := "+words[1-i%2]
			if _, err := e.Do(edit.Command{Dialect: edit.Gemini, Name: "replace", Path: path, OldStr: &old, NewStr: &replacement}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("apply_patch", func(b *testing.B) {
		e, path := benchEditor(b, false, text)
		for i := 0; b.Loop(); i++ {
			patch := patchOf("*** Update File: "+path, "@@", "-\tif err := "+words[i%2], "+\tif err := "+words[1-i%2])
			if _, err := e.Patch(filepath.Dir(path), patch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("no match", func(b *testing.B) {
		e, path := benchEditor(b, false, text)
		for b.Loop() {
			if _, err := e.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("if err := stop20000(ctx, values)"), NewStr: new("x")}); err == nil {
				b.Fatal("it matched")
			}
		}
	})
}

// BenchmarkAdversary looks for what almost stands everywhere, in texts made to make that slow.
func BenchmarkAdversary(b *testing.B) {
	for _, test := range []struct {
		name, text, old string
	}{
		{"lines", strings.Repeat("a\n", 1<<21), strings.Repeat(" a\n", 1<<16) + "b"},
		{"tokens", strings.Repeat("a\n", 1<<21), strings.Repeat("a ", 1<<16) + "b"},
		{"likeness of short lines", strings.Repeat("abcdefgh\n", 200_000), "abcdefghij12345678"},
		{"likeness of a long line", strings.Repeat("a", 20_000), strings.Repeat("b", 19_000)},
		{"likeness of many lines", strings.Repeat("abcdefghijklmnopqrstuvwxyz 0123456789\n", 150), strings.Repeat("abcdefghijklmnopqrstuvwxyz 012345_78_\n", 40)},
	} {
		b.Run(test.name, func(b *testing.B) {
			e, path := benchEditor(b, false, test.text)
			for b.Loop() {
				c := edit.Command{Dialect: edit.Gemini, Name: "replace", Path: path, OldStr: &test.old, NewStr: new("x"), Fuzzy: true}
				if _, err := e.Do(c); err == nil {
					b.Fatal("it matched")
				}
			}
		})
	}
}

// BenchmarkEditsOfNewContents makes edits of which each finds another content before it.
func BenchmarkEditsOfNewContents(b *testing.B) {
	for _, test := range []struct {
		name  string
		lines int
	}{{"10KB", 130}, {"80KB", 1000}, {"1MB", 15000}} {
		for _, mode := range flushModes {
			b.Run("str_replace/"+test.name+"/"+mode.name, func(b *testing.B) {
				e, path := benchEditor(b, mode.flush, source(test.lines)+"\n// version 0.\n")
				for i := 0; b.Loop(); i++ {
					old, now := fmt.Sprintf("// version %d.", i), fmt.Sprintf("// version %d.", i+1)
					r, err := e.Do(edit.Command{Name: "str_replace", Path: path, OldStr: &old, NewStr: &now})
					if err != nil || r.HistoryErr != nil {
						b.Fatal(err, r.HistoryErr)
					}
				}
			})
			b.Run("write/"+test.name+"/"+mode.name, func(b *testing.B) {
				e, path := benchEditor(b, mode.flush, "")
				texts := [2]string{source(test.lines), strings.ReplaceAll(source(test.lines), "err", "problem")}
				for i := 0; b.Loop(); i++ {
					r, err := e.Write(path, "/", fmt.Sprint(i, texts[i%2]), 0, -1)
					if err != nil || r.HistoryErr != nil {
						b.Fatal(err, r.HistoryErr)
					}
				}
			})
			b.Run("put/"+test.name+"/"+mode.name, func(b *testing.B) {
				e, path := benchEditor(b, mode.flush, "")
				texts := [2]string{source(test.lines), strings.ReplaceAll(source(test.lines), "err", "problem")}
				for i := 0; b.Loop(); i++ {
					if err := putText(e, path, fmt.Sprint(i, texts[i%2]), nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
