package tools

import (
	"errors"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
)

// openHands are the tools of OpenHands' CodeActAgent (docs/reference/openhands-protocol.md, section 10).
var openHands = []tool{
	{
		name: "execute_bash", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"One command at a time; chain several with && or ;. A command that goes on after its time is not killed: an empty command waits for more of its output, is_input sends it input, and C-c, C-d or C-z as input are keys. " +
			"Output beyond 30000 characters is cut in the middle.",
		example: `{"command": "cd /workspace && go test ./...", "timeout": 300}`,
		params: []param{
			{name: "command", kind: text, required: true, about: "The command; empty to wait for more output of the one that runs; with is_input what to type, or a key such as C-c."},
			{name: "is_input", kind: flag, words: true, about: "Whether the command is input for what runs; false when it is left out."},
			{name: "timeout", kind: seconds, about: "Seconds after which to answer even though the command goes on. Without it the answer comes when nothing was printed for some seconds."},
			risk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.RunAction{Common: v.common(), Command: strings.TrimSpace(v.text("command")), IsInput: v.flag("is_input", false)}
			a.IsInput = a.IsInput && a.Command != "" // an empty one asks for more output
			return commandLimit(a, v)
		},
	},
	{
		name: "execute_ipython_cell", needs: "run_ipython",
		about: "Run a cell in a persistent IPython kernel: names stay defined from one cell to the next. Use it for calculations, data and plots; % and ! magics work. " +
			"Shell work belongs to execute_bash. Define names before they are used.",
		example: `{"code": "import json\nlen(json.load(open('/workspace/a.json')))"}`,
		params:  []param{{name: "code", kind: text, required: true, about: "The cell."}, risk, thought},
		build: func(v values) (Call, error) {
			return do(api.IPythonAction{Common: v.common(), Code: v.text("code"), IncludeExtra: true})
		},
	},
	{
		name: "str_replace_editor", needs: "edit",
		about: "View, create and edit text files. view shows a file with line numbers, or what is in a directory, two levels deep. create makes a new file and refuses one that exists. " +
			"str_replace replaces one text, which must be in the file exactly once. insert adds lines after a line. undo_edit takes back the last change of the file. " +
			"What an edit does not touch stays as it is, byte by byte.",
		example: `{"command": "str_replace", "path": "/workspace/app.py", "old_str": "debug = True", "new_str": "debug = False"}`,
		params: editorParams([]string{"view", "create", "str_replace", "insert", "undo_edit"},
			param{name: "old_str", kind: text, neededBy: []string{"str_replace"}, about: oldStrAbout},
			param{name: "new_str", kind: text, neededBy: []string{"insert"}, about: newStrAbout + " Without it str_replace deletes."},
			param{name: "insert_line", kind: lineNumber, neededBy: []string{"insert"}, about: lineAbout},
			edits, risk),
		build: func(v values) (Call, error) { return v.edit("") },
	},
	{
		name: "edit_file", needs: "edit",
		about: "Edit a file by a draft of how a part of it should read. Lines that stay may be left out: put a comment such as \"# ... existing code ...\" in their place, and keep the line before and the line after it as they are in the file. " +
			"The draft replaces the lines start to end, at most 300 of them. start -1 appends. A file that is not there is made.",
		example: `{"path": "/workspace/app.py", "content": "def main():\n    setup()\n    # ... existing code ...\n    return 0", "start": 10, "end": 40}`,
		params: []param{
			{name: "path", kind: text, required: true, about: "Absolute path of the file."},
			{name: "content", kind: text, required: true, about: "The draft."},
			{name: "start", kind: integer, about: "First line that the draft replaces, from 1; -1 appends. 1 when left out."},
			{name: "end", kind: integer, about: "Last line that the draft replaces; -1, when left out, is the end of the file."},
			{name: "lint", kind: flag, hidden: true},
			ifSHA256, risk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.EditAction{
				Common: v.common(), Path: v.text("path"), Content: v.textOrNil("content"),
				Start: v.integer("start", 1), End: v.integer("end", -1),
				Lint: v.flag("lint", false), IfSHA256: v.text("if_sha256"), ImplSource: "llm_based_edit",
			})
		},
	},
	{
		name: "browser", needs: "browse_interactive",
		about: "Use a web browser by a small program of calls, one a line: goto(url), click(bid), fill(bid, text), press(bid, key), scroll(x, y), select_option(bid, option), go_back(), noop(ms). " +
			"The answer shows the page as an accessibility tree, in which elements have their bid in brackets. A later line runs only when the ones before it worked.",
		example: `{"code": "goto('http://localhost:8000')\nnoop(500)"}`,
		params:  []param{{name: "code", kind: text, required: true, about: "The calls, in Python's syntax."}, risk, thought},
		build: func(v values) (Call, error) {
			return do(api.BrowseInteractiveAction{Common: v.common(), BrowserActions: v.text("code")})
		},
	},
	think,
	finish,
	taskTracker,
}

