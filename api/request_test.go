package api_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
)

// common is what an action has that says nothing about itself.
var common = api.Common{SecurityRisk: -1}

// accepted are requests and what they mean. Those that the document knows
// nothing of, and that are accepted all the same, are marked.
var accepted = []struct {
	name, action string // the action object
	want         api.Request
	undocumented bool
}{
	{name: "run", action: `{"action":"run","args":{"command":"ls"}}`, want: api.Request{Action: api.RunAction{Common: common, Command: "ls"}}},
	{
		name: "run as the stock client sends it",
		action: `{"id":12,"timestamp":"2025-01-01T00:00:00.000000","source":"agent","message":"Running command: ls","action":"run",` +
			`"args":{"command":"ls","is_input":false,"thought":"","blocking":false,"is_static":false,"cwd":null,"hidden":false,` +
			`"confirmation_state":"confirmed","security_risk":-1},"timeout":120.0}`,
		want: api.Request{Action: api.RunAction{Common: common, Command: "ls"}, ID: 12, Timestamp: "2025-01-01T00:00:00.000000", Timeout: new(120.0)},
	},
	{
		name: "run with everything",
		action: `{"action":"run","args":{"command":"a\n\u0041\ud83d\ude80\/","is_input":true,"thought":"t","blocking":true,"is_static":true,"cwd":"/x",` +
			`"hidden":true,"confirmation_state":"awaiting_confirmation","security_risk":2},"timeout":0.5,"session":"build","source":"user","cause":3,` +
			`"tool_call_metadata":{"model_response":{"choices":[{}]}},"llm_metrics":{"costs":[1e999]}}`,
		want: api.Request{
			Action: api.RunAction{
				Common: api.Common{Thought: "t", SecurityRisk: 2}, Command: "a\nA🚀/",
				IsInput: true, Blocking: true, IsStatic: true, Cwd: "/x", Hidden: true,
			},
			Session: "build", Timeout: new(0.5),
		},
	},
	{name: "timeout without blocking", action: `{"action":"run","args":{"command":"ls"},"timeout":1}`, want: api.Request{Action: api.RunAction{Common: common, Command: "ls"}, Timeout: new(1.0)}},
	{name: "no timeout", action: `{"action":"run","args":{"command":"ls"},"timeout":null}`, want: api.Request{Action: api.RunAction{Common: common, Command: "ls"}}},
	{name: "timeout below zero", action: `{"action":"run","args":{"command":"ls"},"timeout":-1}`, want: api.Request{Action: api.RunAction{Common: common, Command: "ls"}, Timeout: new(-1.0)}},
	{name: "default session", action: `{"action":"run","args":{"command":""},"session":"default"}`, want: api.Request{Action: api.RunAction{Common: common}}},
	{name: "empty session", action: `{"action":"run","args":{"command":""},"session":""}`, want: api.Request{Action: api.RunAction{Common: common}}},
	{name: "null everywhere", action: `{"action":"run","id":null,"session":null,"args":{"command":"","is_input":null,"thought":null,"security_risk":null,"hidden":null}}`, want: api.Request{Action: api.RunAction{Common: common}}},
	{name: "longest session", action: `{"action":"run","args":{"command":""},"session":"` + strings.Repeat("x", 64) + `"}`, want: api.Request{Action: api.RunAction{Common: common}, Session: strings.Repeat("x", 64)}},
	{name: "security risk of no meaning", action: `{"action":"run","args":{"command":"","security_risk":7}}`, want: api.Request{Action: api.RunAction{Common: common}}, undocumented: true},
	{name: "security risk that is no number", action: `{"action":"run","args":{"command":"","security_risk":"HIGH"}}`, want: api.Request{Action: api.RunAction{Common: common}}, undocumented: true},
	{name: "arguments of old streams", action: `{"action":"run","args":{"command":"old","keep_prompt":true,"is_confirmed":"confirmed","task_completed":1,"timestamp":"x"}}`, want: api.Request{Action: api.RunAction{Common: common, Command: "old"}}},
	{name: "an observation's key beside an action", action: `{"observation":"run","action":"run","args":{"command":""}}`, want: api.Request{Action: api.RunAction{Common: common}}},
	{name: "the last of equal names", action: `{"action":"read","action":"run","args":{"path":"x"},"args":{"command":"a","command":"b"}}`, want: api.Request{Action: api.RunAction{Common: common, Command: "b"}}},
	{name: "half of a pair where nobody looks", action: `{"action":"run","message":"\ud800","args":{"command":"a"}}`, want: api.Request{Action: api.RunAction{Common: common, Command: "a"}}},

	{name: "exec", action: `{"action":"exec","args":{"command":"ls | wc"}}`, want: api.Request{Action: api.ExecAction{Common: common, Command: "ls | wc", Stdin: "none"}}},
	{
		name: "exec with everything",
		action: `{"action":"exec","args":{"argv":["cat","-",""],"command":null,"cwd":"/x","env":{"A":"1","_b2":""},"clear_env":true,"stdin":"text","input":"a\u0000b",` +
			`"tty":{"rows":1,"cols":1000},"kill_after":0.5,"thought":"t","security_risk":1},"timeout":2}`,
		want: api.Request{
			Action: api.ExecAction{
				Common: api.Common{Thought: "t", SecurityRisk: 1}, Argv: []string{"cat", "-", ""}, Cwd: "/x", Env: api.Variables{"A": "1", "_b2": ""}, ClearEnv: true,
				Stdin: "text", Input: "a\x00b", TTY: &api.TTY{Rows: 1, Cols: 1000}, KillAfter: 0.5,
			},
			Timeout: new(2.0),
		},
	},
	{name: "exec with input alone", action: `{"action":"exec","args":{"argv":["cat"],"input":"x","tty":{}}}`, want: api.Request{Action: api.ExecAction{Common: common, Argv: []string{"cat"}, Stdin: "text", Input: "x", TTY: &api.TTY{Rows: 24, Cols: 80}}}},
	{name: "exec with bytes", action: `{"action":"exec","args":{"argv":["cat"],"input_base64":"/wA=","input":null}}`, want: api.Request{Action: api.ExecAction{Common: common, Argv: []string{"cat"}, Stdin: "text", InputBytes: []byte{0xff, 0}}}},
	{name: "exec on a terminal", action: `{"action":"exec","args":{"argv":["tty"],"tty":{}}}`, want: api.Request{Action: api.ExecAction{Common: common, Argv: []string{"tty"}, Stdin: "stream", TTY: &api.TTY{Rows: 24, Cols: 80}}}},
	{name: "exec on a terminal without input", action: `{"action":"exec","args":{"argv":["tty"],"tty":{},"stdin":"none"}}`, want: api.Request{Action: api.ExecAction{Common: common, Argv: []string{"tty"}, Stdin: "none", TTY: &api.TTY{Rows: 24, Cols: 80}}}},
	{name: "exec as root", action: `{"action":"exec","args":{"command":"id","user":"root","cwd":"/tmp","clear_env":true,"env":{"A":"1"}}}`, want: api.Request{Action: api.ExecAction{Common: common, Command: "id", User: "root", Cwd: "/tmp", ClearEnv: true, Env: api.Variables{"A": "1"}, Stdin: "none"}}},
	{name: "exec with an empty list beside", action: `{"action":"exec","args":{"command":"ls","argv":[],"env":{},"tty":null,"stdin":null,"kill_after":null}}`, want: api.Request{Action: api.ExecAction{Common: common, Command: "ls", Argv: []string{}, Stdin: "none"}}},

	{name: "ipython", action: `{"action":"run_ipython","args":{"code":"1"}}`, want: api.Request{Action: api.IPythonAction{Common: common, Code: "1", IncludeExtra: true}}},
	{name: "ipython with everything", action: `{"action":"run_ipython","args":{"code":"1","include_extra":false,"kernel_init_code":"k","confirmation_state":"confirmed"},"timeout":3}`, want: api.Request{Action: api.IPythonAction{Common: common, Code: "1", KernelInitCode: "k"}, Timeout: new(3.0)}},

	{name: "read", action: `{"action":"read","args":{"path":"a"}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", End: -1, ImplSource: "default"}}},
	{name: "read of a range", action: `{"action":"read","args":{"path":"a","start":2,"end":5,"impl_source":null,"view_range":null}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", Start: 2, End: 5, ImplSource: "default"}}},
	{name: "read with whole numbers in other clothes", action: `{"action":"read","args":{"path":"a","start":2.0,"end":1e2}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", Start: 2, End: 100, ImplSource: "default"}}},
	{name: "read of an odd source", action: `{"action":"read","args":{"path":"a","impl_source":"weird"}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", End: -1, ImplSource: "default"}}},
	{name: "view", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":[1,-1]}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci", ViewRange: []int{1, -1}}}},
	{name: "view of one number", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":[1]}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci", ViewRange: []int{1}}}},
	{name: "view of an empty range", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":[]}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci", ViewRange: []int{}}}},
	{
		name:   "view in translated code",
		action: `{"action":"read","args":{"path":"x","impl_source":"oh_aci","translated_ipython_code":"print(file_editor(**{'command': 'view', 'path': '/a\\'\\x41\\u00e9\\U0001F680\\n\"', 'view_range': [1, 2], 'thought': None}))"}}`,
		want:   api.Request{Action: api.ReadAction{Common: common, Path: "/a'Aé🚀\n\"", End: -1, ImplSource: "oh_aci", ViewRange: []int{1, 2}}},
	},
	{name: "other translated code", action: `{"action":"read","args":{"path":"x","translated_ipython_code":"print(1)"}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "x", End: -1, ImplSource: "default"}}},
	{name: "translated code of a wrong type", action: `{"action":"read","args":{"path":"x","translated_ipython_code":5}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "x", End: -1, ImplSource: "default"}}},
	{name: "translated code that is no literal", action: `{"action":"read","args":{"path":"x","translated_ipython_code":"print(file_editor(**{'path': open('/etc')}))"}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "x", End: -1, ImplSource: "default"}}},

	{name: "write", action: `{"action":"write","args":{"path":"a","content":"b"}}`, want: api.Request{Action: api.WriteAction{Common: common, Path: "a", Content: "b", End: -1}}},
	{name: "write of a range", action: `{"action":"write","args":{"path":"a","content":"","start":-3,"end":4}}`, want: api.Request{Action: api.WriteAction{Common: common, Path: "a", Start: -3, End: 4}}},

	{name: "edit", action: `{"action":"edit","args":{"path":"/a"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{
		name:   "edit with everything",
		action: `{"action":"edit","args":{"path":"/a","command":"replace","file_text":"f","old_str":"","new_str":"n","insert_line":3,"content":"c","start":2,"end":9,"impl_source":"oh_aci","expected_replacements":4}}`,
		want: api.Request{Action: api.EditAction{
			Common: common, Path: "/a", Command: "replace", FileText: new("f"), OldStr: new(""), NewStr: new("n"), InsertLine: new(api.LineNumber("3")),
			Content: new("c"), Start: 2, End: 9, ExpectedReplacements: new(4), ImplSource: "oh_aci",
		}},
	},
	{
		name:   "edit in a dialect",
		action: `{"action":"edit","args":{"path":"a","command":"replace","dialect":"gemini","allow_multiple":true,"fuzzy":true,"if_sha256":"00","lint":true,"edits":[{"old_str":"a","new_str":"b","expected_replacements":2},{"old_str":"","new_str":"c","allow_multiple":true}]}}`,
		want: api.Request{Action: api.EditAction{
			Common: common, Path: "a", Command: "replace", Start: 1, End: -1, ImplSource: "oh_aci", Dialect: "gemini",
			AllowMultiple: true, Fuzzy: true, IfSHA256: "00", Lint: true,
			Edits: []api.Replacement{{OldStr: "a", NewStr: "b", ExpectedReplacements: new(2)}, {NewStr: "c", AllowMultiple: true}},
		}},
	},
	{
		name:   "edit with an expression",
		action: `{"action":"edit","args":{"path":"/a","command":"str_replace","old_str":"a+","new_str":"$0","regex":true}}`,
		want: api.Request{Action: api.EditAction{
			Common: common, Path: "/a", Command: "str_replace", OldStr: new("a+"), NewStr: new("$0"), Regex: true, Start: 1, End: -1, ImplSource: "oh_aci",
		}},
	},
	{name: "move", action: `{"action":"edit","args":{"path":"/a","command":"move","new_path":"/b"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "move", NewPath: "/b", Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "patch", action: `{"action":"edit","args":{"path":"","command":"apply_patch","patch":"p"}}`, want: api.Request{Action: api.EditAction{Common: common, Command: "apply_patch", Patch: new("p"), Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "draft", action: `{"action":"edit","args":{"path":"a","content":"c","impl_source":"llm_based_edit"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "a", Content: new("c"), Start: 1, End: -1, ImplSource: "llm_based_edit"}}},
	{name: "read in a dialect", action: `{"action":"read","args":{"path":"a","dialect":"gemini","start_line":1,"end_line":2,"offset":3,"limit":4}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", End: -1, ImplSource: "default", Dialect: "gemini", StartLine: new(1), EndLine: new(2), Offset: new(3), Limit: new(4)}}},
	{name: "read as Markdown", action: `{"action":"read","args":{"path":"a","format":"markdown","view_range":[1,-1]}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "a", End: -1, ImplSource: "default", Format: "markdown", ViewRange: []int{1, -1}}}},
	{name: "exact write", action: `{"action":"write","args":{"path":"a","content":"c","exact":true}}`, want: api.Request{Action: api.WriteAction{Common: common, Path: "a", Content: "c", End: -1, Exact: new(true)}}},
	{name: "write in a dialect", action: `{"action":"write","args":{"path":"a","content":"c","dialect":"gemini","if_sha256":"00"}}`, want: api.Request{Action: api.WriteAction{Common: common, Path: "a", Content: "c", End: -1, Dialect: "gemini", IfSHA256: "00"}}},
	{name: "insert after a text", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":"two"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", InsertLine: new(api.LineNumber("two")), Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "insert after a numeric text", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":" 07"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", InsertLine: new(api.LineNumber(" 07")), Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "insert after a fraction", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":1.5}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", InsertLine: new(api.LineNumber("1.5")), Start: 1, End: -1, ImplSource: "oh_aci"}}, undocumented: true},
	{name: "insert after nothing", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":""}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", InsertLine: new(api.LineNumber("")), Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "insert after a whole fraction", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":1.0}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", InsertLine: new(api.LineNumber("1")), Start: 1, End: -1, ImplSource: "oh_aci"}}},
	{name: "insert after a list", action: `{"action":"edit","args":{"path":"/a","command":"insert","insert_line":[1],"new_str":"x"}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.EditAction{Common: common, Path: "/a", Command: "insert", NewStr: new("x"), Start: 1, End: -1, ImplSource: "oh_aci"},
		Reason: "Invalid insert_line value: a list. Expected an integer.",
	}}, undocumented: true},
	{name: "object for a text", action: `{"action":"edit","args":{"path":"/a","command":"create","file_text":{"a":1},"old_str":5}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.EditAction{Common: common, Path: "/a", Command: "create", Start: 1, End: -1, ImplSource: "oh_aci"},
		Reason: "Invalid `file_text` parameter: it should be a string, got an object.",
	}}, undocumented: true},
	{name: "half of a pair for the editor", action: `{"action":"edit","args":{"path":"/a","command":"str_replace","old_str":"a\ud83d"}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.EditAction{Common: common, Path: "/a", Command: "str_replace", Start: 1, End: -1, ImplSource: "oh_aci"},
		Reason: "Invalid `old_str` parameter: it should be a string, got a string with half of a surrogate pair, which is no character.",
	}}},
	{name: "editor's command as a number", action: `{"action":"edit","args":{"path":"/a","command":5,"dialect":"strands"}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.EditAction{Common: common, Path: "/a", Start: 1, End: -1, ImplSource: "oh_aci", Dialect: "strands"},
		Reason: "Invalid `command` parameter: it should be a string, got the number 5.",
	}}, undocumented: true},
	{name: "view of booleans", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":[true,2]}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci", ViewRange: []int{1, 2}}}, undocumented: true},
	{name: "view of an empty text", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":""}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci"}}, undocumented: true},
	{name: "view of texts", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":["1",2.5,null,true,{}]}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci"},
		Reason: "Invalid `view_range` parameter: ['1', 2.5, None, True, an object]. It should be a list of two integers.",
	}}, undocumented: true},
	{name: "view of a text", action: `{"action":"read","args":{"path":"/a","impl_source":"oh_aci","view_range":"[1, 2]"}}`, want: api.Request{Action: api.InvalidAction{
		Of:     api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "oh_aci"},
		Reason: "Invalid `view_range` parameter: '[1, 2]'. It should be a list of two integers.",
	}}, undocumented: true},
	{name: "range that nobody looks at", action: `{"action":"read","args":{"path":"/a","view_range":"1-2"}}`, want: api.Request{Action: api.ReadAction{Common: common, Path: "/a", End: -1, ImplSource: "default"}}, undocumented: true},
	{name: "command that the editor refuses", action: `{"action":"edit","args":{"path":"/a","command":"fly"}}`, want: api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "fly", Start: 1, End: -1, ImplSource: "oh_aci"}}},

	{name: "browse", action: `{"action":"browse","args":{"url":"http://a"}}`, want: api.Request{Action: api.BrowseAction{Common: common, URL: "http://a"}}},
	{name: "browse for the tree", action: `{"action":"browse","args":{"url":"http://a","return_axtree":true}}`, want: api.Request{Action: api.BrowseAction{Common: common, URL: "http://a", ReturnAXTree: true}}},
	{name: "browse_interactive", action: `{"action":"browse_interactive","args":{"browser_actions":"noop()","browsergym_send_msg_to_user":"m","return_axtree":true}}`, want: api.Request{Action: api.BrowseInteractiveAction{Common: common, BrowserActions: "noop()", SendMessageToUser: "m", ReturnAXTree: true}}},

	{name: "command of a wrong type", action: `{"action":"run","args":{"command":5},"session":"s"}`, want: api.Request{Action: api.InvalidAction{Of: api.RunAction{Common: common}, Reason: `action "run": argument "command" must be a string, got the number 5`}, Session: "s"}, undocumented: true},
	{name: "no command at all", action: `{"action":"run","args":{"command":null},"timeout":"x"}`, want: api.Request{Action: api.InvalidAction{Of: api.RunAction{Common: common}, Reason: `action "run": argument "command" must be a string, got null`}}, undocumented: true},
	{name: "half of a pair in a command", action: `{"action":"run","args":{"command":"a\udc00"}}`, want: api.Request{Action: api.InvalidAction{Of: api.RunAction{Common: common}, Reason: `action "run": argument "command" must be a string, got a string with half of a surrogate pair, which is no character`}}, undocumented: true},
	{name: "timeout of a wrong type", action: `{"action":"run","args":{"command":"ls"},"timeout":"soon"}`, want: api.Request{Action: api.InvalidAction{Of: api.RunAction{Common: common, Command: "ls"}, Reason: `action "run": "timeout" must be a finite number of seconds, got the string "soon"`}}, undocumented: true},
	{name: "timeout beyond all floats", action: `{"action":"run","args":{"command":"ls"},"timeout":1e999}`, want: api.Request{Action: api.InvalidAction{Of: api.RunAction{Common: common, Command: "ls"}, Reason: `action "run": "timeout" must be a finite number of seconds, got the number 1e999`}}},
}

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	for _, tt := range accepted {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := []byte(`{"action":` + tt.action + `}`)
			got, err := api.DecodeRequest(body)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if strings.Contains(tt.name, "half of a pair") || strings.Contains(tt.action, "1e999") || strings.Contains(tt.name, "equal names") {
				return // not for a JSON library to judge
			}
			if err := spec.CheckRequest("POST", "/execute_action", "application/json", body); (err != nil) != tt.undocumented {
				t.Errorf("the document says %v, want undocumented: %t", err, tt.undocumented)
			}
		})
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	const runnable = "allowed are run, exec, run_ipython, read, write, edit, glob, grep, list_directory, browse, browse_interactive"
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := api.DecodeRequest([]byte(tt.body))
			refusal, ok := errors.AsType[*api.Error](err)
			if !ok || !reflect.DeepEqual(r, api.Request{}) {
				t.Fatalf("got %+v and %v, want a refusal alone", r, err)
			}
			want := strings.ReplaceAll(tt.want, "RUNNABLE", runnable)
			if refusal.Status == 422 {
				if refusal.Detail != "Invalid request parameters" || !strings.Contains(refusal.Errors, want) {
					t.Errorf("got %+v, want errors with %q", refusal, want)
				}
			} else if !strings.Contains(refusal.Detail, want) || refusal.Errors != "" {
				t.Errorf("got %+v, want a detail with %q", refusal, want)
			}
			if refusal.Status != tt.status {
				t.Errorf("status: got %d, want %d", refusal.Status, tt.status)
			}
			if err := spec.CheckResponse("POST", "/execute_action", refusal.Status, "application/json", api.EncodeError(refusal)); err != nil {
				t.Error(err)
			}
			if strings.Contains(refusal.Detail, "\n") || len(refusal.Detail) > 600 {
				t.Errorf("detail of %d characters: %q", len(refusal.Detail), refusal.Detail)
			}
		})
	}
}

