package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestDiffCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	body, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	f := m.serve(map[string]string{
		"GET /v1/changes/log?limit=100": `{"entries":[{"n":null,"kind":"outside","cause":"outside","before":"s7","after":"s8","counts":{},"exact":true},` +
			`{"n":4,"kind":"exec","cause":"action","before":"s5","after":"s6","counts":{},"exact":true},` +
			`{"n":3,"kind":"run","cause":"action","before":"s4","after":"s5","counts":{},"exact":true}]}`,
	})
	for word, query := range map[string]string{
		"": "since=s5&until=s6", "3": "since=s4&until=s5", "s2": "since=s2", "first": "since=first", "first..": "since=first", "2..4": "since=2&until=4", "s1..first": "since=s1&until=first",
	} {
		f.answer("GET /v1/changes?diff=1&"+query, string(body))
		f.take("")
		code, stdout, stderr := m.run(slices.DeleteFunc([]string{"diff", "box", word}, func(s string) bool { return s == "" })...)
		if code != 0 || stdout != patchOf(t, &changed, false) || stderr != "" {
			t.Errorf("%q: exit code %d, %q, %q; asked %q", word, code, stdout, stderr, f.take(""))
		}
	}
	f.answer("GET /v1/changes?diff=1", string(body))
	if got := m.ok("diff", "--all", "box"); got != patchOf(t, &changed, false) {
		t.Errorf("got %q", got)
	}
	if code, _, stderr := m.run("diff", "--all", "box", "s2"); code != 2 || !strings.Contains(stderr, `leave "s2" out`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	f.answer("GET /v1/changes?diff=1&path=src&since=s2", string(body))
	if got := m.ok("diff", "box", "s2", "--path", "src", "--stat"); !strings.Contains(got, "9 files changed") {
		t.Errorf("got %q", got)
	}
	var c api.Changes
	if err := json.Unmarshal([]byte(m.ok("diff", "-o", "json", "box")), &c); err != nil || len(c.Paths) != len(changed.Paths) {
		t.Errorf("got %+v, %v", c, err)
	}
	if got := m.ok("diff", "--color=always", "box"); !strings.Contains(got, "\x1b[32m+one\x1b[0m\n") || !strings.Contains(got, `[2J\x0d`) || strings.Contains(got, "\x1b[2J") {
		t.Errorf("got %q", got)
	}
	for word, code := range map[string]int{"9": 3, "none": 3, "..4": 2, "0": 2} {
		if got, _, stderr := m.run("diff", "box", word); got != code {
			t.Errorf("%q: exit code %d, %q", word, got, stderr)
		}
	}
	f.answer("GET /v1/changes/log?limit=100", `{"entries":[]}`)
	if code, stdout, stderr := m.run("diff", "box"); code != 0 || stdout != "" || stderr != "nothing has changed yet\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := m.ok("diff", "-o", "json", "box"); json.Unmarshal([]byte(got), &c) != nil || len(c.Paths) != 0 || !c.Exact {
		t.Errorf("got %q", got)
	}
}

// On a terminal the pager gets the text, in colours, and nothing in it acts on the terminal.
func TestDiffOnTerminal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	body, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	m.serve(map[string]string{"GET /v1/changes?diff=1&since=s2": string(body)})
	env := func(pager, rest string) []string {
		return []string{"PAGER=" + pager, "TERM=xterm", rest}
	}
	y := m.onTerminalWith(env("cat -v | sed 's/^/> /'", ""), "diff", "box", "s2")
	y.shows("> ^[[1mdiff --git a/d/new b/d/new^[[0m\r\n")
	y.shows("> ^[[36m@@ -1,3 +1,3 @@ func x^[[0m\r\n")
	y.shows(`> ^[[32m+\x1b[2J\x0d^[[0m` + "\r\n")
	y.ends(0)
	y = m.onTerminalWith(env("no-such-pager", "NO_COLOR=1"), "diff", "box", "s2")
	y.shows("\r\ndiff --git a/empty b/empty\r\n")
	y.shows("\r\nmeta mode")
	y.ends(0)
	y = m.onTerminalWith(env("false", "NO_COLOR=1"), "diff", "--no-pager", "box", "s2")
	y.shows("diff --git a/d/new b/d/new\r\n")
	y.ends(0)
	y = m.onTerminalWith(env("head -1", "NO_COLOR=1"), "diff", "box", "s2")
	y.shows("diff --git a/d/new b/d/new\r\n")
	y.ends(0)
}
