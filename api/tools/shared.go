package tools

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/actiond/actiond/api"
)

// Parts that several dialects share.

// risk is accepted by every tool; unknown risks are dropped.
var risk = param{
	name: "security_risk", kind: anything, enum: []string{"LOW", "MEDIUM", "HIGH"},
	about: "How much harm the call could do: LOW changes nothing or only what the task is about, MEDIUM changes other things in the sandbox, HIGH reaches out of it or cannot be undone.",
}

// silentRisk is risk for the dialects whose schemas do not have it.
var silentRisk = param{name: "security_risk", kind: anything, hidden: true}

// thought is the model's text before the call; it is passed on and not used.
var thought = param{name: "thought", kind: text, hidden: true}

// ifSHA256 makes any edit conditional. No dialect's schema has it; controllers add it.
var ifSHA256 = param{name: "if_sha256", kind: text, hidden: true}

// edits are several replacements of one file, all made or none.
var edits = param{name: "edits", kind: objects, hidden: true, items: []param{
	{name: "old_str", aliases: []string{"old_string"}, kind: text, required: true},
	{name: "new_str", aliases: []string{"new_string"}, kind: text, required: true},
	{name: "expected_replacements", kind: integer, min: new(1)},
	{name: "allow_multiple", kind: flag},
}}

func (v values) replacements() []api.Replacement {
	items := v.items("edits")
	if items == nil {
		return nil
	}
	list := make([]api.Replacement, len(items))
	for i, item := range items {
		list[i] = api.Replacement{
			OldStr: item.text("old_str"), NewStr: item.text("new_str"),
			ExpectedReplacements: item.integerOrNil("expected_replacements"),
			AllowMultiple:        item.flag("allow_multiple", false),
		}
	}
	return list
}

// impl is the source of views and edits.
const impl = "oh_aci"

// do is a call that runs an action without a limit of its own.
func do(a api.Action) (Call, error) { return Call{Action: a}, nil }

// program is a call that starts a program.
func program(a api.ExecAction) (Call, error) {
	if strings.TrimSpace(a.Command) == "" || strings.ContainsRune(a.Command+string(a.Cwd), 0) {
		return Call{}, fmt.Errorf(`argument "command" must not be empty, and no argument can hold a NUL character, got %s`, api.Describe(a.Command))
	}
	return do(a)
}

// answer is a call that runs nothing.
func answer(o api.Observation) (Call, error) { return Call{Answer: o}, nil }

// commandLimit runs a command with the model's timeout, without the soft timeout.
func commandLimit(a api.RunAction, v values) (Call, error) {
	limit := v.seconds("timeout")
	a.Blocking = limit != nil && *limit != 0
	return Call{Action: a, Timeout: limit}, nil
}

// editorParams are those of the editors with commands.
func editorParams(commands []string, more ...param) []param {
	return append([]param{
		{name: "command", kind: text, required: true, enum: commands, about: "What to do."},
		{name: "path", kind: text, required: true, about: "Absolute path of the file, or of a directory to view, such as /workspace/app.py."},
		{name: "file_text", kind: text, neededBy: []string{"create"}, about: "For create: the whole content."},
		{
			name: "view_range", kind: integers, length: 2,
			about: "For view of a file: first and last line, both counted from 1 and included; -1 as the last line is the end of the file.",
		},
		ifSHA256, thought,
	}, more...)
}

const (
	oldStrAbout = "For str_replace: the text to replace, exactly as it is in the file, white space included; it must occur exactly once, so add lines around it where it does not."
	newStrAbout = "For str_replace: the text in its place. For insert: the lines to insert."
	lineAbout   = "For insert: the line after which to insert; 0 is the top of the file."
)

// edit makes the action of an editor with commands.
func (v values) edit(dialect api.Dialect) (Call, error) {
	if v.text("command") == "view" {
		return do(api.ReadAction{
			Common: v.common(), Path: v.text("path"), End: -1, ImplSource: impl,
			ViewRange: v.integers("view_range"), Dialect: dialect,
		})
	}
	return do(api.EditAction{
		Common: v.common(), Path: v.text("path"), Command: v.text("command"),
		FileText: v.textOrNil("file_text"), OldStr: v.textOrNil("old_str"), NewStr: v.textOrNil("new_str"),
		InsertLine: (*api.LineNumber)(v.textOrNil("insert_line")), Start: 1, End: -1,
		Edits: v.replacements(), IfSHA256: v.text("if_sha256"), Dialect: dialect, ImplSource: impl,
	})
}

