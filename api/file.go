package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
)

// Where a file action comes from, and so how it behaves.
const (
	implDefault = "default"
	implEditor  = "oh_aci"
	implDraft   = "llm_based_edit"
)

// The dialects of file actions: whose rules and words an editor follows. The
// empty one is OpenHands' own. Other servers know none of them.
const (
	DialectOpenHandsV1 = "openhands-v1"
	DialectGemini      = "gemini"
	DialectStrands     = "strands"
	DialectAnthropic   = "anthropic"
)

// decodeDialect takes the name of a dialect, "" when absent.
func decodeDialect(f *fields) string {
	switch name := f.text("dialect", ""); name {
	case "", DialectOpenHandsV1, DialectGemini, DialectStrands, DialectAnthropic:
		return name
	default:
		f.complain("dialect", name, `one of "openhands-v1", "gemini", "strands", "anthropic"`)
		return ""
	}
}

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
	// Dialect is one of the constants, "" for the protocol's own rules.
	Dialect string
	// StartLine and EndLine are 1-based and inclusive, Offset is 0-based; they
	// and Limit belong to the dialect "gemini". Nil when absent.
	StartLine, EndLine, Offset, Limit *int
}

// Kind returns "read".
func (ReadAction) Kind() string { return "read" }
func (ReadAction) action()      {}

// decodeRead reads a read. A range that the editor cannot take makes it an
// InvalidAction; the default read looks at none.
func decodeRead(f *fields) Action {
	a := ReadAction{
		Common:     decodeCommon(f),
		Path:       f.needText("path"),
		Start:      f.integer("start", 0),
		End:        f.integer("end", -1),
		ImplSource: f.text("impl_source", implDefault),
		ViewRange:  f.viewRange("view_range"),
		Dialect:    decodeDialect(f),
		StartLine:  f.integerOrNil("start_line"),
		EndLine:    f.integerOrNil("end_line"),
		Offset:     f.integerOrNil("offset"),
		Limit:      f.integerOrNil("limit"),
	}
	if a.ImplSource != implEditor { // any other word is the default, as in the reference
		a.ImplSource = implDefault
	}
	if f.odd != "" && (a.ImplSource == implEditor || a.Dialect != "") {
		return InvalidAction{Of: a, Reason: f.odd}
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
	} else {
		w.key("view_range")
		w.buf = append(w.buf, '[')
		for _, n := range a.ViewRange {
			w.integer("", n)
		}
		w.buf = append(w.buf, ']')
	}
	w.textIfAny("dialect", a.Dialect)
	w.integerIfAny("start_line", a.StartLine)
	w.integerIfAny("end_line", a.EndLine)
	w.integerIfAny("offset", a.Offset)
	w.integerIfAny("limit", a.Limit)
}

// ReadObservation is the content of a file, the listing of a directory, or the
// editor's complaint (a content that begins with "ERROR:\n").
type ReadObservation struct {
	Content    string
	Path       string
	ImplSource string
	// SHA256 is the hash of the file's bytes in hexadecimal, "" for
	// directories. Code is the machine word of the editor's complaint, "" where
	// there is none. Neither is encoded: clients keep the extras closed.
	SHA256, Code string
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
	// Dialect is one of the constants, "" for the protocol's own rules. Start
	// and End belong to "" alone.
	Dialect string
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string
}

// Kind returns "write".
func (WriteAction) Kind() string { return "write" }
func (WriteAction) action()      {}

func decodeWrite(f *fields) WriteAction {
	return WriteAction{
		Common:   decodeCommon(f),
		Path:     f.needText("path"),
		Content:  f.needText("content"),
		Start:    f.integer("start", 0),
		End:      f.integer("end", -1),
		Dialect:  decodeDialect(f),
		IfSHA256: f.text("if_sha256", ""),
	}
}

func (a WriteAction) encodeArgs(w *writer) {
	w.grow(len(a.Content) + len(a.Content)/16 + 512)
	w.text("path", a.Path)
	w.text("content", a.Content)
	w.integer("start", a.Start)
	w.integer("end", a.End)
	a.encodeCommon(w)
	w.textIfAny("dialect", a.Dialect)
	w.textIfAny("if_sha256", a.IfSHA256)
}

// WriteObservation says that a file was written.
type WriteObservation struct {
	// Path is absolute.
	Path string
	// Diff is a unified diff without context, "" when nothing changed. It
	// travels beside the extras, which the stock client keeps closed, and only
	// when there is one.
	Diff string
	// Content is what the agent reads; it is "" but in the dialects that answer
	// a write in words.
	Content string
	// SHA256 is the hash of the file's bytes in hexadecimal. It is not encoded.
	SHA256 string
}

// Kind returns "write".
func (WriteObservation) Kind() string { return "write" }
func (WriteObservation) observation() {}

