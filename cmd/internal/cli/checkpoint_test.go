package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestCheckpointCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	f := m.serve(map[string]string{
		"POST /v1/checkpoints":         `{"name":"a/b","state":"s3","time":"2026-01-02T12:04:05Z","missing":2,"missing_paths":["big\u001b"]}`,
		"GET /v1/checkpoints":          `{"checkpoints":[{"name":"a/b","state":"s3","time":"2026-01-02T12:04:05Z","missing":2},{"name":"c","state":"s5","time":"2026-01-02T12:04:05Z","missing":0}]}`,
		"DELETE /v1/checkpoints/a%2Fb": ``,
	})
	code, stdout, stderr := m.run("checkpoint", "--verify", "--wait", "0s", "--expires", "1d", "box", "a/b")
	if code != 0 || stdout != "a/b\n" || !strings.HasSuffix(stderr, "2 files, whose contents are not kept:\n  big\\x1b\n") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	m.ok("checkpoint", "box")
	asked := f.take("POST")
	var sent api.CheckpointRequest
	if len(asked) != 2 || asked[0] != `POST /v1/checkpoints {"name":"a/b","verify":true,"wait_seconds":0,"expires_seconds":86400}` ||
		json.Unmarshal([]byte(strings.TrimPrefix(asked[1], "POST /v1/checkpoints ")), &sent) != nil || api.CheckCheckpointName(sent.Name) != nil {
		t.Errorf("asked %q", asked)
	}
	if got := m.ok("checkpoint", "--list", "box"); got != "NAME   STATE   MADE         MISSING\na/b    s3      2026-01-02   2\nc      s5      2026-01-02   0\n" {
		t.Errorf("got %q", got)
	}
	var list []api.Checkpoint
	if err := json.Unmarshal([]byte(m.ok("checkpoint", "--list", "-o", "json", "box")), &list); err != nil || len(list) != 2 || list[1].State != "s5" {
		t.Errorf("got %+v, %v", list, err)
	}
	m.ok("checkpoint", "box", "--remove", "a/b")
	if asked := f.take("DELETE"); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
	for line, want := range map[string]string{
		"restore --on local STATE box ": "a/b c", "restore --on local STATE ": "box", "diff --on local STATE box a": "a/b",
		"checkpoint --on local STATE box --remove ": "a/b c", "bisect --on local STATE box --good ": "a/b c", "undo --on local STATE box ": "",
	} {
		if got := completions(t, m.dir, line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"checkpoint box s4", "checkpoint box --list x", "checkpoint box x --remove y", "checkpoint box --list --remove y", "checkpoint box --verify --list", "checkpoint box --wait 1s --list", "checkpoint box --expires 1s --remove y", "checkpoint box --remove="} {
		if code, _, stderr := m.run(strings.Fields(line)...); code != 2 {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
	f.answer("GET /v1/checkpoints", `{"checkpoints":[]}`)
	if got := m.ok("checkpoint", "--list", "-o", "json", "box"); got != "[]\n" {
		t.Errorf("got %q", got)
	}
}
