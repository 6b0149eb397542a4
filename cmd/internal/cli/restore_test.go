package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func restoredJSON(refused string, paths ...string) string {
	return fmt.Sprintf(`{"before":"s8","after":"s9","exact":true,"counts":{"created":%d,"modified":0,"deleted":0,"renamed":0,"meta":0},"paths":[%s],`+
		`"truncated":false,"dry_run":false,"refused":[%s],"refused_count":%d}`, len(paths), strings.Join(paths, ","), refused, len(refused)/len(`{"path":"d","why":"x"}`))
}

func TestRestoreCommands(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	const made = "CHANGE    PATH\ncreated   a/b\n"
	const back = "'runtimectl restore box s8' takes this back, as another undo does\n"
	file := `{"op":"created","path":"a/b"}`
	f := m.serve(map[string]string{"POST /v1/restore": restoredJSON("", file)})
	for _, tt := range []struct {
		args string
		body string
		code int
		// They are all of it, "" for what a usage error says.
		stdout, stderr string
	}{
		{args: "undo box", body: `{"last":true}`, stdout: made, stderr: back},
		{args: "undo box 17", body: `{"before":17}`, stdout: made, stderr: back},
		{args: "undo --only box 17", body: `{"only":17}`, stdout: made, stderr: back},
		{args: "undo box 17 --path a --path b --force", body: `{"before":17,"paths":["a","b"],"force":true}`, stdout: made, stderr: back},
		{args: "restore box s4 --dry-run", body: `{"to":"s4","dry_run":true}`, stdout: made, stderr: back},
		{args: "restore box 17 --path a", body: `{"to":"17","paths":["a"]}`, stdout: made, stderr: back},
		{args: "undo --only box", code: 2},
		{args: "undo --only box 3 --path a", code: 2},
		{args: "undo box s4", code: 2},
		{args: "undo box 0", code: 2},
		{args: "restore box", code: 2},
	} {
		words := strings.Fields(tt.args)
		code, stdout, stderr := m.run(words...)
		asked := f.take("POST")
		if code != tt.code || code == 0 && (stdout != tt.stdout || stderr != tt.stderr) || code == 2 && len(asked) > 0 {
			t.Errorf("%s: exit code %d, %q, %q, asked %q", tt.args, code, stdout, stderr, asked)
		}
		if tt.body != "" && !slices.Equal(asked, []string{"POST /v1/restore " + tt.body}) {
			t.Errorf("%s: asked %q", tt.args, asked)
		}
	}
	var r api.Restored
	if err := json.Unmarshal([]byte(m.ok("undo", "-o", "json", "box")), &r); err != nil || r.Before != "s8" || len(r.Paths) != 1 || r.Refused == nil {
		t.Errorf("got %+v, %v", r, err)
	}

	f.answer("POST /v1/restore", restoredJSON(`{"path":"d","why":"x"}`, file))
	code, stdout, stderr := m.run("undo", "box")
	if want := back + "refused: d: x\nruntimectl: 1 path could not be restored\n"; code != 1 || stdout != made || stderr != want {
		t.Errorf("refused: exit code %d, %q, %q", code, stdout, stderr)
	}
	f.answer("POST /v1/restore", strings.Replace(restoredJSON(""), `"refused_count":0`,
		`"refused_count":2,"lost":["l\u001b"],"unread":["u"],"split":[{"base64":"/w=="}],"living":[7,8]`, 1))
	code, stdout, stderr = m.run("undo", "box")
	for _, want := range []string{`not kept: l\x1b`, "differ: u\n", `names: \xff`, "2 processes", "7 8\n", "runtimectl: 2 paths could not be restored, 2 of them not named\n", "nothing had to change\n"} {
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %q, %q, want %q", code, stdout, stderr, want)
		}
	}
	f.answer("POST /v1/restore", "409 action 3 runs")
	if code, _, stderr := m.run("restore", "box", "s1"); code != 5 || !strings.Contains(stderr, "action 3 runs") {
		t.Errorf("busy: exit code %d, %q", code, stderr)
	}
}
