package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/executor/syntaxcheck"
)

const (
	implDefault = "default"
	implEditor  = "oh_aci"
	implDraft   = "llm_based_edit"
)

// read reads a file, or lets the editor view it. It never waits for a shell.
func (e *Executor) read(a api.ReadAction, req api.Request) api.Observation {
	if a.Format == api.FormatMarkdown {
		path := a.Path
		if !strings.HasPrefix(path, "/") {
			path = e.workingDir(req.Session) + "/" + path
		}
		lines := []int(a.ViewRange)
		if lines == nil && (a.Start > 0 || a.End > 0) {
			lines = []int{a.Start + 1, cmp.Or(a.End, -1)}
		}
		r, err := e.editor.Do(edit.Command{Name: "view", Path: path, ViewRange: lines, Markdown: true})
		if err != nil {
			return complaint(err)
		}
		return api.ReadObservation{Content: r.Text, Path: r.Path, ImplSource: a.ImplSource, SHA256: r.SHA256}
	}
	if a.Dialect == api.DialectGemini {
		r, err := e.editor.ReadLines(a.Path, e.workingDir(req.Session), edit.Lines{
			Start: a.StartLine, End: a.EndLine, Offset: a.Offset, Limit: a.Limit, Ignored: e.searcher.Ignored,
		})
		if err != nil {
			return complaint(err)
		}
		return api.ReadObservation{Content: r.Text, Path: r.Path, ImplSource: implDefault, SHA256: r.SHA256}
	}
	if a.Dialect == api.DialectToolset || a.Dialect == api.DialectStrands && a.Limit != nil {
		first, last := partOf(a)
		r, err := e.editor.ReadPart(edit.Dialect(a.Dialect), a.Path, e.workingDir(req.Session), first, last)
		return e.readWhole(r, err)
	}
	if a.ImplSource == implEditor || a.Dialect != "" {
		r, err := e.editor.Do(edit.Command{Dialect: edit.Dialect(a.Dialect), Name: "view", Path: a.Path, Dir: e.workingDir(req.Session), ViewRange: a.ViewRange})
		return viewed(a, r, err)
	}
	return e.readWhole(e.editor.Read(a.Path, e.workingDir(req.Session), a.Start, a.End))
}

// readWhole makes an observation of a read, whose text is not shortened: one that takes too much in an answer is refused.
func (e *Executor) readWhole(r edit.Result, err error) api.Observation {
	if err != nil {
		return complaint(err)
	}
	o := api.ReadObservation{Content: r.Text, Path: r.Path, ImplSource: implDefault, SHA256: r.SHA256}
	if n := int64(len(r.Text)); mostCounted*n <= e.cfg.MaxFile {
		return o
	}
	if n := api.AnswerSize(o); n > e.cfg.MaxFile {
		return complaint(&edit.Error{Code: edit.CodeTooLarge, Message: fmt.Sprintf(
			"The text of %s has so many control characters, quotes or backslashes that it takes %d bytes in an answer, and at most %d fit. Read a part of it by its lines, or download it.",
			r.Path, 2*n, 2*e.cfg.MaxFile)})
	}
	return o
}

// partOf returns the first and the last line that a read asks for, counted from 1; a last line below 1 is the end.
func partOf(a api.ReadAction) (first, last int) {
	first = 1
	if a.Offset != nil {
		first += *a.Offset
	}
	if a.Limit != nil {
		last = max(first-1+*a.Limit, first)
	}
	if len(a.ViewRange) == 2 {
		first, last = a.ViewRange[0], a.ViewRange[1]
	}
	return first, last
}

// viewed makes an observation of a view.
func viewed(a api.ReadAction, r edit.Result, err error) api.Observation {
	switch {
	case err != nil && a.Dialect != "":
		return complaint(err)
	case editorCode(err) == string(edit.CodeBinary): // a read finds that out before it asks the editor (docs/reference/openhands-protocol.md, section 5.1)
		return api.ErrorObservation{Content: edit.BinaryFile, Code: editorCode(err)}
	}
	if a.Dialect == api.DialectActiond {
		a.Path = r.Path
	}
	return api.ReadObservation{
		Content: editorText(r, err), Path: a.Path, ImplSource: implEditor, SHA256: r.SHA256, Code: editorCode(err),
	}
}