var refused = []struct {
	name, body string
	status     int
	want       string // part of errors or detail
}{
	{"nothing", ``, 422, "body: not valid JSON: ends where an object"},
	{"no JSON", `run ls`, 422, `'r' at byte 0`},
	{"cut", `{"action":{"action":"run","args":{"command":"l`, 422, "ends where a closing quote should stand"},
	{"no object", `[{"action":{}}]`, 422, `body: must be an object {"action": {…}}, got a list`},
	{"null alone", ` null `, 422, `body: must be an object {"action": {…}}, got null`},
	{"no object, and cut", `[{"action":`, 422, `body: not valid JSON: '[' at byte 0`},
	{"a list and more", `[] {}`, 422, `body: not valid JSON: '[' at byte 0`},
	{"more than one value", `{"action":{"action":"run","args":{"command":"ls"}}} x`, 422, "'x' at byte 52, where the end should stand"},
	{"byte order mark", "\ufeff{}", 422, `'\ufeff' at byte 0`},
	{"no action", `{}`, 422, "body.action: missing"},
	{"action is null", `{"action":null}`, 422, `"command": "ls"}}, got null`},
	{"action is a list", `{"action":[1]}`, 422, `"command": "ls"}}, got a list`},
	{"action is a string", `{"action":"run"}`, 422, `must be an object such as {"action": "run", "args": {"command": "ls"}}, got the string "run"`},
	{"the last of equal actions", `{"action":{"action":"run","args":{"command":"ls"}},"action":1}`, 422, "got the number 1"},
	{"the arguments of an earlier action", `{"action":{"action":"run","args":{"command":"ls"}},"action":{"action":"run"}}`, 400, `"command" is missing`},
	{"names are case-sensitive", `{"Action":{"action":"run","args":{"command":"ls"}}}`, 422, "missing"},
	{"not a number", `{"action":{"action":"run","args":{"command":"ls"},"timeout":NaN}}`, 422, "'N' at byte 60, where a value should stand"},
	{"not UTF-8", "{\"action\":{\"action\":\"run\",\"args\":{\"command\":\"\xff\"}}}", 422, "not valid UTF-8 at byte 45"},
	{"control character", "{\"action\":{\"action\":\"run\",\"args\":{\"command\":\"a\nb\"}}}", 422, "an escape instead of a control character"},
	{"escape that is none", `{"action":{"action":"run","args":{"command":"\q"}}}`, 422, "'q' at byte 46"},
	{"short escape", `{"action":{"action":"run","args":{"command":"\u12"}}}`, 422, "a hexadecimal digit"},
	{"single quotes", `{'action':{}}`, 422, "a name in quotes"},
	{"no colon", `{"action" {}}`, 422, "a colon"},
	{"comma at the end", `{"action":{},}`, 422, "a name in quotes"},
	{"no comma", `{"action":{} "b":1}`, 422, "a comma or }"},
	{"list without comma", `{"a":[1 2]}`, 422, "a comma or ]"},
	{"leading zero", `{"a":01}`, 422, "a comma or }"},
	{"no digit after the point", `{"a":1.}`, 422, "a digit"},
	{"no digit after the minus", `{"a":-}`, 422, "a digit"},
	{"no digit after the e", `{"a":1e+}`, 422, "a digit"},
	{"half a word", `{"a":tru}`, 422, "true should stand"},
	{"too deep", `{"action":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, 422, "nested deeper than 1000"},
	{"too deep where nobody looks", `{"x":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_000) + `}`, 422, "nested deeper than 1000"},
	{"too many values", `{"action":{"action":"read","args":{"path":"a","view_range":[` + strings.Repeat("1,", 20_000) + `1]}}}`, 422, "too many values"},

	{"empty", `{"action":{}}`, 400, `the action object has no "action"; RUNNABLE`},
	{"an observation", `{"action":{"observation":"run","content":"x","extras":{"command":"x"}}}`, 400, "an observation came where an action is wanted; RUNNABLE"},
	{"kind of a wrong type", `{"action":{"action":["run"]}}`, 400, `"action" must be a string, got a list; RUNNABLE`},
	{"unknown kind", `{"action":{"action":"fly","args":{}}}`, 400, `action "fly" is unknown; RUNNABLE`},
	{"unknown and long kind", `{"action":{"action":"` + strings.Repeat("é", 1000) + `"}}`, 400, `éé"… is unknown`},
	{"think", `{"action":{"action":"think","args":{"thought":"hmm"}}}`, 400, `action "think" is not for a sandbox to carry out; RUNNABLE`},
	{"finish", `{"action":{"action":"finish","args":{}}}`, 400, "not for a sandbox"},
	{"message", `{"action":{"action":"message","args":{"content":"hello"}}}`, 400, "not for a sandbox"},
	{"null", `{"action":{"action":"null","args":{}}}`, 400, "not for a sandbox"},
	{"tool of no name", `{"action":{"action":"call_tool_mcp","args":{"arguments":{}}}}`, 400, `argument "name" is missing`},
	{"tool with arguments of a wrong type", `{"action":{"action":"call_tool_mcp","args":{"name":"a","arguments":[1]}}}`, 400, `"arguments" must be an object, got a list`},
	{"exec of nothing", `{"action":{"action":"exec","args":{}}}`, 400, `action "exec": argument "command" or action "exec": argument "argv": one of both must come, and hold something`},
	{"exec of both", `{"action":{"action":"exec","args":{"command":"ls","argv":["ls"]}}}`, 400, `one of both`},
	{"exec of no words", `{"action":{"action":"exec","args":{"argv":[]}}}`, 400, `one of both`},
	{"exec of a number", `{"action":{"action":"exec","args":{"command":5}}}`, 400, `"command" must be a string, got the number 5`},
	{"exec of a text for words", `{"action":{"action":"exec","args":{"argv":"ls"}}}`, 400, `"argv" must be a list of strings, got the string "ls"`},
	{"exec of numbers", `{"action":{"action":"exec","args":{"argv":["ls",1]}}}`, 400, `"argv" must be a list of strings, got the number 1`},
	{"exec with NUL", `{"action":{"action":"exec","args":{"argv":["a\u0000b"]}}}`, 400, `NUL character`},
	{"exec with NUL in a line", `{"action":{"action":"exec","args":{"command":"a\u0000b"}}}`, 400, `NUL character`},
	{"exec in a directory with NUL", `{"action":{"action":"exec","args":{"command":"a","cwd":"a\u0000b"}}}`, 400, `"cwd" must be without a NUL character`},
	{"exec with a variable of no name", `{"action":{"action":"exec","args":{"command":"a","env":{"A-B":"secret"}}}}`, 400, `"A-B" is no name of a variable`},
	{"exec with a variable that is no text", `{"action":{"action":"exec","args":{"command":"a","env":{"A":1}}}}`, 400, `the value of A must be a string`},
	{"exec with a list of variables", `{"action":{"action":"exec","args":{"command":"a","env":["A=1"]}}}`, 400, `"env" must be an object`},
	{"exec as a number", `{"action":{"action":"exec","args":{"command":"a","user":0}}}`, 400, `"user" must be a string, got the number 0`},
	{"exec with stdin of no kind", `{"action":{"action":"exec","args":{"command":"a","stdin":"file"}}}`, 400, `"stdin" must be "none", "text" or "stream", got the string "file"`},
	{"exec with a stream and input", `{"action":{"action":"exec","args":{"command":"a","stdin":"stream","input":"x"}}}`, 400, `"stdin" must be "text" where there is an "input"`},
	{"exec with input for nobody", `{"action":{"action":"exec","args":{"command":"a","stdin":"none","input":"x"}}}`, 400, `"stdin" must be "text" where there is an "input"`},
	{"exec with two inputs", `{"action":{"action":"exec","args":{"command":"a","input":"x","input_base64":"/w=="}}}`, 400, `"input_base64" must be absent where there is an "input"`},
	{"exec with a stream and bytes", `{"action":{"action":"exec","args":{"command":"a","stdin":"stream","input_base64":"/w=="}}}`, 400, `"stdin" must be "text" where there is an "input_base64"`},
	{"exec with bytes that are none", `{"action":{"action":"exec","args":{"command":"a","input_base64":"?"}}}`, 400, `"input_base64" must be a string in base64`},
	{"exec with bytes in numbers", `{"action":{"action":"exec","args":{"command":"a","input_base64":[1]}}}`, 400, `"input_base64" must be a string in base64`},
	{"exec on no terminal", `{"action":{"action":"exec","args":{"command":"a","tty":true}}}`, 400, `"tty" must be an object, got true`},
	{"exec on a terminal of nothing", `{"action":{"action":"exec","args":{"command":"a","tty":{"rows":0}}}}`, 400, `rows and cols must be from 1 to 1000, got 0 and 80`},
	{"exec on an odd terminal", `{"action":{"action":"exec","args":{"command":"a","tty":{"width":3}}}}`, 400, `"width" is unknown`},
	{"exec that ends before", `{"action":{"action":"exec","args":{"command":"a","kill_after":-1}}}`, 400, `"kill_after" must be a number of seconds that is not negative, got the number -1`},
	{"exec that never ends", `{"action":{"action":"exec","args":{"command":"a","kill_after":1e999}}}`, 400, `"kill_after" must be`},
	{"exec with what is unknown", `{"action":{"action":"exec","args":{"command":"a","shell":true}}}`, 400, `argument "shell" is unknown; allowed are command, argv, cwd, user, env, clear_env, inherit, stdin, input, input_base64, tty, kill_after`},
	{"start", `{"action":{"action":"start","args":{}}}`, 400, "not for a sandbox"},
	{"args of a wrong type", `{"action":{"action":"run","args":"ls"}}`, 400, `action "run": "args" must be an object, got the string "ls"`},
	{"args are null", `{"action":{"action":"run","args":null}}`, 400, `"args" must be an object, got null`},
	{"no args", `{"action":{"action":"run"}}`, 400, `argument "command" is missing; allowed are command (required), is_input, blocking, is_static, cwd, hidden, reset, return_on_input, dialect, thought, security_risk, confirmation_state`},
	{"misspelt argument", `{"action":{"action":"run","args":{"comand":"x"}}}`, 400, `action "run": argument "command" is missing, and "comand" is unknown; allowed are command (required)`},
	{"unknown argument", `{"action":{"action":"run","args":{"command":"x","bogus":1}}}`, 400, `action "run": argument "bogus" is unknown; allowed are command (required), is_input`},
	{"unknown argument beside a wrong one", `{"action":{"action":"run","args":{"command":5,"bogus":1}}}`, 400, `"bogus" is unknown`},
	{"argument of another action", `{"action":{"action":"edit","args":{"path":"/a","view_range":[1,2]}}}`, 400, `action "edit": argument "view_range" is unknown`},
	{"old name where the new one is unknown", `{"action":{"action":"read","args":{"path":"a","is_confirmed":"confirmed"}}}`, 400, `"confirmation_state" is unknown`},
	{"merged argument that is unknown", `{"action":{"action":"read","args":{"path":"a","translated_ipython_code":"print(file_editor(**{'file_text': 'x'}))"}}}`, 400, `"file_text" is unknown`},
	{"timeout among the arguments", `{"action":{"action":"run","args":{"command":"x","timeout":1}}}`, 400, `"timeout" is unknown`},
	{"flag as a string", `{"action":{"action":"run","args":{"command":"x","is_input":"true"}}}`, 400, `argument "is_input" must be true or false, got the string "true"`},
	{"flag as a number", `{"action":{"action":"run","args":{"command":"x","hidden":1}}}`, 400, `argument "hidden" must be true or false, got the number 1`},
	{"text as a number", `{"action":{"action":"run","args":{"command":"x","cwd":1}}}`, 400, `argument "cwd" must be a string, got the number 1`},
	{"path as null", `{"action":{"action":"read","args":{"path":null}}}`, 400, `argument "path" must be a string, got null`},
	{"path with half of a pair", `{"action":{"action":"read","args":{"path":"\ud83d"}}}`, 400, `argument "path" must be a string, got a string with half of a surrogate pair`},
	{"path with two halves in the wrong order", `{"action":{"action":"read","args":{"path":"\ude80\ud83d"}}}`, 400, "half of a surrogate pair"},
	{"line as a text", `{"action":{"action":"read","args":{"path":"a","start":"1"}}}`, 400, `argument "start" must be an integer, got the string "1"`},
	{"line as a fraction", `{"action":{"action":"read","args":{"path":"a","end":1.5}}}`, 400, `argument "end" must be an integer, got the number 1.5`},
	{"line beyond all integers", `{"action":{"action":"read","args":{"path":"a","end":` + strings.Repeat("9", 400) + `}}}`, 400, "must be an integer, got the number 9999999999999999999999999999999999999999…"},
	{"line beyond exact floats", `{"action":{"action":"read","args":{"path":"a","end":1e17}}}`, 400, "must be an integer, got the number 1e17"},
	{"edit from an odd source", `{"action":{"action":"edit","args":{"path":"a","impl_source":"mine"}}}`, 400, `argument "impl_source" must be "oh_aci" or "llm_based_edit"`},
	{"dialect that nobody speaks", `{"action":{"action":"edit","args":{"path":"a","dialect":"klingon"}}}`, 400, `argument "dialect" must be one of "openhands-v1", "gemini", "strands", "anthropic", "agent_toolset_20260401", "actiond", got the string "klingon"`},
	{"read in an unknown format", `{"action":{"action":"read","args":{"path":"a","format":"html"}}}`, 400, `argument "format" must be "markdown", got the string "html"`},
	{"edits that are no list", `{"action":{"action":"edit","args":{"path":"a","edits":"x"}}}`, 400, `argument "edits" must be a list of objects`},
	{"edits of texts", `{"action":{"action":"edit","args":{"path":"a","edits":["x"]}}}`, 400, `argument "edits" must be a list of objects with "old_str" and "new_str", got the string "x"`},
	{"edit without new_str", `{"action":{"action":"edit","args":{"path":"a","edits":[{"old_str":"a"}]}}}`, 400, `"edits"[0]: member "new_str" is missing`},
	{"edit with an odd member", `{"action":{"action":"edit","args":{"path":"a","edits":[{"old_str":"a","new_str":"b","all":1}]}}}`, 400, `"edits"[0]: member "all" is unknown`},
	{"edit by null", `{"action":{"action":"edit","args":{"path":"a","impl_source":null}}}`, 400, `argument "impl_source" must be "oh_aci" or "llm_based_edit", got null`},
	{"hidden and no command", `{"action":{"action":"run","args":{"command":5,"hidden":true}}}`, 400, `argument "command" must be a string, got the number 5`},
	{"hidden and no timeout", `{"action":{"action":"run","args":{"command":"x","hidden":true},"timeout":[]}}`, 400, `"timeout" must be a finite number of seconds, got a list`},
	{"timeout of a read", `{"action":{"action":"read","args":{"path":"x"},"timeout":"1"}}`, 400, `action "read": "timeout" must be a finite number of seconds, got the string "1"`},
	{"source", `{"action":{"action":"run","args":{"command":"x"},"source":"martian"}}`, 400, `"source" must be one of agent, user, environment, got the string "martian"`},
	{"source is null", `{"action":{"action":"run","args":{"command":"x"},"source":null}}`, 400, `got null`},
	{"id", `{"action":{"action":"run","args":{"command":"x"},"id":"7"}}`, 400, `"id" must be an integer, got the string "7"`},
	{"session of a wrong type", `{"action":{"action":"run","args":{"command":"x"},"session":7}}`, 400, `"session" must be a string, got the number 7`},
	{"session with a slash", `{"action":{"action":"run","args":{"command":"x"},"session":"a/b"}}`, 400, `"session" must be 1 to 64 characters`},
	{"session in another script", `{"action":{"action":"run","args":{"command":"x"},"session":"é"}}`, 400, `"session" must be`},
	{"session that is too long", `{"action":{"action":"run","args":{"command":"x"},"session":"` + strings.Repeat("x", 65) + `"}}`, 400, `"session" must be`},
	{"session that climbs", `{"action":{"action":"run","args":{"command":"x"},"session":".."}}`, 400, `got the string ".."`},
}