func (o WriteObservation) encode(w *writer) {
	w.grow(len(o.Diff) + len(o.Diff)/16 + 512)
	w.head("I wrote to the file "+o.Path+".", o.Kind(), o.Content)
	w.text("path", o.Path)
	w.close()
	if o.Diff != "" {
		w.text("diff", o.Diff)
	}
	w.close()
}

// EditAction changes a file, or several. Which fields matter depends on
// ImplSource and Command.
type EditAction struct {
	Common
	// Path is absolute. In the dialect "gemini" and with a draft it may be
	// relative to the session's working directory; apply_patch has none.
	Path string
	// Command is view, create, str_replace, insert, undo_edit, replace, write
	// or apply_patch.
	Command string
	// FileText, OldStr and NewStr are nil when absent.
	FileText, OldStr, NewStr *string
	// InsertLine is the number as it was sent, nil when absent; it may be a
	// string that is no number, or a number that is no integer.
	InsertLine *string
	// Content, Start and End belong to write and to the draft-based edit;
	// lines are 1-based and inclusive there. Content is nil when absent.
	Content    *string
	Start, End int
	// ExpectedReplacements belongs to replace; nil means 1.
	ExpectedReplacements *int
	// AllowMultiple lets replace change every place, however many there are.
	AllowMultiple bool
	// Fuzzy lets replace take the most similar lines where nothing matches.
	Fuzzy bool
	// Edits are several replacements of str_replace or replace, instead of
	// OldStr and NewStr: each works on what the one before left, and either all
	// are made or none.
	Edits []Replacement
	// Patch is the text of apply_patch, nil when absent.
	Patch *string
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string
	// Lint asks what a linter found new after a draft was merged.
	Lint bool
	// Dialect is one of the constants, "" for OpenHands' own editor.
	Dialect string
	// ImplSource is "oh_aci", or "llm_based_edit" for a draft that is merged
	// into the file. Empty means "oh_aci" when encoded.
	ImplSource string
}

// Replacement is one of the Edits of an EditAction.
type Replacement struct {
	OldStr, NewStr string
	// ExpectedReplacements is nil where it is 1.
	ExpectedReplacements *int
	AllowMultiple        bool
}

// Kind returns "edit".
func (EditAction) Kind() string { return "edit" }
func (EditAction) action()      {}

// decodeEdit reads an edit. A parameter of the editor's that has a wrong type
// makes it an InvalidAction.
func decodeEdit(f *fields) Action {
	a := EditAction{
		Common:               decodeCommon(f),
		Path:                 f.needText("path"),
		FileText:             f.editorText("file_text"),
		OldStr:               f.editorText("old_str"),
		NewStr:               f.editorText("new_str"),
		InsertLine:           f.line("insert_line"),
		Content:              f.textOrNil("content"),
		Start:                f.integer("start", 1),
		End:                  f.integer("end", -1),
		ExpectedReplacements: f.integerOrNil("expected_replacements"),
		AllowMultiple:        f.flag("allow_multiple", false),
		Fuzzy:                f.flag("fuzzy", false),
		Edits:                decodeReplacements(f),
		Patch:                f.textOrNil("patch"),
		IfSHA256:             f.text("if_sha256", ""),
		Lint:                 f.flag("lint", false),
		Dialect:              decodeDialect(f),
		ImplSource:           decodeEditSource(f),
	}
	if command := f.editorText("command"); command != nil {
		a.Command = *command
	}
	if f.odd != "" {
		return InvalidAction{Of: a, Reason: f.odd}
	}
	return a
}

// decodeEditSource is stricter than that of a read: the reference has no other
// way to edit that an unknown word could stand for.
func decodeEditSource(f *fields) string {
	v, sent := f.take("impl_source")
	switch {
	case !sent || v == implEditor:
		return implEditor
	case v == implDraft:
		return implDraft
	}
	f.complain("impl_source", v, `"oh_aci" or "llm_based_edit"`)
	return implEditor
}

// decodeReplacements takes the list of replacements, nil when absent.
func decodeReplacements(f *fields) []Replacement {
	v, _ := f.take("edits")
	if v == nil {
		return nil
	}
	const want = `a list of objects with "old_str" and "new_str"`
	list, ok := v.([]any)
	if !ok {
		f.complain("edits", v, want)
	}
	edits := make([]Replacement, 0, len(list))
	for i, e := range list {
		members, ok := e.(map[string]any)
		if !ok {
			f.complain("edits", e, want)
			break
		}
		each := fields{of: fmt.Sprintf("%s \"edits\"[%d]: member", f.of, i), values: members}
		edits = append(edits, Replacement{
			OldStr:               each.needText("old_str"),
			NewStr:               each.needText("new_str"),
			ExpectedReplacements: each.integerOrNil("expected_replacements"),
			AllowMultiple:        each.flag("allow_multiple", false),
		})
		if err := each.checkAll(); err != nil && f.wrong == "" {
			f.wrong = err.Error()
		}
	}
	return edits
}

// oddly remembers the first thing wrong with the parameters of the editor, in
// words that it answers with itself.
func (f *fields) oddly(format string, args ...any) {
	if f.odd == "" {
		f.odd = fmt.Sprintf(format, args...)
	}
}

