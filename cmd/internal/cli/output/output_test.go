package output

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, input, want string }{
		{"text", "plain, grün, 日本", "plain, grün, 日本"},
		{"empty", "", ""},
		{"tabs", "\ta\tb", "        a       b"},
		{"tab after wide", "日本\tx", "日本    x"},
		{"tab after an escape", "\x00\tx", `\x00    x`},
		{"escape sequence", "\x1b[31mred\x1b]0;title\x07", `\x1b[31mred\x1b]0;title\x07`},
		{"carriage return, delete", "a\rb\x7f", `a\x0db\x7f`},
		{"C1 control", "a\u009b31m", `a\u009b31m`},
		{"right to left", "a\u202eb", `a\u202eb`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"invalid UTF-8", "a\xffb\xc3", `a\xffb\xc3`},
		{"replacement character", "a\ufffdb", "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Clean(tt.input); got != tt.want {
				t.Errorf("clean(%q) = %q, want %q", tt.input, got, tt.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, input string
		width       int
		want        string
	}{
		{"any width", "abcdef", 0, "abcdef"},
		{"fits", "abcdef", 6, "abcdef"},
		{"too long", "abcdefg", 6, "abc..."},
		{"bytes are not columns", "äöüäöü", 6, "äöüäöü"},
		{"wide fits", "日本語", 6, "日本語"},
		{"wide does not", "日本語x", 6, "日..."},
		{"combining", "e\u0301e\u0301e\u0301e\u0301", 4, "e\u0301e\u0301e\u0301e\u0301"},
		{"combining cut", "e\u0301e\u0301e\u0301e\u0301e", 4, "e\u0301..."},
		{"tiny", "abcdef", 2, ".."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Cut(tt.input, tt.width); got != tt.want {
				t.Errorf("cut(%q, %d) = %q, want %q", tt.input, tt.width, got, tt.want)
			}
		})
	}
}

// Whatever a sandbox says, a line of it moves no cursor and fits.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{"", "a\tb", "\x1b[2J", "日本語 text", "e\u0301", "\xff\xfe", "\u202e"} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, line string, width int) {
		if width < 1 || width > 500 {
			return
		}
		got := Cut(Clean(line), width)
		column := 0
		for _, r := range got {
			if !unicode.IsGraphic(r) {
				t.Errorf("%q holds %q", got, r)
			}
			column += columns(r)
		}
		if column > width || !utf8.ValidString(got) {
			t.Errorf("%q has %d columns of %d", got, column, width)
		}
	})
}

func TestShorten(t *testing.T) {
	t.Parallel()
	lines := strings.Split("a b c d e f g h i j", " ")
	tests := []struct {
		name       string
		lines      []string
		head, tail []string
		left       int
	}{
		{"none", nil, nil, nil, 0},
		{"all", lines[:6], lines[:6], nil, 0},
		{"one too many", lines[:7], lines[:3], lines[5:7], 2},
		{"many", lines, lines[:3], lines[8:], 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			head, left, tail := Shorten(tt.lines, 6)
			if !slices.Equal(head, tt.head) || left != tt.left || !slices.Equal(tail, tt.tail) {
				t.Errorf("got %q, %d, %q\nwant %q, %d, %q", head, left, tail, tt.head, tt.left, tt.tail)
			}
		})
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"colours", map[string]string{"TERM": "xterm"}, ""},
		{"variable", map[string]string{"TERM": "xterm", "NO_COLOR": "0"}, "NO_COLOR is set"},
		{"empty variable", map[string]string{"TERM": "xterm", "NO_COLOR": ""}, ""},
		{"dumb", map[string]string{"TERM": "dumb"}, "TERM is dumb"},
		{"no TERM", nil, "TERM is not set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &Streams{Getenv: func(name string) string { return tt.env[name] }}
			if got := s.plain(); got != tt.want {
				t.Errorf("plain = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStyleWithoutTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, out := range []io.Writer{file, io.Discard} {
		s := &Streams{Stdout: out, Getenv: func(string) string { return "xterm" }}
		if style, plain := s.Style(); style != (Style{}) || plain != "standard output is not a terminal" {
			t.Errorf("style on %T = %+v, %q", out, style, plain)
		}
	}
}
