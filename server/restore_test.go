package server_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/actions/memtree"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/server"
)

// undoing returns a server of a tree, to which commands write, such as "a=1 b=".
func undoing(tb testing.TB, tree *memtree.Tree, change ...func(*server.Config)) *server.Server {
	tb.Helper()
	f := &fake{stream: func(_ context.Context, req api.Request, _ func(api.Output)) (api.Observation, error) {
		if a, ok := req.Action.(api.ExecAction); ok {
			var n, most int
			_, _ = fmt.Sscanf(tree.Show()+a.Command, "n=%dn<%d", &n, &most)
			code := 0
			if n >= most {
				code = 1
			}
			return api.ExecObservation{ExitCode: &code}, nil
		}
		command := req.Action.(api.RunAction).Command
		if command == "refuse" {
			return nil, api.BadRequest("refused")
		}
		for word := range strings.FieldsSeq(command) {
			path, content, _ := strings.Cut(word, "=")
			tree.Write(path, content)
		}
		return api.RunObservation{}, nil
	}}
	return newServer(tb, append([]func(*server.Config){withExecutor(f), func(c *server.Config) { c.Workspace = tree }}, change...)...)
}

// command is a request that runs a command as an action.
func command(text string) request {
	return post("/v1/actions", fmt.Sprintf(`{"action":{"action":"run","args":{"command":%q}}}`, text))
}

// checked is the document that answers are held to.
var checked struct {
	once sync.Once
	spec *contract.Spec
}

// segment is a part of a path that names something.
var segment = regexp.MustCompile(`^(/v1/(?:checkpoints|actions)/)([^/]+)`)

