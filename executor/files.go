package executor

import (
	"context"
	"log/slog"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/edit"
)

const (
	implDefault = "default"
	implEditor  = "oh_aci"
)

// read reads a file, or lets the editor view it. It never waits for a shell.
func (e *Executor) read(a api.ReadAction, req api.Request) api.Observation {
	if a.ImplSource == implEditor {
		r, err := e.editor.Do(edit.Command{Name: "view", Path: a.Path, ViewRange: a.ViewRange})
		return api.ReadObservation{Content: editorText(r, err), Path: a.Path, ImplSource: implEditor}
	}
	r, err := e.editor.Read(a.Path, e.workingDir(req.Session), a.Start, a.End)
	if err != nil {
		return api.ErrorObservation{Content: err.Error()}
	}
	return api.ReadObservation{Content: r.Text, Path: r.Path, ImplSource: implDefault}
}

// write writes a file, or a range of its lines.
func (e *Executor) write(ctx context.Context, a api.WriteAction, req api.Request) api.Observation {
	r, err := e.editor.Write(a.Path, e.workingDir(req.Session), a.Content, a.Start, a.End)
	if err != nil {
		return api.ErrorObservation{Content: err.Error()}
	}
	e.noteHistory(ctx, r)
	return api.WriteObservation{Path: r.Path, Diff: r.Diff}
}

// edit lets the editor change a file. What it refuses is an observation too.
func (e *Executor) edit(ctx context.Context, a api.EditAction) api.Observation {
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
		ImplSource: implEditor, Diff: r.Diff,
	}
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

// workingDir is what relative paths are joined to: where the last finished
// command left the session's shell.
func (e *Executor) workingDir(session string) string {
	if shell := e.sessions.existing(session); shell != nil {
		return shell.Info().Dir
	}
	return e.cfg.WorkingDir
}
