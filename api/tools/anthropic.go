package tools

import "github.com/actiond/actiond/api"

// anthropic are the tools that Anthropic's models were trained on.
var anthropic = []tool{
	{
		name: "bash", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. " +
			"A command that goes on after its time is not killed; the answer says so. restart ends the shell with all that runs in it and starts a new one, for when nothing else helps.",
		example: `{"command": "git log --oneline | head -5"}`,
		params: []param{
			{name: "command", kind: text, about: "The command, of one or several lines. Required unless restart is true."},
			{name: "restart", kind: flag, about: "Start a new shell instead of running a command."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			switch restart := v.flag("restart", false); {
			case restart:
				return do(api.RunAction{Common: v.common(), Reset: true, Command: v.text("command"), Dialect: api.DialectAnthropic})
			case v["command"] == nil:
				return Call{}, missingError(`argument "command" is missing: it must be a string, unless "restart" is true`)
			}
			return do(api.RunAction{Common: v.common(), Command: v.text("command"), Dialect: api.DialectAnthropic})
		},
	},
	{
		name: "str_replace_based_edit_tool", also: []string{"str_replace_editor"}, needs: "edit",
		about: "View, create and edit text files. view shows a file with line numbers, or what is in a directory, two levels deep. create makes a new file, with its directories. " +
			"str_replace replaces one text, which must be in the file exactly once. insert adds lines after a line. " +
			"What an edit does not touch stays as it is, byte by byte.",
		example: `{"command": "str_replace", "path": "/workspace/app.py", "old_str": "debug = True", "new_str": "debug = False"}`,
		params: editorParams([]string{"view", "create", "str_replace", "insert"},
			param{name: "old_str", kind: text, neededBy: []string{"str_replace"}, about: oldStrAbout},
			param{name: "new_str", aliases: []string{"insert_text"}, kind: text, neededBy: []string{"insert"}, about: newStrAbout + " Without it str_replace deletes."},
			param{name: "insert_line", kind: lineNumber, neededBy: []string{"insert"}, about: lineAbout},
			edits, silentRisk),
		build: func(v values) (Call, error) { return v.edit(api.DialectAnthropic) },
	},
}
