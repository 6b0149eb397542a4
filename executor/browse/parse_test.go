package browse

import (
	"reflect"
	"strings"
	"testing"
)

var programs = []struct {
	name, program string
	want          []call
	err           string // a part
}{
	{"goto", `goto("http://a/b?c=d")`, []call{{"goto", []any{"http://a/b?c=d"}}}, ""},
	{"several", "goto('http://a')\n\n# wait\nnoop(500); go_back()\n", []call{{"goto", []any{"http://a"}}, {"noop", []any{500.0}}, {"go_back", nil}}, ""},
	{"defaults", "noop()\nclick('12')", []call{{"noop", []any{1000.0}}, {"click", []any{"12", "left", []any{}}}}, ""},
	{"named", "click(bid = '12', modifiers=['Shift', 'Alt'],)", []call{{"click", []any{"12", "left", []any{"Shift", "Alt"}}}}, ""},
	{"over lines", "fill(\n  'a1',  # the name\n  'x'\n  'y'\n)", []call{{"fill", []any{"a1", "xy"}}}, ""},
	{"bid as a number", "click(12)", []call{{"click", []any{"12", "left", []any{}}}}, ""},
	{"tuple", "select_option('1', ('a', 'b'))", []call{{"select_option", []any{"1", []any{"a", "b"}}}}, ""},
	{"negative", "scroll(-1.5, +2e2)", []call{{"scroll", []any{-1.5, 200.0}}}, ""},
	{"escapes", `fill("1", 'a\n\x41\u00e9\U0001F600\q\'\101\
b')`, []call{{"fill", []any{"1", "a\nAé\U0001F600\\q'Ab"}}}, ""},
	{"raw", `fill("1", r'C:\new\'')`, []call{{"fill", []any{"1", `C:\new\'`}}}, ""},
	{"triple", "fill('1', '''it's\n\"this\"''')", []call{{"fill", []any{"1", "it's\n\"this\""}}}, ""},
	{"two on a line", "noop(1) noop(2)", []call{{"noop", []any{1.0}}, {"noop", []any{2.0}}}, ""},
	{"windows line ends", "noop(1)\r\nnoop(2)\r\n", []call{{"noop", []any{1.0}}, {"noop", []any{2.0}}}, ""},

	{"empty", " \n# nothing\n", nil, "ValueError: the program is empty"},
	{"unknown", "eval('1')", nil, "NameError: there is no action eval; there are goto,"},
	{"attribute", "page.goto('x')", nil, `SyntaxError: line 1: expected ( after page, found ".goto('x')"`},
	{"expression", "fill('1', 'a' + 'b')", nil, "SyntaxError: line 1: expected , or ) in fill(…)"},
	{"name as value", "goto(url)", nil, "expected a string, a number or a list"},
	{"nested call", "goto(str('a'))", nil, "expected a string, a number or a list"},
	{"format string", "goto(f'{a}')", nil, "expected a string, a number or a list"},
	{"open string", "goto('a\n')", nil, "line 1: expected a string that ends"},
	{"open call", "goto('a'", nil, "expected , or ) in goto(…), found the end"},
	{"prose after a call", "noop(1) and then", nil, "line 1: expected ( after and"},
	{"an operator after a call", "noop(1) + 1", nil, `line 1: expected a call such as click("12"), found "+ 1"`},
	{"too many", "go_back(1)", nil, "TypeError: go_back takes 0 arguments and was given 1"},
	{"too few", "fill('1')", nil, "TypeError: fill needs the argument value"},
	{"twice", "noop(1, wait_ms=2)", nil, "TypeError: noop was given wait_ms twice"},
	{"unknown argument", "noop(ms=2)", nil, "TypeError: noop has no argument ms"},
	{"wrong kind", "scroll('1', 2)", nil, "ValueError: the argument delta_x of scroll must be a number"},
	{"none", "goto(None)", nil, "ValueError: the argument url of goto must be a string"},
	{"deep", "goto(" + strings.Repeat("[", 1000), nil, "expected a string, a number or a list"},
	{"long", strings.Repeat("noop(1)\n", 1000), nil, "more than 200 calls"},
	{"large", strings.Repeat(" ", maxProgram+1), nil, "longer than"},
	{"infinite", "noop(1e999)", nil, "expected a number"},
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range programs {
		got, err := parse(c.program)
		if c.err == "" && (err != nil || !reflect.DeepEqual(got, c.want)) {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || got != nil) {
			t.Errorf("%s: got %+v, %v, want an error with %q", c.name, got, err, c.err)
		}
	}
}

// FuzzParse looks for programs that break the parser, or that are understood
// otherwise when they are written down again.
func FuzzParse(f *testing.F) {
	for _, c := range programs {
		f.Add(c.program)
	}
	f.Fuzz(func(t *testing.T, program string) {
		calls, err := parse(program)
		if err != nil {
			if calls != nil || len(err.Error()) > 1000 {
				t.Errorf("got %v and %v", calls, err)
			}
			return
		}
		var again strings.Builder
		for _, c := range calls {
			again.WriteString(write(c) + "\n")
		}
		if again.Len() > maxProgram {
			return
		}
		if got, err := parse(again.String()); err != nil || !reflect.DeepEqual(got, calls) {
			t.Errorf("%s: got %v, %v, want %v", again.String(), got, err, calls)
		}
	})
}