// write writes a file, or a range of its lines. In OpenHands' dialect the
// history of the editor knows edits only (docs/reference/openhands-protocol.md, section 5).
func (e *Executor) write(ctx context.Context, a api.WriteAction, req api.Request) api.Observation {
	var r edit.Result
	var err error
	switch dir := e.workingDir(req.Session); {
	case a.Dialect == api.DialectGemini:
		r, err = e.editor.Overwrite(a.Path, dir, a.Content, a.IfSHA256)
	case a.Dialect == api.DialectStrands || a.Dialect == api.DialectToolset || a.Dialect == api.DialectActiond:
		r, err = e.editor.WriteAll(edit.Dialect(a.Dialect), a.IfSHA256, a.Path, dir, a.Content)
	case a.Exact != nil && *a.Exact:
		r, err = e.editor.WriteExact(a.IfSHA256, a.Path, dir, a.Content, a.Start, a.End)
	default:
		r, err = e.editor.WriteUnrecorded(a.IfSHA256, a.Path, dir, a.Content, a.Start, a.End)
	}
	if err != nil {
		return complaint(err)
	}
	e.noteHistory(ctx, &r)
	return api.WriteObservation{Content: r.Text, Path: r.Path, Diff: r.Diff, SHA256: r.SHA256}
}

// edit lets the editor change a file. A refusal of the editor is an observation, too.
func (e *Executor) edit(ctx context.Context, a api.EditAction, req api.Request) api.Observation {
	if a.ImplSource == implDraft {
		return e.mergeDraft(ctx, a, req)
	}
	var r edit.Result
	var err error
	if a.Command == "apply_patch" {
		r, err = e.patch(a, req)
	} else {
		r, err = e.editor.Do(editCommand(a, e.workingDir(req.Session)))
	}
	e.noteHistory(ctx, &r)
	return edited(a, r, err)
}

// edited makes an observation of an edit.
func edited(a api.EditAction, r edit.Result, err error) api.Observation {
	if err != nil && a.Dialect != "" {
		return complaint(err)
	}
	if a.Dialect == api.DialectActiond {
		a.Path = r.Path
	}
	o := api.EditObservation{
		Content: editorText(r, err), Path: a.Path, OldContent: a.OldStr, NewContent: a.NewStr,
		ImplSource: implEditor, Diff: r.Diff, SHA256: r.SHA256, Code: editorCode(err),
	}
	if a.Whole {
		o.PrevExist, o.OldContent, o.NewContent = true, wholeText(r.Before), wholeText(r.After)
		if a.Command == "create" {
			o.PrevExist, o.OldContent = false, nil
		}
	}
	return o
}

// wholeText returns a text for an answer with whole texts, nil where it is too large.
func wholeText(text string) *string {
	if len(text) > api.MaxWhole {
		return nil
	}
	return &text
}

// invalid answers an action that could not be decoded in the form of its kind.
func invalid(a api.InvalidAction) api.Observation {
	err := &edit.Error{Code: edit.CodeInvalidArgument, Message: a.Reason}
	switch of := a.Of.(type) {
	case api.ReadAction:
		return viewed(of, edit.Result{}, err)
	case api.EditAction:
		if of.ImplSource == implDraft {
			return complaint(err)
		}
		return edited(of, edit.Result{}, err)
	default:
		return api.ErrorObservation{Content: a.Reason}
	}
}

