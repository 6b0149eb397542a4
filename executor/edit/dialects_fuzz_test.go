package edit_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// FuzzDialects edits in every dialect. Beside what holds for each edit, the bytes of lines that the answer does not
// name stay, and no U+FFFD comes from nowhere.
func FuzzDialects(f *testing.F) {
	for i, seed := range seeds {
		for kind := range byte(7) {
			f.Add(kind, seed, "a", "b\nc", "1")
			f.Add(kind, seed, seed, seeds[(i+1)%len(seeds)], "0")
		}
	}
	f.Add(byte(2), "  if a {\r\n\tb()\r\n  }\r\n", "if a {\nb()\n}", "c()", "2")
	f.Add(byte(2), "f( a,\rb )\n", "f(a,b)", "g\n", "2")
	f.Add(byte(3), "console.log(\"hello world\");\n", "console.log('hello world');", "\n", "")
	f.Fuzz(func(t *testing.T, kind byte, content, old, replacement, line string) {
		c := edit.Command{Name: "str_replace", OldStr: &old, NewStr: &replacement}
		touched := 8 * len(old)
		switch kind % 7 {
		case 0:
			c.Dialect = edit.OpenHandsV1
		case 1:
			c.Dialect = edit.Strands
		case 2, 3:
			c.Dialect, c.Name, c.AllowMultiple, c.Fuzzy = edit.Gemini, "replace", kind%7 == 3, kind%7 == 3
			touched = len(content)
		case 4:
			c = edit.Command{Dialect: edit.Strands, Name: "insert", InsertLine: &line, NewStr: &replacement}
			touched = 0
		case 5:
			c.OldStr, c.NewStr, touched = nil, nil, len(content)
			c.Edits = []edit.Replacement{{Old: old, New: replacement}, {Old: replacement, New: line}}
		case 6:
			c.Dialect, c.IfSHA256 = edit.Anthropic, sha(content)
		}
		if c.Dialect == edit.Gemini && old == "" {
			return // it creates
		}
		after, text := fuzzEdit(t, content, 0o640, touched, c)
		if c.Dialect == edit.Gemini && text != "" {
			otherLinesStay(t, content, after, text)
		}
		if !strings.ContainsAny(content+replacement+line, "\ufffd") && !strings.Contains(content, "\xef") && strings.Contains(after, "\ufffd") {
			t.Fatalf("%q became %q", content, after)
		}
	})
}

var matchedLines = regexp.MustCompile(`match at lines? ([-0-9, ]+)\.`)

// otherLinesStay checks that what stands above the first and below the last line that an answer names is as it was.
func otherLinesStay(t *testing.T, before, after, text string) {
	t.Helper()
	found := matchedLines.FindStringSubmatch(text)
	if found == nil {
		return // more places than it names
	}
	var lines []int
	for _, number := range strings.FieldsFunc(found[1], func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, n)
	}
	raw := regexp.MustCompile(`(?s-m)[^\r\n]*(?:\r\n|\n|\r|$)`).FindAllString(before, -1)
	raw = slices.DeleteFunc(raw, func(line string) bool { return line == "" })
	above := strings.Join(raw[:min(slices.Min(lines)-1, len(raw))], "")
	below := strings.Join(raw[min(slices.Max(lines), len(raw)):], "")
	if !strings.HasPrefix(after, above) || !strings.HasSuffix(after, below) || len(after) < len(above)+len(below) {
		t.Fatalf("%q became %q, and the answer says %q", before, after, found[0])
	}
}

// FuzzPatch applies any text as a patch: all of it is done and can be undone, or nothing is.
func FuzzPatch(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, patchOf("*** Update File: f", "@@ a", " b", "-c", "+d", "*** Add File: g", "+x"))
		f.Add(seed, patchOf("*** Update File: f", "*** Move to: d/g", "@@", "+a"))
		f.Add(seed, patchOf("*** Delete File: f"))
		f.Add(seed, "```\n"+patchOf("*** Update File: `f`", "--- a", "+++ b", "@@ -2,1 +2 @@ a", "@@ b", " c", "-a – b", "+x", `\ No`, "", "*** Add File: g", "", "+x", "")+"\n```")
	}
	f.Fuzz(func(t *testing.T, content, patch string) {
		b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
		b.SetFlush(func(*os.File) error { return nil })
		b.write("f", content, 0o640)
		before := b.tree()
		r, err := b.Patch(b.dir, patch)
		after := b.tree()
		if err != nil {
			if !maps.Equal(after, before) || r.Text != "" {
				t.Fatalf("an error %q and a change from %q to %q", err, before, after)
			}
			return
		}
		for name := range after {
			if was, had := before[name]; !had || was != after[name] {
				b.undo(name)
			}
		}
		for name := range before {
			if _, stays := after[name]; !stays {
				b.undo(name)
			}
		}
		if got := b.tree(); !maps.Equal(got, before) || b.mode("f") != 0o640 {
			t.Fatalf("undone: got %q, want %q", got, before)
		}
	})
}

// FuzzMerge merges any text as a draft.
func FuzzMerge(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, "# unchanged\na\nx\nb\n# unchanged", 1, -1)
		f.Add(seed, seed, -1, -1)
		f.Add(seed, "x\n...existing code\ny", 2, 3)
		f.Add(seed, "# as above\n(... x)\n1|b\n# rest of it\nb", 1, -1)
	}
	f.Fuzz(func(t *testing.T, content, draft string, start, end int) {
		b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
		b.SetFlush(func(*os.File) error { return nil })
		b.write("f", content, 0o640)
		m, err := b.Merge(edit.Draft{Path: b.path("f"), Content: draft, Start: start, End: end})
		after := b.content("f")
		if err != nil && (after != content || m.Text != "") || err == nil && m.SHA256 != sha(after) || b.mode("f") != 0o640 {
			t.Fatalf("%q became %q, with %+v and %v", content, after, m, err)
		}
		if after != content {
			b.undo("f")
		}
		if got := b.content("f"); got != content {
			t.Fatalf("undone: got %q, want %q", got, content)
		}
	})
}

// Eight clients edit one file at once in all dialects, and none loses what another did.
func TestEightClients(t *testing.T) {
	t.Parallel()
	const clients, rounds = 8, 25
	b := newBench(t)
	b.SetFlush(func(*os.File) error { return nil })
	var start strings.Builder
	for i := range clients {
		fmt.Fprintf(&start, "client %d: 0;\r\n", i)
	}
	path := b.write("f", start.String(), 0o644)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for n := range rounds {
				old, now := fmt.Sprintf("client %d: %d;", i, n), fmt.Sprintf("client %d: %d;", i, n+1)
				var err error
				switch c := (edit.Command{Name: "str_replace", Path: path, OldStr: &old, NewStr: &now}); i % 6 {
				case 0:
					_, err = b.Do(c)
				case 1:
					c.Dialect = edit.OpenHandsV1
					_, err = b.Do(c)
				case 2:
					c.Dialect = edit.Strands
					_, err = b.Do(c)
				case 3:
					c.Dialect, c.Name = edit.Gemini, "replace"
					_, err = b.Do(c)
				case 4:
					_, err = b.Patch(b.dir, patchOf("*** Update File: f", "@@", "-"+old, "+"+now))
				case 5:
					_, err = b.Merge(edit.Draft{Path: path, Start: i + 1, End: i + 1, Content: now})
				}
				if err != nil {
					t.Errorf("client %d, round %d: %v", i, n, err)
					return
				}
			}
		})
	}
	group.Wait()
	want := strings.ReplaceAll(start.String(), ": 0;", fmt.Sprintf(": %d;", rounds))
	if got := b.content("f"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
