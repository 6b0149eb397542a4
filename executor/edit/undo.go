package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/actiond/actiond/executor/internal/store"
)

// undo restores the state before the last recorded edit of a path: bytes and mode, or no file. It refuses if the file
// has changed since that edit, because undo would destroy the later change. There is no redo.
func (e *Editor) undo(p place) (Result, error) {
	en, at, err := e.history.top(p.real)
	if errors.Is(err, store.ErrNotKept) {
		return Result{}, &Error{CodeNoHistory, fmt.Sprintf("The content of %s before its last edit is no longer kept, so nothing was undone.", p.shown), err}
	}
	if err != nil {
		return Result{}, &Error{CodeNoHistory, fmt.Sprintf("The edit history of %s cannot be read, so nothing was undone.", p.shown), err}
	}
	if en == nil && !p.exists() {
		return Result{}, notFound(p.shown)
	}
	if en == nil && e.history.hasLost(p.real) {
		return Result{}, refuse(CodeNoHistory, "The text of %s before its last edits was given up for lack of space, so nothing was undone.", p.shown)
	}
	if en == nil {
		return Result{}, refuse(CodeNoHistory, "No edit history found for %s.", p.shown)
	}
	if !p.exists() && en.after != "" {
		return Result{}, refuse(CodeConflict, "The path %s does not exist: the file was removed by other means after its last edit, "+
			"so nothing was undone.", p.shown)
	}
	r, err := e.restore(p, en)
	if err != nil {
		return Result{}, err
	}
	e.history.pop(at)
	return r, nil
}

func changedSince(p place) *Error {
	return refuse(CodeConflict, "The file %s was changed by other means after its last edit, so nothing was undone. "+
		"Undoing would have lost that change.", p.shown)
}

func (e *Editor) restore(p place, en *entry) (Result, error) {
	if p.exists() && max(p.info.Size(), int64(len(en.data))) > e.maxEdit {
		return e.restoreLarge(p, en)
	}
	if !p.exists() {
		return e.undoRemoval(p, en)
	}
	f, now, err := e.loadAny(p)
	if err != nil {
		return Result{}, err
	}
	if hashOf(f.data) != en.after {
		return Result{}, changedSince(p)
	}
	if en.data == nil {
		return e.undoCreation(p, f, now, en)
	}
	if err := e.as(func() error { return e.overwrite(f, en.data, en.mode) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	return e.undone(p, en, f.data, now), nil
}

func (e *Editor) undoCreation(p place, f *file, now string, en *entry) (Result, error) {
	if err := e.as(func() error { return f.remove(en.dirs) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	return Result{
		Existed: true, Before: now,
		Text: fmt.Sprintf("Last edit to %s undone successfully. That edit had created the file, so the file was removed.", p.shown),
		Diff: p.diff(unifiedDiff, f.data, nil, now, ""),
	}, nil
}

func (e *Editor) undoRemoval(p place, en *entry) (Result, error) {
	if en.mode&fs.ModeSymlink != 0 {
		if err := e.as(func() error { return os.Symlink(string(en.data), p.real) }); err != nil {
			return Result{}, unwritable(p.shown, err)
		}
		return Result{Text: fmt.Sprintf("Last edit to %s undone successfully. It is a symbolic link to %s again.", p.shown, printable(string(en.data)))}, nil
	}
	err := e.as(func() error {
		_, err := e.create(p.real, en.data, creation{mode: en.mode, exact: true})
		return err
	})
	if err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	return e.undone(p, en, nil, ""), nil
}

func (e *Editor) undone(p place, en *entry, raw []byte, now string) Result {
	r := Result{
		Existed: p.exists(),
		SHA256:  string(hashFrom(en.before)),
		Text:    fmt.Sprintf("Last edit to %s undone successfully. ", p.shown),
	}
	if int64(len(en.data)) > e.maxEdit || p.exists() && p.info.Size() > e.maxEdit {
		r.Text += fmt.Sprintf("It has %d bytes again.", len(en.data))
		return r
	}
	t, err := decode(en.data)
	if err != nil {
		r.Text += "The file is binary and not shown."
		return r
	}
	r.Before, r.After = now, t.view
	r.Diff = p.diff(unifiedDiff, raw, en.data, now, t.view)
	r.Text += p.dialect.numbered(p.shown, t.view, 1)
	return r
}
