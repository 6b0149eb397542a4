package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// operators records which actions came from an operator.
type operators struct {
	fake
	seen []string
}

func (o *operators) Watch(_ context.Context, req api.Request, w api.Watch) (api.Observation, error) {
	word := "agent"
	if w.Operator {
		word = "operator"
	}
	if a, ok := req.Action.(api.ExecAction); ok && a.User != "" {
		word += " as " + a.User
	}
	o.seen = append(o.seen, word)
	return api.ErrorObservation{}, nil
}

// Only /v1/actions is for operators: what agents and their models compose comes by the
// other routes.
func TestOperator(t *testing.T) {
	t.Parallel()
	e := &operators{}
	s := newServer(t, withKey, func(c *server.Config) { c.Executor = e })
	const root = `{"action":{"action":"exec","args":{"command":"id","user":"root"}}}`
	keyed := func(path, body string) request {
		q := post(path, body)
		q.key = "s3cret"
		return q
	}
	streamed := keyed("/v1/actions", root)
	streamed.header = map[string]string{"Accept": linesType}
	offered := func(arguments string) request {
		q := keyed("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_bash","arguments":`+arguments+`}}`)
		q.header = map[string]string{"Accept": "application/json, text/event-stream"}
		return q
	}
	for _, tt := range []struct {
		name    string
		request request
		status  int
		want    string
	}{
		{"operator", keyed("/v1/actions", root), 200, "operator as root"},
		{"operator who reads a stream", streamed, 200, "operator as root"},
		{"legacy", keyed("/execute_action", root), 200, "agent as root"}, // which the executor refuses
		{"tool", keyed("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"id"}}`), 200, "agent"},
		{"tool with a user", keyed("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"id","user":"root"}}`), 200, ""},
		{"tool of another name", keyed("/v1/tools/call", `{"name":"exec","arguments":{"command":"id","user":"root"}}`), 200, ""},
		{"MCP", offered(`{"command":"id"}`), 200, "agent"},
		{"MCP with a user", offered(`{"command":"id","user":"root"}`), 200, ""},
		{"without the key", post("/v1/actions", root), 403, ""},
		{"as another user", keyed("/v1/actions", strings.Replace(root, `"root"`, `"daemon"`, 1)), 200, "operator as daemon"},
		{"legacy as another user", keyed("/execute_action", strings.Replace(root, `"root"`, `"daemon"`, 1)), 200, "agent as daemon"},
		{"with a directory", keyed("/v1/actions", strings.Replace(root, `"user"`, `"cwd":"/workspace","user"`, 1)), 200, "operator as root"},
	} {
		e.seen = nil
		w := tt.request.send(s)
		if got := strings.Join(e.seen, ", "); w.Code != tt.status || got != tt.want {
			t.Errorf("%s: got %d, %q: %s, want %d, %q", tt.name, w.Code, got, w.Body, tt.status, tt.want)
		}
	}
	// An id that ran as the sandbox's user does not run as root.
	first, again := keyed("/v1/actions", strings.Replace(root, `,"user":"root"`, "", 1)), keyed("/v1/actions", root)
	first.header, again.header = map[string]string{"Idempotency-Key": "one"}, map[string]string{"Idempotency-Key": "one"}
	e.seen = nil
	if w := first.send(s); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := again.send(s); w.Code != 422 || len(e.seen) != 1 {
		t.Errorf("got %d %s, after %q", w.Code, w.Body, e.seen)
	}
}
