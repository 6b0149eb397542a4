package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func FuzzLiteral(f *testing.F) {
	for _, s := range []string{
		`{}`, `{'a': 'b', "c": [1, -2.5, (True, False, None,),], 'd': {},}`, `{'\x41\u00e9\U0001F680\\\'\n': ""}`, `{'a': 'b`, `{'a' 1}`, `{1: 2}`,
		`{'a': \'}`, `{'a': '\q'}`, `{'a': '\ud800'}`, `{'a': open()}`, `{'a': ` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`, `{'a': '\x4`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		code, err := json.Marshal("print(file_editor(**" + text + "))")
		if err != nil {
			t.Fatal(err)
		}
		args := members{"command": jsontext.Value(`"view"`), "path": jsontext.Value(`"p"`)}
		mergeTranslated(args, code)
		if string(args["command"]) == `"view"` {
			t.Fatal("the command view stayed")
		}
		for name, raw := range args {
			if !raw.IsValid() {
				t.Fatalf("%s: %q is not JSON", name, raw)
			}
		}
	})
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       any // nil where it is no literal
	}{
		{"empty", `{}`, map[string]any{}},
		{
			"everything", `{'a': 'b', "c": [1, -2.5, (True, False, None,),], 'd': {},}`,
			map[string]any{"a": "b", "c": []any{json.Number("1"), json.Number("-2.5"), []any{true, false, nil}}, "d": map[string]any{}},
		},
		{"escapes", `{'a': '\x41\u00e9\U0001F680\\\'\"\n\r\t\a\b\f\v'}`, map[string]any{"a": "Aé🚀\\'\"\n\r\t\a\b\f\v"}},
		{"blanks", "{\n 'a' :\t1 }", map[string]any{"a": json.Number("1")}},
		{"open string", `{'a': 'b}`, nil},
		{"open dict", `{'a': 1`, nil},
		{"no colon", `{'a' 1}`, nil},
		{"no comma", `{'a': 1 'b': 2}`, nil},
		{"a key that is no string", `{1: 2}`, nil},
		{"a call", `{'a': open('b')}`, nil},
		{"unknown escape", `{'a': '\q'}`, nil},
		{"half of a pair", `{'a': '\ud800'}`, nil},
		{"beyond Unicode", `{'a': '\U00110000'}`, nil},
		{"cut escape", `{'a': '\x4`, nil},
		{"newline in a string", "{'a': '\n'}", nil},
		{"too deep", `{'a': ` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`, nil},
		{"too much", `{'a': [` + strings.Repeat("1,", maxValues) + `]}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := literal(tt.text)
			if !ok {
				got = nil
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}
