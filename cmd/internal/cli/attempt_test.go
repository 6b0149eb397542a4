package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestAttemptCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	const changes = "changes of action N: +1 ~0 -0 >0\n  created  made\n"
	const open = "the attempt is open: 'runtimectl attempt --keep box' keeps what changed, 'runtimectl attempt --discard box' takes it back\n"
	number := regexp.MustCompile(`action \d+`)
	state := regexp.MustCompile(`\bs\d+`)
	for _, tt := range []struct {
		line           string // $ is a command that makes a file and ends with 0, # one that ends with 3
		code           int
		stdout, stderr string
		made           bool // the file is there after it
	}{
		{"attempt box -- $", 0, "out\n", changes + open, true},
		{"attempt box --discard", 0, "CHANGE    PATH\ndeleted   made\n", "'runtimectl restore box sN' takes this back, as another undo does\n", false},
		{"attempt box --keep", command.ExitNotFound, "", "runtimectl: no attempt is open\n", false},
		{"attempt --keep-if-succeeds box -- #", 3, "out\n", changes + "discarded\n", false},
		{"attempt box --keep-if-succeeds -- x", 127, "", "", false},
		{"attempt box --keep-if-succeeds -- $", 0, "out\n", changes + "kept\n", true},
		{"exec box -- rm made", 0, "", "", false},
		{"attempt box -- #", 3, "out\n", changes + open, true},
		{"exec box -- touch theirs", 0, "", "", true},
		{"attempt box --discard", 125, "", "runtimectl: another client changed the workspace: action N (exec), after which it was sN; 'runtimectl attempt --discard --force box' takes that back too\n", true},
		{"attempt box --keep", 0, "", "", true},
	} {
		var args []string
		for word := range strings.FieldsSeq(tt.line) {
			switch word {
			case "$":
				args = append(args, "sh", "-c", "echo out; touch made")
			case "#":
				args = append(args, "sh", "-c", "echo out; touch made; exit 3")
			default:
				args = append(args, word)
			}
		}
		code, stdout, stderr := m.run(args...)
		stderr = state.ReplaceAllString(number.ReplaceAllString(stderr, "action N"), "sN")
		if code != tt.code || stdout != tt.stdout || stderr != tt.stderr && tt.code != 127 {
			t.Errorf("%s: exit code %d, %q, %q", tt.line, code, stdout, stderr)
		}
		if code, _, _ := m.run("exec", "box", "test", "-e", "made"); (code == 0) != tt.made {
			t.Errorf("%s: the file is there: %t", tt.line, code == 0)
		}
	}
	m.ok("exec", "box", "rm", "made")
	var info struct {
		Attempt, State    string
		Observation       api.ExecObservation
		Changes, Restored *api.Changes
	}
	code, stdout, stderr := m.run("attempt", "-o", "json", "--keep-if-succeeds", "box", "--", "sh", "-c", "touch made; exit 3")
	if err := json.Unmarshal([]byte(stdout), &info); err != nil || code != 3 || stderr != "" || info.State != attemptDiscarded ||
		info.Changes.Counts.Created != 1 || info.Restored.Counts.Deleted != 1 || info.Attempt == "" {
		t.Errorf("exit code %d, %q, %q, %v", code, stdout, stderr, err)
	}
	m.ok("attempt", "box", "--", "touch", "made")
	if code, _, stderr := m.run("attempt", "box", "--", "true"); code != 125 || !regexp.MustCompile(`the attempt \S+ is open, which began at \S+; the checkpoint attempt/`).MatchString(stderr) ||
		!strings.Contains(stderr, "'runtimectl attempt --discard box' takes it back\n") {
		t.Errorf("another one: exit code %d, %q", code, stderr)
	}
	if got := m.ok("attempt", "box"); !regexp.MustCompile(`^ATTEMPT +BEFORE +BEGAN\n\S+ +s\d+ +\S+\n$`).MatchString(got) {
		t.Errorf("got %q", got)
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
	made := filepath.Join(m.dir, "local", strings.TrimSpace(m.ok("create", "--name", "box")), "work", "made")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempt := make(chan ending, 1)
	go func() {
		code, stdout, stderr := inProcess(ctx, nil, "attempt", "--on=local", "--state-dir", m.dir, "--keep-if-succeeds", "box", "--", "sh", "-c", "echo x >made; sleep 1000")
		attempt <- ending{code, stdout, stderr}
	}()
	testhelp.Eventually(t, func() bool {
		data, err := os.ReadFile(made)
		return err == nil && len(data) > 0
	}, "the command wrote no file")
	cancel()
	if got := <-attempt; got.code != command.ExitInterrupted || !strings.Contains(got.stderr, "  created  made\n") || !strings.Contains(got.stderr, "discarded\n") {
		t.Errorf("got %+v", got)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("the file is there")
	}
}

// On a terminal the person decides.
func TestAttemptOnTerminal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	for answer, made := range map[string]bool{"x\nk\n": true, "D\n": false, "\x04": true, "\x03": true} {
		y := m.onTerminal("attempt", "box", "--", "sh", "-c", "touch made; exit 1")
		y.shows("created  made")
		y.shows("[k]eep or [d]iscard")
		y.types(answer)
		open := len(answer) == 1
		if open {
			y.shows("the attempt is open: ")
		}
		y.ends(1)
		if code, _, _ := m.run("exec", "box", "test", "-e", "made"); (code == 0) != made {
			t.Errorf("%q: the file is there: %t", answer, code == 0)
		}
		if code, _, _ := m.run("attempt", "--keep", "box"); (code == 0) != open {
			t.Errorf("%q: open: %t", answer, code == 0)
		}
		m.ok("exec", "box", "rm", "-f", "made")
	}
}

// After an error it is said how the attempt is ended, but not where it did not begin.
func TestAttemptBroken(t *testing.T) {
	t.Parallel()
	for list, open := range map[string]bool{"x": false, `{"checkpoints":[]}`: true} {
		m := newLocalMachine(t)
		m.serve(map[string]string{"GET /v1/checkpoints": list, "POST /v1/checkpoints": "{}", "POST /v1/actions": "x\n"})
		code, _, stderr := m.run("attempt", "box", "--", "true")
		if code != command.ExitOwn || strings.Contains(stderr, "the attempt is open: ") != open || strings.Contains(stderr, "--discard") != open {
			t.Errorf("with the checkpoints %s: exit code %d, %q", list, code, stderr)
		}
	}
}