// wantAnswer sends a request, looks for a text in the answer, and holds it to the document.
func wantAnswer(t *testing.T, s *server.Server, q request, status int, want string) {
	t.Helper()
	w := q.send(s)
	if w.Code != status || !strings.Contains(w.Body.String(), want) || w.Body.Len() > 2000 {
		t.Errorf("%s %s %.200s\ngot  %d %.1000s\nwant %d %s", q.method, q.path, q.body, w.Code, w.Body, status, want)
	}
	checked.once.Do(func() { checked.spec = contract.NewSpec(t) })
	path, _, _ := strings.Cut(q.path, "?")
	name := "{id}"
	if strings.HasPrefix(path, "/v1/checkpoints") {
		name = "{name}"
	}
	if err := checked.spec.CheckResponse(q.method, segment.ReplaceAllString(path, "${1}"+name), w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

func TestRestoreAnswer(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	tree.Processes = []int{7}
	s := undoing(t, tree)
	get("/v1/changes?since=s1").send(s)
	command("a=1 b=2 c/d=3").send(s)
	wantAnswer(t, s, post("/v1/restore", `{"to":"s1","paths":["c","/w/a"],"dry_run":true}`), 200, `"counts":{"created":0,"modified":0,"deleted":2`)
	wantAnswer(t, s, post("/v1/restore", `{"to":1,"paths":[{"base64":"Yg=="}]}`), 200, `"counts":{"created":0,"modified":0,"deleted":0`)
	wantAnswer(t, s, post("/v1/restore", `{"before":1,"paths":["c","/w/a"]}`), 200, `"dry_run":false,"refused":[],"refused_count":0,"living":[7]`)
	wantAnswer(t, s, get("/v1/changes/log?limit=1"), 200, `{"entries":[{"n":null,"kind":"restore","cause":"restore",`)
	wantAnswer(t, s, post("/v1/restore", `{"last":true}`), 200, `"before":"s3","after":"s4","during":[]`)
	wantAnswer(t, s, post("/v1/restore", `{"only":1,"all":true}`), 200, `"deleted":3`)
	if got := tree.Show(); got != "" {
		t.Errorf("got %s", got)
	}
}

// Every member of a restore is refused if it is wrong, and nothing is done then.
func TestRestoreBadInput(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	s := undoing(t, tree)
	get("/v1/changes?since=s1").send(s)
	command("a=1").send(s)
	for body, want := range map[string]string{
		`[]`:                      "400 body: must be an object",
		`"s1"`:                    "400 body: must be an object",
		`{}`:                      "422 must say what is restored",
		`{"to":null}`:             "422 must say what is restored",
		`{"to":""}`:               "422 must say what is restored",
		`{"to":"s1","last":true}`: "422 got to and last",
		`{"before":1,"only":1}`:   "422 got before and only",
		`{"too":"s1"}`:            "400 too",
		`{"to":[]}`:               "400 to",
		`{"to":1.5}`:              "400 must be a state",
		`{"to":-1}`:               "400 must be a state",
		`{"to":0}`:                "422 body.to: must be a state",
		`{"to":"s0"}`:             "422 body.to: must be a state",
		`{"to":".attempt"}`:       "422 body.to: must be a state",
		`{"to":"` + strings.Repeat("x", 900) + `"}`: "422 body.to: must be a state",
		`{"to":"none"}`:                                 "404 There is no checkpoint",
		`{"to":"s9"}`:                                   "404 There is no state",
		`{"to":99}`:                                     "404 The state after the action 99",
		`{"before":"1"}`:                                "400 before",
		`{"before":-1}`:                                 "400 must be an integer of at least 0, got the number -1",
		`{"before":99}`:                                 "404 99",
		`{"only":1.5}`:                                  "400 only",
		`{"only":99}`:                                   "404 99",
		`{"last":1}`:                                    "400 last",
		`{"last":false}`:                                "422 must say what is restored",
		`{"to":"s1","paths":"a"}`:                       "400 paths",
		`{"to":"s1","paths":[]}`:                        "422 body.paths: must name a path",
		`{"to":"s1","paths":[1]}`:                       "400 paths",
		`{"to":"s1","paths":[""]}`:                      "422 body.paths[0]: must be a path",
		`{"to":"s1","paths":[null]}`:                    "4",
		`{"to":"s1","paths":["a","../b"]}`:              "422 body.paths[1]: must be in the workspace",
		`{"to":"s1","paths":["a/../../w/a"]}`:           "422 body.paths[0]: must be in the workspace",
		`{"to":"s1","paths":["/etc/passwd"]}`:           "422 body.paths[0]: must be in the workspace",
		`{"to":"s1","paths":["/w/../etc"]}`:             "422 body.paths[0]: must be in the workspace",
		`{"to":"s1","paths":["a\u0000"]}`:               "422 body.paths[0]: must be a path",
		`{"to":"s1","paths":[{"base64":"Li4="}]}`:       "422 body.paths[0]: must be in the workspace",
		`{"to":"s1","paths":[{"base64":"???"}]}`:        "400 paths",
		`{"to":"s1","paths":[{}]}`:                      "422 body.paths[0]: must be a path",
		`{"to":"s1","paths":[{"base64":"YQ==","x":1}]}`: "400 paths",
		`{"only":1,"paths":["a"]}`:                      "422 body.paths",
		`{"to":"s1","all":true}`:                        "422 body.all",
		`{"to":"s1","all":1}`:                           "400 all",
		`{"to":"s1","dry_run":1}`:                       "400 dry_run",
		`{"to":"s1","force":"yes"}`:                     "400 force",
		`{"to":"s1","diff":1}`:                          "400 diff",
		`{"to":"s1","paths":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`: "422 body.paths: must have at most 1000 paths",
	} {
		code := 0
		_, _ = fmt.Sscan(want, &code)
		w := post("/v1/restore", body).send(s)
		_, text, _ := strings.Cut(want, " ")
		if w.Code != code && (code != 4 || w.Code/100 != 4) || !strings.Contains(w.Body.String(), text) || w.Body.Len() > 1000 {
			t.Errorf("%.80s: got %d %.500s, want %s", body, w.Code, w.Body, want)
		}
	}
	if got := tree.Show(); got != "a=1" {
		t.Errorf("the files are %s", got)
	}
	locked := undoing(t, tree, func(c *server.Config) { c.Key = "k" })
	for _, rt := range locked.Routes() {
		if strings.Contains(rt.Path, "/restore") || strings.Contains(rt.Path, "/checkpoints") {
			wantAnswer(t, locked, request{method: rt.Method, path: rt.Path}, 403, "Invalid API Key")
		}
	}
	tree.Off = "too large, see --changes"
	wantAnswer(t, s, post("/v1/restore", `{"to":"s1"}`), 409, "too large, see --changes")
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	s := undoing(t, tree)
	wantAnswer(t, s, get("/v1/checkpoints"), 200, `{"checkpoints":[]}`)
	command("a=1").send(s)
	wantAnswer(t, s, post("/v1/checkpoints", `{"name":"good/1","verify":true}`), 201, `{"name":"good/1","state":"s2","time":`)
	tree.Lost = 2
	wantAnswer(t, s, post("/v1/checkpoints", `{"name":"b"}`), 201, `"missing":2,"missing_paths":["lost"]}`)
	wantAnswer(t, s, post("/v1/checkpoints", `{"name":"good/1"}`), 409, "remove it first, with DELETE /v1/checkpoints/good%2F1")
	wantAnswer(t, s, get("/v1/checkpoints"), 200, `{"checkpoints":[{"name":"good/1",`)
	command("a=2").send(s)
	wantAnswer(t, s, get("/v1/changes?since=b&until=3"), 404, "action 3")
	wantAnswer(t, s, get("/v1/changes?since=b"), 200, `"modified":1`)
	wantAnswer(t, s, post("/v1/restore", `{"to":"good/1"}`), 200, `"modified":1`)
	wantAnswer(t, s, remove("/v1/checkpoints/good%2F1"), 204, "")
	wantAnswer(t, s, remove("/v1/checkpoints/good%2F1"), 404, "There is no checkpoint")
	wantAnswer(t, s, remove("/v1/checkpoints/.attempt"), 404, "There is no checkpoint")
	for body, want := range map[string]string{
		`{}`: "400 name", `{"name":1}`: "400 name", `{"name":""}`: "422 body.name", `{"name":"s1"}`: "422 body.name", `{"name":"12"}`: "422 body.name",
		`{"name":".attempt"}`: "422 body.name", `{"name":"a b"}`: "422 body.name", `{"name":"` + strings.Repeat("a", 101) + `"}`: "422 body.name",
		`{"name":"a","verify":1}`: "400 verify", `{"name":"a","x":1}`: "400 x",
		`{"name":"a","wait_seconds":601}`: "422 body.wait_seconds", `{"name":"a","expires_seconds":-1}`: "422 body.expires_seconds",
	} {
		code := 0
		_, _ = fmt.Sscan(want, &code)
		wantAnswer(t, s, post("/v1/checkpoints", body), code, want[4:])
	}
	for i := range 99 {
		wantAnswer(t, s, post("/v1/checkpoints", fmt.Sprintf(`{"name":"n%d"}`, i)), 201, "")
	}
	wantAnswer(t, s, post("/v1/checkpoints", `{"name":"more","expires_seconds":9}`), 409, "There are 100 checkpoints already")
	wantAnswer(t, s, remove("/v1/checkpoints/n7"), 204, "")
	for i := range 101 { // each makes room for the next
		wantAnswer(t, s, post("/v1/checkpoints", fmt.Sprintf(`{"name":"short%d","wait_seconds":0,"expires_seconds":1e-9}`, i)), 201, `,"expires":"2`)
	}
	wantAnswer(t, s, remove("/v1/checkpoints/short99"), 404, "There is no checkpoint")
	wantAnswer(t, s, remove("/v1/checkpoints/short100"), 204, "")
	tree.Off = "too large, see --changes"
	wantAnswer(t, s, post("/v1/checkpoints", `{"name":"off"}`), 409, "see --changes")
	wantAnswer(t, newServer(t), get("/v1/checkpoints"), 200, `{"checkpoints":[]}`)
	wantAnswer(t, newServer(t), remove("/v1/checkpoints/a"), 404, "There is no checkpoint")
}

// A model reads what changed, and takes it back.
func TestWorkspaceTools(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	s := undoing(t, tree)
	call := func(status int, name, arguments, want string) {
		t.Helper()
		w := post("/v1/tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments)).send(s)
		a, err := api.DecodeToolAnswer(w.Body.Bytes())
		if err != nil || w.Code != status || a.Text != want && (!a.IsError || !strings.Contains(a.Text, want)) {
			t.Errorf("%s %s: got %d, %t %v\n%s\nwant %s", name, arguments, w.Code, a.IsError, err, a.Text, want)
		}
	}
	get("/v1/changes?since=s1").send(s)
	call(200, "workspace_changes", `{}`, "Nothing that changed is known yet.")
	call(200, "workspace_undo", `{}`, "Nothing was changed that could be taken back")
	command("a=1 d/b=1").send(s)
	command("a=2").send(s)
	call(200, "workspace_changes", `{}`, "Since s2:\nmodified a (+1 -1)\n-1\n+2\nThe last changes, the newest first:\naction 4 (run): 0 created, 1 modified, 0 deleted, 0 renamed\naction 3 (run): 2 created, 0 modified, 0 deleted, 0 renamed")
	call(200, "workspace_changes", `{"since":"s1","paths":["d","c"]}`, "Since s1:\ncreated d/b (+1 -1)\n-\n+1\nThe last changes, the newest first:\naction 4 (run): 0 created, 1 modified, 0 deleted, 0 renamed\naction 3 (run): 2 created, 0 modified, 0 deleted, 0 renamed")
	tree.Processes, tree.Refuse = []int{7}, []string{"d/b"}
	call(200, "workspace_undo", `{"action":3}`, "Restored. This changed:\ndeleted a\nnot restored: d/b: it changed since\n1 processes that were started before go on, and may have replaced files open.")
	call(200, "workspace_undo", `{"paths":["/w/a"]}`, "Restored. This changed:\ncreated a\n1 processes that were started before go on, and may have replaced files open.")
	call(200, "workspace_undo", `{"paths":["../a"]}`, "paths[0]: must be in the workspace")
	call(200, "workspace_undo", `{"action":99}`, "What the action 99 changed is not known")
	call(200, "workspace_changes", `{"since":"."}`, "since: must be a state")
	if got := tree.Show(); got != "a=2 d/b=1" {
		t.Errorf("the files are %s", got)
	}
	wantAnswer(t, s, post("/v1/tools/translate", `{"name":"workspace_undo"}`), 200, "This tool has no action: call it by /v1/tools/call")
	for _, q := range []request{get("/v1/tools"), get("/v1/tools?dialect=gemini&format=mcp")} {
		if w := q.send(s); !strings.Contains(w.Body.String(), `"name":"workspace_undo"`) {
			t.Errorf("got %s", w.Body)
		}
		if w := q.send(newServer(t, withWorkspace)); strings.Contains(w.Body.String(), "workspace_undo") || !strings.Contains(w.Body.String(), "workspace_changes") {
			t.Errorf("facts alone: got %s", w.Body)
		}
		if w := q.send(newServer(t)); strings.Contains(w.Body.String(), "workspace_") {
			t.Errorf("without a workspace: got %s", w.Body)
		}
	}
}
