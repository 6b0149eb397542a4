package output

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := WriteTable(&out, [][]string{{"A", "LONG", "C"}, {"日本", "x\x1b[2J", "last"}, {"", "y", "z\n"}}, 0)
	want := "A      LONG       C\n日本   x\\x1b[2J   last\n       y          z\\x0a\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q, %v\nwant %q", out.String(), err, want)
	}
}

// A table is cut to the window, at its widest columns.
func TestTableFits(t *testing.T) {
	t.Parallel()
	rows := func() [][]string {
		return [][]string{{"SANDBOX", "NAME", "IMAGE"}, {"0123456789ab", strings.Repeat("n", 63), "registry.example/" + strings.Repeat("日", 60)}}
	}
	for _, width := range []int{40, 80, 81, 120} {
		var out bytes.Buffer
		if err := WriteTable(&out, rows(), width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if got := TextWidth(strings.TrimSuffix(line, "\n")); got > width {
				t.Errorf("%d columns: a line has %d: %s", width, got, line)
			}
		}
		if !strings.Contains(out.String(), "0123456789ab ") {
			t.Errorf("%d columns: the id is cut: %s", width, out.String())
		}
	}
	if got, gap := fit([]int{5, 5}, 3); !slices.Equal(got, []int{5, 5}) || gap != 1 {
		t.Errorf("a very narrow window: got %v, %d", got, gap)
	}
}

// Sentences of the last column are there to the last word, under their beginnings.
func TestFold(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"ok", "server"}, {"weaker", "日本", "one two three four five\t\x1b[2J six"}, {"", "", "  " + strings.Repeat("x", 25) + " y"}, {"note", "", ""}}
	var out bytes.Buffer
	if err := WriteTable(&out, fold(rows, 32), 32); err != nil {
		t.Fatal(err)
	}
	want := `ok       server
weaker   日本     one two three
                  four five
                  \x1b[2J six
                    xxxxxxxxxxxx
                    xxxxxxxxxxxx
                    x y
note              
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

type testLine []string

func (testLine) Headings() []string { return []string{"NAME", "WHAT"} }

func (l testLine) Row() []string { return l }

// Lines that come one after another have headings once.
func TestLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := Lines{To: &Streams{Stdout: &out}, Format: &Format{Value: "table"}}
	for _, code := range []string{"", "1"} {
		if err := l.Print(testLine{"box", "die" + code}); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME   WHAT\nbox    die\nbox    die1\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "Less than a second", 5 * time.Second: "5 seconds", 2 * time.Minute: "2 minutes", 47 * time.Hour: "47 hours", 72 * time.Hour: "3 days",
	} {
		if got := Span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1kB", 34_123_456: "34.12MB", 5e18: "5EB"} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	value := []any{
		map[string]any{
			"a": "word", "b": "two words", "c": "", "d": nil, "e": true, "f": 1.5, "g": []any{}, "h": map[string]any{},
			"i": map[string]any{"deep": []any{"x", []any{"y"}, map[string]any{"z": "no"}}}, "1": "007", "j": "a: b # c", "k": "line\nbreak\x1b\u2028", "l": "two\nlines\n",
		},
		[]any{"-", "~", "null", "0x1", "2026-11-21"},
	}
	var out bytes.Buffer
	if err := WriteYAML(&out, value); err != nil {
		t.Fatal(err)
	}
	want := `- "1": "007"
  a: word
  b: two words
  c: ""
  d: null
  e: true
  f: 1.5
  g: []
  h: {}
  i:
    deep:
    - x
    - - "y"
    - z: "no"
  j: 'a: b # c'
  k: "line\nbreak\e\L"
  l: |
    two
    lines
- - '-'
  - "~"
  - "null"
  - "0x1"
  - "2026-11-21"
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// FuzzYAML reads the YAML back and compares with the JSON.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"b",null]}`, `["on","- x","'","\"","\u0085"]`, `{"":{"y":false}}`, `[[[]]]`, `"x"`, `1e300`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteYAML(&out, want); err != nil {
			t.Fatal(err)
		}
		var got any
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in\n%s", text, err, out.String())
		}
		if got, want := plainJSON(t, got), plainJSON(t, want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v from\n%s", text, got, want, out.String())
		}
	})
}

// plainJSON takes the difference between kinds of numbers out of a value.
func plainJSON(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.NewDecoder(strings.NewReader(string(data))).Decode(&plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestOutputIsHarmless prints what a hostile sandbox may say: no terminal acts on
// it, and programs read the same.
func TestOutputIsHarmless(t *testing.T) {
	t.Parallel()
	const nasty = "\x00\x07\x1b[2J\x7f\u009b2J\u0085\u202etxt\u2066\u200f\u2028\u061c\ufeff\U000e0041\U0001f600 日本 \t\r\nend"
	for _, value := range []any{nasty, map[string]any{nasty: []any{nasty, "x"}}, []any{"two\nlines\n", "tab\there\nand\u202e"}} {
		for _, f := range []struct {
			name  string
			write func(w io.Writer) error
			read  func(data []byte, v any) error
		}{
			{"json", func(w io.Writer) error { return WriteJSON(w, value, "  ") }, json.Unmarshal},
			{"json line", func(w io.Writer) error { return WriteJSON(w, value, "") }, json.Unmarshal},
			{"yaml", func(w io.Writer) error { return WriteYAML(w, value) }, func(data []byte, v any) error { return yaml.Unmarshal(data, v) }},
		} {
			var out bytes.Buffer
			if err := f.write(&out); err != nil {
				t.Fatal(err)
			}
			for _, r := range out.String() {
				if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
					t.Errorf("%s: %q holds %q", f.name, out.String(), r)
				}
			}
			var back any
			if err := f.read(out.Bytes(), &back); err != nil || !reflect.DeepEqual(back, value) {
				t.Errorf("%s: %q is read as %q, %v\nwant %q", f.name, out.String(), back, err, value)
			}
		}
	}
	// Text that is not UTF-8, as a server can send in the midst of JSON.
	var out bytes.Buffer
	if err := WriteJSON(&out, Document("{\"a\":\"\x9b2J\"}"), ""); err != nil || out.String() != "{\"a\":\"\ufffd2J\"}\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
