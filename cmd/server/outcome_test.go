package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// told is what an answer says of how an action went.
type told struct {
	State       string      `json:"state"`
	Outcome     api.Outcome `json:"outcome"`
	Code        string      `json:"code"`
	IsError     bool        `json:"is_error"`
	ErrorCode   string      `json:"error_code"`
	Observation *told       `json:"observation"`
}

func readTold(t *testing.T, body string) told {
	t.Helper()
	var raw struct {
		told
		Observation json.RawMessage `json:"observation"` // that of an observation is the name of its kind
	}
	if err := json.Unmarshal([]byte(body), &raw); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if strings.HasPrefix(string(raw.Observation), "{") {
		raw.told.Observation = new(readTold(t, string(raw.Observation)))
	}
	return raw.told
}

// Every kind of end is told in the same words by the answer, the record, the list, the events,
// a tool call and MCP, also after the server was killed.
func TestOutcomesAgree(t *testing.T) {
	t.Parallel()
	s := newServer(t, buildServer(t), []string{"SESSION_API_KEY=k"})
	s.start()
	post := func(id, action string, header ...string) (status int, answer string) {
		return s.do("POST", "/v1/actions", strings.NewReader(`{"id":"`+id+`","action":`+action+`}`), header...)
	}
	async := []string{"Prefer", "respond-async"}
	await := func(id, state string) {
		testhelp.Eventually(t, func() bool {
			_, record := s.do("GET", "/v1/actions/"+id, nil)
			return strings.Contains(record, `"state":"`+state+`"`)
		}, "%s is %s", id, state)
	}
	cancelled := func(id, state string) {
		await(id, state)
		if status, answer := s.do("DELETE", "/v1/actions/"+id+"?wait=60", nil); status != 200 {
			t.Errorf("cancelling %s: %d %s", id, status, answer)
		}
	}
	run := func(session, command, more string) string {
		return fmt.Sprintf(`{"action":"run","args":{"command":%q,"blocking":true}%s,"session":%q}`, command, more, session)
	}
	program := func(args string) string { return `{"action":"exec","args":{` + args + `}}` }
	for _, session := range []string{"late", "tool-late", "mcp-tool-late"} { // whose shells start in their own time
		post("first-"+session, run(session, "true", ""))
	}
	// Two running actions and a waiting one, until the crash.
	for id, action := range map[string]string{"run-unknown": run("dies", "sleep 1000", ""), "exec-unknown": program(`"command":"sleep 1000"`)} {
		post(id, action, async...)
		await(id, "running")
	}
	post("run-refused", run("dies", "true", ""), async...)
	await("run-refused", "reserved")

	type row struct {
		id, action      string
		during          string // the state in which it is cancelled, "" for never
		tool, arguments string // the same as a tool call, "" for none
		outcome         api.Outcome
		code, state     string
		toolSession     string
	}
	rows := []row{
		{id: "run-ok", action: run("a", "true", ""), tool: "execute_bash", arguments: `{"command":"true"}`, outcome: "succeeded"},
		{id: "run-failed", action: run("a", "(exit 3)", ""), tool: "execute_bash", arguments: `{"command":"(exit 3)"}`, outcome: "failed", code: "command_failed"},
		{id: "run-late", action: run("late", "sleep 1000", `,"timeout":2`), tool: "execute_bash", arguments: `{"command":"sleep 1000","timeout":2}`, toolSession: "tool-late", outcome: "running", code: "timed_out"},
		{id: "run-busy", action: run("late", "true", `,"timeout":2`), tool: "execute_bash", arguments: `{"command":"true","timeout":2}`, toolSession: "tool-late", outcome: "not_started", code: "busy"},
		{id: "run-cancelled", action: run("b", "sleep 1000", ""), during: "running", outcome: "cancelled"},
		{id: "run-queued", action: run("dies", "true", ""), during: "reserved", outcome: "not_started", code: "cancelled", state: "cancelled"},
		{id: "exec-ok", action: program(`"command":"true"`), outcome: "succeeded"},
		{id: "exec-failed", action: program(`"command":"exit 3"`), outcome: "failed", code: "command_failed"},
		{id: "exec-signal", action: program(`"command":"kill -9 $$"`), outcome: "failed", code: "command_failed"},
		{id: "exec-late", action: program(`"command":"sleep 1000","kill_after":0.3`), outcome: "failed", code: "timed_out"},
		// It outlives the server, and ends once the directory is removed.
		{id: "exec-goes-on", action: `{"action":"exec","args":{"command":"while [ -e \"$PWD\" ]; do sleep 0.1; done"},"timeout":0.3}`, outcome: "running", code: "timed_out"},
		{id: "exec-cancelled", action: program(`"command":"trap 'exit 0' INT; while :; do sleep 0.1; done"`), during: "running", outcome: "cancelled"},
		{id: "exec-absent", action: program(`"argv":["/no/such"]`), outcome: "not_started"},
		{id: "read-ok", action: `{"action":"read","args":{"path":"/etc/passwd"}}`, tool: "str_replace_editor", arguments: `{"command":"view","path":"/etc/passwd"}`, outcome: "succeeded"},
		{id: "read-failed", action: `{"action":"read","args":{"path":"/no/such"}}`, outcome: "failed", code: "file_not_found"},
		{id: "write-ok", action: `{"action":"write","args":{"path":"f","content":"x"}}`, outcome: "succeeded"},
		{id: "edit-failed", action: `{"action":"edit","args":{"command":"str_replace","path":"/etc/passwd","old_str":"no such text","new_str":""}}`, tool: "str_replace_editor", arguments: `{"command":"str_replace","path":"/etc/passwd","old_str":"no such text","new_str":""}`, outcome: "failed", code: "no_match"},
		{id: "glob-ok", action: `{"action":"glob","args":{"pattern":"*"}}`, outcome: "succeeded"},
		{id: "grep-failed", action: `{"action":"grep","args":{"pattern":"x","path":"/no/such"}}`, outcome: "failed", code: "file_not_found"},
		{id: "browse-failed", action: `{"action":"browse","args":{"url":"http://localhost:1"}}`, outcome: "failed", code: "unsupported"},
	}
	answers := map[string]string{}
	check := func(r row) {
		t.Helper()
		want := told{State: "done", Outcome: r.outcome, Code: r.code}
		if r.state != "" {
			want.State = r.state
		}
		_, record := s.do("GET", "/v1/actions/"+r.id+"?wait=60", nil)
		got := readTold(t, record)
		if inner := got.Observation; inner == nil || *inner != (told{Outcome: r.outcome, Code: r.code}) {
			t.Errorf("%s: the record has %s", r.id, record)
		}
		if got.Observation = nil; got != want {
			t.Errorf("%s: got %+v, want %+v: %s", r.id, got, want, record)
		}
		var list struct{ Actions []api.RecordedAction }
		_, page := s.do("GET", "/v1/actions?limit=1000", nil)
		if err := json.Unmarshal([]byte(page), &list); err != nil {
			t.Fatal(err)
		}
		for _, a := range list.Actions {
			if a.ID == r.id && (a.Outcome != r.outcome || a.State != want.State) {
				t.Errorf("%s: the list has %+v", r.id, a)
			}
		}
		_, events := s.do("GET", "/v1/actions/"+r.id+"/events", nil)
		lines := strings.Split(strings.TrimSpace(events), "\n")
		if last := readTold(t, lines[len(lines)-1]); last.Observation == nil || *last.Observation != (told{Outcome: r.outcome, Code: r.code}) {
			t.Errorf("%s: the events end with %s", r.id, lines[len(lines)-1])
		}
		_, again := post(r.id, r.action)
		if got := readTold(t, again); got != (told{Outcome: r.outcome, Code: r.code}) {
			t.Errorf("%s: got %s again", r.id, again)
		}
		if before := answers[r.id]; before != "" && before != again {
			t.Errorf("%s: was %s and is %s", r.id, before, again)
		}
		answers[r.id] = again
	}
	for _, r := range rows {
		if r.during == "" {
			post(r.id, r.action)
		} else {
			post(r.id, r.action, async...)
			cancelled(r.id, r.during)
		}
		check(r)
		if r.tool == "" {
			continue
		}
		call := fmt.Sprintf(`{"name":%q,"arguments":%s,"session":%q}`, r.tool, r.arguments, r.toolSession)
		_, answer := s.do("POST", "/v1/tools/call", strings.NewReader(call))
		got := readTold(t, answer)
		isError := r.outcome != api.OutcomeSucceeded && r.outcome != api.OutcomeRunning
		if got.Outcome != r.outcome || got.Code != r.code || got.IsError != isError || isError != (got.ErrorCode != "") {
			t.Errorf("%s as a tool: got %s", r.id, answer)
		}
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, r.tool, r.arguments)
		_, answer = s.do("POST", "/mcp?session=mcp-"+r.toolSession, strings.NewReader(message), "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-06-18")
		if strings.Contains(answer, `"isError":true`) != isError || !strings.Contains(answer, `"content":`) {
			t.Errorf("%s by MCP: got %s", r.id, answer)
		}
	}

	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // killed
	again := exec.CommandContext(context.WithoutCancel(t.Context()), s.cmd.Path, s.cmd.Args[1:]...)
	again.Env, again.Stderr = s.cmd.Env, s.cmd.Stderr
	s.cmd = again
	s.start()
	rows = append(
		rows,
		row{id: "run-unknown", action: run("dies", "sleep 1000", ""), outcome: "unknown", state: "unknown"},
		row{id: "exec-unknown", action: program(`"command":"sleep 1000"`), outcome: "unknown", state: "unknown"},
		row{id: "run-refused", action: run("dies", "true", ""), outcome: "not_started", code: "refused", state: "refused"},
	)
	for _, r := range rows {
		check(r)
	}
}
