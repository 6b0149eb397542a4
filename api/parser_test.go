package api

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParser compares the parser with encoding/json, which is looser in
// nothing but UTF-8 and stricter in nothing but depth.
func FuzzParser(f *testing.F) {
	for _, s := range []string{
		`null`, ` true `, `[]`, `{}`, `-0.5e+10`, `0`, `01`, `1.`, `-`, `"a"`, `"\u00e9\ud83d\ude80\ud800\n\/"`, `"\x"`, `"` + "\n" + `"`,
		`{"a":[1,{"b":null},"c"],"a":2}`, `[1,]`, `{"a":1,}`, `{"a"}`, `nul`, `[1 2]`, `"a`, `"\`, "\xff", "\"\xff\"", `1 2`, "\x00", strings.Repeat("[", 1100),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parse(data)
		want, wantErr := oracle(data)
		if deep := strings.Count(string(data), "[") + strings.Count(string(data), "{"); deep > maxDepth {
			return
		}
		if !utf8.Valid(data) {
			if err == nil {
				t.Fatalf("took %q", data)
			}
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: got %v, encoding/json %v", data, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, encoding/json %#v", data, got, want)
		}
		p := parser{data: data}
		if skipErr := p.skip(); err == nil && (skipErr != nil || p.end() != nil) {
			t.Fatalf("%q: skip: %v", data, skipErr)
		} else if err != nil && skipErr == nil && p.end() == nil {
			t.Fatalf("%q: skipped in spite of %v", data, err)
		}
	})
}

func parse(data []byte) (any, error) {
	p, err := newParser(data)
	if err != nil {
		return nil, err
	}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	return v, p.end()
}

func oracle(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return v, nil
}

func FuzzLiteral(f *testing.F) {
	for _, s := range []string{
		`{}`, `{'a': 'b', "c": [1, -2.5, (True, False, None,),], 'd': {},}`, `{'\x41\u00e9\U0001F680\\\'\n': ""}`, `{'a': 'b`, `{'a' 1}`, `{1: 2}`,
		`{'a': \'}`, `{'a': '\q'}`, `{'a': '\ud800'}`, `{'a': open()}`, `{'a': ` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`, `{'a': '\x4`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := map[string]any{"command": "view", "path": "p"}
		mergeTranslated(args, "print(file_editor(**"+text+"))")
		if args["command"] == "view" {
			t.Fatal("the command view stayed")
		}
		for name, v := range args {
			if n, ok := v.(json.Number); ok && !json.Valid([]byte(n)) {
				t.Fatalf("%s: %q is no number", name, n)
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
		{"too much", `{'a': [` + strings.Repeat("1,", maxArgs) + `]}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := literal{text: tt.text, budget: maxArgs}
			got, ok := l.value(0)
			if !ok {
				got = nil
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}

// TestPlainLen finds the first special byte at every place of a text, also
// beside bytes that lie at the bounds.
func TestPlainLen(t *testing.T) {
	for _, around := range []string{" ", "!", "#", "[", "]", "\x7f", "\x80", "\xff", "é", "a"} {
		for length := range 40 {
			text := strings.Repeat(around, length)
			if got := plainLen([]byte(text)); got != len(text) {
				t.Fatalf("%d times %q: %d", length, around, got)
			}
			for special := range 256 {
				want := special < ' ' || special == '"' || special == '\\'
				got := plainLen([]byte(text + string([]byte{byte(special)}) + around))
				if want && got != len(text) || !want && got != len(text)+1+len(around) {
					t.Fatalf("%d times %q, then %q: %d", length, around, byte(special), got)
				}
			}
		}
	}
}
