package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
)

// apply writes changes to a file and records them. The caller chooses the form of the diff, and tell returns the text
// for the agent from the diff and the new view.
func (e *Editor) apply(
	p place, f *file, t *text, changes []change, diff diffForm, tell func(diff, view string) string,
) (Result, error) {
	raw, view, err := e.splice(p, t, changes)
	if err != nil {
		return Result{}, err
	}
	return e.applied(p, f, t, raw, view, diff, tell)
}

// applied is apply for the new bytes of the file and their view.
func (e *Editor) applied(
	p place, f *file, t *text, raw []byte, view string, diff diffForm, tell func(diff, view string) string,
) (Result, error) {
	r, err := e.replaceFile(p, f, raw, f.info.Mode())
	if err != nil {
		return Result{}, err
	}
	r.Before, r.After = t.view, view
	r.Diff = p.diff(diff, f.data, raw, t.view, view)
	r.Text = tell(r.Diff, view)
	return r, nil
}

// splice calls [text.splice] and refuses a result that is too large.
func (e *Editor) splice(p place, t *text, changes []change) (raw []byte, view string, err error) {
	size := int64(len(t.raw))
	for _, c := range changes {
		size += int64(len(c.text))
	}
	if size > e.maxRead { // checked before allocating: many places times a long text may exceed the memory
		return nil, "", becomesTooLarge(p, e.maxRead)
	}
	return t.splice(changes)
}

// applyEach makes replacements one after the other, each in the result of the previous one, and writes the file once.
// find finds the places of one. If one fails, nothing is written and the error names it.
func (e *Editor) applyEach(
	p place, f *file, t *text, edits []Replacement, find func(view string, r Replacement) ([]change, error),
) (Result, error) {
	now := t
	for i, r := range edits {
		changes, err := find(now.view, r)
		var raw []byte
		if err == nil {
			raw, _, err = e.splice(p, now, changes)
		}
		if complaint, ok := errors.AsType[*Error](err); ok {
			return Result{}, &Error{complaint.Code, fmt.Sprintf("Edit %d of %d: %s\nNothing was changed.", i+1, len(edits), complaint.Message), err}
		}
		if err != nil {
			return Result{}, err
		}
		now = now.next(raw)
	}
	r, err := e.replaceFile(p, f, now.raw, f.info.Mode())
	if err != nil {
		return Result{}, err
	}
	r.Before, r.After = t.view, now.view
	r.Diff = p.diff(unifiedDiff, f.data, now.raw, t.view, now.view)
	r.Text = fmt.Sprintf("The file %s has been edited in %d steps:\n%s\n%s", p.shown, len(edits), clipped(r.Diff),
		reviewReplace)
	return r, nil
}

// replaceFile replaces the bytes of a file and records the old ones. Equal bytes are neither written nor recorded.
func (e *Editor) replaceFile(p place, f *file, data []byte, mode fs.FileMode) (Result, error) {
	after := hashing(data)
	defer after()
	if bytes.Equal(f.data, data) {
		return Result{Existed: true, SHA256: string(after())}, nil
	}
	en := &entry{mode: f.info.Mode(), data: f.data}
	defer e.history.discard(en)
	if !p.unrecorded {
		e.history.keep(en) // while it waits for the disk
	}
	if err := e.as(func() error { return e.overwrite(f, data, mode) }); err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	en.after = after()
	return Result{Existed: true, SHA256: string(en.after), HistoryErr: e.record(p, en)}, nil
}

// createFile creates a file and records that.
func (e *Editor) createFile(p place, data []byte, b creation) (Result, error) {
	if p.err != nil {
		return Result{}, unwritable(p.shown, p.err)
	}
	sum := hashing(data)
	defer sum()
	dirs := 0
	err := e.as(func() (err error) {
		dirs, err = e.create(p.real, data, b)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return Result{}, alreadyExists(p.shown)
	}
	if err != nil {
		return Result{}, unwritable(p.shown, err)
	}
	r := Result{SHA256: string(sum())}
	r.HistoryErr = e.record(p, &entry{after: sum(), dirs: dirs})
	return r, nil
}

// record puts an entry into the undo history, unless the change at p is to be kept out of it.
func (e *Editor) record(p place, en *entry) error {
	if p.unrecorded {
		return nil
	}
	return e.history.push(p.real, en)
}

// loadAny loads a regular file of any content, with the view that diffs show: "" for binary files.
func (e *Editor) loadAny(p place) (*file, string, error) {
	f, err := e.loadPlain(p)
	if err != nil {
		return nil, "", err
	}
	t, err := decode(f.data)
	if err != nil {
		return f, "", nil //nolint:nilerr // it is binary
	}
	return f, t.view, nil
}

func tooLarge(p place, limit int64) *Error {
	return refuse(CodeTooLarge, "File is too large (%.1fMB): %s. Maximum allowed size is %dMB.",
		float64(p.info.Size())/(1<<20), p.shown, limit>>20)
}

// withAdvice adds another way to the refusal of a large file. Commands of a dialect keep their words.
func withAdvice(err error, advice string) error {
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.Code == CodeTooLarge {
		return refuse(CodeTooLarge, "%s %s", refusal.Message, advice)
	}
	return err
}

func becomesTooLarge(p place, limit int64) *Error {
	return refuse(CodeTooLarge, "File validation failed for %s: File would become too large. Maximum allowed size is %dMB.",
		p.shown, limit>>20)
}

func notRegular(p place) *Error {
	return refuse(CodeNotRegular, "Not a regular file: %s is a %s.", p.shown, kindOf(p.info.Mode()))
}