// legacy are the actions of the agent hub. Old controllers send them, in any dialect,
// and they do nothing in a sandbox.
var legacy = []tool{
	hubAction("message", param{name: "content", kind: text, required: true}, param{name: "file_urls", kind: anything},
		param{name: "image_urls", aliases: []string{"images_urls"}, kind: anything}, param{name: "wait_for_response", kind: flag}),
	hubAction("reject", param{name: "outputs", kind: anything}),
	hubAction("add_task", param{name: "parent", kind: anything}, param{name: "goal", kind: text, required: true}, param{name: "subtasks", kind: anything}),
	hubAction("modify_task", param{name: "task_id", aliases: []string{"id"}, kind: text, required: true}, param{name: "state", kind: text, required: true}),
	{
		name: "task_tracking",
		params: []param{
			{name: "command", kind: text, enum: []string{"view", "plan"}},
			{name: "task_list", kind: objects, items: taskFields},
			thought, silentRisk,
		},
		build: func(v values) (Call, error) {
			if v.text("command") == "" {
				v["command"] = "view"
			}
			return taskTracker.build(v)
		},
	},
	think,
	finish,
}

// hubAction is an action with an empty answer.
func hubAction(name string, params ...param) tool {
	return tool{
		name: name, params: append(params, thought, silentRisk),
		build: func(values) (Call, error) { return answer(api.NullObservation{}) },
	}
}

