package tools_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/testhelp"
)

// args makes the JSON of an action.
func action(kind, args string) string {
	return `{"action":{"action":"` + kind + `","args":{"thought":"","security_risk":-1,` + args + `}},"is_error":false}`
}

func run(command, more string) string {
	return action("run", `"command":`+command+`,"is_input":false,"blocking":false,"is_static":false,"cwd":null,"hidden":false`+more)
}

func edit(path, command, rest string) string {
	args := `"path":"` + path + `","command":"` + command + `","file_text":null,"old_str":null,"new_str":null,"insert_line":null,"start":1,"end":-1,"impl_source":"oh_aci"`
	if rest != "" {
		args += "," + rest
	}
	return action("edit", args)
}

// Each tool of each dialect becomes this action, member by member.
func TestTranslate(t *testing.T) {
	t.Parallel()
	const notice = `{"action":null,"is_error":false,"observation":{"extras":{},`
	tests := []struct{ dialect, tool, arguments, want string }{
		{"", "execute_bash", `{"command":"ls"}`, run(`"ls"`, "")},
		{"", "execute_bash", `{"command":"C-c","is_input":"true","security_risk":"HIGH"}`, run(`"C-c"`, `,"is_input":true,"security_risk":2`)},
		{"", "execute_bash", `{"command":"make","timeout":30,"security_risk":"no risk at all"}`, strings.Replace(run(`"make"`, `,"blocking":true`), `}},"is_error"`, `},"timeout":30.0},"is_error"`, 1)},
		{"", "execute_ipython_cell", `{"code":"1"}`, action("run_ipython", `"code":"1","include_extra":true,"kernel_init_code":""`)},
		{"", "str_replace_editor", `{"command":"view","path":"/a","view_range":[1,2]}`, action("read", `"path":"/a","start":0,"end":-1,"impl_source":"oh_aci","view_range":[1,2]`)},
		{"", "str_replace_editor", `{"command":"create","path":"/a","file_text":"x"}`, edit("/a", "create", `"file_text":"x"`)},
		{"", "str_replace_editor", `{"command":"str_replace","path":"/a","old_str":"x","security_risk":"LOW"}`, edit("/a", "str_replace", `"old_str":"x","security_risk":0`)},
		{"", "str_replace_editor", `{"command":"insert","path":"/a","insert_line":"3","new_str":"x"}`, edit("/a", "insert", `"insert_line":3,"new_str":"x"`)},
		{"", "str_replace_editor", `{"command":"undo_edit","path":"/a","if_sha256":"ab"}`, edit("/a", "undo_edit", `"if_sha256":"ab"`)},
		{"", "str_replace_editor", `{"command":"str_replace","path":"/a","edits":[{"old_str":"a","new_str":"b"},{"old_string":"c","new_string":"d","allow_multiple":true}]}`, edit("/a", "str_replace", `"edits":[{"old_str":"a","new_str":"b"},{"old_str":"c","new_str":"d","allow_multiple":true}]`)},
		{"", "edit_file", `{"path":"/a","content":"x"}`, edit("/a", "", `"content":"x","impl_source":"llm_based_edit"`)},
		{"", "edit_file", `{"path":"/a","content":"x","start":3,"end":"9"}`, edit("/a", "", `"content":"x","start":3,"end":9,"impl_source":"llm_based_edit"`)},
		{"", "browser", `{"code":"noop()"}`, action("browse_interactive", `"browser_actions":"noop()","browsergym_send_msg_to_user":"","return_axtree":false`)},
		{"", "think", `{"thought":"hm"}`, notice + `"message":"Your thought has been logged.","observation":"think","content":"Your thought has been logged.","outcome":"succeeded"}}`},
		{"", "finish", `{"message":"done"}`, notice + `"message":"done","observation":"success","content":"done","outcome":"succeeded"}}`},
		{"", "task_tracker", `{"command":"plan","task_list":[{"id":"1","title":"x","status":"todo"}]}`, `{"action":null,"is_error":false,"observation":{"message":"","observation":"task_tracking","content":"","extras":{"command":"plan","task_list":[{"id":"1","title":"x","status":"todo","notes":""}]},"outcome":"succeeded"}}`},

		{"openhands-v1", "terminal", `{"command":"ls","is_input":false,"security_risk":"LOW","summary":"look"}`, run(`"ls"`, `,"dialect":"openhands-v1","security_risk":0`)},
		{"openhands-v1", "terminal", `{"command":"","is_input":true}`, run(`""`, `,"dialect":"openhands-v1"`)},
		{"openhands-v1", "terminal", `{"command":" y","is_input":true}`, strings.Replace(run(`" y"`, `,"dialect":"openhands-v1"`), `"is_input":false`, `"is_input":true`, 1)},
		{"", "execute_bash", `{"command":" y\n","is_input":"true"}`, strings.Replace(run(`"y"`, ""), `"is_input":false`, `"is_input":true`, 1)},
		{"openhands-v1", "terminal", `{"command":"","reset":true}`, run(`""`, `,"reset":true,"dialect":"openhands-v1"`)},
		{"openhands-v1", "file_editor", `{"command":"view","path":"/a"}`, action("read", `"path":"/a","start":0,"end":-1,"impl_source":"oh_aci","view_range":null,"dialect":"openhands-v1"`)},
		{"openhands-v1", "file_editor", `{"command":"str_replace","path":"/a","old_str":"x","new_str":"y"}`, edit("/a", "str_replace", `"old_str":"x","new_str":"y","dialect":"openhands-v1"`)},
		{"openhands-v1", "apply_patch", `{"patch":"*** Begin Patch\n*** End Patch"}`, edit("", "apply_patch", `"patch":"*** Begin Patch\n*** End Patch","dialect":"openhands-v1"`)},
		{"openhands-v1", "glob", `{"pattern":"*.go"}`, action("glob", `"pattern":"**/*.go","path":"","ignore_case":false,"no_ignore":false`)},
		{"openhands-v1", "glob", `{"pattern":"a/*.go","path":"/w"}`, action("glob", `"pattern":"a/*.go","path":"/w","ignore_case":false,"no_ignore":false`)},
		{"openhands-v1", "grep", `{"pattern":"-x","include":"*.c"}`, action("grep", `"pattern":"-x","path":"","include":"*.c","exclude":"","ignore_case":true,"fixed_strings":false,"names_only":true,"no_ignore":false,"limit":0,"file_limit":0`)},
		{"openhands-v1", "think", `{"thought":""}`, notice + `"message":"Your thought has been logged.","observation":"think","content":"Your thought has been logged.","outcome":"succeeded"}}`},

		{"gemini", "read_file", `{"absolute_path":"/a","offset":5,"limit":3}`, action("read", `"path":"/a","start":0,"end":-1,"impl_source":"default","view_range":null,"dialect":"gemini","offset":5,"limit":3`)},
		{"gemini", "read_file", `{"path":"a","start_line":2,"end_line":2}`, action("read", `"path":"a","start":0,"end":-1,"impl_source":"default","view_range":null,"dialect":"gemini","start_line":2,"end_line":2`)},
		{"gemini", "write_file", `{"file_path":"a","content":""}`, action("write", `"path":"a","content":"","start":0,"end":-1,"dialect":"gemini"`)},
		{"gemini", "replace", `{"file_path":"a","old_string":"x","new_string":"y","instruction":"why","expected_replacements":"2"}`, edit("a", "replace", `"old_str":"x","new_str":"y","expected_replacements":2,"dialect":"gemini"`)},
		{"gemini", "replace", `{"file_path":"a","old_string":"","new_string":"y","allow_multiple":true,"fuzzy":true}`, edit("a", "replace", `"old_str":"","new_str":"y","allow_multiple":true,"fuzzy":true,"dialect":"gemini"`)},
		{"gemini", "list_directory", `{"path":"a","ignore":["*.o"],"file_filtering_options":{"respect_git_ignore":false}}`, action("list_directory", `"path":"a","ignore":["*.o"],"no_ignore":true`)},
		{"gemini", "list_directory", `{}`, action("list_directory", `"path":"","ignore":null,"no_ignore":false`)},
		{"gemini", "glob", `{"pattern":"*.go","dir_path":"a","case_sensitive":true,"respect_git_ignore":false}`, action("glob", `"pattern":"*.go","path":"a","ignore_case":false,"no_ignore":true`)},
		{"gemini", "search_file_content", `{"pattern":"x","include":"*.c"}`, action("grep", `"pattern":"x","path":"","include":"*.c","exclude":"","ignore_case":true,"fixed_strings":false,"names_only":false,"no_ignore":false,"limit":0,"file_limit":0`)},
		{"gemini", "grep_search", `{"pattern":"x","context":2,"after":0,"total_max_matches":5}`, action("grep", `"pattern":"x","path":"","include":"","exclude":"","ignore_case":true,"fixed_strings":false,"names_only":false,"no_ignore":false,"limit":5,"file_limit":0,"before":2,"after":0`)},
		{"gemini", "run_shell_command", `{"command":"ls","description":"look"}`, run(`"ls"`, `,"dialect":"gemini"`)},
		{"gemini", "run_shell_command", `{"command":"ls\npwd"}`, run(`"ls\npwd"`, `,"dialect":"gemini"`)},
		{"gemini", "run_shell_command", `{"command":"ls","dir_path":"it's"}`, run(`"(cd -- 'it'\\''s' && eval ' ls')"`, `,"dialect":"gemini"`)},
		{"gemini", "run_shell_command", `{"command":"# a\nserve","dir_path":"d","is_background":true}`, action("exec", `"command":"# a\nserve","cwd":"d","clear_env":false,"inherit":true,"stdin":"none"`)},
		{"gemini", "run_shell_command", `{"command":"serve","is_background":true,"delay_ms":5}`, action("exec", `"command":"serve","cwd":null,"clear_env":false,"inherit":true,"stdin":"none"`)},

		{"strands", "fileEditor", `{"command":"undo_edit","path":"/a"}`, edit("/a", "undo_edit", `"dialect":"strands"`)},
		{"", "str_replace_editor", `{"command":"insert","path":"/a","insert_line":3.0,"new_str":"x"}`, edit("/a", "insert", `"insert_line":3,"new_str":"x"`)},
		{"strands", "file_editor", `{"command":"insert","path":"/a","insert_line":0,"new_str":"x"}`, edit("/a", "insert", `"insert_line":0,"new_str":"x","dialect":"strands"`)},
		{"strands", "bash", `{"mode":"execute","command":"ls"}`, strings.Replace(run(`"ls"`, `,"blocking":true,"dialect":"strands"`), `}},"is_error"`, `},"timeout":120.0},"is_error"`, 1)},
		{"strands", "bash", `{"mode":"restart"}`, run(`""`, `,"reset":true`)},

		{"strands", "bash", `{"command":"ls","timeout":5}`, strings.Replace(run(`"ls"`, `,"blocking":true,"dialect":"strands"`), `}},"is_error"`, `},"timeout":5.0},"is_error"`, 1)},
		{"strands", "shell", `{"command":"ls; pwd"}`, action("exec", `"command":"ls; pwd","cwd":null,"clear_env":false,"stdin":"none","kill_after":120`)},
		{"strands", "shell", `{"command":"ls","timeout":"1.5"}`, action("exec", `"command":"ls","cwd":null,"clear_env":false,"stdin":"none","kill_after":1.5`)},
		{"strands", "read", `{"path":"/a"}`, action("read", `"path":"/a","start":0,"end":-1,"impl_source":"default","view_range":null,"dialect":"strands","offset":0,"limit":2000`)},
		{"strands", "read", `{"path":"/a","offset":3,"limit":2}`, action("read", `"path":"/a","start":0,"end":-1,"impl_source":"default","view_range":null,"dialect":"strands","offset":2,"limit":2`)},
		{"strands", "write", `{"path":"/a","content":"x"}`, action("write", `"path":"/a","content":"x","start":0,"end":-1,"dialect":"strands"`)},
		{"strands", "edit", `{"path":"/a","old_str":"x","new_str":""}`, edit("/a", "str_replace", `"old_str":"x","new_str":"","dialect":"strands"`)},

		{"agent_toolset_20260401", "bash", `{"command":"ls"}`, run(`"ls"`, `,"dialect":"agent_toolset_20260401"`)},
		{"agent_toolset_20260401", "bash", `{"command":"ls","restart":true,"timeout_ms":1500}`, strings.Replace(run(`"ls"`, `,"blocking":true,"reset":true,"dialect":"agent_toolset_20260401"`), `}},"is_error"`, `},"timeout":1.5},"is_error"`, 1)},
		{"agent_toolset_20260401", "bash", `{"restart":true}`, run(`""`, `,"reset":true,"dialect":"agent_toolset_20260401"`)},
		{"agent_toolset_20260401", "read", `{"file_path":"a","view_range":[2,3]}`, action("read", `"path":"a","start":0,"end":-1,"impl_source":"default","view_range":[2,3],"dialect":"agent_toolset_20260401"`)},
		{"agent_toolset_20260401", "write", `{"file_path":"a","content":"x"}`, action("write", `"path":"a","content":"x","start":0,"end":-1,"dialect":"agent_toolset_20260401"`)},
		{"agent_toolset_20260401", "edit", `{"file_path":"a","old_string":"x","new_string":"y","replace_all":true}`, edit("a", "replace", `"old_str":"x","new_str":"y","allow_multiple":true,"dialect":"agent_toolset_20260401"`)},
		{"agent_toolset_20260401", "glob", `{"pattern":"*.go","path":"a"}`, action("glob", `"pattern":"*.go","path":"a","ignore_case":false,"no_ignore":true`)},
		{"agent_toolset_20260401", "grep", `{"pattern":"x"}`, action("grep", `"pattern":"x","path":"","include":"","exclude":"","ignore_case":false,"fixed_strings":false,"names_only":false,"no_ignore":false,"limit":1000,"file_limit":0`)},

		{"anthropic", "bash", `{"command":"ls"}`, run(`"ls"`, `,"dialect":"anthropic"`)},
		{"anthropic", "bash", `{"restart":true}`, run(`""`, `,"reset":true,"dialect":"anthropic"`)},
		{"anthropic", "str_replace_based_edit_tool", `{"command":"insert","path":"/a","insert_line":2,"insert_text":"x"}`, edit("/a", "insert", `"insert_line":2,"new_str":"x","dialect":"anthropic"`)},
		{"anthropic", "str_replace_based_edit_tool", `{"command":"create","path":"/a","file_text":"x"}`, edit("/a", "create", `"file_text":"x","dialect":"anthropic"`)},

		{"actiond", "bash", `{"command":"ls\npwd"}`, run(`"ls\npwd"`, `,"return_on_input":true,"dialect":"actiond"`)},
		{"actiond", "bash", `{"command":"make","timeout":30}`, strings.Replace(run(`"make"`, `,"blocking":true,"return_on_input":true,"dialect":"actiond"`), `}},"is_error"`, `},"timeout":30.0},"is_error"`, 1)},
		{"actiond", "bash", `{"restart":true}`, run(`""`, `,"reset":true,"return_on_input":true,"dialect":"actiond"`)},
		{"actiond", "bash", `{"command":"DOWN","is_input":true}`, strings.Replace(run(`"DOWN"`, `,"return_on_input":true,"dialect":"actiond"`), `"is_input":false`, `"is_input":true`, 1)},
		{"actiond", "read", `{"path":"a","view_range":[1,-1]}`, action("read", `"path":"a","start":0,"end":-1,"impl_source":"oh_aci","view_range":[1,-1],"dialect":"actiond"`)},
		{"actiond", "edit", `{"path":"a","old_str":"x","new_str":"y","replace_all":null}`, edit("a", "str_replace", `"old_str":"x","new_str":"y","dialect":"actiond"`)},
		{"actiond", "edit", `{"path":"a","old_str":"x","new_str":"","replace_all":true}`, edit("a", "replace", `"old_str":"x","new_str":"","allow_multiple":true,"dialect":"actiond"`)},
		{"actiond", "edit", `{"path":"a","old_str":"null","new_str":"0"}`, edit("a", "str_replace", `"old_str":"null","new_str":"0","dialect":"actiond"`)},
		{"actiond", "edit", `{"path":"a","edits":[{"old_str":"x","new_str":"y"}]}`, edit("a", "str_replace", `"edits":[{"old_str":"x","new_str":"y"}],"dialect":"actiond"`)},
		{"actiond", "edit", `{"path":"a","old_str":"","new_str":"y","if_sha256":"ab"}`, action("write", `"path":"a","content":"y","start":0,"end":-1,"dialect":"actiond","if_sha256":"ab"`)},
		{"actiond", "search", `{"pattern":"x","include":"*.c","path":"d"}`, action("grep", `"pattern":"x","path":"d","include":"*.c","exclude":"","ignore_case":false,"fixed_strings":false,"names_only":false,"no_ignore":false,"limit":0,"file_limit":0`)},
		{"actiond", "search", `{"pattern":"null","path":"d"}`, action("grep", `"pattern":"null","path":"d","include":"","exclude":"","ignore_case":false,"fixed_strings":false,"names_only":false,"no_ignore":false,"limit":0,"file_limit":0`)},
		{"actiond", "search", `{"pattern":"","include":"*.c"}`, action("glob", `"pattern":"**/*.c","path":"","ignore_case":false,"no_ignore":false`)},

		{"", "message", `{"content":"hi","image_urls":[],"wait_for_response":true,"security_risk":-1}`, notice + `"message":"No observation","observation":"null","content":"","outcome":"succeeded"}}`},
		{"gemini", "reject", `{"outputs":{"reason":"no"}}`, notice + `"message":"No observation","observation":"null","content":"","outcome":"succeeded"}}`},
		{"", "finish", `{"outputs":{},"thought":""}`, notice + `"message":"","observation":"success","content":"","outcome":"succeeded"}}`},
		{"", "finish", `{"final_thought":"done","outputs":{}}`, notice + `"message":"done","observation":"success","content":"done","outcome":"succeeded"}}`},
		{"strands", "think", `{"thought":"hm"}`, notice + `"message":"Your thought has been logged.","observation":"think","content":"Your thought has been logged.","outcome":"succeeded"}}`},
		{"", "add_task", `{"parent":"0","goal":"x","subtasks":[]}`, notice + `"message":"No observation","observation":"null","content":"","outcome":"succeeded"}}`},
		{"", "modify_task", `{"task_id":"0.1","state":"completed"}`, notice + `"message":"No observation","observation":"null","content":"","outcome":"succeeded"}}`},
		{"anthropic", "task_tracking", `{"task_list":[]}`, `{"action":null,"is_error":false,"observation":{"message":"","observation":"task_tracking","content":"","extras":{"command":"view","task_list":[]},"outcome":"succeeded"}}`},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		seen[tt.dialect+" "+tt.tool] = true
		t.Run(tt.dialect+" "+tt.tool, func(t *testing.T) {
			t.Parallel()
			same(t, translate(t, tt.dialect, tt.tool, tt.arguments), tt.want)
		})
	}
	for _, dialect := range tools.Dialects() {
		for _, d := range tools.Definitions(dialect, everything) {
			if dialect == tools.Default {
				dialect = ""
			}
			shared := d.Name == "think" || d.Name == "finish" || d.Name == "task_tracker" || d.Action == tools.NeedsChanges || d.Action == tools.NeedsUndo || strings.Contains(d.Name, "_background_") // see TestWorkspace, TestBackground
			if !seen[dialect+" "+d.Name] && !shared {
				t.Errorf("no test translates %s of %q", d.Name, dialect)
			}
		}
	}
}

