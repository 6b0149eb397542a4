package api

import (
	"cmp"
	"encoding/json"
	"strconv"
)

// Where a file action comes from, and so how it behaves.
const (
	implDefault = "default"
	implEditor  = "oh_aci"
	implDraft   = "llm_based_edit"
)

// ReadAction reads a file, or with ImplSource "oh_aci" views a file or directory.
type ReadAction struct {
	Common
	// Path may be relative to the session's working directory, unless
	// ImplSource is "oh_aci".
	Path string
	// Start and End are 0-based lines, End exclusive, -1 for the end of the file.
	Start, End int
	// ImplSource is "default" or "oh_aci".
	ImplSource string
	// ViewRange holds the first and last line, 1-based and inclusive; it is
	// used with "oh_aci" only. Nil when absent; not validated here.
	ViewRange []int
}

// Kind returns "read".
func (ReadAction) Kind() string { return "read" }
func (ReadAction) action()      {}

func decodeRead(f *fields) ReadAction {
	a := ReadAction{
		Common:     decodeCommon(f),
		Path:       f.needText("path"),
		Start:      f.integer("start", 0),
		End:        f.integer("end", -1),
		ImplSource: f.text("impl_source", implDefault),
		ViewRange:  f.integers("view_range"),
	}
	if a.ImplSource != implEditor { // any other word is the default, as in the reference
		a.ImplSource = implDefault
	}
	return a
}

func (a ReadAction) encodeArgs(w *writer) {
	w.text("path", a.Path)
	w.integer("start", a.Start)
	w.integer("end", a.End)
	a.encodeCommon(w)
	w.text("impl_source", cmp.Or(a.ImplSource, implDefault))
	if a.ViewRange == nil {
		w.null("view_range")
		return
	}
	w.key("view_range")
	w.buf = append(w.buf, '[')
	for _, n := range a.ViewRange {
		w.integer("", n)
	}
	w.buf = append(w.buf, ']')
}

// ReadObservation is the content of a file, the listing of a directory, or the
// editor's complaint (a content that begins with "ERROR:\n").
type ReadObservation struct {
	Content    string
	Path       string
	ImplSource string
}

// Kind returns "read".
func (ReadObservation) Kind() string { return "read" }
func (ReadObservation) observation() {}

func (o ReadObservation) encode(w *writer) {
	w.head("I read the file "+o.Path+".", o.Kind(), o.Content)
	w.text("path", o.Path)
	w.text("impl_source", cmp.Or(o.ImplSource, implDefault))
	w.close()
	w.close()
}

func decodeReadObservation(content string, f *fields) Observation {
	return ReadObservation{Content: content, Path: f.needText("path"), ImplSource: f.text("impl_source", implDefault)}
}

// WriteAction writes a file or a range of its lines.
type WriteAction struct {
	Common
	Path    string
	Content string
	// Start and End are 0-based lines, End exclusive, -1 for the end of the file.
	Start, End int
}

// Kind returns "write".
func (WriteAction) Kind() string { return "write" }
func (WriteAction) action()      {}

func decodeWrite(f *fields) WriteAction {
	return WriteAction{
		Common:  decodeCommon(f),
		Path:    f.needText("path"),
		Content: f.needText("content"),
		Start:   f.integer("start", 0),
		End:     f.integer("end", -1),
	}
}

func (a WriteAction) encodeArgs(w *writer) {
	w.grow(len(a.Content) + len(a.Content)/16 + 512)
	w.text("path", a.Path)
	w.text("content", a.Content)
	w.integer("start", a.Start)
	w.integer("end", a.End)
	a.encodeCommon(w)
}

// WriteObservation says that a file was written.
type WriteObservation struct {
	// Path is absolute.
	Path string
	// Diff is a unified diff without context, "" when nothing changed. It
	// travels beside the extras, which the stock client keeps closed, and only
	// when there is one.
	Diff string
}

// Kind returns "write".
func (WriteObservation) Kind() string { return "write" }
func (WriteObservation) observation() {}

func (o WriteObservation) encode(w *writer) {
	w.grow(len(o.Diff) + len(o.Diff)/16 + 512)
	w.head("I wrote to the file "+o.Path+".", o.Kind(), "")
	w.text("path", o.Path)
	w.close()
	if o.Diff != "" {
		w.text("diff", o.Diff)
	}
	w.close()
}

