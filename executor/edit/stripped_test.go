package edit_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// A text whose white space does not match is found without it, but never inside a longer line or word.
func TestStrippedMatches(t *testing.T) {
	t.Parallel()
	once := []edit.Dialect{edit.OpenHands, edit.OpenHandsV1, edit.Anthropic}
	refused := []string{"", "", ""}
	for _, tt := range []struct {
		name, before, old, replacement string
		want                           []string // for openhands, openhands-v1 and anthropic; "" for no match
		gemini                         string
	}{
		{"inside a word", "return foobar\nend\n", "return foo\n", "return baz\n", refused, ""},
		{"inside a number", "port = 80801\nq\n", "port = 8080\n", "port = 9090\n", refused, ""},
		{"deletes inside a word", "import osx\nimport sys\n", "import os\n", "", refused, ""},
		{"inside a line", "return foo, bar\n", "return foo\n", "return baz\n", refused, ""},
		{"begins inside a line", "if x: return foo\n", "\nreturn foo", "\nreturn baz", refused, ""},
		{"begins inside a word", "xreturn foo\n", "  return foo", "  return baz", refused, ""},
		{"ends inside a word after a blank", "return foobar\n", "return foo ", "return baz ", refused, ""},
		{"ends inside a word of other letters", "return fooß\n", "return foo\n", "return baz\n", refused, ""},
		{"the whole word is another one", "port = 80801\nport = 8080", "port = 8080\n", "port = 9090\n", []string{"port = 80801\nport = 9090", "port = 80801\nport = 9090\n", "port = 80801\nport = 9090"}, "port = 80801\nport = 9090"},
		{"blanks at the end of the line", "a = 1  \nb\n", "a = 1\n", "a = 2\n", []string{"a = 2  \nb\n", "a = 2\nb\n", "a = 2  \nb\n"}, "a = 2\nb\n"},
		{"the end of the file", "a\nb", "b\n", "c\n", []string{"a\nc", "a\nc\n", "a\nc"}, "a\nc"},
		{"a blank before a sign", "f(a);\n", "f(a) ", "g(a)", []string{"g(a);\n", "g(a);\n", "g(a);\n"}, "g(a);\n"},
		{"other indentation", "x:\n  def f(self):\n    pass\n", "    def f(self):\n", "    def g(self):\n", []string{"x:\n  def g(self):\n    pass\n", "", "x:\n  def g(self):\n    pass\n"}, "x:\n  def g(self):\n    pass\n"},
		{"words, inside a word", "return foobar\n", "return  foo", "return  baz", refused, ""},
		{"words that are one", "inta;\n", "int  a;", "int  b;", refused, ""},
		{"words with line ends", "int  a;\nx\n", "int a;\n", "int b;\n", refused, "int b;\nx\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			try := func(c edit.Command, want string) {
				t.Helper()
				c.Path, c.OldStr, c.NewStr = b.write("f", tt.before, 0o644), &tt.old, &tt.replacement
				_, err := b.Do(c)
				if want == "" {
					want = tt.before
					wantCode(t, err, edit.CodeNoMatch)
				} else if err != nil {
					t.Errorf("%q: %v", c.Dialect, err)
				}
				if got := b.content("f"); got != want {
					t.Errorf("%q: got %q, want %q", c.Dialect, got, want)
				}
			}
			for i, dialect := range once {
				try(edit.Command{Name: "str_replace", Dialect: dialect}, tt.want[i])
			}
			try(edit.Command{Name: "replace", Dialect: edit.Gemini}, tt.gemini)
		})
	}
}

func TestOtherFormHints(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, before, old string
		dialect           edit.Dialect
		says              string
	}{
		{"line ends", "a\r\nb\r\nc\r\n", "b\nc", edit.Strands, "The same text is on line 2 with other line ends"},
		{"numbers of a view", "if a:\n    x = 1\n    y = 2\n", "     2\t    x = 1\n     3\t    y = 2", edit.Anthropic, "without the line numbers"},
		{"numbers of a draft's regions", "if a:\n    x = 1\n    y = 2\n", "2|    x = 1\n3|    y = 2", edit.OpenHandsV1, "without the line numbers"},
		{"numbers of strands", "if a:\n    x = 1\n", "     2      x = 1", edit.Strands, "without the line numbers"},
		{"numbers of a search", "if a:\n    x = 1\n", "2:    x = 1", edit.Gemini, "without the line numbers"},
		{"inside a word", "port = 80801\n", "port = 8080\n", edit.Anthropic, "Line 1 has it without the white space around it, but inside a longer line or word"},
	} {
		b := newBench(t)
		c := edit.Command{Name: "str_replace", Dialect: tt.dialect, Path: b.write("f", tt.before, 0o644), OldStr: &tt.old, NewStr: new("z")}
		if tt.dialect == edit.Gemini {
			c.Name = "replace"
		}
		_, err := b.Do(c)
		wantCode(t, err, edit.CodeNoMatch)
		if !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "100%") {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
