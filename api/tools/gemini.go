package tools

import (
	"errors"
	"fmt"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/shellquote"
)

// filePath is the path of Gemini's file tools, under the names that its
// versions gave it.
var filePath = param{
	name: "file_path", aliases: []string{"path", "absolute_path"}, kind: text, required: true,
	about: "Path of the file, absolute or relative to the shell's directory.",
}

// dirPath is the directory that a search looks in.
var dirPath = param{
	name: "dir_path", aliases: []string{"path"}, kind: text,
	about: "The directory to look in, absolute or relative to the shell's directory, which it is when left out.",
}

// waitForPrevious orders the calls of one answer, which Gemini CLI adds to the schema of each of its tools: the controller
// does that.
var waitForPrevious = param{name: "wait_for_previous", kind: flag, hidden: true}

// gemini are the tools of Gemini CLI, those of older versions included.
var gemini = []tool{
	{
		name: "read_file", needs: "read",
		about:   "Read a text file, or a range of its lines. Up to 2000 lines come at once, and the answer says how to ask for the next. Images and PDF come as data.",
		example: `{"file_path": "src/app.py", "start_line": 100, "end_line": 160}`,
		params: []param{
			filePath,
			{name: "start_line", kind: integer, min: new(1), about: "First line, counted from 1."},
			{name: "end_line", kind: integer, min: new(1), about: "Last line, included."},
			{name: "offset", kind: integer, min: new(0), hidden: true},
			{name: "limit", kind: integer, min: new(1), hidden: true},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.ReadAction{
				Common: v.common(), Path: v.text("file_path"), End: -1, Dialect: api.DialectGemini,
				StartLine: v.integerOrNil("start_line"), EndLine: v.integerOrNil("end_line"),
				Offset: v.integerOrNil("offset"), Limit: v.integerOrNil("limit"),
			}
			switch {
			case a.StartLine != nil && a.EndLine != nil && *a.EndLine < *a.StartLine:
				return Call{}, fmt.Errorf(`argument "start_line" must not be greater than "end_line", got %d and %d`, *a.StartLine,
					*a.EndLine)
			case (a.StartLine != nil || a.EndLine != nil) && (a.Offset != nil || a.Limit != nil):
				return Call{}, errors.New(`arguments "start_line" and "end_line" do not go with "offset" and "limit"; send one pair`)
			}
			return do(a)
		},
	},
	{
		name: "write_file", needs: "write",
		about:   "Write a whole file. A file that exists is overwritten, directories are made. To change a part of a file use replace: it is shorter and loses nothing.",
		example: `{"file_path": "notes.txt", "content": "first line\n"}`,
		params: []param{
			filePath,
			{name: "content", kind: text, required: true, about: "The whole content."},
			ifSHA256, silentRisk, thought,
			{name: "modified_by_user", kind: anything, hidden: true},
			{name: "ai_proposed_content", kind: anything, hidden: true},
		},
		build: func(v values) (Call, error) {
			return v.writeAll("file_path", api.DialectGemini)
		},
	},
	{
		name: "replace", also: []string{"edit"}, needs: "edit",
		about: "Replace a text in a file. It must be in the file exactly once, or as often as expected_replacements says; have three lines around the change in it. " +
			"Where nothing is exactly like it, lines that differ in indentation or white space alone are taken, and the answer says so. With an empty old_string a file that is not there is made.",
		example: `{"file_path": "src/app.py", "old_string": "    debug = True", "new_string": "    debug = False"}`,
		params: []param{
			filePath,
			{name: "old_string", kind: text, required: true, about: "The text to replace, exactly as it is in the file."},
			{name: "new_string", kind: text, required: true, about: "The whole text in its place; nothing left out of it."},
			{name: "expected_replacements", kind: integer, min: new(1), about: "How often old_string is in the file, to replace all of them; 1 when left out."},
			{name: "allow_multiple", kind: flag, about: "Replace all, however many there are."},
			{name: "instruction", kind: text, about: "What the change is for, in a sentence."},
			{name: "fuzzy", kind: flag, hidden: true},
			ifSHA256, silentRisk, thought,
			{name: "modified_by_user", kind: anything, hidden: true},
			{name: "ai_proposed_content", kind: anything, hidden: true},
		},
		build: func(v values) (Call, error) {
			return do(api.EditAction{
				Common: v.common(), Path: v.text("file_path"), Command: "replace",
				OldStr: v.textOrNil("old_string"), NewStr: v.textOrNil("new_string"), Start: 1, End: -1,
				ExpectedReplacements: v.integerOrNil("expected_replacements"), AllowMultiple: v.flag("allow_multiple", false),
				Fuzzy: v.flag("fuzzy", false), IfSHA256: v.text("if_sha256"), Dialect: api.DialectGemini, ImplSource: impl,
			})
		},
	},
	{
		name: "list_directory", needs: "list_directory",
		about:   "List what is in a directory: directories first, files with their sizes. It does not go into them; glob does. What .gitignore leaves out is left out and counted.",
		example: `{"dir_path": "src"}`,
		params: []param{
			dirPath,
			{name: "ignore", kind: texts, about: "Patterns of names to leave out, such as *.log."},
			{name: "file_filtering_options", kind: object, hidden: true},
			{name: "recursive", kind: flag, hidden: true}, // of OpenHands' tools for Gemini
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			options, _ := v["file_filtering_options"].(map[string]any)
			return do(api.ListAction{
				Common: v.common(), Path: v.text("dir_path"), Ignore: v.texts("ignore"),
				NoIgnore: options["respect_git_ignore"] == false, Recursive: v.flag("recursive", false),
			})
		},
	},
	{
		name: "glob", needs: "glob",
		about: "Find files by a pattern of their paths: * for any part of a name, ** for any directories, ? for a character, [a-z], {a,b}. Use it when a part of the name is known; grep_search looks into files. " +
			"Answers with absolute paths, newest first, at most 100. What .gitignore leaves out is left out.",
		example: `{"pattern": "src/**/*.ts"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The pattern, matched against paths below the directory."},
			dirPath,
			{name: "case_sensitive", kind: flag, about: "Whether case matters; false when left out."},
			{name: "respect_git_ignore", kind: flag, about: "Whether .gitignore is followed; true when left out."},
			{name: "respect_gemini_ignore", kind: flag, hidden: true},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return do(api.GlobAction{
				Common: v.common(), Pattern: v.text("pattern"), Path: v.text("dir_path"),
				IgnoreCase: !v.flag("case_sensitive", false), NoIgnore: !v.flag("respect_git_ignore", true),
			})
		},
	},
	{
		name: "grep_search", also: []string{"search_file_content"}, needs: "grep",
		about: "Find lines that a regular expression matches, in all files below a directory. Answers with file, line number and line, at most 100 lines; few matches come with the lines around them. " +
			"What .gitignore leaves out and binary files are left out.",
		example: `{"pattern": "func \\w+Handler\\(", "include_pattern": "*.go"}`,
		params: []param{
			{name: "pattern", kind: text, required: true, about: "The regular expression (RE2)."},
			dirPath,
			{name: "include_pattern", aliases: []string{"include"}, kind: text, about: "Only files whose paths match this pattern, such as *.{ts,tsx}."},
			{name: "exclude_pattern", kind: text, about: "No lines that match this regular expression."},
			{name: "names_only", kind: flag, about: "Answer with the files alone."},
			{name: "max_matches_per_file", kind: integer, min: new(1), about: "At most so many lines of a file."},
			{name: "total_max_matches", kind: integer, min: new(1), about: "At most so many lines in all; 100 when left out."},
			{name: "case_sensitive", kind: flag, about: "Whether case matters; false when left out."},
			{name: "fixed_strings", kind: flag, about: "Take the pattern as it is and not as a regular expression."},
			{name: "context", kind: integer, min: new(0), about: "Lines to show before and after each match."},
			{name: "before", kind: integer, min: new(0), about: "Lines to show before each match."},
			{name: "after", kind: integer, min: new(0), about: "Lines to show after each match."},
			{name: "no_ignore", kind: flag, about: "Whether to search what .gitignore leaves out; false when left out."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			a := api.GrepAction{
				Common: v.common(), Pattern: v.text("pattern"), Path: v.text("dir_path"),
				Include: v.text("include_pattern"), Exclude: v.text("exclude_pattern"),
				IgnoreCase: !v.flag("case_sensitive", false), Fixed: v.flag("fixed_strings", false),
				NamesOnly: v.flag("names_only", false), NoIgnore: v.flag("no_ignore", false),
				Limit: v.integer("total_max_matches", 0), FileLimit: v.integer("max_matches_per_file", 0),
				Before: v.integerOrNil("before"), After: v.integerOrNil("after"),
			}
			if around := v.integerOrNil("context"); around != nil {
				if a.Before == nil {
					a.Before = around
				}
				if a.After == nil {
					a.After = around
				}
			}
			return do(a)
		},
	},
	{
		name: "run_shell_command", needs: "run",
		about: "Run a command in a persistent shell: directory, variables and background jobs stay from one call to the next. Commands that ask questions should be told the answers. " +
			"A command that goes on after its time is not killed; the answer says so. Output beyond 30000 characters is cut in the middle.",
		example: `{"command": "npm test", "dir_path": "web"}`,
		params: []param{
			{name: "command", kind: text, required: true, about: "The command, of one or several lines."},
			{name: "description", kind: text, about: "What it is for, in a sentence."},
			{name: "dir_path", aliases: []string{"directory"}, kind: text, about: "Directory to run it in, without changing the shell's; the shell's when left out."},
			{name: "is_background", kind: flag, about: "Do not wait for its end: the answer has its PID and what it printed at first. list_background_processes and read_background_output tell of it later."},
			{name: "delay_ms", kind: integer, min: new(0), about: "With is_background: milliseconds to wait before the answer; 200 when left out."},
			{name: "additional_permissions", kind: anything, hidden: true}, // the controller's to grant
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			command, dir := v.text("command"), v.text("dir_path")
			if v.flag("is_background", false) {
				return v.inBackground(command, dir)
			}
			if dir != "" { // eval keeps comments and here-documents within; a text may begin with a dash
				command = "(cd -- " + shellquote.Word(dir) + " && eval " + shellquote.Word(" "+command) + ")"
			}
			return do(api.RunAction{Common: v.common(), Command: command, Dialect: api.DialectGemini})
		},
	},
}
