package search_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/testhelp"
)

// largeFile writes a file of 400,000 lines of 100 bytes, some of which are replaced.
func largeFile(t *testing.T, lines map[int]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for n := 1; n <= 400_000; n++ {
		line, ok := lines[n]
		if !ok {
			line = fmt.Sprintf("line %094d", n)
		}
		_, _ = io.WriteString(w, line+"\n")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of any size is searched in constant memory, with the numbers of its lines, over
// lines that are longer than what is read at a time.
func TestGrepLarge(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	long := "needle at the start" + strings.Repeat("x", 3<<20) + "needle unseen"
	path := largeFile(t, map[int]string{7: "needle 7\r", 11_000: long, 11_001: "needle behind", 399_999: "the needle", 400_000: "last"})
	testhelp.WriteFile(t, path+".small", "needle\n", 0o600)
	s := search.New(search.Config{})
	query := search.GrepQuery{Path: path, Dir: "/", Pattern: "^(the )?needle( |$)", Limit: 100, Around: func(int) (int, int) { return 0, 1 }}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := s.Grep(t.Context(), query)
	runtime.ReadMemStats(&after)
	next := func(n int) search.Line { return search.Line{Number: n, Text: fmt.Sprintf("line %094d", n)} }
	want := []search.Line{
		{Number: 7, Text: "needle 7", Match: true},
		next(8),
		{Number: 11_000, Text: long[:2000] + "... [cut]", Match: true},
		{Number: 11_001, Text: "needle behind", Match: true},
		next(11_002),
		{Number: 399_999, Text: "the needle", Match: true},
		{Number: 400_000, Text: "last"},
	}
	if err != nil || m.Count != 4 || m.Long != 1 || m.More || m.Cut || len(m.Files) != 1 || !reflect.DeepEqual(m.Files[0].Lines, want) {
		t.Errorf("got %.3000v, %v", m, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 && !raceDetector() { // which throws away what is pooled
		t.Errorf("the search of 43 MB took %d bytes of memory", took)
	}
	for _, test := range []struct {
		name  string
		query search.GrepQuery
		count int
		more  bool
	}{
		{"some", search.GrepQuery{Path: path, Pattern: "needle", Limit: 2}, 2, true},
		{"names", search.GrepQuery{Path: filepath.Dir(path), Pattern: "needle", NamesOnly: true, Limit: 9}, 2, false},
		{"some of each", search.GrepQuery{Path: filepath.Dir(path), Pattern: "needle", FileLimit: 1, Limit: 9}, 2, true},
		{"excluded", search.GrepQuery{Path: path, Pattern: "needle", Exclude: "[7b]", Limit: 9}, 2, false},
		{"not the rest of a long line", search.GrepQuery{Path: path, Pattern: "unseen", Limit: 9}, 0, false},
	} {
		m, err := s.Grep(t.Context(), test.query)
		if err != nil || m.Count != test.count || m.More != test.more {
			t.Errorf("%s: got %d matches, %v, and %v", test.name, m.Count, m.More, err)
		}
	}
}

func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Files that an agent makes to hold a searcher up do not: a line without an end, holes, and the end of the caller's
// patience.
func TestGrepLargeEnds(t *testing.T) {
	t.Parallel()
	path := largeFile(t, map[int]string{5: "needle", 400_000: "needle before the zero bytes"})
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	s := search.New(search.Config{})
	query := search.GrepQuery{Path: path, Dir: "/", Pattern: "needle", Limit: 100}
	m, err := s.Grep(t.Context(), query)
	if err != nil || m.Cut || m.Count != 1 {
		t.Errorf("got %+v, %v, want the lines up to the zero bytes", m, err)
	}
	hole := filepath.Join(t.TempDir(), "hole")
	testhelp.WriteFile(t, hole, "needle\n", 0o600)
	if err := os.Truncate(hole, 1<<40); err != nil {
		t.Fatal(err)
	}
	query.Path = hole
	if m, err = s.Grep(t.Context(), query); err != nil || m.Cut || m.Count != 0 {
		t.Errorf("got %+v, %v, want a file that is not text", m, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	query.Path = path
	if m, err = s.Grep(ctx, query); err != nil || !m.Cut || m.Count != 0 {
		t.Errorf("got %+v, %v, want a search that was cut", m, err)
	}
}