// EditAction changes a file. Which fields matter depends on Command.
type EditAction struct {
	Common
	Path string
	// Command is view, create, str_replace, insert, undo_edit, replace or write.
	Command string
	// FileText, OldStr and NewStr are nil when absent.
	FileText, OldStr, NewStr *string
	// InsertLine is the number as it was sent, "" when absent; it may be a
	// string that is no number, or a number that is no integer.
	InsertLine string
	// Content, Start and End belong to write and to the draft-based edit;
	// lines are 1-based and inclusive there. Content is nil when absent.
	Content    *string
	Start, End int
	// ExpectedReplacements belongs to replace; nil means 1.
	ExpectedReplacements *int
	// ImplSource is "oh_aci" or "llm_based_edit"; the latter belongs to tool
	// calls, DecodeRequest refuses it. Empty means "oh_aci" when encoded.
	ImplSource string
}

// Kind returns "edit".
func (EditAction) Kind() string { return "edit" }
func (EditAction) action()      {}

func decodeEdit(f *fields) EditAction {
	a := EditAction{
		Common:               decodeCommon(f),
		Path:                 f.needText("path"),
		Command:              f.text("command", ""),
		FileText:             f.textOrNil("file_text"),
		OldStr:               f.textOrNil("old_str"),
		NewStr:               f.textOrNil("new_str"),
		InsertLine:           f.line("insert_line"),
		Content:              f.textOrNil("content"),
		Start:                f.integer("start", 1),
		End:                  f.integer("end", -1),
		ExpectedReplacements: f.integerOrNil("expected_replacements"),
		ImplSource:           implEditor,
	}
	if v, sent := f.take("impl_source"); sent && v != implEditor {
		f.complain("impl_source", v, `"oh_aci" (a draft is merged by the controller)`)
	}
	return a
}

// line takes a line number that may come as a string, and that is judged where
// the file is known.
func (f *fields) line(name string) string {
	v, _ := f.take(name)
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return string(v)
	}
	f.complain(name, v, "an integer")
	return ""
}

func (a EditAction) encodeArgs(w *writer) {
	w.text("path", a.Path)
	w.text("command", a.Command)
	w.textOrNull("file_text", a.FileText)
	w.textOrNull("old_str", a.OldStr)
	w.textOrNull("new_str", a.NewStr)
	switch n, err := strconv.Atoi(a.InsertLine); {
	case a.InsertLine == "":
		w.null("insert_line")
	case err == nil && strconv.Itoa(n) == a.InsertLine:
		w.integer("insert_line", n)
	default:
		w.text("insert_line", a.InsertLine)
	}
	if a.Content != nil { // the reference has no null here
		w.text("content", *a.Content)
	}
	w.integer("start", a.Start)
	w.integer("end", a.End)
	a.encodeCommon(w)
	w.text("impl_source", cmp.Or(a.ImplSource, implEditor))
	if a.ExpectedReplacements != nil { // unknown to the reference server
		w.integer("expected_replacements", *a.ExpectedReplacements)
	}
}

// EditObservation is the outcome of an edit. Content begins with "ERROR:\n"
// when the editor refused.
type EditObservation struct {
	Content   string
	Path      string
	PrevExist bool
	// OldContent and NewContent repeat the action's old_str and new_str.
	OldContent, NewContent *string
	ImplSource             string
	// Diff is a unified diff without context, "" when nothing changed.
	Diff string
}

// Kind returns "edit".
func (EditObservation) Kind() string { return "edit" }
func (EditObservation) observation() {}

func (o EditObservation) encode(w *writer) {
	w.grow(len(o.Content) + len(o.Diff) + (len(o.Content)+len(o.Diff))/8 + 1024)
	w.head("I edited the file "+o.Path+".", o.Kind(), o.Content)
	w.text("path", o.Path)
	w.flag("prev_exist", o.PrevExist)
	w.textOrNull("old_content", o.OldContent)
	w.textOrNull("new_content", o.NewContent)
	w.text("impl_source", cmp.Or(o.ImplSource, implEditor))
	w.text("diff", o.Diff)
	w.null("_diff_cache") // the client's own, always empty
	w.close()
	w.close()
}

func decodeEditObservation(content string, f *fields) Observation {
	return EditObservation{
		Content:    content,
		Path:       f.text("path", ""),
		PrevExist:  f.flag("prev_exist", false),
		OldContent: f.textOrNil("old_content"),
		NewContent: f.textOrNil("new_content"),
		ImplSource: f.text("impl_source", implDraft),
		Diff:       f.text("diff", ""),
	}
}