// editorText takes a text of the editor's, nil when absent.
func (f *fields) editorText(name string) *string {
	v, _ := f.take(name)
	if v == nil {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		f.oddly("Invalid `%s` parameter: it should be a string, got %s.", name, describe(v))
		return nil
	}
	return &s
}

// line takes a line number that may come as a string, and that is judged where
// the file is known; nil when absent.
func (f *fields) line(name string) *string {
	v, _ := f.take(name)
	n, whole := integral(v)
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return &v
	case json.Number:
		if whole { // 1.0 is 1
			return new(strconv.Itoa(n))
		}
		return new(string(v))
	}
	f.oddly("Invalid insert_line value: %s. Expected an integer.", describe(v))
	return nil
}

// viewRange takes the lines of a view, nil when absent. As in Python a boolean
// is a number.
func (f *fields) viewRange(name string) []int {
	v, _ := f.take(name)
	if v == nil || v == "" {
		return nil
	}
	list, ok := v.([]any)
	lines := make([]int, 0, len(list))
	for _, e := range list {
		n, whole := integral(e)
		if yes, isBool := e.(bool); isBool {
			whole = true
			if yes {
				n = 1
			}
		}
		ok = ok && whole
		lines = append(lines, n)
	}
	if !ok {
		f.oddly("Invalid `%s` parameter: %s. It should be a list of two integers.", name, python(v))
		return nil
	}
	return lines
}

func (a EditAction) encodeArgs(w *writer) {
	w.text("path", a.Path)
	w.text("command", a.Command)
	w.textOrNull("file_text", a.FileText)
	w.textOrNull("old_str", a.OldStr)
	w.textOrNull("new_str", a.NewStr)
	if a.InsertLine == nil {
		w.null("insert_line")
	} else if n, err := strconv.Atoi(*a.InsertLine); err == nil && strconv.Itoa(n) == *a.InsertLine {
		w.integer("insert_line", n)
	} else {
		w.text("insert_line", *a.InsertLine)
	}
	if a.Content != nil { // the reference has no null here
		w.text("content", *a.Content)
	}
	w.integer("start", a.Start)
	w.integer("end", a.End)
	a.encodeCommon(w)
	w.text("impl_source", cmp.Or(a.ImplSource, implEditor))
	// The reference server knows none of these, so they travel only when used.
	w.integerIfAny("expected_replacements", a.ExpectedReplacements)
	w.flagIfSet("allow_multiple", a.AllowMultiple)
	w.flagIfSet("fuzzy", a.Fuzzy)
	if a.Edits != nil {
		encodeReplacements(w, a.Edits)
	}
	if a.Patch != nil {
		w.text("patch", *a.Patch)
	}
	w.textIfAny("if_sha256", a.IfSHA256)
	w.flagIfSet("lint", a.Lint)
	w.textIfAny("dialect", a.Dialect)
}

func encodeReplacements(w *writer, edits []Replacement) {
	w.key("edits")
	w.buf = append(w.buf, '[')
	for _, r := range edits {
		w.open("")
		w.text("old_str", r.OldStr)
		w.text("new_str", r.NewStr)
		w.integerIfAny("expected_replacements", r.ExpectedReplacements)
		w.flagIfSet("allow_multiple", r.AllowMultiple)
		w.close()
	}
	w.buf = append(w.buf, ']')
}

// EditObservation is the outcome of an edit. Content begins with "ERROR:\n"
// when the editor refused.
type EditObservation struct {
	Content   string
	Path      string
	PrevExist bool
	// OldContent and NewContent repeat the action's old_str and new_str; of a
	// draft they are the whole text before and after.
	OldContent, NewContent *string
	ImplSource             string
	// Diff is a unified diff without context, "" when nothing changed.
	Diff string
	// SHA256 is the hash of the file's bytes in hexadecimal, "" where there is
	// no file or there are several. Code is the machine word of the editor's
	// complaint, "" where there is none. Neither is encoded: clients keep the
	// extras closed.
	SHA256, Code string
}

// Kind returns "edit".
func (EditObservation) Kind() string { return "edit" }
func (EditObservation) observation() {}

func (o EditObservation) encode(w *writer) {
	w.grow(len(o.Content) + len(o.Diff) + (len(o.Content)+len(o.Diff))/8 + 1024)
	message := "I edited the file " + o.Path + "."
	if o.Path == "" { // a patch
		message = "I edited files."
	}
	w.head(message, o.Kind(), o.Content)
	w.text("path", o.Path)
	w.flag("prev_exist", o.PrevExist)
	w.textOrNull("old_content", o.OldContent)
	w.textOrNull("new_content", o.NewContent)
	w.text("impl_source", cmp.Or(o.ImplSource, implEditor))
	if o.ImplSource == implDraft && o.Diff == "" { // the content is the diff
		w.null("diff")
	} else {
		w.text("diff", o.Diff)
	}
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