// mergeDraft merges a draft into a file: by rules, or by the model that is
// configured.
func (e *Executor) mergeDraft(ctx context.Context, a api.EditAction, req api.Request) api.Observation {
	if a.Content == nil {
		return complaint(&edit.Error{Code: edit.CodeMissingArgument, Message: "Parameter `content` is required for llm_based_edit."})
	}
	d := edit.Draft{
		Path: a.Path, Dir: e.workingDir(req.Session), Content: *a.Content, Start: a.Start, End: a.End, IfSHA256: a.IfSHA256,
	}
	if e.cfg.DraftModel != nil {
		d.Model = func(original, update string) (string, error) { return e.cfg.DraftModel.Merge(ctx, original, update) }
	}
	m, err := e.editor.Merge(d)
	if err != nil {
		return complaint(err)
	}
	e.noteHistory(ctx, &m)
	content := m.Text
	if a.Lint {
		if issues, known := syntaxcheck.New(ctx, m.Path, m.Before, m.After, e.cfg.User); known {
			content += "\n" + syntaxcheck.Format(issues)
		}
	}
	return api.EditObservation{
		Content: content, Path: m.Path, PrevExist: m.Existed, OldContent: &m.Before, NewContent: &m.After,
		ImplSource: implDraft, SHA256: m.SHA256,
	}
}

// editCommand returns an action as a command of the editor.
func editCommand(a api.EditAction, dir string) edit.Command {
	c := edit.Command{
		Dialect: edit.Dialect(a.Dialect), Name: a.Command, Path: a.Path, Dir: dir,
		NewPath: a.NewPath, FileText: a.FileText, OldStr: a.OldStr, NewStr: a.NewStr, InsertLine: (*string)(a.InsertLine),
		Expected: a.ExpectedReplacements, AllowMultiple: a.AllowMultiple, Fuzzy: a.Fuzzy, Regex: a.Regex, IfSHA256: a.IfSHA256,
		Native: a.Native, Content: a.Content, Start: a.Start, End: a.End,
	}
	if a.Edits != nil {
		c.Edits = []edit.Replacement{}
	}
	for _, r := range a.Edits {
		c.Edits = append(c.Edits, edit.Replacement{
			Old: r.OldStr, New: r.NewStr, Expected: r.ExpectedReplacements, AllowMultiple: r.AllowMultiple,
		})
	}
	return c
}

// patch changes several files, or none.
func (e *Executor) patch(a api.EditAction, req api.Request) (edit.Result, error) {
	switch {
	case a.Patch == nil:
		return edit.Result{}, &edit.Error{Code: edit.CodeMissingArgument, Message: "Parameter `patch` is required for command: apply_patch."}
	case a.IfSHA256 != "":
		return edit.Result{}, &edit.Error{
			Code: edit.CodeInvalidArgument, Message: "Parameter `if_sha256` is for one file, and apply_patch may change several.",
		}
	}
	if a.Native {
		return e.editor.NativePatch(e.workingDir(req.Session), *a.Patch)
	}
	return e.editor.Patch(e.workingDir(req.Session), *a.Patch)
}

// complaint is the observation of a file action that failed.
func complaint(err error) api.Observation {
	return api.ErrorObservation{Content: err.Error(), Code: editorCode(err)}
}

// noteHistory says in a result that its change cannot be undone, and logs why.
func (e *Executor) noteHistory(ctx context.Context, r *edit.Result) {
	if r.HistoryErr == nil {
		return
	}
	e.cfg.Logger.WarnContext(ctx, "an edit cannot be undone", slog.String("path", r.Path), slog.Any("error", r.HistoryErr))
	why := "it could not be recorded"
	switch {
	case errors.Is(r.HistoryErr, store.ErrTooLarge):
		why = "the old content is too large to be recorded"
	case errors.Is(r.HistoryErr, store.ErrFull), errors.Is(r.HistoryErr, syscall.ENOSPC),
		errors.Is(r.HistoryErr, syscall.EDQUOT):
		why = "there is no space left to record it"
	}
	if r.Text != "" && !strings.HasSuffix(r.Text, "\n") {
		r.Text += "\n"
	}
	r.Text += "[This change cannot be undone: " + why + ".]"
}

// editorText is the content of the observation of an editor command: errors are
// contents too (docs/reference/openhands-protocol.md, section 5.3).
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
	if err != nil {
		return "failed"
	}
	return ""
}

// workingDir is the directory of relative paths: that of the session's shell after
// its last finished command.
func (e *Executor) workingDir(session string) string {
	if shell := e.sessions.existing(session); shell != nil {
		return shell.Info().Dir
	}
	return e.cfg.WorkingDir
}