// openHandsV1 are the tools of OpenHands' agent SDK.
var openHandsV1 = []tool{
	{
		name: "terminal", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"One command at a time; chain several with && or ;. A command that goes on after its time is not killed: an empty command waits for more of its output, is_input sends it input, and C-c, ENTER, ESC, TAB, BS, UP, DOWN, LEFT, RIGHT, HOME, END, PGUP or PGDN as input is a key. " +
			"reset ends the shell and starts a new one, for when nothing else helps.",
		example: `{"command": "grep -rn TODO src | head -20"}`,
		params: []param{
			{name: "command", kind: text, required: true, about: "The command; empty to wait for more output of the one that runs; with is_input what to type, or a key such as C-c or DOWN."},
			{name: "is_input", kind: flag, about: "Whether the command is input for what runs; false when it is left out."},
			{name: "timeout", kind: seconds, about: "Seconds after which to answer even though the command goes on."},
			{name: "reset", kind: flag, about: "End the shell with all that runs in it first. Directory and variables are lost. It cannot be combined with is_input."},
			risk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.RunAction{Common: v.common(), Command: v.text("command"), IsInput: v.flag("is_input", false), Reset: v.flag("reset", false), Dialect: api.DialectOpenHandsV1}
			if a.Reset && a.IsInput {
				return Call{}, errors.New(`"reset" and "is_input" cannot both be true: a new shell runs nothing that could take input`)
			}
			a.IsInput = a.IsInput && a.Command != ""
			return commandLimit(a, v)
		},
	},
	{
		name: "file_editor", needs: "edit",
		about: "View, create and edit text files. view shows a file with line numbers, or what is in a directory, two levels deep. create makes a new file, with its directories, and refuses one that exists. " +
			"str_replace replaces one text, which must be in the file exactly once. insert adds lines after a line. undo_edit takes back the last change of the file. " +
			"What an edit does not touch stays as it is, byte by byte.",
		example: `{"command": "view", "path": "/workspace/app.py", "view_range": [1, 60]}`,
		params: editorParams([]string{"view", "create", "str_replace", "insert", "undo_edit"},
			param{name: "old_str", kind: text, neededBy: []string{"str_replace"}, about: oldStrAbout},
			param{name: "new_str", kind: text, neededBy: []string{"str_replace", "insert"}, about: newStrAbout + " An empty one deletes."},
			param{name: "insert_line", kind: lineNumber, neededBy: []string{"insert"}, about: lineAbout},
			edits, risk),
		build: func(v values) (Call, error) { return v.edit(api.DialectOpenHandsV1) },
	},
	{
		name: "apply_patch", needs: "edit",
		about: "Change several files by one patch. It begins with the line \"*** Begin Patch\" and ends with \"*** End Patch\". Between them stand \"*** Add File: PATH\" with lines that begin with +, \"*** Delete File: PATH\", " +
			"and \"*** Update File: PATH\", which \"*** Move to: PATH\" may follow, with hunks: a line @@, or @@ and the text of a line above the change, then lines that begin with a space (as it is), - (goes) or + (comes). " +
			"Have three lines as they are before and after each change. Paths are relative to the shell's directory. Either all files are changed or none.",
		example: `{"patch": "*** Begin Patch\n*** Update File: app.py\n@@ def main():\n-    debug = True\n+    debug = False\n*** End Patch"}`,
		params:  []param{{name: "patch", kind: text, required: true, about: "The patch."}, risk, thought},
		build: func(v values) (Call, error) {
			return do(api.EditAction{
				Common: v.common(), Command: "apply_patch", Patch: v.textOrNil("patch"), Start: 1, End: -1,
				Dialect: api.DialectOpenHandsV1, ImplSource: impl,
			})
		},
	},
	{
		name: "glob", needs: "glob",
		about: "Find files by a pattern of their names: * for any part of a name, ** for any directories, ? for a character, [a-z], {a,b}. Use it when a part of the name is known; grep looks into files. " +
			"Answers with absolute paths, newest first, at most 100. What .gitignore leaves out is left out.",
		example: `{"pattern": "src/**/*_test.go"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The pattern; without a slash it is looked for in all directories below."},
			{name: "path", kind: text, about: "The directory to look in; the shell's when it is left out."},
			risk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.GlobAction{Common: v.common(), Pattern: anyDepth(v.text("pattern")), Path: v.text("path"), Dialect: api.DialectOpenHandsV1})
		},
	},
	{
		name: "grep", needs: "grep",
		about: "Find files by a regular expression that a line in them matches, whatever the case. Answers with absolute paths, newest first, at most 100. " +
			"What .gitignore leaves out and binary files are left out. To see the lines, view the file or run grep -n in the shell.",
		example: `{"pattern": "func \\w+Handler\\(", "include": "*.go"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The regular expression (RE2)."},
			{name: "path", kind: text, about: "The directory to look in; the shell's when it is left out."},
			{name: "include", kind: text, about: "Only files whose names match this pattern, such as *.{ts,tsx}."},
			risk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.GrepAction{
				Common: v.common(), Pattern: v.text("pattern"), Path: v.text("path"), Include: v.text("include"),
				IgnoreCase: true, NamesOnly: true, Dialect: api.DialectOpenHandsV1,
			})
		},
	},
	think,
	finish,
	taskTracker,
}

// anyDepth looks for a name in all directories below, as ripgrep's globs do.
func anyDepth(pattern string) string {
	if strings.Contains(pattern, "/") {
		return pattern
	}
	return "**/" + pattern
}

// summary is a description of the call, which the agent SDK adds to the schema of each of its tools; it is dropped.
var summary = param{name: "summary", kind: text, hidden: true}

// with returns tools that take more arguments.
func with(tools []tool, more ...param) []tool {
	tools = slices.Clone(tools)
	for i := range tools {
		tools[i].params = append(slices.Clip(tools[i].params), more...)
	}
	return tools
}
