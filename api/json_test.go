package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/api"
)

// FuzzDecodeJSON compares with encoding/json, which is looser about UTF-8 and has
// another limit to depth and none to the number of values.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{
		`null`, ` true `, `[]`, `{}`, `-0.5e+10`, `0`, `01`, `1.`, `-`, `"a"`, `"\u00e9\ud83d\ude80\ud800\n\/"`, `"\n\"a\\\/\r\tb\\"`, `"\n\f\b"`, `"a\n\u00e9\\"`, `"\x"`, `"` + "\n" + `"`,
		`{"a":[1,{"b":null},"c"],"a":2}`, `{"a":{"b":1},"a":{"c":2}}`, `[1,]`, `{"a":1,}`, `{"a"}`, `nul`, `[1 2]`, `"a`, `"\`, "\xff", "\"\xff\"", `1 2`, "\x00", strings.Repeat("[", 1100),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 || strings.Count(text, "[")+strings.Count(text, "{") > 1000 {
			return
		}
		got, err := api.DecodeJSON(text)
		if !utf8.ValidString(text) {
			if err == nil {
				t.Fatalf("took %q", text)
			}
			return
		}
		want, wantErr := oracle(text)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: got %v, encoding/json %v", text, err, wantErr)
		}
		if err != nil || strings.Contains(strings.ToLower(text), `\ud`) { // half of a surrogate pair is no string here
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, encoding/json %#v", text, got, want)
		}
	})
}

func oracle(text string) (any, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
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

func TestDecodeJSONLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"deep enough", strings.Repeat("[", 1000) + strings.Repeat("]", 1000), ""},
		{"too deep", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "nested deeper than 1000 levels"},
		{"many values", "[" + strings.Repeat("1,", 9998) + "1]", ""},
		{"too many values", "[" + strings.Repeat("1,", 9999) + "1]", "too many values"},
		{"names are not values", "{" + strings.Repeat(`"a":1,`, 9998) + `"a":1}`, ""},
		{"too many members", "{" + strings.Repeat(`"a":1,`, 9999) + `"a":1}`, "too many values"},
		{"too many empty lists", "[" + strings.Repeat("[],", 9999) + "1]", "too many values"},
		{"nothing", " ", "ends where a value should stand, after 1 bytes"},
		{"more than one value", "{} {}", "where the end should stand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := api.DecodeJSON(tt.text)
			if tt.want == "" && (err != nil || v == nil) {
				t.Errorf("got %v, %v, want a value", v, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A value tells what it is: half of a surrogate pair is not a text.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`null`: "null", `true`: "true", `1.50`: "the number 1.50", `"a"`: `the string "a"`, `[1]`: "a list", `{"a":1}`: "an object",
		`"\ud800"`:       "a string with half of a surrogate pair, which is no character",
		`"\ud83d\ude80"`: `the string "🚀"`,
	} {
		v, err := api.DecodeJSON(text)
		if got := api.Describe(v); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestIntegral(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want int
		ok   bool
	}{
		{"0", 0, true},
		{"-7", -7, true},
		{"2.0", 2, true},
		{"1e2", 100, true},
		{"-1.0", -1, true},
		{"9223372036854775807", 9223372036854775807, true},
		{"2.5", 0, false},
		{"1e17", 0, false},
		{"9223372036854775808", 0, false},
		{"1e999", 0, false},
		{"", 0, false},
		{"x", 0, false},
		{"\"1\"", 0, false},
	} {
		if n, ok := api.Integral(tt.text); n != tt.want || ok != tt.ok {
			t.Errorf("%q: got %d, %t, want %d, %t", tt.text, n, ok, tt.want, tt.ok)
		}
	}
}

// TestEncodedContent compares with the library, which quotes all other texts.
func TestEncodedContent(t *testing.T) {
	t.Parallel()
	texts := []string{"", `"content":"`, "a\u2028b\u007f", "日本語\n", "\xff", "half \xe6\x97", strings.Repeat("é", 9)}
	for c := range 256 {
		for n := range 18 { // before, in and behind a group of eight
			texts = append(texts, strings.Repeat("x", n)+string([]byte{byte(c)})+"y\n\"z")
		}
	}
	for _, text := range texts {
		checkContent(t, text)
	}
}

func FuzzEncodedContent(f *testing.F) {
	f.Add("plain text\nwith \"quotes\"", "\x00\xff é")
	f.Fuzz(func(t *testing.T, a, b string) { checkContent(t, a+b) })
}

func checkContent(t *testing.T, text string) {
	t.Helper()
	quoted, _ := jsontext.AppendQuote([]byte(`"content":`), text) // of text that is not UTF-8, too
	data, err := api.EncodeObservation(api.ReadObservation{Path: `"content":"`, Content: text})
	if err != nil || !bytes.Contains(data, append(quoted, `,"extras":{`...)) {
		t.Fatalf("%q: got %s, %v, want %s in it", text, data, err, quoted)
	}
}
