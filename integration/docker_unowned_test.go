//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/actiond/actiond/sandbox"
)

// unowned are Perl programs that fill memory which stays when they end, so that
// the out-of-memory killer cannot give it back.
var unowned = []struct{ name, program string }{
	{"empty files", `for my $i (1 .. 400_000) { open(my $f, ">", "/dev/shm/" . ("x" x 200) . $i) or last }`},
	{"links", `for my $i (1 .. 400_000) { symlink("x" x 4000, "/dev/shm/$i") or last }`},
	{"full files", `open(my $f, ">", "/dev/shm/full"); while (defined syswrite($f, "x" x 65536)) { }`},
	{"shared memory", `for (1 .. 4096) {
		my $id = shmget(0, 1 << 20, 0600) // last;
		for (my $at = 0; $at < 1 << 20; $at += 4096) { shmwrite($id, "x", $at, 1) or last }
	}`},
	{"small segments of shared memory", `for (1 .. 200_000) { my $id = shmget(0, 1, 0600) // last; shmwrite($id, "x", 0, 1) or last }`},
	{"message queues", `my $n = 0; for (1 .. 40_000) { my $id = msgget(0, 0600) // last; while ($n < 4_000_000 && msgsnd($id, pack("l! a", 1, "x"), 0x800)) { $n++ } }`},
	{"large messages", `my $text = "x" x 8000; for (1 .. 40_000) { my $id = msgget(0, 0600) // last; while (msgsnd($id, pack("l! a*", 1, $text), 0x800)) { } }`},
	{"semaphores", `for (1 .. 1000) { semget(0, 20_000, 0600) // semget(0, 1000, 0600) // last }`},
	{"small sets of semaphores", `for (1 .. 200_000) { semget(0, 1, 0600) // last }`},
	{"POSIX message queues", `for my $i (1 .. 100_000) { open(my $f, ">", "/dev/mqueue/$i") or last }`},
}

// TestDockerUnownedMemory has agents that fill memory which belongs to no process.
// Afterwards the same server takes a large request.
func TestDockerUnownedMemory(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	all := ""
	for _, u := range unowned {
		all += "perl -e '" + u.program + "'; "
	}
	type attack struct {
		name, command string
		spec          sandbox.Spec
	}
	attacks := []attack{
		{"everything", all, sandbox.Spec{}},
		{
			"everything, read-only image", all + `for d in /tmp /home/agent /workspace; do
			perl -e 'my $d = shift; for my $i (1 .. 400_000) { open(my $f, ">", "$d/$i") or last } open(my $f, ">>", "$d/1"); while (defined syswrite($f, "x" x 65536)) { }' $d; done; rm -r /workspace/*`,
			sandbox.Spec{ReadOnly: true},
		},
	}
	for _, u := range unowned {
		attacks = append(attacks, attack{u.name, "perl -e '" + u.program + "'", sandbox.Spec{}})
	}
	for _, tt := range attacks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Image, tt.spec.Memory = image(t, debianImage), 96<<20
			s := create(t, h, tt.spec)
			before := started(t, s)
			key := keyOf(t, s)
			// A program may be killed; that does not give back what it filled.
			if _, err := runIn(t.Context(), s.Dial, key, tt.command); err != nil {
				t.Errorf("the attack's action: %v", err)
			}
			text := strings.Repeat("0123456789abcde\n", 4<<20/16)
			_, err := call(t.Context(), s.Dial, key, http.MethodPost, "/execute_action", map[string]any{"action": map[string]any{
				"action": "write", "args": map[string]any{"path": "/workspace/large", "content": text},
			}})
			if err != nil {
				t.Errorf("a large write after the attack: %v", err)
			}
			if got, _ := run(t, s, "head -c 4194304 /workspace/large | wc -c"); got != fmt.Sprint(len(text)) {
				t.Errorf("of the file there are %s bytes, want %d", got, len(text))
			}
			if after := started(t, s); after != before {
				t.Errorf("the server ended: the container was %s and is %s", before, after)
			}
		})
	}
}

// started is when the sandbox's container started, and whether it runs.
func started(t *testing.T, s *sandbox.Sandbox) string {
	t.Helper()
	var info []struct {
		State struct{ Status, StartedAt string }
	}
	if err := json.Unmarshal([]byte(dockerCLI(t, "inspect", s.Instance)), &info); err != nil {
		t.Fatal(err)
	}
	return info[0].State.Status + " since " + info[0].State.StartedAt
}
