package tools

import (
	"errors"

	"github.com/actiond/actiond/api"
)

// relativePath is the path of a file tool of [actiond].
var relativePath = param{
	name: "path", kind: text, required: true, about: "Path, absolute or relative to the shell's directory.",
}

// actiond are our own tools, for models that were trained on no family of tools: few, with short descriptions and with
// paths that may be relative.
var actiond = []tool{
	{
		name: "bash", needs: "run",
		about: "Run a command, of one or several lines, in a shell that keeps its directory, variables and background jobs. " +
			"A command that is silent for a while or waits for input goes on: an empty command waits for it, is_input answers it.",
		example: `{"command": "cd src\npytest -q", "timeout": 120}`,
		params: []param{
			{name: "command", kind: text, required: true, unless: "restart", about: "The command. Empty: wait for more output of the one that runs. With is_input: what to type, or a key such as C-c or DOWN."},
			{name: "is_input", kind: flag, about: "The command is input for what runs."},
			{name: "timeout", kind: seconds, about: "Seconds to wait for the end, also in silence. What runs goes on after them."},
			{name: "restart", kind: flag, about: "End the shell and all that runs in it, and start a new one."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.RunAction{
				Common: v.common(), Command: v.text("command"), Reset: v.flag("restart", false), IsInput: v.flag("is_input", false),
				ReturnOnInput: true, Dialect: api.DialectActiond,
			}
			if a.Reset && a.IsInput {
				return Call{}, errors.New(`"restart" and "is_input" cannot both be true: a new shell runs nothing that could take input`)
			}
			a.IsInput = a.IsInput && a.Command != ""
			return commandLimit(a, v)
		},
	},
	{
		name: "read", needs: "read",
		about:   "Show a text file with its line numbers, an image, a PDF as text, or what is in a directory, two levels deep.",
		example: `{"path": "src/app.py", "view_range": [1, 80]}`,
		params: []param{
			relativePath,
			{name: "view_range", kind: integers, length: 2, about: "First and last line, from 1; -1 as the last is the end of the file."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			v["command"] = "view"
			return v.edit(api.DialectActiond)
		},
	},
	{
		name: "edit", needs: "edit",
		about: "Change a file: replace old_str, which must be in it exactly once, by new_str. Without old_str, new_str becomes the whole file; directories are made. " +
			"The rest of the file stays as it is, byte by byte.",
		example: `{"path": "src/app.py", "old_str": "debug = True", "new_str": "debug = False"}`,
		params: []param{
			relativePath,
			{name: "old_str", kind: text, literal: true, about: "The text to replace, exactly as it is in the file, with enough lines around it to be unique."},
			{name: "new_str", kind: text, required: true, unless: "edits", about: "The text in its place, or the whole file."},
			{name: "replace_all", kind: flag, about: "Replace old_str wherever it is."},
			edits, ifSHA256, silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			all := v.flag("replace_all", false)
			switch {
			case v["edits"] == nil && v.text("old_str") != "":
				if v["command"] = "str_replace"; all {
					v["command"] = "replace"
				}
			case v["edits"] != nil && v["old_str"] == nil && v["new_str"] == nil && !all:
				v["command"] = "str_replace"
			case v["edits"] != nil || all:
				return Call{}, errors.New(`"replace_all" needs "old_str", and "edits" replaces all three`)
			default:
				return do(api.WriteAction{
					Common: v.common(), Path: v.text("path"), Content: v.text("new_str"), End: -1,
					Dialect: api.DialectActiond, IfSHA256: v.text("if_sha256"),
				})
			}
			call, err := v.edit(api.DialectActiond)
			if a, ok := call.Action.(api.EditAction); ok {
				a.AllowMultiple = all
				call.Action = a
			}
			return call, err
		},
	},
	{
		name: "search", needs: "grep",
		about: "Find lines that match a regular expression, with their files and numbers, or without a pattern the files alone, newest first. " +
			"What .gitignore leaves out is left out. At most 100 come.",
		example: `{"pattern": "def \\w+_handler", "include": "*.py"}`,
		params: []param{
			{name: "pattern", kind: text, literal: true, about: "The regular expression (RE2); (?i) at its beginning ignores case."},
			{name: "include", kind: text, about: "Only files whose paths match this, such as *.{ts,tsx} or src/**/*_test.go."},
			{name: "path", kind: text, about: "The file or directory to search; the shell's directory when left out."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			switch pattern, include := v.text("pattern"), v.text("include"); {
			case pattern != "":
				return do(api.GrepAction{Common: v.common(), Pattern: pattern, Path: v.text("path"), Include: include})
			case include != "":
				return do(api.GlobAction{Common: v.common(), Pattern: anyDepth(include), Path: v.text("path")})
			}
			return Call{}, missingError(`argument "pattern" or "include" is missing: one of them must be a string`)
		},
	},
	{
		name: "changes", also: []string{"workspace_changes"}, needs: NeedsChanges,
		about: "Show which files changed since before the last action that changed one, or since another state, and their changed lines. " +
			"Lists the last such actions with their numbers.",
		example: `{"since": "17"}`,
		params: []param{
			{name: "since", kind: text, about: "The number of an action, a state such as s16, or the name of a checkpoint."},
			{name: "paths", kind: texts, about: "Only these files and directories."},
			silentRisk, thought,
		},
		build: workspaceTools[0].build,
	},
	{
		name: "undo", also: []string{"workspace_undo"}, needs: NeedsUndo,
		about: "Take back the last change of files, also one by a command, or all since before an action. The answer says what was restored. " +
			"A second undo takes the first one back.",
		example: `{"action": 17}`,
		params: []param{
			{name: "action", kind: integer, min: new(1), about: "The number of an action, as changes shows it."},
			{name: "paths", kind: texts, about: "Restore only these files and directories."},
			silentRisk, thought,
		},
		build: workspaceTools[1].build,
	},
}
