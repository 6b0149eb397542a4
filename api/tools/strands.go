package tools

import "github.com/actiond/actiond/api"

// strands are the tools of Strands Agents.
var strands = []tool{
	{
		name: "fileEditor", also: []string{"file_editor"}, needs: "edit",
		about: "View, create and edit text files of at most 1 MiB. view shows a file with line numbers, or what is in a directory. create makes a new file, with its directories, and refuses one that exists. " +
			"str_replace replaces one text, which must be in the file exactly once. insert adds lines after a line. undo_edit takes back the last change of the file, up to ten times. " +
			"What an edit does not touch stays as it is, byte by byte.",
		example: `{"command": "insert", "path": "/workspace/app.py", "insert_line": 0, "new_str": "import sys"}`,
		params: editorParams([]string{"view", "create", "str_replace", "insert", "undo_edit"},
			param{name: "old_str", kind: text, neededBy: []string{"str_replace"}, about: oldStrAbout},
			param{name: "new_str", kind: text, neededBy: []string{"insert"}, about: newStrAbout + " Without it str_replace deletes."},
			param{name: "insert_line", kind: lineNumber, neededBy: []string{"insert"}, about: lineAbout},
			edits, silentRisk),
		build: func(v values) (Call, error) { return v.edit(api.DialectStrands) },
	},
	{
		name: "bash", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"A command that goes on after its time is not killed. restart ends the shell with all that runs in it and starts a new one.",
		example: `{"mode": "execute", "command": "pytest -q", "timeout": 120}`,
		params: []param{
			{name: "mode", kind: text, required: true, enum: []string{"execute", "restart"}, about: "execute runs the command, restart begins anew."},
			{name: "command", kind: text, about: "For execute: the command, of one or several lines."},
			{name: "timeout", kind: seconds, about: "For execute: seconds after which to answer even though the command goes on; 120 when left out."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			if v.text("mode") == "restart" {
				return do(api.RunAction{Common: v.common(), Reset: true})
			}
			if v["command"] == nil {
				return Call{}, missingError(`argument "command" is missing: the mode "execute" needs it; it must be a string`)
			}
			if v["timeout"] == nil {
				v["timeout"] = 120.0 // as the original
			}
			return commandLimit(api.RunAction{Common: v.common(), Command: v.text("command"), Dialect: api.DialectStrands}, v)
		},
	},
}