func TestEncodeRequestRefuses(t *testing.T) {
	t.Parallel()
	run := api.RunAction{Command: "ls"}
	tests := []struct {
		name string
		r    api.Request
		want string
	}{
		{"nothing", api.Request{}, "encoding request: the action is nil"},
		{"invalid", api.Request{Action: api.InvalidAction{Of: run, Reason: "x"}}, "encoding run action: an invalid action has no arguments to send"},
		{"not UTF-8", api.Request{Action: api.RunAction{Command: "\xff"}}, "encoding run action: a text is not valid UTF-8"},
		{"timeout", api.Request{Action: run, Timeout: new(math.NaN())}, "encoding run action: timeout nan is not finite"},
		{"session", api.Request{Action: run, Session: "a b"}, `encoding run action: "session" must be 1 to 64 characters of A-Z a-z 0-9 . _ - and not "." or "..", got the string "a b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if body, err := api.EncodeRequest(tt.r); err == nil || err.Error() != tt.want || body != nil {
				t.Errorf("got %q, %v, want %s", body, err, tt.want)
			}
		})
	}
}

func TestEncodeRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		r    api.Request
		want string
	}{
		{
			"run",
			api.Request{Action: api.RunAction{Common: common, Command: "a<b"}, ID: 12, Timeout: new(120.0)},
			`{"action":{"id":12,"action":"run","args":{"command":"a<b","is_input":false,"blocking":false,"is_static":false,"cwd":null,"hidden":false,"thought":"","security_risk":-1},"timeout":120.0}}`,
		},
		{
			"edit",
			api.Request{Action: api.EditAction{Common: common, Path: "/a", Command: "insert", NewStr: new("x"), InsertLine: new(api.LineNumber("2")), Start: 1, End: -1}, Session: "s"},
			`{"action":{"action":"edit","args":{"path":"/a","command":"insert","file_text":null,"old_str":null,"new_str":"x","insert_line":2,"start":1,"end":-1,"thought":"","security_risk":-1,"impl_source":"oh_aci"},"session":"s"}}`,
		},
		{
			"call_tool_mcp",
			api.Request{Action: api.MCPAction{Common: common, Name: "n", Arguments: map[string]any{"b": []int{1}, "a": "<"}}},
			`{"action":{"action":"call_tool_mcp","args":{"name":"n","arguments":{"a":"<","b":[1]},"thought":"","security_risk":-1}}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, err := api.EncodeRequest(tt.r)
			if err != nil {
				t.Fatal(err)
			}
			if string(body) != tt.want {
				t.Errorf("got  %s\nwant %s", body, tt.want)
			}
		})
	}
}

