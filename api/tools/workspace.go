package tools

import (
	"fmt"

	"github.com/actiond/actiond/api"
)

// Abilities of a sandbox without which the tools of the workspace are not offered, instead of an action.
const (
	NeedsChanges = "workspace_changes"
	NeedsUndo    = "workspace_undo"
)

// Workspace is a call about changes of the workspace.
type Workspace struct {
	// Undo takes changes back: those since before Action, or if that is 0 those since before the last one that was asked
	// for. Otherwise changes are shown, since a state or since before the last one.
	Undo   bool
	Action uint64
	Since  api.StateRef
	// Paths are the only ones that are restored or shown; nil means everything.
	Paths []string
}

// maxWorkspacePaths bounds the paths of a call.
const maxWorkspacePaths = 100

// workspaceTools are part of every dialect.
var workspaceTools = []tool{
	{
		name: "workspace_changes", needs: NeedsChanges,
		about: "Show which files of the workspace changed, by whatever means, with the changed lines of text files, and the last actions that changed something, by their numbers. " +
			"Without since it shows what changed since before the last of them.",
		example: `{"since": "17", "paths": ["src"]}`,
		params: []param{
			{name: "since", kind: text, about: "What changed after this: the number of an action, a state such as s16, or the name of a checkpoint."},
			{name: "paths", kind: texts, about: "Only these files and directories, relative to the workspace or absolute."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return workspace(Workspace{Since: api.StateRef(v.text("since")), Paths: v.texts("paths")})
		},
	},
	{
		name: "workspace_undo", needs: NeedsUndo,
		about: "Take changes of files in the workspace back, also those of shell commands. Without an action it takes back the last one that changed something, and what changed after it; with one, everything since before that action. " +
			"The answer names what was restored and what could not be. It does not end processes and restores nothing outside of the workspace. Calling it again without an action takes the undo back.",
		example: `{"action": 17, "paths": ["src/app.py"]}`,
		params: []param{
			{name: "action", kind: integer, min: new(1), about: "The number of an action, as workspace_changes shows it."},
			{name: "paths", kind: texts, about: "Restore only these files and directories, relative to the workspace or absolute."},
			risk, thought,
		},
		build: func(v values) (Call, error) {
			return workspace(Workspace{Undo: true, Action: uint64(max(v.integer("action", 0), 0)), Paths: v.texts("paths")})
		},
	},
}

// workspace is a call about the workspace.
func workspace(w Workspace) (Call, error) {
	if len(w.Paths) > maxWorkspacePaths {
		return Call{}, fmt.Errorf(`argument "paths" must have at most %d paths, got %d`, maxWorkspacePaths, len(w.Paths))
	}
	if len(w.Paths) == 0 {
		w.Paths = nil
	}
	return Call{Workspace: &w}, nil
}
