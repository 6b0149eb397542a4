package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// caller sends requests to a server of serveForTest.
type caller struct {
	t    *testing.T
	http *http.Client
}

func callerOf(t *testing.T, address string) *caller {
	t.Helper()
	socket := strings.TrimPrefix(address, "unix://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, &http.Client{Transport: transport}}
}

// send sends a request, and returns the status, the header and the body.
func (c *caller) send(method, path string, header map[string]string, body string) (int, http.Header, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://sandbox"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set(api.KeyHeader, testKey)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	response, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(data)
}

// act carries out an action that asks for its changes.
func (c *caller) act(action string) *api.Changes {
	c.t.Helper()
	status, _, body := c.send("POST", "/v1/actions", nil, `{"changes": "facts", "action": `+action+`}`)
	changes, err := api.ChangesIn([]byte(body))
	if status != http.StatusOK || err != nil || changes == nil {
		c.t.Fatalf("%s: got status %d, %s, %v", action, status, body, err)
	}
	return changes
}

func (c *caller) sh(command string) *api.Changes {
	c.t.Helper()
	text, err := json.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.act(`{"action": "run", "args": {"command": ` + string(text) + `, "blocking": true}}`)
}

// said describes changes in one line.
func said(c *api.Changes) string {
	var all []string
	for _, p := range c.Paths {
		path, from := p.Names()
		if from != "" {
			path = from + " -> " + path
		}
		all = append(all, p.Op+" "+path)
	}
	for _, group := range slices.Sorted(func(yield func(string) bool) {
		for group := range c.Ignored {
			if !yield(group) {
				return
			}
		}
	}) {
		all = append(all, fmt.Sprintf("%s: %d", group, c.Ignored[group]))
	}
	text := strings.Join(all, ", ")
	if !c.Exact {
		text += " (" + c.Why + ")"
	}
	if c.By == nil {
		text += " during"
	}
	return strings.TrimSpace(text)
}

func (c *caller) get(path string, v any) {
	c.t.Helper()
	status, _, body := c.send("GET", path, nil, "")
	if status != http.StatusOK {
		c.t.Fatalf("%s: got status %d, %s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		c.t.Fatalf("%s: %s: %v", path, body, err)
	}
}

// Every kind of action says what it changed.
func TestChangesOfActions(t *testing.T) {
	t.Parallel()
	_, dir, address := serveForTest(t)
	c := callerOf(t, address)
	put := func(name, text string) string {
		return fmt.Sprintf(`{"action": "write", "args": {"path": %q, "content": %q}}`, filepath.Join(dir, name), text)
	}
	for _, step := range []struct {
		action func() *api.Changes
		want   string
	}{
		{func() *api.Changes { return c.sh("true") }, ""},
		{func() *api.Changes { return c.sh("echo 1 > a; mkdir d; echo 2 > d/b") }, "created a, created d, created d/b"},
		{func() *api.Changes { return c.sh("echo 11 > a; mv d e; rm e/b") }, "modified a, deleted d/b, renamed d -> e"},
		{func() *api.Changes { return c.sh("chmod 700 a") }, "meta a"},
		{func() *api.Changes { return c.sh("echo x > x; rm x") }, ""},
		{func() *api.Changes { return c.sh(`touch $'\xff'`) }, "created \xff"},
		{func() *api.Changes {
			return c.sh(`rm $'\xff'; echo node_modules/ > .gitignore; mkdir node_modules; touch node_modules/a node_modules/b`)
		}, "created .gitignore, deleted \xff, node_modules: 3"},
		{func() *api.Changes { return c.act(put("w", "text")) }, "created w"},
		{func() *api.Changes {
			return c.act(fmt.Sprintf(`{"action": "edit", "args": {"command": "str_replace", "path": %q, "old_str": "text", "new_str": "other", "impl_source": "oh_aci"}}`, filepath.Join(dir, "w")))
		}, "modified w"},
		{func() *api.Changes { return c.act(`{"action": "exec", "args": {"command": "echo > p"}}`) }, "created p"},
		{func() *api.Changes {
			return c.act(fmt.Sprintf(`{"action": "read", "args": {"path": %q}}`, filepath.Join(dir, "w")))
		}, ""},
	} {
		if got := step.action(); said(got) != step.want {
			t.Errorf("got %q, want %q: %+v", said(got), step.want, got)
		}
	}
	var log api.ChangeLog
	c.get("/v1/changes/log", &log)
	kinds := ""
	for _, e := range log.Entries {
		kinds += " " + e.Kind
		if e.N == nil || e.Cause != api.CauseAction || !e.Exact || e.Before == "" || e.After == "" {
			t.Errorf("got entry %+v", e)
		}
	}
	if kinds != " exec edit write run run run run run" {
		t.Errorf("got %s", kinds)
	}
	var page api.ChangeLog
	c.get("/v1/changes/log?limit=3", &page)
	c.get(fmt.Sprintf("/v1/changes/log?limit=5&before=%d", page.Next), &page)
	if len(page.Entries) != 5 || page.Entries[0].Kind != "run" {
		t.Errorf("got %+v", page)
	}
}

// The changes between two states, and at or below a path.
func TestChangesSince(t *testing.T) {
	t.Parallel()
	_, dir, address := serveForTest(t)
	c := callerOf(t, address)
	first := c.sh("echo 1 > a; mkdir d")
	second := c.sh("echo 2 > d/b; rm a")
	for query, want := range map[string]string{
		"":                      "created d, created d/b",
		"since=start":           "created d, created d/b",
		"since=" + first.Before: "created d, created d/b",
		"since=" + first.After:  "deleted a, created d/b",
		fmt.Sprintf("since=%d&until=%d", first.Action, second.Action):             "deleted a, created d/b",
		"since=" + first.Before + "&until=" + first.After:                         "created a, created d",
		"since=" + first.Before + "&path=d/b":                                     "created d/b",
		"since=" + first.Before + "&path=" + url.QueryEscape(dir+"/d"):            "created d, created d/b",
		"since=" + first.Before + "&path=nothing":                                 "",
		"since=" + second.After:                                                   "",
		"since=" + first.Before + "&until=" + first.After + "&path=" + ".&diff=1": "created a, created d",
	} {
		var got api.Changes
		c.get("/v1/changes?"+query, &got)
		if said(&got) != want || got.Action != 0 || got.Truncated || strings.Contains(query, "diff") != (len(got.Paths) > 0 && got.Paths[0].Diff != "") {
			t.Errorf("%s: got %q, want %q: %+v", query, said(&got), want, got)
		}
	}
	for query, want := range map[string]int{
		"since=x": 404, "since=s0": 422, "since=0": 422, "since=s99999": 404, "since=99999": 404, "since=s1&path=../x": 422,
		"since=" + second.After + "&until=" + first.Before: 400, "since=s1&diff=2": 422,
	} {
		if status, _, body := c.send("GET", "/v1/changes?"+query, nil, ""); status != want {
			t.Errorf("%s: got status %d, want %d: %s", query, status, want, body)
		}
	}
}

// A change between actions belongs to none of them.
func TestChangesOutside(t *testing.T) {
	t.Parallel()
	_, dir, address := serveForTest(t)
	c := callerOf(t, address)
	first := c.sh("true")
	testhelp.WriteFile(t, filepath.Join(dir, "a"), "", 0o644)
	second := c.sh("echo > b")
	if said(second) != "created b" || second.Before == first.After {
		t.Errorf("got %q from %s after %s", said(second), second.Before, first.After)
	}
	var log api.ChangeLog
	c.get("/v1/changes/log", &log)
	if len(log.Entries) != 2 || log.Entries[1].Cause != api.CauseOutside || log.Entries[1].N != nil || log.Entries[1].Counts.Created != 1 {
		t.Errorf("got %+v", log)
	}
	var all api.Changes
	c.get("/v1/changes?since="+first.After, &all)
	if said(&all) != "created a, created b during" {
		t.Errorf("got %q", said(&all))
	}
}

// A process that was left from before may have made the changes of an action, and makes those between actions.
func TestChangesInTheBackground(t *testing.T) {
	t.Parallel()
	_, dir, address := serveForTest(t)
	c := callerOf(t, address)
	c.sh("mkfifo go done; (read x < go; echo > a; echo > done) &")
	// Not by a process of the agent, which would be its own change.
	if got := c.sh("echo > go; read x < done"); said(got) != "created a during" {
		t.Errorf("beside a process: got %q", said(got))
	}
	c.sh("wait")
	if got := c.sh("echo > b"); said(got) != "created b" {
		t.Errorf("after its end: got %q", said(got))
	}
	c.sh("(read x < go; echo > c; echo > done; read x < go) &")
	testhelp.WriteFile(t, filepath.Join(dir, "go"), "\n", 0)
	if _, err := os.ReadFile(filepath.Join(dir, "done")); err != nil {
		t.Fatal(err)
	}
	c.sh("true")
	var log api.ChangeLog
	c.get("/v1/changes/log", &log)
	if log.Entries[0].Cause != api.CauseBackground || log.Entries[0].N != nil {
		t.Errorf("got %+v", log.Entries[0])
	}
	c.sh("echo > go; wait")
}

// Of two actions at once none is known to have made a change.
func TestChangesOfTwoSessions(t *testing.T) {
	t.Parallel()
	_, _, address := serveForTest(t)
	c := callerOf(t, address)
	c.sh("mkfifo in out")
	slow := make(chan string, 1)
	go func() {
		_, _, body := c.send("POST", "/v1/actions", nil, `{"changes": "facts", "action": {"action": "run", "session": "other", "args": {"command": "echo > out; read x < in; echo > a", "blocking": true}}}`)
		slow <- body
	}()
	quick := c.sh("read x < out; echo > b; echo > in")
	other, err := api.ChangesIn([]byte(<-slow))
	if err != nil || other == nil {
		t.Fatalf("got %+v, %v", other, err)
	}
	both := []uint64{min(quick.Action, other.Action), max(quick.Action, other.Action)}
	if !slices.Equal(quick.During, both) || !slices.Equal(other.During, both) || quick.By != nil || other.By != nil {
		t.Errorf("got %+v and %+v", quick, other)
	}
}

// On other routes changes are in a header, and legacy clients see no new member.
func TestChangesHeader(t *testing.T) {
	t.Parallel()
	_, dir, address := serveForTest(t)
	c := callerOf(t, address)
	ask := map[string]string{api.ChangesHeader: "facts"}
	action := `{"action": {"action": "run", "args": {"command": "echo > a; mkdir node_modules; echo node_modules > .gitignore"}}, "changes": "facts"}`
	for _, header := range []map[string]string{nil, ask} {
		_, h, body := c.send("POST", "/execute_action", header, action)
		want := ""
		if header != nil {
			want = "n=2; +0 ~2 -0 >0; exact"
		}
		if got := h.Get(api.ChangesHeader); got != want || strings.Contains(body, "changes") {
			t.Errorf("got %q, want %q: %s", got, want, body)
		}
	}
	if status, _, body := c.send("POST", "/execute_action", map[string]string{api.ChangesHeader: "all"}, action); status != http.StatusBadRequest {
		t.Errorf("got status %d, %s", status, body)
	}
	for _, step := range []struct{ method, path, want string }{
		{"PUT", "/v1/files?path=f", "n=3; +1 ~0 -0 >0; exact"},
		{"PUT", "/v1/files?path=f", "n=4; +0 ~1 -0 >0; exact"},
		{"POST", "/v1/files/mkdir?path=dir", "n=5; +1 ~0 -0 >0; exact"},
		{"POST", "/v1/files/move?path=f&to=g", "n=6; +0 ~0 -0 >1; exact"},
		{"DELETE", "/v1/files?path=g", "n=7; +0 ~0 -1 >0; exact"},
		{"DELETE", "/v1/files?path=node_modules&recursive=true", "n=8; +0 ~0 -0 >0 !1; exact"},
	} {
		_, h, body := c.send(step.method, step.path, ask, "content")
		if got := h.Get(api.ChangesHeader); got != step.want {
			t.Errorf("%s %s: got %q, want %q: %s", step.method, step.path, got, step.want, body)
		}
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "up.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write([]byte("text"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, h, body := c.send("POST", "/upload_file?destination="+url.QueryEscape(dir), map[string]string{api.ChangesHeader: "facts", "Content-Type": w.FormDataContentType()}, form.String())
	if got := h.Get(api.ChangesHeader); got != "+1 ~0 -0 >0; exact" {
		t.Errorf("an upload: got %q: %s", got, body)
	}
	var log api.ChangeLog
	c.get("/v1/changes/log?limit=2", &log)
	if e := log.Entries[0]; e.N != nil || e.Kind != "upload" || e.Cause != api.CauseUpload {
		t.Errorf("got %+v", e)
	}
	if e := log.Entries[1]; e.Kind != "remove_tree" {
		t.Errorf("got %+v", e)
	}
}

// A stream has the changes in its last event, and a record says whether there were any.
func TestChangesInStreamsAndRecords(t *testing.T) {
	t.Parallel()
	_, _, address := serveForTest(t)
	c := callerOf(t, address)
	body := `{"id": "one", "changes": "facts", "action": {"action": "run", "args": {"command": "echo > a"}}}`
	for range 2 { // the second answer is the recorded one
		_, _, events := c.send("POST", "/v1/actions", map[string]string{"Accept": "application/x-ndjson"}, body)
		lines := strings.Split(strings.TrimSpace(events), "\n")
		var last struct {
			Event       string
			Observation struct{ Content string }
			Changes     *api.Changes
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Event != "observation" || last.Changes == nil || said(last.Changes) != "created a" {
			t.Errorf("got %s, %v", events, err)
		}
	}
	for range 2 {
		_, h, again := c.send("POST", "/v1/actions", nil, body)
		if got, err := api.ChangesIn([]byte(again)); err != nil || got == nil || said(got) != "created a" || h.Get(api.ReplayedHeader) != "true" {
			t.Errorf("got %s, %v", again, err)
		}
	}
	c.send("POST", "/v1/actions", nil, `{"id": "two", "action": {"action": "run", "args": {"command": "echo > b"}}}`)
	c.send("POST", "/v1/actions", nil, `{"id": "three", "action": {"action": "run", "args": {"command": "true"}}}`)
	for id, want := range map[string]string{"one": "changes created a", "two": "changes created b", "three": "none"} {
		var record struct {
			Effect  string
			Changes *api.Changes
		}
		c.get("/v1/actions/"+id, &record)
		got := record.Effect
		if record.Changes != nil {
			got += " " + said(record.Changes)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

// A tool call and the MCP server answer with changes if they are asked.
func TestChangesOfTools(t *testing.T) {
	t.Parallel()
	_, _, address := serveForTest(t)
	c := callerOf(t, address)
	_, _, body := c.send("POST", "/v1/tools/call", nil, `{"name": "execute_bash", "arguments": {"command": "echo > a"}, "changes": "diff"}`)
	if got, err := api.ChangesIn([]byte(body)); err != nil || got == nil || said(got) != "created a" || got.Truncated || got.Paths[0].Diff != "@@ -0,0 +1 @@\n+" {
		t.Errorf("got %s, %v", body, err)
	}
	_, _, body = c.send("POST", "/v1/tools/call", nil, `{"name": "think", "arguments": {"thought": "x"}, "changes": "facts"}`)
	if got, err := api.ChangesIn([]byte(body)); err != nil || got == nil || said(got) != "" {
		t.Errorf("of a thought: got %s, %v", body, err)
	}
	call := `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "execute_bash", "arguments": {"command": "echo > b"}}}`
	header := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	_, _, body = c.send("POST", "/mcp?changes=facts", header, call)
	var answer struct {
		Result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if got, err := api.DecodeChanges(answer.Result.Meta[api.MCPChanges]); err != nil || said(got) != "created b" {
		t.Errorf("got %s, %v", body, err)
	}
	if status, _, body := c.send("POST", "/mcp?changes=x", header, call); status != http.StatusUnprocessableEntity {
		t.Errorf("got status %d: %s", status, body)
	}
}

// The log survives the server, and with contents the states do too. Without, they have numbers that are not used again.
func TestChangesAfterARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{api.ChangesFacts, api.ChangesUndo} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			state, work := t.TempDir(), t.TempDir()
			var before *api.Changes
			t.Run("first", func(t *testing.T) {
				_, _, address := serveForTest(t, "--state-dir", state, "--working-dir", work, "--changes", mode)
				before = callerOf(t, address).sh("echo > a")
			})
			testhelp.WriteFile(t, filepath.Join(work, "offline"), "", 0o644)
			t.Run("second", func(t *testing.T) {
				_, _, address := serveForTest(t, "--state-dir", state, "--working-dir", work, "--changes", mode)
				c := callerOf(t, address)
				checkRestarted(t, c, before, mode)
			})
		})
	}
}

func checkRestarted(t *testing.T, c *caller, before *api.Changes, mode string) {
	t.Helper()
	if mode == api.ChangesUndo { // at once, while the workspace is listed
		var since api.Changes
		var log api.ChangeLog
		c.get("/v1/changes?since="+before.After, &since)
		if c.get("/v1/changes/log?limit=1", &log); said(&since) != "created offline during" || log.Entries[0].Cause != api.CauseOffline {
			t.Errorf("got %q, %+v", said(&since), log.Entries)
		}
	}
	after := c.sh("echo > b")
	for _, old := range []string{before.Before, before.After} {
		n, _ := api.StateNumber(old)
		if now, _ := api.StateNumber(after.Before); now <= n {
			t.Errorf("the state %s is named again: %s", old, after.Before)
		}
	}
	var log api.ChangeLog
	c.get("/v1/changes/log", &log)
	got := make([]string, len(log.Entries))
	for i, e := range log.Entries {
		got[i] = fmt.Sprintf("%s +%d %s-%s", e.Cause, e.Counts.Created, e.Before, e.After)
	}
	want := []string{"action +1 " + after.Before + "-" + after.After, "action +1 " + before.Before + "-" + before.After}
	status, since := http.StatusGone, ""
	if mode == api.ChangesUndo {
		want = slices.Insert(want, 1, "offline +1 "+before.After+"-"+after.Before)
		status, since = http.StatusOK, "created b, created offline during"
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the log %q, want %q", got, want)
	}
	answered, _, body := c.send("GET", "/v1/changes?since="+before.After, nil, "")
	if answered != status {
		t.Errorf("got status %d: %s", answered, body)
	}
	if found, err := api.DecodeChanges([]byte(body)); status == http.StatusOK && (err != nil || said(found) != since) {
		t.Errorf("got %s, %v", body, err)
	}
}

// A workspace that cannot be followed, or is not, is said to be inexact.
func TestChangesUnfollowed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args         []string
		mode, answer string
	}{
		{[]string{"--track", "/"}, "facts off", "(root) during"},
		{[]string{"--changes", "off"}, "off off", "(offline) during"},
	} {
		_, _, address := serveForTest(t, test.args...)
		c := callerOf(t, address)
		if got := said(c.sh("echo > a")); got != test.answer {
			t.Errorf("%v: got %q", test.args, got)
		}
		var info api.ServerInfo
		c.get("/server_info", &info)
		if got := info.Changes.Mode + " " + info.Changes.Baseline.State; got != test.mode {
			t.Errorf("%v: got %s", test.args, got)
		}
	}
}
