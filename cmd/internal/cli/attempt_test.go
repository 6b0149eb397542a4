package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// attemptAnswer is the stream of a command with an exit code.
func attemptAnswer(code string) string {
	return `{"event":"output","seq":1,"stream":"stdout","offset":0,"text":"out\n"}` + "\n" +
		`{"event":"observation","seq":2,"observation":{"observation":"exec","content":"","extras":{"pid":7,"exit_code":` + code +
		`,"signal":null,"ended_by":"exit","duration":0.1,"stdout":"out\n","stderr":""}},"attempt":"x"}` + "\n"
}

const actionFive = `{"n":5,"state":"done","changes":{"exact":true,"counts":{"created":1},"by":[5],"paths":[{"op":"created","path":"a"}]}}`

func TestAttemptCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	f := m.serve(map[string]string{"GET /v1/attempts": `{"attempts":[{"attempt":"x","action":"x","before":"s8","time":"2026-01-02T12:04:05Z"}]}`})
	f.answer("GET /v1/actions/", actionFive)
	f.answer("POST /v1/attempts/", restoredJSON("", `{"op":"deleted","path":"a"}`))
	const changes = "changes of action 5: +1 ~0 -0 >0\n  created  a\n"
	const open = "the attempt is open: 'runtimectl attempt --keep box' keeps what changed, 'runtimectl attempt --discard box' takes it back\n"
	for _, tt := range []struct {
		args, exit     string
		code           int
		stdout, stderr string
		end            string // of the attempt
	}{
		{"attempt box -- true", "0", 0, "out\n", changes + open, ""},
		{"attempt box --keep-if-succeeds -- true", "0", 0, "out\n", changes + "kept\n", "keep"},
		{"attempt --keep-if-succeeds box -- false", "3", 3, "out\n", changes + "discarded\n", "discard"},
		{"attempt --keep box", "", 0, "", "", "keep"},
		{"attempt box --discard", "", 0, "CHANGE    PATH\ndeleted   a\n", "'runtimectl restore box s8' takes this back, as another undo does\n", "discard"},
		{"attempt box", "", 0, "ATTEMPT   BEFORE   BEGAN\nx         s8       2026-01-02\n", "", ""},
	} {
		f.answer("POST /v1/attempts", attemptAnswer(tt.exit))
		f.take("")
		code, stdout, stderr := m.run(strings.Fields(tt.args)...)
		if code != tt.code || stdout != tt.stdout || stderr != tt.stderr {
			t.Errorf("%s: exit code %d, %q, %q", tt.args, code, stdout, stderr)
		}
		asked := f.take("POST /v1/attempts/")
		if tt.end == "" && len(asked) > 0 || tt.end != "" && (len(asked) != 1 || !strings.HasSuffix(asked[0], "/"+tt.end)) {
			t.Errorf("%s: asked %q", tt.args, asked)
		}
	}
	f.answer("POST /v1/attempts", attemptAnswer("3"))
	var info struct {
		Attempt, State    string
		Observation       api.ExecObservation
		Changes, Restored *api.Changes
	}
	code, stdout, stderr := m.run("attempt", "-o", "json", "--keep-if-succeeds", "box", "--", "false")
	if err := json.Unmarshal([]byte(stdout), &info); err != nil || code != 3 || stderr != "" || info.State != attemptDiscarded ||
		info.Changes.Counts.Created != 1 || info.Restored.Before != "s8" || info.Attempt == "" {
		t.Errorf("exit code %d, %q, %q, %v", code, stdout, stderr, err)
	}

	f.answer("POST /v1/attempts/", restoredJSON(`{"path":"d","why":"x"}`))
	code, _, stderr = m.run("attempt", "--keep-if-succeeds", "box", "--", "false")
	if want := changes + "discarded\nrefused: d: x\nruntimectl: 1 path could not be restored\n"; code != 3 || stderr != want {
		t.Errorf("refused: exit code %d, %q", code, stderr)
	}
	f.answer("POST /v1/attempts", "409 the attempt x is open")
	if code, _, stderr := m.run("attempt", "box", "--", "true"); code != 125 || !strings.HasSuffix(stderr, ": the attempt x is open\n") {
		t.Errorf("another one: exit code %d, %q", code, stderr)
	}
	f.answer("GET /v1/actions/", `{"n":5,"state":"done","outcome":"not_started"}`)
	f.answer("POST /v1/attempts", `{"event":"observation","seq":1,"observation":{"observation":"exec","content":"x: not found","extras":{"pid":null,"exit_code":127}}}`+"\n")
	if code, _, stderr := m.run("attempt", "--keep-if-succeeds", "box", "--", "x"); code != 127 || strings.Contains(stderr, "not known") {
		t.Errorf("not started: exit code %d, %q", code, stderr)
	}
	f.answer("GET /v1/attempts", `{"attempts":[]}`)
	if code, _, stderr := m.run("attempt", "box", "--keep"); code != 3 || stderr != "runtimectl: no attempt is open\n" {
		t.Errorf("none: exit code %d, %q", code, stderr)
	}
	for _, line := range []string{
		"attempt box true", "attempt box --", "attempt --keep --discard box", "attempt --keep box -- true", "attempt --keep-if-succeeds box", "attempt box -e 1=2 -- true",
	} {
		if code, _, stderr := m.run(strings.Fields(line)...); code != 125 || !strings.Contains(stderr, "attempt --help") {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}

// Ctrl-C ends the command, and what it changed is shown and taken back.
func TestAttemptInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempt := make(chan ending, 1)
	go func() {
		code, stdout, stderr := inProcess(ctx, nil, "attempt", "--on=local", "--state-dir", m.dir, "--keep-if-succeeds", "box", "--", "sh", "-c", "echo x >made; sleep 1000")
		attempt <- ending{code, stdout, stderr}
	}()
	testhelp.Eventually(t, func() bool {
		code, _, _ := m.run("exec", "box", "test", "-s", "made")
		return code == 0
	}, "the command wrote no file")
	cancel()
	if got := <-attempt; got.code != command.ExitInterrupted || !strings.Contains(got.stderr, "  created  made\n") || !strings.Contains(got.stderr, "discarded\n") {
		t.Errorf("got %+v", got)
	}
	if code, _, _ := m.run("exec", "box", "test", "-e", "made"); code != 1 {
		t.Error("the file is there")
	}
}

// On a terminal the person decides.
func TestAttemptOnTerminal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	f := m.serve(map[string]string{"POST /v1/attempts": attemptAnswer("1")})
	f.answer("GET /v1/actions/", actionFive)
	f.answer("POST /v1/attempts/", restoredJSON(""))
	for answer, want := range map[string]string{"x\nk\n": "keep", "D\n": "discard", "\x04": "", "\x03": ""} {
		f.take("")
		y := m.onTerminal("attempt", "box", "--", "false")
		y.shows("created  a")
		y.shows("[k]eep or [d]iscard")
		y.types(answer)
		if want == "" {
			y.shows("the attempt is open: ")
		}
		y.ends(1)
		asked := f.take("POST /v1/attempts/")
		if ended := slices.ContainsFunc(asked, func(line string) bool { return want != "" && strings.HasSuffix(line, "/"+want) }); ended != (want != "") || len(asked) > 1 {
			t.Errorf("%q: asked %q", answer, asked)
		}
	}
}
