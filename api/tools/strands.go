package tools

import (
	"errors"

	"github.com/actiond/actiond/api"
)

// Defaults of the tools of Strands' harness.
const (
	shellTime = 120.0 // seconds
	readLines = 2000
)

var absolutePath = param{name: "path", kind: text, required: true, about: "Absolute path of the file, such as /workspace/app.py."}

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
		name: "shell", needs: "exec",
		about: "Run a command in a shell of its own, sh: neither directory nor variables stay for the next call, so chain what belongs together with && or ;. " +
			"After the timeout the command is killed, with all that it started.",
		example: `{"command": "cd /workspace && pytest -q", "timeout": 300}`,
		params: []param{
			{name: "command", kind: text, required: true, about: "The command, of one or several lines."},
			{name: "timeout", kind: seconds, about: "Seconds after which it is killed; 120 when left out."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.ExecAction{Common: v.common(), Command: v.text("command"), Stdin: api.StdinNone, KillAfter: shellTime}
			if limit := v.seconds("timeout"); limit != nil {
				a.KillAfter = *limit
			}
			if a.KillAfter == 0 {
				return Call{}, errors.New(`argument "timeout" must be positive, got 0`)
			}
			return program(a)
		},
	},
	{
		name: "read", needs: "read",
		about:   "Read a text file with line numbers, up to 2000 lines at once; the answer says how many there are. Images come as images, PDF as Markdown.",
		example: `{"path": "/workspace/app.py", "offset": 100, "limit": 60}`,
		params: []param{
			absolutePath,
			{name: "offset", kind: integer, min: new(0), about: "First line, counted from 1."},
			{name: "limit", kind: integer, min: new(1), about: "How many lines; 2000 when left out."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			offset, limit := max(v.integer("offset", 1), 1)-1, v.integer("limit", readLines)
			return do(api.ReadAction{Common: v.common(), Path: v.text("path"), End: -1, Offset: &offset, Limit: &limit, Dialect: api.DialectStrands})
		},
	},
	{
		name: "write", needs: "write",
		about:   "Write a whole file. A file that exists is overwritten, directories are made. To change a part of a file use edit: it is shorter and loses nothing.",
		example: `{"path": "/workspace/notes.txt", "content": "first line\n"}`,
		params:  []param{absolutePath, {name: "content", kind: text, required: true, about: "The whole content."}, ifSHA256, silentRisk, thought},
		build:   func(v values) (Call, error) { return v.writeAll("path", api.DialectStrands) },
	},
	{
		name: "edit", needs: "edit",
		about:   "Replace a text in a file of at most 1 MiB. It must be in the file exactly once. What the edit does not touch stays as it is, byte by byte.",
		example: `{"path": "/workspace/app.py", "old_str": "debug = True", "new_str": "debug = False"}`,
		params: []param{
			absolutePath,
			{name: "old_str", kind: text, required: true, about: "The text to replace, exactly as it is in the file, white space included; add lines around it where it is not the only one."},
			{name: "new_str", kind: text, required: true, about: "The text in its place."},
			ifSHA256, silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			v["command"] = "str_replace"
			return v.edit(api.DialectStrands)
		},
	},
	{
		name: "bash", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"A command that goes on after its time is not killed. restart ends the shell with all that runs in it and starts a new one.",
		example: `{"mode": "execute", "command": "pytest -q", "timeout": 120}`,
		params: []param{
			{name: "mode", kind: text, enum: []string{"execute", "restart"}, about: "execute, when left out, runs the command, restart begins anew."},
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