// writeAll makes the action of a tool that writes the whole file at the path in an argument.
func (v values) writeAll(path string, dialect api.Dialect) (Call, error) {
	return do(api.WriteAction{
		Common: v.common(), Path: v.text(path), Content: v.text("content"), End: -1, Dialect: dialect, IfSHA256: v.text("if_sha256"),
	})
}

// Tools that touch no sandbox.

// thoughtLogged is the protocol's text (docs/reference/openhands-protocol.md, section 3).
const thoughtLogged = "Your thought has been logged."

var think = tool{
	name:    "think",
	about:   "Write a thought down. Use it to reason about a hard problem, to compare ways to fix a bug, or to plan before changing much. It changes nothing, runs nothing and finds nothing out.",
	example: `{"thought": "The test fails only with an empty list, so the loop is not to blame."}`,
	params:  []param{{name: "thought", kind: text, required: true, about: "The thought."}, silentRisk},
	build: func(values) (Call, error) {
		return answer(api.ThinkObservation{Content: thoughtLogged})
	},
}

var finish = tool{
	name:    "finish",
	about:   "Say that the task is done, or that it cannot be done and why. Use it once, at the end: the conversation ends with it. Say in the message what was changed and how it was checked.",
	example: `{"message": "The parser takes empty lists now; the 48 tests pass."}`,
	params: []param{
		{name: "message", aliases: []string{"final_thought"}, kind: text, required: true, unless: "outputs", about: "What the person should know at the end."},
		{name: "outputs", kind: anything, hidden: true}, // the agent hub's finish may have these alone
		{name: "task_completed", kind: anything, hidden: true},
		silentRisk, thought,
	},
	build: func(v values) (Call, error) {
		return answer(api.SuccessObservation{Content: v.text("message")})
	},
}

// maxTasks bounds a task list in bytes, because it is kept.
const maxTasks = 64 << 10

// taskFields are those of an entry of a task list.
var taskFields = []param{
	{name: "id", kind: text, numbers: true, about: "A short name that stays the same, such as 1 or tests."},
	{name: "title", kind: text, about: "What is to be done, in one line."},
	{
		name: "status", kind: text, enum: []string{"todo", "in_progress", "done"}, about: "How far it is.",
		synonyms: map[string]string{"pending": "todo", "inprogress": "in_progress", "completed": "done", "complete": "done"},
	},
	{name: "notes", kind: text, about: "What else is to be remembered."},
}

var taskTracker = tool{
	name: "task_tracker",
	about: "Keep a list of the tasks that a larger piece of work consists of. Use plan to write the whole list, each time anew, and view to read it. " +
		"Have one task in_progress at a time, and mark it done when it is done. For a single simple step it is not worth it. The list is kept for this session and not in a file.",
	example: `{"command": "plan", "task_list": [{"id": "1", "title": "Reproduce the failure", "status": "in_progress"}, {"id": "2", "title": "Fix it", "status": "todo"}]}`,
	params: []param{
		{name: "command", kind: text, required: true, enum: []string{"view", "plan"}, about: "plan replaces the list, view shows it."},
		{name: "task_list", kind: objects, neededBy: []string{"plan"}, items: taskFields, about: "For plan: the whole list."},
		silentRisk, thought,
	},
	build: func(v values) (Call, error) {
		tasks := v.tasks()
		size := 0
		for _, t := range tasks {
			size += len(t.ID) + len(t.Title) + len(t.Notes)
		}
		if size > maxTasks {
			return Call{}, fmt.Errorf(`argument "task_list" must have at most %d bytes of text, got %d`, maxTasks, size)
		}
		return answer(api.TaskTrackingObservation{Command: v.text("command"), Tasks: tasks})
	},
}

// tasks sets the defaults of a task list, as the original does.
func (v values) tasks() []api.Task {
	list := []api.Task{}
	for i, item := range v.items("task_list") {
		list = append(list, api.Task{
			ID: cmp.Or(item.text("id"), "task-"+strconv.Itoa(i+1)), Title: cmp.Or(item.text("title"), "Untitled task"),
			Status: cmp.Or(item.text("status"), "todo"), Notes: item.text("notes"),
		})
	}
	return list
}
