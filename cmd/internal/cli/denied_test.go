package cli

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// TestActionDenied: the list of actions has a mark where the network policy denied connections.
func TestActionDenied(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.impostor(func(w io.Writer, _ *http.Request) {
		one := map[string]any{
			"id": "a", "n": 2, "state": "done", "outcome": "failed", "session": "", "kind": "run", "text": "curl evil.example", "begin": "2026-01-01T00:00:00Z", "end": nil,
			"output_bytes": 0, "lasting": true, "denied": true,
		}
		other := maps.Clone(one)
		delete(other, "denied")
		other["text"] = "make"
		list := marshal(map[string]any{"actions": []any{one, other}})
		_, _ = fmt.Fprintf(w, "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(list), list)
	})
	code, stdout, stderr := m.run("action", "ls", "box")
	if code != 0 || !strings.Contains(stdout, "  [network] curl evil.example\n") || !strings.Contains(stdout, "  make\n") || strings.Count(stdout, "[network]") != 1 {
		t.Errorf("got %d, %s%s", code, stdout, stderr)
	}
}

// TestExecDenied: what the network policy denied to a command is on standard error, beside its
// own output and exit code.
func TestExecDenied(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.impostor(func(w io.Writer, _ *http.Request) {
		event := marshal(map[string]any{"event": "observation", "observation": map[string]any{
			"observation": "exec", "content": "", "extras": map[string]any{"pid": 7, "exit_code": 3},
			"network": map[string]any{"attributed": true, "more": 0, "denied": []any{
				map[string]any{"host": "evil.example", "port": 443, "reason": "not in the allow list", "count": 3, "first_ms": 12},
			}},
		}})
		_, _ = fmt.Fprintf(w, "HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s\n", len(event)+1, event)
	})
	const want = "[network] blocked by policy: evil.example:443 (3×, not in the allow list)\n"
	if code, stdout, stderr := m.run("exec", "box", "--", "true"); code != 3 || stdout != "" || stderr != want {
		t.Errorf("got %d, %q, %q", code, stdout, stderr)
	}
}
