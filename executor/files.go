package executor

import (
	"context"
	"errors"
	"log/slog"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/edit"
)

const (
	implDefault = "default"
	implEditor  = "oh_aci"
	implDraft   = "llm_based_edit"
)

// read reads a file, or lets the editor view it. It never waits for a shell.
func (e *Executor) read(a api.ReadAction, req api.Request) api.Observation {
	if a.Dialect != "" {
		return unsupported("dialect " + a.Dialect)
	}
	if a.ImplSource == implEditor {
		r, err := e.editor.Do(edit.Command{Name: "view", Path: a.Path, ViewRange: a.ViewRange})
		return api.ReadObservation{
			Content: editorText(r, err), Path: a.Path, ImplSource: implEditor, SHA256: r.SHA256, Code: editorCode(err),
		}
	}
	r, err := e.editor.Read(a.Path, e.workingDir(req.Session), a.Start, a.End)
	if err != nil {
		return api.ErrorObservation{Content: err.Error(), Code: editorCode(err)}
	}
	return api.ReadObservation{Content: r.Text, Path: r.Path, ImplSource: implDefault, SHA256: r.SHA256}
}

// write writes a file, or a range of its lines.
func (e *Executor) write(ctx context.Context, a api.WriteAction, req api.Request) api.Observation {
	if a.Dialect != "" {
		return unsupported("dialect " + a.Dialect)
	}
	r, err := e.editor.Write(a.Path, e.workingDir(req.Session), a.Content, a.Start, a.End)
	if err != nil {
		return api.ErrorObservation{Content: err.Error(), Code: editorCode(err)}
	}
	e.noteHistory(ctx, r)
	return api.WriteObservation{Path: r.Path, Diff: r.Diff, SHA256: r.SHA256}
}

// edit lets the editor change a file. What it refuses is an observation too.
func (e *Executor) edit(ctx context.Context, a api.EditAction) api.Observation {
	switch {
	case a.Dialect != "":
		return unsupported("dialect " + a.Dialect)
	case a.ImplSource == implDraft:
		return unsupported("impl_source " + implDraft)
	case a.AllowMultiple, a.Fuzzy, a.Edits != nil, a.Patch != nil, a.IfSHA256 != "", a.Lint:
		return unsupported("one of allow_multiple, fuzzy, edits, patch, if_sha256, lint")
	}
	c := edit.Command{
		Name: a.Command, Path: a.Path, FileText: a.FileText, OldStr: a.OldStr, NewStr: a.NewStr,
		Expected: a.ExpectedReplacements, Content: a.Content, Start: a.Start, End: a.End,
	}
	if a.InsertLine != "" {
		c.InsertLine = &a.InsertLine
	}
	r, err := e.editor.Do(c)
	e.noteHistory(ctx, r)
	return api.EditObservation{
		Content: editorText(r, err), Path: a.Path, OldContent: a.OldStr, NewContent: a.NewStr,
		ImplSource: implEditor, Diff: r.Diff, SHA256: r.SHA256, Code: editorCode(err),
	}
}

// unsupported refuses what this server does not know yet.
func unsupported(what string) api.Observation {
	return api.ErrorObservation{Content: what + " is not supported yet. Nothing was done.", Code: string(edit.CodeUnsupported)}
}

// noteHistory logs that a change was made which cannot be undone.
func (e *Executor) noteHistory(ctx context.Context, r edit.Result) {
	if r.HistoryErr != nil {
		e.cfg.Logger.WarnContext(ctx, "an edit cannot be undone", slog.String("path", r.Path), slog.Any("error", r.HistoryErr))
	}
}

// editorText is what the agent reads of an editor command: its complaints come
// as contents too (openhands.md, section 5.3).
func editorText(r edit.Result, err error) string {
	if err != nil {
		return "ERROR:\n" + err.Error()
	}
	return r.Text
}

// editorCode is the machine word of an editor's complaint, "" for none.
func editorCode(err error) string {
	if complaint, ok := errors.AsType[*edit.Error](err); ok {
		return string(complaint.Code)
	}
	return ""
}

// workingDir is what relative paths are joined to: where the last finished
// command left the session's shell.
func (e *Executor) workingDir(session string) string {
	if shell := e.sessions.existing(session); shell != nil {
		return shell.Info().Dir
	}
	return e.cfg.WorkingDir
}
