package api

import (
	"fmt"
)

// executionTools are the tools of OpenHands' execution protocol, with the names that their
// observations have as "kind".
var executionTools = map[string]string{
	"terminal":    "TerminalObservation",
	"file_editor": "FileEditorObservation",
	"grep":        "GrepObservation",
	"glob":        "GlobObservation",
	"apply_patch": "ApplyPatchObservation",
}

// DecodeExecution reads the body of a call of OpenHands' execution protocol,
// {"tool_name": …, "action": {…}}, as the call of a tool. Every error is an *[Error] with status
// 422. Members beside these two are ignored, as OpenHands' server does.
func DecodeExecution(body []byte) (ToolCall, error) {
	sent := members{}
	scan, err := newScanner(body, maxValues)
	if err == nil {
		err = scan.object(`an object {"tool_name": …, "action": {…}}`, func(name string) error {
			if name != "tool_name" && name != "action" {
				return scan.skip()
			}
			return sent.read(scan, name)
		})
	}
	if err == nil {
		err = scan.end()
	}
	if err != nil {
		return ToolCall{}, Unprocessable("body: " + err.Error())
	}
	name, err := text(sent["tool_name"], true)
	if err != nil || sent["tool_name"] == nil {
		return ToolCall{}, Unprocessable("body: tool_name must be a string, got " + describe(sent["tool_name"]))
	}
	if executionTools[name] == "" {
		return ToolCall{}, Unprocessable(fmt.Sprintf("tool_name %s is unknown; tools are apply_patch, file_editor, glob, grep, terminal", Excerpt(name)))
	}
	if sent["action"].Kind() != '{' {
		return ToolCall{}, Unprocessable("body: action must be an object, got " + describe(sent["action"]))
	}
	return ToolCall{Dialect: string(DialectOpenHandsV1), Name: name, Arguments: string(sent["action"]), Execution: true}, nil
}

// executionPart is a part of the content of an observation.
type executionPart struct {
	Type string   `json:"type"`
	Text *string  `json:"text,omitzero"`
	URLs []string `json:"image_urls,omitzero"`
}

// executionObservation is an observation of OpenHands' execution protocol. Members of other
// tools, and those that are null, are left out.
type executionObservation struct {
	Content []executionPart `json:"content"`
	IsError bool            `json:"is_error"`

	// Of the terminal. The exit code is -1 while the command runs.
	Command  *string            `json:"command,omitzero"` // of the editor too
	ExitCode *int               `json:"exit_code,omitzero"`
	Timeout  *bool              `json:"timeout,omitzero"`
	Metadata *executionMetadata `json:"metadata,omitzero"`

	// Of the editor.
	Path       *string `json:"path,omitzero"`
	PrevExist  *bool   `json:"prev_exist,omitzero"`
	OldContent *string `json:"old_content,omitzero"`
	NewContent *string `json:"new_content,omitzero"`

	// Of the searches.
	Matches    *[]string `json:"matches,omitzero"`
	Files      *[]string `json:"files,omitzero"`
	Pattern    *string   `json:"pattern,omitzero"`
	SearchPath *string   `json:"search_path,omitzero"`
	Include    *string   `json:"include_pattern,omitzero"`
	Truncated  *bool     `json:"truncated,omitzero"`

	// Of patches.
	Message *string `json:"message,omitzero"`
	Fuzz    *int    `json:"fuzz,omitzero"`

	Kind string `json:"kind"`
}

// executionMetadata are the metadata of a command. The client shows prefix, text and suffix, and
// lines about the rest.
type executionMetadata struct {
	ExitCode          int     `json:"exit_code"`
	PID               int     `json:"pid"`
	Username          *string `json:"username,omitzero"`
	Hostname          *string `json:"hostname,omitzero"`
	WorkingDir        *string `json:"working_dir,omitzero"`
	PyInterpreterPath *string `json:"py_interpreter_path,omitzero"`
	Prefix            string  `json:"prefix"`
	Suffix            string  `json:"suffix"`
}

// EncodeExecution returns the answer to a call of DecodeExecution, {"observation": {…}}.
func EncodeExecution(call ToolCall, o Observation) ([]byte, error) {
	sent, err := readMembers([]byte(call.Arguments), unlimited, "an object")
	if err != nil {
		return nil, fmt.Errorf("encoding the answer of %s: %w", call.Name, err)
	}
	argument := func(name string) *string {
		if value, err := text(sent[name], false); err == nil && sent[name] != nil {
			return &value
		}
		return nil
	}
	shown, images := Text(o)
	e := executionObservation{Kind: executionTools[call.Name]}
	outcome, code := OutcomeOf(o)
	e.IsError = outcome != OutcomeSucceeded && outcome != OutcomeRunning
	switch call.Name {
	case "terminal":
		e.Command, e.Timeout = argument("command"), new(code == CodeTimedOut)
		if run, ok := o.(RunObservation); ok {
			e.terminal(run)
			shown = run.Content
		}
	case "file_editor":
		e.Command, e.Path = argument("command"), argument("path")
		if edited, ok := o.(EditObservation); ok && !e.IsError {
			e.PrevExist, e.OldContent, e.NewContent = &edited.PrevExist, edited.OldContent, edited.NewContent
		}
	case "grep", "glob":
		found, _ := o.(SearchObservation)
		files := orEmpty(found.Files)
		pattern := argument("pattern")
		if pattern == nil {
			pattern = new("")
		}
		if e.Pattern, e.SearchPath, e.Truncated = pattern, &found.Path, &found.Truncated; call.Name == "glob" {
			e.Files = &files
		} else {
			e.Matches, e.Include = &files, argument("include")
		}
	case "apply_patch":
		if e.Fuzz = new(0); !e.IsError {
			e.Message = &shown
		}
	}
	if shown != "" || len(images) == 0 {
		e.Content = append(e.Content, executionPart{Type: "text", Text: &shown})
	}
	if len(images) > 0 {
		e.Content = append(e.Content, executionPart{Type: "image", URLs: images})
	}
	return Encode(struct {
		Observation executionObservation `json:"observation"`
	}{e})
}

// terminal sets the members about a command. A command that failed is no error of the tool.
func (e *executionObservation) terminal(o RunObservation) {
	m := o.Metadata
	suffix := m.Suffix + note(m.Waiting)
	if o.Network != nil {
		suffix += "\n" + o.Network.Text()
	}
	e.IsError = o.Outcome == OutcomeNotStarted || o.Outcome == OutcomeUnknown
	e.ExitCode = &m.ExitCode
	e.Metadata = &executionMetadata{m.ExitCode, m.PID, m.Username, m.Hostname, m.WorkingDir, m.PyInterpreterPath, m.Prefix, suffix}
}
