package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// The changes of a command are shown beside its output, and later from the log.
func TestChanges(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	code, stdout, stderr := m.run("exec", "--changes", "box", "--", "sh", "-c", "echo out; echo > a; mkdir d; echo > d/b")
	if want := "+3 ~0 -0 >0\n  created  a\n  created  d\n  created  d/b\n"; code != 0 || stdout != "out\n" || !strings.HasSuffix(stderr, want) {
		t.Errorf("exec: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = m.run("act", "--changes", "box", `{"action": "run", "args": {"command": "rm a; mv d e"}}`)
	changes, err := api.ChangesIn([]byte(stdout))
	if code != 0 || err != nil || changes == nil || changes.Counts != (api.ChangeCounts{Deleted: 1, Renamed: 1}) {
		t.Errorf("act: exit code %d, %q, %q, %v", code, stdout, stderr, err)
	}
	lines := strings.Split(m.ok("changes", "box"), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[1], "+0 ~0 -1 >1   rm a; mv d e") || !strings.Contains(lines[2], "+3 ~0 -0 >0   sh -c echo out") {
		t.Errorf("got %q", lines)
	}
	var entries []api.ChangeEntry
	if err := json.Unmarshal([]byte(m.ok("changes", "-o", "json", "-n", "1", "box")), &entries); err != nil || len(entries) != 1 || entries[0].Kind != "run" {
		t.Errorf("got %+v, %v", entries, err)
	}
	table := m.ok("changes", "--since", entries[0].Before, "--path", "e", "box")
	if !strings.Contains(table, "renamed") || !strings.Contains(table, "d -> e") || strings.Contains(table, "deleted") {
		t.Errorf("got %s", table)
	}
	if code, _, stderr := m.run("changes", "--since", "s99999", "box"); code == 0 || !strings.Contains(stderr, "There is no state") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("changes", "--path", "a", "box"); code != 2 || !strings.Contains(stderr, "need --since") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("log", "box"); code != 2 || !strings.Contains(stderr, "runtimectl changes") {
		t.Errorf("log: exit code %d, %q", code, stderr)
	}
}

// A watch prints one line for each path.
func TestWatchCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	line := `{"after":"s4","by":[3],"exact":true,"counts":{"created":1},"paths":[{"op":"created","path":"a\u001b"},{"op":"deleted","path":"b"}]}` + "\n"
	end := `{"event":"error","status":410,"detail":"gone"}` + "\n"
	m.serve(map[string]string{"GET /v1/changes?path=src&watch=1": line + end, "GET /v1/changes?since=s3&watch=1": line + end})
	code, stdout, stderr := m.run("changes", "box", "--watch", "--path", "src")
	if want := "STATE   BY   CHANGE    PATH\ns4      3    created   a\\x1b\ns4      3    deleted   b\n"; code != 3 || stdout != want || !strings.Contains(stderr, "gone") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	var found watchedChanges
	_, stdout, _ = m.run("changes", "box", "-w", "--since", "s3", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || len(found.Paths) != 2 || strings.Count(stdout, "\n") != 1 {
		t.Errorf("got %q, %v", stdout, err)
	}
	if code, _, _ := m.run("changes", "box", "--watch", "--until", "s4", "--since", "s3"); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

// Names in the sandbox cannot write to the terminal.
func TestHostileChanges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	list := pathList{Paths: []api.ChangedPath{api.NewChangedPath("renamed", "b\x1b[2J\xff", "a\nb")}}
	if err := output.WriteTable(&out, list.Table(), 80); err != nil {
		t.Fatal(err)
	}
	printRest(&out, &api.Changes{Ignored: map[string]int{"\x1b]0;x\a": 1}, Why: "unsure"})
	if got := out.String(); strings.ContainsAny(got, "\x1b\a") || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q", got)
	}
}