// FuzzDecodeRequest: a request or a refusal and never both; a request that can
// be sent means the same when it is sent again.
func FuzzDecodeRequest(f *testing.F) {
	for _, tt := range accepted {
		f.Add([]byte(`{"action":` + tt.action + `}`))
	}
	for _, tt := range refused {
		if len(tt.body) < 1000 {
			f.Add([]byte(tt.body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := api.DecodeRequest(body)
		if err != nil {
			refusal, ok := errors.AsType[*api.Error](err)
			if !ok || refusal.Status != 400 && refusal.Status != 422 || refusal.Detail == "" {
				t.Fatalf("refused with %#v", err)
			}
			if !reflect.DeepEqual(first, api.Request{}) {
				t.Fatalf("got %+v beside %v", first, err)
			}
			return
		}
		if invalid, ok := first.Action.(api.InvalidAction); ok {
			if invalid.Reason == "" {
				t.Fatal("invalid for no reason")
			}
			return
		}
		again, err := api.EncodeRequest(first)
		if err != nil {
			t.Fatalf("encoding %+v: %v", first, err)
		}
		second, err := api.DecodeRequest(again)
		if err != nil {
			t.Fatalf("decoding %s: %v", again, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("first  %+v\nsecond %+v", first, second)
		}
	})
}
