package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestWant(t *testing.T) {
	t.Parallel()
	stillRuns := api.RunObservation{Content: "so far", Metadata: api.RunMetadata{
		ExitCode: -1, Suffix: "\n[The command timed out after 0.3 seconds. You may wait longer]",
	}}
	changed := api.EditObservation{Content: "edited", Diff: "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y"}
	tests := []struct {
		name  string
		want  want
		kind  string
		got   api.Observation
		err   string // "" where it is what is wanted
		words string
	}{
		{"success", want{}, "run", ran("x", 0), "", "exit code 0"},
		{"failure", want{}, "run", ran("x", 1), "the exit code is 1 instead of 0", "exit code 0"},
		{"wanted failure", want{exit: 1}, "run", ran("x", 1), "", "exit code 1"},
		{"missing failure", want{exit: 1}, "run", ran("x", 0), "the exit code is 0 instead of 1", "exit code 1"},
		{"running", want{running: true, exactly: new("so far")}, "run", stillRuns, "", `still running, exactly "so far"`},
		{"ended", want{running: true}, "run", ran("x", 0), "it ended with exit code 0 instead of running on", "still running"},
		{"nothing to poll", want{running: true}, "run", ran("ERROR: No previous running command", -1), "it ended with exit code -1 instead of running on", "still running"},
		{"runs on", want{}, "run", stillRuns, "it still runs", "exit code 0"},
		{"no output", want{exactly: new("")}, "run", ran("", 0), "", "exit code 0, no output"},
		{"some output", want{exactly: new("")}, "run", ran("x", 0), `the output is "x" instead of ""`, "exit code 0, no output"},
		{"pieces", want{holds: []string{"a", "c"}}, "run", ran("abc", 0), "", `exit code 0, says "a", says "c"`},
		{"missing piece", want{holds: []string{"a", "d"}}, "run", ran("abc", 0), `"d" is not in the output`, `exit code 0, says "a", says "d"`},
		{"diff", want{diff: []string{"-x", "+y"}}, "edit", changed, "", "diff -1 +1"},
		{"other diff", want{diff: []string{"-x", "+z"}}, "edit", changed, `the diff has the lines ["-x" "+y"] instead of ["-x" "+z"]`, "diff -1 +1"},
		{"no diff", want{diff: []string{"+z"}}, "edit", api.EditObservation{}, `the diff has the lines [] instead of ["+z"]`, "diff -0 +1"},
		{"refused", want{}, "edit", api.EditObservation{Content: "ERROR:\nno such file\nmore"}, "it was refused: no such file", ""},
		{"refused read", want{}, "read", api.ReadObservation{Content: "ERROR:\nbad range"}, "it was refused: bad range", ""},
		{"a program may say ERROR", want{}, "run", ran("ERROR: x", 0), "", "exit code 0"},
		{"error", want{}, "run", api.ErrorObservation{Content: "two commands\nat once"}, "the answer to run is error: two commands", "exit code 0"},
		{"another kind", want{holds: []string{"x"}}, "edit", ran("x", 0), "the answer to edit is run: x", `says "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := tt.want.check(tt.kind, tt.got); err != nil {
				got = err.Error()
			}
			if got != tt.err {
				t.Errorf("check = %q, want %q", got, tt.err)
			}
			if words := tt.want.words(tt.kind); words != tt.words {
				t.Errorf("words = %q, want %q", words, tt.words)
			}
		})
	}
}

func TestWantFiles(t *testing.T) {
	t.Parallel()
	w := want{files: []string{"go.mod", "a.go"}}
	if err := w.checkFiles([]string{"dir/", "a.go", "b.go", "go.mod"}); err != nil {
		t.Errorf("all are there: %v", err)
	}
	if err := w.checkFiles([]string{"a.go/", "go.mod"}); err == nil || err.Error() != "the file a.go is not there" {
		t.Errorf("a.go is a directory: %v", err)
	}
	if got := w.words("upload"); got != "has go.mod, a.go" {
		t.Errorf("words = %q", got)
	}
}

func TestChangedLines(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, input string
		want        []string
	}{
		{"none", "", nil},
		{"names only", "--- a\n+++ b\n", nil},
		{"both", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", []string{"-x", "+y"}},
		{"like names", "--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+++ y", []string{"--- x", "+++ y"}},
		{"context", "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-x\n@@ -9 +9 @@\n+\n\\ No newline at end of file", []string{"-x", "+"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := changedLines(tt.input); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestJSONReportEndsWithItsWriter(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	report := jsonReport{writerFunc(func([]byte) (int, error) { return 0, broken })}
	if err := report.end(1, part{}, runStep, result{status: passed, observation: ran("done", 0)}); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestJSONReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := step{say: "Wait.", action: api.RunAction{Command: "sleep 9"}, seconds: 0.5, want: want{running: true}}
	if err := (jsonReport{&out}).end(3, part{title: "P"}, s, result{status: skipped, reason: "why"}); err != nil {
		t.Fatal(err)
	}
	want := `{"step":3,"part":"P","say":"Wait.","call":"POST /execute_action","request":{"action":{"action":"run","args":{"command":"sleep 9",` +
		`"is_input":false,"blocking":false,"is_static":false,"cwd":null,"hidden":false,"thought":"","security_risk":0},"timeout":0.5}},` +
		`"want":"still running","status":"skipped","reason":"why"}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
