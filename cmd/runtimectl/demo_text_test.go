package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
)

var (
	runStep  = step{say: "Run it.", action: api.RunAction{Command: "make"}, want: want{exactly: new("done")}}
	editStep = step{
		say:    "Change it.",
		action: api.EditAction{Command: "str_replace", Path: "/work/a.go"},
		want:   want{diff: []string{"-old", "+new"}},
	}
)

func ran(content string, exit int) api.RunObservation {
	return api.RunObservation{Content: content, Metadata: api.RunMetadata{ExitCode: exit}}
}

// A report must look like this to a person, escape sequences included.
func TestTextReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		style  style
		step   step
		result result
		want   string
	}{
		{
			name: "plain run", step: runStep,
			result: result{status: passed, observation: ran("done", 0), took: 1234 * time.Microsecond},
			want: "\n 7  Run it.\n    > run      make\n    | done\n" +
				"    ok           1.2 ms  exit code 0, exactly \"done\"\n",
		},
		{
			name: "failed run", step: runStep,
			result: result{status: failed, reason: "the exit code is 2 instead of 0", observation: ran("no \x1b[5mrule", 2), took: 2 * time.Second},
			want: "\n 7  Run it.\n    > run      make\n    | no \\x1b[5mrule\n" +
				"    FAILED      2000 ms  the exit code is 2 instead of 0\n    wanted: exit code 0, exactly \"done\"\n",
		},
		{
			name: "skipped", style: style{color: true, width: 80}, step: runStep,
			result: result{status: skipped, reason: "the sandbox has no working go"},
			want: "\n\x1b[1m 7\x1b[0m  Run it.\n\x1b[36m    > run      make\x1b[0m\n" +
				"    \x1b[33mskipped\x1b[0m the sandbox has no working go\n",
		},
		{
			name: "diff in colour", style: style{color: true, width: 24}, step: editStep,
			result: result{status: passed, took: 123 * time.Millisecond, observation: api.EditObservation{
				Content: "The file /work/a.go has been edited.\n     1\tnew\n",
				Diff:    "--- /work/a.go\n+++ /work/a.go\n@@ -1,2 +1,2 @@\n-old\n+new\n--- minus\n+++ plus\n",
			}},
			want: "\n\x1b[1m 7\x1b[0m  Change it.\n\x1b[36m    > edit     str_re...\x1b[0m\n" +
				"\x1b[2m    | \x1b[0mThe file /work/...\n" +
				"\x1b[2m    | \x1b[0m     1  new\n" +
				"\x1b[2m    | \x1b[0m\x1b[2m--- /work/a.go\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[2m+++ /work/a.go\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[36m@@ -1,2 +1,2 @@\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[31m-old\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[32m+new\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[31m--- minus\x1b[0m\n" +
				"\x1b[2m    | \x1b[0m\x1b[32m+++ plus\x1b[0m\n" +
				"    \x1b[32mok     \x1b[0m \x1b[2m     123 ms\x1b[0m  diff -1 +1\n",
		},
		{
			name: "long output", step: runStep,
			result: result{status: passed, observation: ran(strings.Repeat("line\n", 29)+"last", 0)},
			want: "\n 7  Run it.\n    > run      make\n" + strings.Repeat("    | line\n", 7) +
				"    | (19 lines left out)\n" + strings.Repeat("    | line\n", 3) + "    | last\n" +
				"    ok           0.0 ms  exit code 0, exactly \"done\"\n",
		},
		{
			name: "upload",
			step: step{
				say: "Upload it.", want: want{files: []string{"a", "b"}},
				upload: &upload{name: "x.zip", destination: "/work/x", archive: make([]byte, 4096)},
			},
			result: result{status: passed, files: []string{"a", "b", "c/"}, took: 9999 * time.Microsecond},
			want: "\n 7  Upload it.\n    > upload   x (4 KB, unpacked there)\n    | 3 names are there now\n" +
				"    ok          10.0 ms  has a, b\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			report := textReport{out: &out, style: tt.style, dir: "/work"}
			if err := errors.Join(report.begin(7, tt.step), report.end(7, part{}, tt.step, tt.result)); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("got\n%q\nwant\n%q", got, tt.want)
			}
		})
	}
}

func TestPartTitle(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report := textReport{out: &out, style: style{width: 10}}
	if err := report.part(part{title: "A long\ttitle"}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "\nA long ...\n----------\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	var sum tally
	for _, took := range []string{"30ms", "10ms", "500ms", "20ms"} {
		d, err := time.ParseDuration(took)
		if err != nil {
			t.Fatal(err)
		}
		sum.add(runStep, result{status: passed, took: d})
	}
	sum.add(editStep, result{status: failed, took: time.Millisecond / 2})
	sum.add(editStep, result{status: skipped})
	var out strings.Builder
	if err := (textReport{out: &out}).summary(&sum, 1234*time.Millisecond, "one\ntwo"); err != nil {
		t.Fatal(err)
	}
	want := `
Summary
    6 steps: 4 ok, 1 failed, 1 skipped; 1.2 s in all

    action              steps    median ms     total ms
    run                     4         25.0          560
    edit str_replace        1          0.5          0.5

Next, by hand
    one
    two
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		input       []time.Duration
		median, sum time.Duration
	}{
		{"one", []time.Duration{7}, 7, 7},
		{"odd", []time.Duration{9, 1, 5}, 5, 15},
		{"even", []time.Duration{9, 1, 5, 7}, 6, 22},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tt.input)
			if m, s := median(tt.input), total(tt.input); m != tt.median || s != tt.sum {
				t.Errorf("median %d, total %d; want %d, %d", m, s, tt.median, tt.sum)
			}
			if !slices.Equal(tt.input, before) {
				t.Errorf("the input is %v now", tt.input)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		step step
		want string
	}{
		{"run", step{action: api.RunAction{Command: "make"}}, "run      make"},
		{"limit", step{action: api.RunAction{Command: "make"}, seconds: 0.3}, "run      make   (answer within 0.3 s)"},
		{"poll", step{action: api.RunAction{}}, `run      ""`},
		{"keys", step{action: api.RunAction{Command: "C-c", IsInput: true}}, "keys     C-c"},
		{"read", step{action: api.ReadAction{Path: "/work/a/b"}}, "read     a/b"},
		{"range", step{action: api.ReadAction{Path: "/etc/hosts", ViewRange: []int{1, 2}}}, "read     /etc/hosts, lines 1 to 2"},
		{"edit", step{action: api.EditAction{Command: "undo_edit", Path: "/work/a"}}, "edit     undo_edit a"},
		{"insert", step{action: api.EditAction{Command: "insert", Path: "/worker", InsertLine: new("3")}}, "edit     insert /worker, after line 3"},
		{"other", step{action: api.WriteAction{Path: "/work/a"}}, "write"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.step.describe("/work"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