func everything(string) bool { return true }

func TestWorkspace(t *testing.T) {
	t.Parallel()
	for _, dialect := range tools.Dialects() {
		for _, tt := range []struct {
			name, arguments string
			want            tools.Workspace
		}{
			{"workspace_changes", "", tools.Workspace{}},
			{"workspace_changes", `{"since": "s1", "paths": ["a"], "thought": "t"}`, tools.Workspace{Since: "s1", Paths: []string{"a"}}},
			{"workspace_undo", `{"paths": []}`, tools.Workspace{Undo: true}},
			{"workspace_undo", `{"action": "17", "paths": "[\"a\", \"b\"]", "security_risk": "LOW"}`, tools.Workspace{Undo: true, Action: 17, Paths: []string{"a", "b"}}},
		} {
			call, problem := tools.Parse(dialect, tt.name, tt.arguments)
			if problem != nil || call.Workspace == nil || !reflect.DeepEqual(*call.Workspace, tt.want) {
				t.Errorf("%s %s %s: got %+v, %v", dialect, tt.name, tt.arguments, call.Workspace, problem)
			}
		}
	}
	for name, undo := range map[string]bool{"changes": false, "undo": true} {
		call, problem := tools.Parse("actiond", name, `{"paths": ["a"]}`)
		if want := (tools.Workspace{Undo: undo, Paths: []string{"a"}}); problem != nil || !reflect.DeepEqual(call.Workspace, &want) {
			t.Errorf("%s: got %+v, %v", name, call.Workspace, problem)
		}
	}
	for arguments, want := range map[string]string{
		`{"action": 0}`: `"action"`, `{"action": -1}`: `"action"`, `{"action": "x"}`: `"action"`, `{"paths": [1]}`: `"paths"`, `{"since": "s1"}`: `"since"`,
		`{"paths": ["a"` + strings.Repeat(`, "a"`, 100) + `]}`: "at most 100 paths, got 101",
	} {
		if _, problem := tools.Parse("", "workspace_undo", arguments); problem == nil || !strings.Contains(problem.Text, want) {
			t.Errorf("%.50s: got %v", arguments, problem)
		}
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, arguments string
		want            tools.Background
	}{
		{"run_shell_command", `{"command":"a","is_background":true}`, tools.Background{Delay: 200 * time.Millisecond}},
		{"run_shell_command", `{"command":"a","is_background":"true","delay_ms":"1500"}`, tools.Background{Delay: 1500 * time.Millisecond}},
		{"run_shell_command", `{"command":"a","is_background":true,"delay_ms":9000000000000000000}`, tools.Background{Delay: 10 * time.Minute}},
		{"list_background_processes", ``, tools.Background{}},
		{"read_background_output", `{"pid":7}`, tools.Background{PID: 7, Lines: 100}},
		{"read_background_output", `{"pid":7,"lines":3,"delay_ms":10}`, tools.Background{PID: 7, Lines: 3, Delay: 10 * time.Millisecond}},
	} {
		call, problem := tools.Parse("gemini", tt.name, tt.arguments)
		if problem != nil || call.Background == nil || *call.Background != tt.want {
			t.Errorf("%s %s: got %+v, %v", tt.name, tt.arguments, call.Background, problem)
		}
	}
	for _, arguments := range []string{`{"command":" ","is_background":true}`, `{"command":"a\u0000","is_background":true}`, `{"command":"a","is_background":true,"delay_ms":-1}`} {
		if _, problem := tools.Parse("gemini", "run_shell_command", arguments); problem == nil || problem.Code != tools.InvalidArgument {
			t.Errorf("%s: got %v", arguments, problem)
		}
	}
	if call, problem := tools.Parse("gemini", "run_shell_command", `{"command":"a","delay_ms":5}`); problem != nil || call.Background != nil {
		t.Errorf("in the foreground: got %+v, %v", call, problem)
	}
}

