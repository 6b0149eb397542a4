package cli

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

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
