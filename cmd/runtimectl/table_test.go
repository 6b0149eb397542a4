package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := writeTable(&out, [][]string{{"A", "LONG", "C"}, {"日本", "x\x1b[2J", "last"}, {"", "y", "z\n"}})
	want := "A      LONG       C\n日本   x\\x1b[2J   last\n       y          z\\x0a\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q, %v\nwant %q", out.String(), err, want)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		2 * time.Hour: "2h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 1000 * time.Hour: "41d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 9950: "10 kB", 999499: "999 kB", 999500: "1.0 MB", 5e18: "5.0 EB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	value := []any{
		map[string]any{
			"a": "word", "b": "two words", "c": "", "d": nil, "e": true, "f": 1.5, "g": []any{}, "h": map[string]any{},
			"i": map[string]any{"deep": []any{"x", []any{"y"}, map[string]any{"z": "no"}}}, "1": "007", "j": "a: b # c", "k": "line\nbreak\x1b\u2028",
		},
		[]any{"-", "~", "null", "0x1", "2026-11-21"},
	}
	var out bytes.Buffer
	if err := writeYAML(&out, value); err != nil {
		t.Fatal(err)
	}
	want := `-
  "1": "007"
  a: word
  b: "two words"
  c: ""
  d: null
  e: true
  f: 1.5
  g: []
  h: {}
  i:
    deep:
      - x
      -
        - "y"
      -
        z: "no"
  j: "a: b # c"
  k: "line\nbreak\u001b\u2028"
-
  - "-"
  - "~"
  - "null"
  - "0x1"
  - "2026-11-21"
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A YAML reader that somebody else wrote finds in it what JSON said.
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
		if err := writeYAML(&out, want); err != nil {
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
