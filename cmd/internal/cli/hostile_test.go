package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// impostor makes a sandbox of this machine and puts a server of the test in the
// place of its own.
func (m localMachine) impostor(answer func(w io.Writer, r *http.Request)) {
	m.t.Helper()
	id := strings.TrimSpace(m.ok("create", "--name", "box"))
	socket := filepath.Join(m.dir, "local", id, "socket")
	if err := os.Rename(socket, socket+".real"); err != nil {
		m.t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					answer(conn, r)
				}
			}()
		}
	}()
}

// attack would clear the screen, pretend to be this program, and turn text round.
const attack = "\x1b[2J\nruntimectl: all is well\r\u009b2J\u202e\x7f"

func marshal(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // all bodies are maps of strings
	}
	return text
}

// respond writes an answer, and unsolicited text after it.
func respond(w io.Writer, status int, body any) {
	text := marshal(body)
	_, _ = fmt.Fprintf(w, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s%s", status, len(text), text, attack)
}

// TestHostileServer lets a sandbox's server answer with control characters,
// wherever it may write text. None reaches a terminal, no line of it looks like
// one of this program's, and the HTTP library logs nothing.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	refusal := func(w io.Writer, _ *http.Request) {
		respond(w, http.StatusBadRequest, map[string]string{"detail": attack, "errors": attack})
	}
	denied := map[string]any{"denied": []any{map[string]any{"host": attack, "port": 1, "reason": attack, "process": attack}}}
	observation := map[string]any{"observation": "error", "content": attack, "extras": map[string]any{"error_id": attack}, "network": denied}
	recorded := map[string]any{"id": attack, "state": attack, "session": attack, "kind": attack, "text": attack, "begin": "2026-01-01T00:00:00Z", "observation": observation}
	answer := func(w io.Writer, r *http.Request) {
		switch r.URL.Path {
		case "/v1/actions":
			if r.Method == http.MethodGet {
				respond(w, 200, map[string]any{"actions": []any{recorded}})
				return
			}
			event := marshal(map[string]any{"event": "observation", "observation": observation})
			_, _ = fmt.Fprintf(w, "HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s\n%s", len(event)+1, event, attack)
		case "/v1/tools":
			respond(w, 200, map[string]any{"tools": []any{map[string]any{"name": attack, "description": attack}}})
		case "/v1/tools/call":
			respond(w, 200, map[string]any{"observation": observation, "content": attack, "is_error": true})
		case "/server_info":
			respond(w, 200, map[string]any{"version": attack, "capabilities": map[string]any{attack: map[string]any{"available": false, "detail": attack}}})
		case "/v1/actions/x/events":
			event := marshal(map[string]any{"event": "observation", "observation": observation})
			_, _ = fmt.Fprintf(w, "HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s\n%s", len(event)+1, event, attack)
		case "/v1/restore", "/v1/changes":
			path := map[string]any{"op": "created", "path": attack, "from": attack, "diff": attack, "lines": []int{1, 1}}
			respond(w, 200, map[string]any{
				"before": attack, "why": attack, "paths": []any{path, map[string]any{"op": attack, "path": attack}}, "ignored": map[string]int{attack: 1},
				"refused": []any{map[string]any{"path": attack, "why": attack}}, "lost": []string{attack},
			})
		case "/v1/changes/log":
			respond(w, 200, map[string]any{"entries": []any{map[string]any{"n": 1, "kind": attack, "before": attack, "after": attack}}})
		case "/v1/checkpoints":
			point := map[string]any{"name": attack, "state": attack, "missing": 1, "missing_paths": []string{attack}}
			if r.Method == http.MethodGet {
				open := map[string]any{"name": "attempt/" + attack, "state": attack, "expires": "9001-01-01T00:00:00Z"}
				respond(w, 200, map[string]any{"checkpoints": []any{point, open}})
				return
			}
			respond(w, 200, point)
		case "/v1/actions/x":
			respond(w, 200, recorded)
		default:
			respond(w, 200, observation)
		}
	}
	m := newLocalMachine(t)
	program := filepath.Join(programs(t), "runtimectl")
	for name, server := range map[string]func(io.Writer, *http.Request){"refusal": refusal, "answer": answer} {
		m := localMachine{t, filepath.Join(m.dir, name)}
		t.Cleanup(func() { m.ok("rm", "box") })
		m.impostor(server)
		const action = `{"action":"run","args":{"command":"x"}}`
		for _, args := range [][]string{
			{"ls"},
			{"ls", "-o", "json"},
			{"ls", "-o", "yaml"},
			{"inspect", "box"},
			{"inspect", "-o", "json", "box"},
			{"inspect", "-o", "yaml", "box"},
			{"act", "box", action},
			{"act", "-o", "yaml", "box", action},
			{"actions", "box"},
			{"actions", "-o", "json", "box"},
			{"follow", "box", "x"},
			{"wait", "box", "x"},
			{"wait", "-o", "yaml", "box", "x"},
			{"cancel", "-o", "json", "box", "x"},
			{"exec", "box", "true"},
			{"renew", "--ttl", "1h", "box"},
			{"tool", "ls", "box"},
			{"tool", "ls", "--for", "openai", "box"},
			{"tool", "call", "box", "execute_bash", "{}"},
			{"tool", "call", "-o", "yaml", "box", "execute_bash", "{}"},
			{"mcp", "box"},
			{"logs", "box"},
			{"changes", "box"},
			{"diff", "--color=always", "box", "s1"},
			{"diff", "--color=always", "--stat", "box"},
			{"undo", "box"},
			{"undo", "-o", "yaml", "box", "1"},
			{"checkpoint", "box"},
			{"checkpoint", "--list", "box"},
			{"attempt", "box"},
			{"attempt", "--discard", "box"},
			{"attempt", "-o", "yaml", "box", "--", "true"},
			{"attempt", "box", "--", "true"},
			{"bisect", "--good", "s1", "--bad", "s2", "box", "--", "true"},
			{"bisect", "-o", "json", "--good", "s1", "--bad", "s2", "box", "--", "true"},
		} {
			at := 1
			if args[0] == "tool" {
				at = 2
			}
			line := append(append(append([]string{}, args[:at]...), "--on=local", "--state-dir", m.dir), args[at:]...)
			cmd := exec.CommandContext(t.Context(), program, line...)
			cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // many fail, and say why
			colors := regexp.MustCompile(`\x1b\[[0-9]*m`)
			for _, r := range colors.ReplaceAllString(stdout.String(), "") + stderr.String() {
				if !unicode.IsGraphic(r) && r != '\n' {
					t.Errorf("%s, %q: there is %q in %q, %q", name, args, r, stdout.String(), stderr.String())
					break
				}
			}
			for line := range strings.Lines(stdout.String() + stderr.String()) {
				if strings.HasPrefix(line, "runtimectl: all is well") || strings.Contains(line, "Unsolicited") {
					t.Errorf("%s, %q: got the line %q", name, args, line)
				}
			}
		}
	}
}
