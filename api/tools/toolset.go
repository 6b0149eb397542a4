package tools

import (
	"fmt"

	"github.com/actiond/actiond/api"
)

// rootedPath is the path of the file tools of Anthropic's toolset.
var rootedPath = param{name: "file_path", kind: text, required: true, about: "Path of the file, absolute or relative to the shell's directory."}

// searchedPath is where its searches look.
var searchedPath = param{name: "path", kind: text, about: "Where to look, absolute or relative to the shell's directory, which it is when left out."}

// mostLines bounds the answer of its grep, which has no bound of its own in lines.
const mostLines = 1000

// toolset are the tools of Anthropic's agent_toolset_20260401, which its managed agents have in environments of their users.
var toolset = []tool{
	{
		name: "bash", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"A command that goes on after its time is not killed; the answer says so. restart ends the shell with all that runs in it and starts a new one, in which the command runs if there is one.",
		example: `{"command": "go test ./...", "timeout_ms": 300000}`,
		params: []param{
			{name: "command", kind: text, about: "The command, of one or several lines. Required unless restart is true."},
			{name: "restart", kind: flag, about: "Start a new shell first."},
			{name: "timeout_ms", kind: integer, min: new(0), about: "Milliseconds after which to answer even though the command goes on."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.RunAction{Common: v.common(), Reset: v.flag("restart", false), Command: v.text("command"), Dialect: api.DialectToolset}
			if !a.Reset && v["command"] == nil {
				return Call{}, missingError(`argument "command" is missing: it must be a string, unless "restart" is true`)
			}
			if ms := v.integerOrNil("timeout_ms"); ms != nil {
				v["timeout"] = float64(*ms) / 1000
			}
			return commandLimit(a, v)
		},
	},
	{
		name: "read", needs: "read",
		about:   "Read a text file, or a range of its lines, as it is and without numbers, at most 256 KiB at once. Images come as images.",
		example: `{"file_path": "src/app.py", "view_range": [100, 160]}`,
		params: []param{
			rootedPath,
			{name: "view_range", kind: integers, length: 2, about: "First and last line, both counted from 1 and included; -1 as the last line is the end of the file."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.ReadAction{Common: v.common(), Path: v.text("file_path"), End: -1, ViewRange: v.integers("view_range"), Dialect: api.DialectToolset})
		},
	},
	{
		name: "write", needs: "write",
		about:   "Write a whole file. A file that exists is overwritten, directories are made. To change a part of a file use edit: it is shorter and loses nothing.",
		example: `{"file_path": "notes.txt", "content": "first line\n"}`,
		params: []param{
			rootedPath,
			{name: "content", kind: text, required: true, about: "The whole content."},
			ifSHA256, silentRisk, thought,
		},
		build: func(v values) (Call, error) { return v.writeAll("file_path", api.DialectToolset) },
	},
	{
		name: "edit", needs: "edit",
		about:   "Replace a text in a file. It must be in the file exactly once, unless replace_all is true. What the edit does not touch stays as it is, byte by byte.",
		example: `{"file_path": "src/app.py", "old_string": "debug = True", "new_string": "debug = False"}`,
		params: []param{
			rootedPath,
			{name: "old_string", kind: text, required: true, about: "The text to replace, exactly as it is in the file, white space included; add lines around it where it is not the only one."},
			{name: "new_string", kind: text, required: true, about: "The text in its place."},
			{name: "replace_all", kind: flag, about: "Replace all, however many there are; false when left out."},
			ifSHA256, silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			if v.text("old_string") == "" {
				return Call{}, fmt.Errorf(`argument "old_string" must not be empty: write makes a new file`)
			}
			return do(api.EditAction{
				Common: v.common(), Path: v.text("file_path"), Command: "replace", Start: 1, End: -1,
				OldStr: v.textOrNil("old_string"), NewStr: v.textOrNil("new_string"), AllowMultiple: v.flag("replace_all", false),
				IfSHA256: v.text("if_sha256"), Dialect: api.DialectToolset, ImplSource: impl,
			})
		},
	},
	{
		name: "glob", needs: "glob",
		about:   "Find files by a pattern of their paths: * for any part of a name, ** for any directories, ? for a character, [a-z], {a,b}. Answers with absolute paths, newest first, at most 100. Ignored files are found, too.",
		example: `{"pattern": "src/**/*.ts"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The pattern, matched against paths below the directory."},
			searchedPath, silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.GlobAction{Common: v.common(), Pattern: v.text("pattern"), Path: v.text("path"), NoIgnore: true})
		},
	},
	{
		name: "grep", needs: "grep",
		about:   "Find lines that a regular expression matches, in a file or in all files below a directory. Answers with file, line number and line; few matches come with the lines around them. What .gitignore leaves out and binary files are left out.",
		example: `{"pattern": "func \\w+Handler\\(", "path": "src"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The regular expression (RE2); case matters."},
			searchedPath, silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.GrepAction{Common: v.common(), Pattern: v.text("pattern"), Path: v.text("path"), Limit: mostLines})
		},
	},
}