// What the schema cannot say of the arguments is said in words that name the tool's own.
func TestActiondRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tool, arguments, want string }{
		{"bash", `{}`, `argument "command" is missing`},
		{"bash", `{"command":"C-c","is_input":true,"restart":true}`, `"restart" and "is_input" cannot both be true`},
		{"edit", `{"path":"a","old_str":"x"}`, `argument "new_str" is missing`},
		{"edit", `{"path":"a","new_str":"x","replace_all":true}`, `"replace_all" needs "old_str"`},
		{"edit", `{"path":"a","old_str":"x","edits":[{"old_str":"x","new_str":"y"}]}`, `"edits" replaces`},
		{"search", `{"path":"a"}`, `argument "pattern" or "include" is missing`},
		{"execute_bash", `{}`, "tools are bash, read, edit, search, changes, undo"},
	} {
		if _, problem := tools.Parse("actiond", tt.tool, tt.arguments); problem == nil || !strings.Contains(problem.Text, tt.want) {
			t.Errorf("%s %s: got %v, want %q in it", tt.tool, tt.arguments, problem, tt.want)
		}
	}
}

// An unknown dialect or format is answered with what there is and what fits which model.
func TestUnknownNamesSayWhatFits(t *testing.T) {
	t.Parallel()
	const fits = "; dialect (format) by model: GPT and others actiond (openai-responses or openai), Claude anthropic (anthropic), "
	for _, tt := range []struct {
		err  error
		want string
	}{
		{tools.CheckDialect("gpt"), `dialect "gpt" is unknown; dialects are ` + strings.Join(tools.Dialects(), ", ") + fits},
		{tools.CheckDialect("openai"), "; openai is a format: format=openai" + fits},
		{tools.CheckFormat("responses"), `format "responses" is unknown; formats are ` + strings.Join(tools.Formats, ", ") + fits},
		{tools.CheckFormat("strands"), "; strands is a dialect: dialect=strands" + fits},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("got %v, want %q in it", tt.err, tt.want)
		}
	}
	page := string(testhelp.ReadFile(t, "../../docs/reference/toolcalls.md"))
	for _, c := range tools.Choices {
		if err := tools.CheckDialect(c.Dialect); err != nil {
			t.Error(err)
		}
		if row := "| " + c.Model + " | `" + c.Dialect + "` |"; !strings.Contains(page, row) {
			t.Errorf("the page of tool calls has no row %q", row)
		}
	}
	if err := errors.Join(tools.CheckDialect(""), tools.CheckFormat("")); err != nil {
		t.Error(err)
	}
}
