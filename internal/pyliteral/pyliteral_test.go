package pyliteral_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/pyliteral"
)

var literals = []struct {
	text         string
	source, repr any // of Python's source, and of repr; nil where it is an error
}{
	{`'a\n\x41'`, "a\nA", "a\nA"},
	{`[1, -2.5, (True, 'b',),]`, []any{1.0, -2.5, []any{true, "b"}}, []any{pyliteral.Number("1"), pyliteral.Number("-2.5"), []any{true, "b"}}},
	{`{'a': [False]}`, nil, map[string]any{"a": []any{false}}},
	{`r'\d'`, `\d`, nil},
	{`'a' "b"`, "ab", "a"}, // the rest is not read
	{"'''a\nb'''", "a\nb", ""},
	{`'\q'`, `\q`, nil},
	{`'\101'`, "A", nil},
	{`'\ud800'`, "\uFFFD", nil},
	{"[1 # one\n]", []any{1.0}, nil},
	{`1_000`, 1000.0, nil},
	{`+.5`, 0.5, nil},
	{`1e999`, nil, pyliteral.Number("1e999")},
	{`x`, nil, nil},
	{`f'x'`, nil, nil},
	{`[[[[1]]]]`, nil, nil}, // too deep
	{`[1,1,1,1,1,1,1,1,1,1,1]`, nil, nil},
	{``, nil, nil},
}

func read(text string, repr bool) (any, error) {
	r := pyliteral.Reader{Rest: text, Line: 1, Repr: repr, MaxDepth: 3, Budget: 10}
	return r.Value()
}

func TestValue(t *testing.T) {
	t.Parallel()
	for _, test := range literals {
		for repr, want := range map[bool]any{false: test.source, true: test.repr} {
			got, err := read(test.text, repr)
			if (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, repr %t: got %#v, %v, want %#v", test.text, repr, got, err, want)
			}
		}
	}
}

func TestSyntaxError(t *testing.T) {
	t.Parallel()
	_, err := read("[1,\n 2 "+strings.Repeat("é", 50), false)
	if want := `line 2: expected , or ], found "` + strings.Repeat("é", 20) + `…"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A word means the same in both modes, and no text breaks the reader.
func FuzzValue(f *testing.F) {
	for _, test := range literals {
		f.Add(test.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		repr, err := read(text, true)
		if source, sourceErr := read(text, false); err == nil && sourceErr == nil && reflect.TypeOf(repr) == reflect.TypeFor[bool]() && source != repr {
			t.Errorf("%q: got %#v as repr and %#v as source", text, repr, source)
		}
	})
}
