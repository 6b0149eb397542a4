package regex_test

import (
	"errors"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/regex"
)

// Each is short, and has a program of hundreds of thousands of instructions.
var bombs = map[string]string{
	"repetitions":        strings.TrimSuffix(strings.Repeat("(a{1,1000}z)|", 300), "|"),
	"empty repetitions":  strings.TrimSuffix(strings.Repeat("(a?){1000}", 370), "|"),
	"nested repetitions": strings.Repeat("((a?)b?){1,1000}", 240),
	"open repetitions":   strings.Repeat("(?:a{999,}b){1}", 270),
}

func TestCompileRefusesWithoutCost(t *testing.T) {
	for name, text := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := regex.Compile(text)
			runtime.ReadMemStats(&after)
			if len(text) > regex.MaxLen || !errors.Is(err, regex.ErrCostly) {
				t.Errorf("%d bytes: got %v", len(text), err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
				t.Errorf("allocated %d bytes", used)
			}
		})
	}
}

func TestCompile(t *testing.T) {
	long := strings.Repeat("a", regex.MaxLen)
	for text, want := range map[string]error{
		"":                          nil,
		`(?i)^\s*func \w+\(`:        nil,
		`[0-9a-f]{8}(-\w{4,}){3}`:   nil,
		`(?:a{100}){10}`:            nil,
		strings.Repeat(`\pL`, 1300): regex.ErrCostly,
		`\pL{1,1000}`:               nil,
		long:                        nil,
		long + "a":                  regex.ErrLong,
		"(ab){1000}|(cd){1000}":     regex.ErrCostly,
	} {
		if _, err := regex.Compile(text); !errors.Is(err, want) {
			t.Errorf("%.40q: got %v, want %v", text, err, want)
		}
	}
	var invalid *syntax.Error
	if _, err := regex.Compile("a(b"); !errors.As(err, &invalid) || invalid.Code != syntax.ErrMissingParen {
		t.Errorf("got %v", err)
	}
}

// FuzzCompile compiles what is accepted once more and counts.
func FuzzCompile(f *testing.F) {
	for _, text := range bombs {
		f.Add(text)
	}
	for _, text := range []string{"a{2,4}", "(?i)k{3,}", "(a|b*|[c-e]+?){0,5}", "(?:){1000}", "x{0}", `^\b$\A\z`, "((a{10}){10}){10}", "[^\\x00-\\x{10FFFF}]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := regex.Compile(text); err != nil {
			return
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); n > 5002 { // begins with a failure and ends with a match
			t.Fatalf("%q has %d instructions", text, n)
		}
	})
}
