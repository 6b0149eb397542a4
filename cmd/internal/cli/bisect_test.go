package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const testedLines = `{"event":"testing","state":"s30","n":30,"left":5}` + "\n" + `{"event":"heartbeat"}` + "\n" +
	`{"event":"tested","state":"s30","n":30,"verdict":"good","exit_code":0}` + "\n" +
	`{"event":"testing","state":"s42","n":41,"left":1}` + "\n" + `{"event":"tested","state":"s42","n":41,"verdict":"bad","exit_code":2}` + "\n"

func TestBisectCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	f := m.serve(map[string]string{
		"POST /v1/bisect":                     testedLines + `{"event":"result","n":41,"state":"s42","tests":2,"skipped":["s40"]}` + "\n",
		"GET /v1/changes/log?limit=1000":      `{"entries":[{"n":41,"kind":"exec","cause":"action","time":"2026-01-02T12:04:05Z","before":"s41","after":"s42","counts":{},"exact":true}]}`,
		"GET /v1/changes?since=s41&until=s42": `{"exact":true,"counts":{"modified":1},"paths":[{"op":"modified","path":"x\u001b"}]}`,
		"GET /v1/actions?limit=1000":          `{"actions":[{"n":42,"id":"b"},{"n":41,"id":"a","kind":"exec","text":"go\nfix\u001b"}]}`,
	})
	code, stdout, stderr := m.run("bisect", "--good", "a", "box", "--bad", "50", "--timeout", "90s", "--", "go", "test", "./it's")
	if want := "s30, after action 30: good (exit code 0)\ns42, after action 41: bad (exit code 2)\n"; code != 0 || stderr != want {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if want := "action 41 is the first bad one (2 tests)\n  exec: go\\x0afix\\x1b\nit may be one of these as well, which could not be tested: s40\n" +
		"changes: +0 ~1 -0 >0\n  modified x\\x1b\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
	if asked := f.take("POST"); !slices.Equal(asked, []string{`POST /v1/bisect {"good":"a","bad":"50","command":"'go' 'test' './it'\\''s' \u003c/dev/null","timeout":90}`}) {
		t.Errorf("asked %q", asked)
	}
	var found culprit
	if err := json.Unmarshal([]byte(m.ok("bisect", "-o", "json", "--good=1", "--bad=2", "box", "--", "true")), &found); err != nil ||
		found.N != 41 || found.Action.ID != "a" || found.Changes.Counts.Modified != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
	f.answer("POST /v1/bisect", testedLines+`{"event":"error","tests":2,"detail":"the test does not exist\n","output":"a\u001b\nb\n"}`+"\n")
	code, stdout, stderr = m.run("bisect", "--good", "a", "--bad", "50", "box", "--", "tset")
	if code != 1 || stdout != "" || !strings.HasSuffix(stderr, "  a\\x1b\n  b\nruntimectl: the bisect has no result: the test does not exist\n") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, line := range []string{"bisect box --good 1 -- true", "bisect box --good 1 --bad 2 true", "bisect box --good 1 --bad 2 --", "bisect --good 1 --bad 2 -- true"} {
		if code, _, stderr := m.run(strings.Fields(line)...); code != 2 {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}
