package tools_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/testhelp"
)

// meaning is a decision about a property of a vendor's tool: the call with the value has want in its translation, and
// the one without it has not; or why says that the property is taken and has no meaning here.
type meaning struct{ value, want, why string }

// means is what a value of a property becomes.
func means(value, want string) meaning { return meaning{value: value, want: want} }

// Reasons for what has no meaning here.
const (
	controllers = "the controller's: it asks a person, keeps the conversation or starts other agents"
	elsewhere   = "of the internet, and not of the sandbox: the controller has it, or a command"
	words       = "says what the call is for, to people"
	pages       = "this sandbox's browser takes the programs of the dialect openhands"
	answers     = "no action: the answer has it"
	tested      = "of the background alone: see TestBackground"
)

// decided has a call of each tool of a vendor, without its optional arguments, and the meaning of each property. Where a
// tool is not there, why says so.
var decided = []struct {
	dialect, tool, base, why string
	properties               map[string]meaning
}{
	{"openhands", "execute_bash", `{"command":"ls"}`, "", map[string]meaning{
		"command": means(`"pwd"`, `"command":"pwd"`), "is_input": means(`"true"`, `"is_input":true`), "timeout": means(`7`, `"timeout":7`),
		"security_risk": means(`"HIGH"`, `"security_risk":2`),
	}},
	{"openhands", "execute_ipython_cell", `{"code":"1"}`, "", map[string]meaning{
		"code": means(`"2"`, `"code":"2"`), "security_risk": means(`"HIGH"`, `"security_risk":2`),
	}},
	{"openhands", "str_replace_editor", `{"command":"create","path":"/a","file_text":"x"}`, "", editor("security_risk")},
	{"openhands", "edit_file", `{"path":"/a","content":"x"}`, "", map[string]meaning{
		"path": means(`"/b"`, `"path":"/b"`), "content": means(`"y"`, `"content":"y"`), "start": means(`3`, `"start":3`), "end": means(`4`, `"end":4`),
		"security_risk": means(`"HIGH"`, `"security_risk":2`),
	}},
	{"openhands", "browser", `{"code":"noop()"}`, "", map[string]meaning{
		"code": means(`"go_back()"`, `"browser_actions":"go_back()"`), "security_risk": means(`"HIGH"`, `"security_risk":2`),
	}},
	{"openhands", "think", `{"thought":"a"}`, "", map[string]meaning{"thought": {value: `"b"`, why: answers}}},
	{"openhands", "finish", `{"message":"a"}`, "", map[string]meaning{"message": means(`"b"`, `"content":"b"`)}},
	{"openhands", "task_tracker", `{"command":"view"}`, "", taskList()},
	{dialect: "openhands", tool: "request_condensation", why: controllers},

	{"openhands-v1", "terminal", `{"command":"ls"}`, "", map[string]meaning{
		"command": means(`"pwd"`, `"command":"pwd"`), "is_input": means(`true`, `"is_input":true`), "timeout": means(`7.5`, `"timeout":7.5`), "reset": means(`true`, `"reset":true`),
		"security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "file_editor", `{"command":"create","path":"/a","file_text":"x"}`, "", editor("security_risk", "summary")},
	{"openhands-v1", "apply_patch", `{"patch":"p"}`, "", map[string]meaning{
		"patch": means(`"q"`, `"patch":"q"`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "glob", `{"pattern":"a"}`, "", map[string]meaning{
		"pattern": means(`"b/c"`, `"pattern":"b/c"`), "path": means(`"/d"`, `"path":"/d"`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "grep", `{"pattern":"a"}`, "", map[string]meaning{
		"pattern": means(`"b"`, `"pattern":"b"`), "path": means(`"/d"`, `"path":"/d"`), "include": means(`"*.c"`, `"include":"*.c"`),
		"security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "think", `{"thought":"a"}`, "", map[string]meaning{
		"thought": {value: `"b"`, why: answers}, "security_risk": {value: `"LOW"`, why: answers}, "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "finish", `{"message":"a"}`, "", map[string]meaning{
		"message": means(`"b"`, `"content":"b"`), "security_risk": {value: `"LOW"`, why: answers}, "summary": {value: `"s"`, why: words},
	}},
	{"openhands-v1", "task_tracker", `{"command":"view"}`, "", withMeta(taskList(), answers)},
	{dialect: "openhands-v1", tool: "browser_*", why: pages},
	{dialect: "openhands-v1", tool: "delegate", why: controllers},
	{dialect: "openhands-v1", tool: "task", why: controllers},
	{dialect: "openhands-v1", tool: "tom_consult", why: controllers},
	{dialect: "openhands-v1", tool: "workflow", why: controllers},
	{dialect: "openhands-v1", tool: "planning_file_editor", why: "file_editor for one file, which the controller names"},

	{"gemini", "read_file", `{"file_path":"a"}`, "", map[string]meaning{
		"file_path": means(`"b"`, `"path":"b"`), "start_line": means(`7`, `"start_line":7`), "end_line": means(`8`, `"end_line":8`),
		"offset": means(`7`, `"offset":7`), "limit": means(`8`, `"limit":8`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"gemini", "write_file", `{"file_path":"a","content":"x"}`, "", map[string]meaning{
		"file_path": means(`"b"`, `"path":"b"`), "content": means(`"y"`, `"content":"y"`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"gemini", "replace", `{"file_path":"a","old_string":"x","new_string":"y"}`, "", map[string]meaning{
		"file_path": means(`"b"`, `"path":"b"`), "old_string": means(`"v"`, `"old_str":"v"`), "new_string": means(`"w"`, `"new_str":"w"`),
		"allow_multiple": means(`true`, `"allow_multiple":true`), "instruction": {value: `"i"`, why: words},
	}},
	{"gemini", "edit", `{"file_path":"a","old_string":"x","new_string":"y"}`, "", map[string]meaning{
		"file_path": means(`"b"`, `"path":"b"`), "old_string": means(`"v"`, `"old_str":"v"`), "new_string": means(`"w"`, `"new_str":"w"`),
		"expected_replacements": means(`3`, `"expected_replacements":3`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"gemini", "list_directory", `{"dir_path":"a"}`, "", map[string]meaning{
		"dir_path": means(`"b"`, `"path":"b"`), "ignore": means(`["*.o"]`, `"ignore":["*.o"]`), "recursive": means(`true`, `"recursive":true`),
		"file_filtering_options":                       means(`{"respect_git_ignore":false}`, `"no_ignore":true`),
		"file_filtering_options.respect_git_ignore":    means(`{"respect_git_ignore":false}`, `"no_ignore":true`),
		"file_filtering_options.respect_gemini_ignore": {value: `{"respect_gemini_ignore":false}`, why: oneSwitch},
		"security_risk":                                means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
	}},
	{"gemini", "glob", `{"pattern":"a"}`, "", map[string]meaning{
		"pattern": means(`"b"`, `"pattern":"b"`), "dir_path": means(`"c"`, `"path":"c"`), "case_sensitive": means(`true`, `"ignore_case":false`),
		"respect_git_ignore": means(`false`, `"no_ignore":true`), "respect_gemini_ignore": {value: `false`, why: oneSwitch},
	}},
	{"gemini", "grep_search", `{"pattern":"a"}`, "", map[string]meaning{
		"pattern": means(`"b"`, `"pattern":"b"`), "dir_path": means(`"c"`, `"path":"c"`), "include_pattern": means(`"*.c"`, `"include":"*.c"`), "exclude_pattern": means(`"d"`, `"exclude":"d"`),
		"names_only": means(`true`, `"names_only":true`), "case_sensitive": means(`true`, `"ignore_case":false`), "fixed_strings": means(`true`, `"fixed_strings":true`),
		"context": means(`2`, `"before":2,"after":2`), "after": means(`3`, `"after":3`), "before": means(`4`, `"before":4`), "no_ignore": means(`true`, `"no_ignore":true`),
		"max_matches_per_file": means(`5`, `"file_limit":5`), "total_max_matches": means(`6`, `"limit":6`),
	}},
	{"gemini", "run_shell_command", `{"command":"ls"}`, "", map[string]meaning{
		"command": means(`"pwd"`, `"command":"pwd"`), "description": {value: `"d"`, why: words}, "dir_path": means(`"/d"`, `cd -- '/d'`), "is_background": means(`true`, `"inherit":true`),
		"delay_ms":               {value: `200`, why: tested},
		"additional_permissions": {value: `{"network":true,"fileSystem":{"read":["/a"]}}`, why: "the controller's to grant: the sandbox has its policy from the operator"},
	}},
	{"gemini", "list_background_processes", `{}`, "", nil},
	{"gemini", "read_background_output", `{"pid":7}`, "", map[string]meaning{
		"pid": means(`8`, `PID:8`), "lines": means(`9`, `Lines:9`), "delay_ms": means(`10`, `Delay:10ms`),
	}},
	{dialect: "gemini", tool: "read_many_files", why: "several calls of read_file"},
	{dialect: "gemini", tool: "google_web_search", why: elsewhere},
	{dialect: "gemini", tool: "web_fetch", why: elsewhere},
	{dialect: "gemini", tool: "write_todos", why: controllers},
	{dialect: "gemini", tool: "get_internal_docs", why: controllers},
	{dialect: "gemini", tool: "activate_skill", why: controllers},
	{dialect: "gemini", tool: "ask_user", why: controllers},
	{dialect: "gemini", tool: "enter_plan_mode", why: controllers},
	{dialect: "gemini", tool: "exit_plan_mode", why: controllers},
	{dialect: "gemini", tool: "update_topic", why: controllers},
	{dialect: "gemini", tool: "complete_task", why: controllers},
	{dialect: "gemini", tool: "read_mcp_resource", why: controllers},
	{dialect: "gemini", tool: "list_mcp_resources", why: controllers},
	{dialect: "gemini", tool: "invoke_agent", why: controllers},
	{dialect: "gemini", tool: "tracker_*", why: controllers},

	{"strands", "shell", `{"command":"ls"}`, "", map[string]meaning{"command": means(`"pwd"`, `"command":"pwd"`), "timeout": means(`7`, `"kill_after":7`)}},
	{"strands", "read", `{"path":"/a"}`, "", map[string]meaning{"path": means(`"/b"`, `"path":"/b"`), "offset": means(`7`, `"offset":6`), "limit": means(`8`, `"limit":8`)}},
	{"strands", "write", `{"path":"/a","content":"x"}`, "", map[string]meaning{"path": means(`"/b"`, `"path":"/b"`), "content": means(`"y"`, `"content":"y"`)}},
	{"strands", "edit", `{"path":"/a","old_str":"x","new_str":"y"}`, "", map[string]meaning{
		"path": means(`"/b"`, `"path":"/b"`), "old_str": means(`"v"`, `"old_str":"v"`), "new_str": means(`"w"`, `"new_str":"w"`),
	}},
	{"strands", "fileEditor", `{"command":"create","path":"/a","file_text":"x"}`, "", editor()},
	{"strands", "file_editor", `{"command":"create","path":"/a","file_text":"x"}`, "", editor()},
	{"strands", "bash", `{"mode":"execute","command":"ls"}`, "", map[string]meaning{
		"mode": means(`"restart"`, `"reset":true`), "command": means(`"pwd"`, `"command":"pwd"`), "timeout": means(`7`, `"timeout":7`),
	}},

	{"anthropic", "bash", `{"command":"ls"}`, "", map[string]meaning{"command": means(`"pwd"`, `"command":"pwd"`), "restart": means(`true`, `"reset":true`)}},
	{"anthropic", "str_replace_based_edit_tool", `{"command":"create","path":"/a","file_text":"x"}`, "", editor("insert_text")},

	{"agent_toolset_20260401", "bash", `{"command":"ls"}`, "", map[string]meaning{
		"command": means(`"pwd"`, `"command":"pwd"`), "restart": means(`true`, `"reset":true`), "timeout_ms": means(`7500`, `"timeout":7.5`),
	}},
	{"agent_toolset_20260401", "read", `{"file_path":"a"}`, "", map[string]meaning{"file_path": means(`"b"`, `"path":"b"`), "view_range": means(`[1,-1]`, `"view_range":[1,-1]`)}},
	{"agent_toolset_20260401", "write", `{"file_path":"a","content":"x"}`, "", map[string]meaning{"file_path": means(`"b"`, `"path":"b"`), "content": means(`"y"`, `"content":"y"`)}},
	{"agent_toolset_20260401", "edit", `{"file_path":"a","old_string":"x","new_string":"y"}`, "", map[string]meaning{
		"file_path": means(`"b"`, `"path":"b"`), "old_string": means(`"v"`, `"old_str":"v"`), "new_string": means(`"w"`, `"new_str":"w"`), "replace_all": means(`true`, `"allow_multiple":true`),
	}},
	{"agent_toolset_20260401", "glob", `{"pattern":"a"}`, "", map[string]meaning{"pattern": means(`"b"`, `"pattern":"b"`), "path": means(`"c"`, `"path":"c"`)}},
	{"agent_toolset_20260401", "grep", `{"pattern":"a"}`, "", map[string]meaning{"pattern": means(`"b"`, `"pattern":"b"`), "path": means(`"c"`, `"path":"c"`)}},
	{dialect: "agent_toolset_20260401", tool: "web_fetch", why: elsewhere},
	{dialect: "agent_toolset_20260401", tool: "web_search", why: elsewhere},
}

// oneSwitch is why a property that is about .geminiignore alone has no effect.
const oneSwitch = "the files with what to ignore are followed or not, all of them: respect_git_ignore and no_ignore say so"

// ordering is what Gemini CLI adds to each of its tools.
const ordering = "wait_for_previous"

// editor has the properties of the editors with commands, and others.
func editor(more ...string) map[string]meaning {
	known := map[string]meaning{
		"command": means(`"view"`, `"action":"read"`), "path": means(`"/b"`, `"path":"/b"`), "file_text": means(`"y"`, `"file_text":"y"`),
		"old_str": means(`"v"`, `"old_str":"v"`), "new_str": means(`"w"`, `"new_str":"w"`), "insert_line": means(`3`, `"insert_line":3`),
		"insert_text": means(`"w"`, `"new_str":"w"`), "security_risk": means(`"HIGH"`, `"security_risk":2`), "summary": {value: `"s"`, why: words},
		"view_range": {value: `[1,2]`, why: "of the command view; see TestTranslate"},
	}
	properties := map[string]meaning{}
	for name, m := range known {
		if !slices.Contains([]string{"insert_text", "security_risk", "summary"}, name) || slices.Contains(more, name) {
			properties[name] = m
		}
	}
	return properties
}

func taskList() map[string]meaning {
	list := func(member string) string { return `[{` + member + `}]` }
	return map[string]meaning{
		"command": means(`"plan"`, `must be`), "task_list": means(list(`"title":"t"`), `"title":"t"`), "task_list.id": means(list(`"id":"i"`), `"id":"i"`), "task_list.title": means(list(`"title":"t"`), `"title":"t"`),
		"task_list.status": means(list(`"status":"done"`), `"status":"done"`), "task_list.notes": means(list(`"notes":"n"`), `"notes":"n"`),
	}
}

// withMeta adds the properties that the agent SDK adds to every tool.
func withMeta(properties map[string]meaning, why string) map[string]meaning {
	properties["security_risk"], properties["summary"] = meaning{value: `"LOW"`, why: why}, meaning{value: `"s"`, why: words}
	return properties
}

// Each property of a vendor's own current schema is taken with the meaning that it has there, or somebody decided
// otherwise. The file has their names, with the date and the source: what a vendor adds is added there.
func TestVendors(t *testing.T) {
	t.Parallel()
	var vendors []struct {
		Vendor, Dialect, Source, Date string
		Tools                         map[string][]string
	}
	if err := json.Unmarshal(testhelp.ReadFile(t, "testdata/vendors.json"), &vendors); err != nil {
		t.Fatal(err)
	}
	used, dialects := map[string]bool{}, map[string]bool{}
	for _, v := range vendors {
		dialects[v.Dialect] = true
		if len(v.Date) != len("2026-11-28") || v.Source == "" {
			t.Errorf("%s: from %q at %q", v.Vendor, v.Source, v.Date)
		}
		for _, tool := range slices.Sorted(maps.Keys(v.Tools)) {
			at := slices.IndexFunc(decided, func(d struct {
				dialect, tool, base, why string
				properties               map[string]meaning
			},
			) bool {
				prefix, all := strings.CutSuffix(d.tool, "*")
				return d.dialect == v.Dialect && (d.tool == tool || all && strings.HasPrefix(tool, prefix))
			})
			if at < 0 {
				t.Errorf("%s: nobody decided about the tool %s", v.Vendor, tool)
				continue
			}
			d := decided[at]
			used[d.dialect+" "+d.tool] = true
			if d.why != "" {
				if _, problem := tools.Parse(v.Dialect, tool, "{}"); problem == nil || problem.Code != tools.UnknownTool {
					t.Errorf("%s: %s is there, and the table says why it is not: %s", v.Vendor, tool, d.why)
				}
				continue
			}
			for _, property := range v.Tools[tool] {
				m, ok := d.properties[property]
				if property == ordering {
					m, ok = meaning{value: `true`, why: "the controller's: it orders the calls of an answer"}, true
				}
				if !ok {
					t.Errorf("%s: nobody decided about %s of %s", v.Vendor, property, tool)
					continue
				}
				used[d.dialect+" "+d.tool+" "+property] = true
				checkMeaning(t, v.Dialect, tool, d.base, property, m)
			}
		}
	}
	for _, d := range decided {
		if !used[d.dialect+" "+d.tool] {
			t.Errorf("no vendor has %s %s", d.dialect, d.tool)
		}
		for property := range d.properties {
			if name := d.dialect + " " + d.tool + " " + property; !used[name] && property != "task_list.id" {
				t.Errorf("no vendor has %s", name)
			}
		}
	}
	for _, dialect := range tools.Dialects() {
		if !dialects[dialect] && dialect != "actiond" { // it is ours
			t.Errorf("no vendor has the dialect %s", dialect)
		}
	}
}

// checkMeaning compares a call with a property and one without it.
func checkMeaning(t *testing.T, dialect, tool, base, property string, m meaning) {
	t.Helper()
	becomes := func(arguments string) string {
		if call, _ := tools.Parse(dialect, tool, arguments); call.Background != nil && call.Action == nil {
			return fmt.Sprintf("%+v", *call.Background) // which has no translation
		}
		return translate(t, dialect, tool, arguments)
	}
	without := becomes(base)
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal([]byte(base), &arguments); err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(property, ".")
	arguments[name] = json.RawMessage(m.value)
	with, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	got := becomes(string(with))
	switch {
	case m.why != "" && (got != without || m.want != ""):
		t.Errorf("%s %s: %s was to mean nothing (%s), and %s became %s", dialect, tool, property, m.why, with, got)
	case m.why == "" && (m.want == "" || !strings.Contains(got, m.want) || strings.Contains(without, m.want)):
		t.Errorf("%s %s: %s became %s, want %s, which is not in %s", dialect, tool, with, got, m.want, without)
	}
}
