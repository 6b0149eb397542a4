package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestBisectCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("checkpoint", "box", "good")
	for i := range 6 {
		m.ok("exec", "box", "--", "sh", "-c", fmt.Sprintf("echo %d > step; test %d != 3 || touch broken\033", i, i))
	}
	m.ok("checkpoint", "box", "bad")
	var log []api.ChangeEntry
	if err := json.Unmarshal([]byte(m.ok("changes", "-o", "json", "box")), &log); err != nil {
		t.Fatal(err)
	}
	culpritN := *log[2].N
	code, stdout, stderr := m.run("bisect", "--good", "good", "box", "--bad", "bad", "--timeout", "90s", "--", "sh", "-c", "test ! -e broken*; e=$?; test $(cat step) != 2 || exit 125; exit $e")
	if want := fmt.Sprintf("action %d is the first bad one (3 tests)\n  exec: sh -c echo 3", culpritN); code != 0 || !strings.HasPrefix(stdout, want) ||
		!strings.Contains(stdout, "it may be one of these as well, which could not be tested: s") || !strings.Contains(stdout, "changes: +1 ~1 -0 >0\n  created  broken") {
		t.Errorf("exit code %d, %q, want %q", code, stdout, want)
	}
	if !regexp.MustCompile(`(?m)^s\d+, after action \d+: skip \(exit code 125\)$`).MatchString(stderr) {
		t.Errorf("got %q", stderr)
	}
	var found culprit
	if err := json.Unmarshal([]byte(m.ok("bisect", "-o", "json", "--good=good", "--bad", fmt.Sprint(*log[0].N), "box", "--", "sh", "-c", "test ! -e broken*")), &found); err != nil ||
		found.N != culpritN || found.Action.N != culpritN || found.Changes.Counts.Created != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
	code, stdout, stderr = m.run("bisect", "--good", "good", "--bad", "bad", "box", "--", "sh", "-c", `printf 'a\033\nb\n'; exit 127`)
	if code != 1 || stdout != "" || !regexp.MustCompile(`  a\\x1b\n  b\nruntimectl: the bisect has no result: the command cannot be run \(exit code 127\) in s\d+\n$`).MatchString(stderr) {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := m.ok("exec", "box", "cat", "step"); got != "5\n" || strings.Contains(m.ok("checkpoint", "--list", "box"), "bisect") {
		t.Errorf("left with %q", got)
	}
	for _, line := range []string{"bisect box --good 1 -- true", "bisect box --good 1 --bad 2 true", "bisect box --good 1 --bad 2 --", "bisect --good 1 --bad 2 -- true"} {
		if code, _, stderr := m.run(strings.Fields(line)...); code != 2 {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}

// Ctrl-C restores the present, unless another client changed something meanwhile; then it is said how to go back.
func TestBisectInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	testing := filepath.Join(m.dir, "local", strings.TrimSpace(m.ok("create", "--name", "box")), "work", "testing")
	m.ok("checkpoint", "box", "good")
	for _, step := range []string{"1", "2", "3"} {
		m.ok("exec", "box", "--", "sh", "-c", "echo "+step+" > step")
	}
	m.ok("checkpoint", "box", "bad")
	for _, foreign := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bisect := make(chan ending, 1)
		go func() {
			code, stdout, stderr := inProcess(ctx, nil, "bisect", "--on=local", "--state-dir", m.dir, "--good", "good", "--bad", "bad", "box", "--", "sh", "-c", "touch testing; sleep 1000")
			bisect <- ending{code, stdout, stderr}
		}()
		testhelp.Eventually(t, func() bool {
			_, err := os.Stat(testing)
			return err == nil
		}, "the command wrote no file")
		if foreign {
			m.ok("exec", "box", "touch", "theirs")
		}
		cancel()
		got := <-bisect
		if left := strings.Contains(got.stderr, "'runtimectl restore box before-bisect-"); got.code != command.ExitInterrupted || left != foreign {
			t.Errorf("got %+v", got)
		}
		if _, err := os.Stat(testing); (err == nil) != foreign {
			t.Errorf("the file of the test: %v", err)
		}
	}
	code, _, stderr := m.run("bisect", "--good", "good", "--bad", "bad", "box", "--", "true")
	back := regexp.MustCompile(`'runtimectl (restore box \S+)' goes back`).FindStringSubmatch(stderr)
	if code != 1 || back == nil || !strings.Contains(stderr, "a bisect is open") {
		t.Fatalf("the next one: exit code %d, %q", code, stderr)
	}
	m.ok(strings.Fields(back[1])...)
	if got := m.ok("exec", "box", "sh", "-c", "cat step; ls"); got != "3\nstep\n" {
		t.Errorf("got %q", got)
	}
}
