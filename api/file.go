package api

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The sources of a file action, which select its behaviour.
const (
	implDefault = "default"
	implEditor  = "oh_aci"
	implDraft   = "llm_based_edit"
)

// Dialect selects the rules and messages of an editor. The empty one is OpenHands'
// own. Other servers have no dialects.
type Dialect string

// The dialects of file actions.
const (
	DialectOpenHandsV1 Dialect = "openhands-v1"
	DialectGemini      Dialect = "gemini"
	DialectStrands     Dialect = "strands"
	DialectAnthropic   Dialect = "anthropic"
	DialectToolset     Dialect = "agent_toolset_20260401" // Anthropic's set of tools
	DialectActiond     Dialect = "actiond"
)

// UnmarshalJSON refuses an unknown dialect.
func (d *Dialect) UnmarshalJSON(data []byte) (err error) {
	*d, err = decodeWord(data, DialectOpenHandsV1, DialectGemini, DialectStrands, DialectAnthropic, DialectToolset, DialectActiond)
	return err
}

// ReadAction reads a file, or with ImplSource "oh_aci" views a file or directory.
type ReadAction struct {
	// Path may be relative to the session's working directory, unless
	// ImplSource is "oh_aci" and the dialect is not "actiond".
	Path string `json:"path"`
	// Start and End are 0-based lines, End exclusive, -1 for the end of the file.
	Start int `json:"start"`
	End   int `json:"end"`
	Common
	// ImplSource is "oh_aci", or anything else for "default".
	ImplSource string `json:"impl_source"`
	// ViewRange is used with "oh_aci", and with a Format.
	ViewRange LineRange `json:"view_range"`
	// Format is FormatMarkdown, or "" for the unchanged file; "oh_aci" shows PDF as
	// Markdown in any case.
	Format Format `json:"format,omitzero"`
	// Dialect is "" for the protocol's own rules.
	Dialect Dialect `json:"dialect,omitzero"`
	// StartLine and EndLine are 1-based and inclusive, Offset is 0-based; they
	// and Limit belong to the dialect "gemini", Offset and Limit also to the tool read of
	// "strands", which has a Limit. Nil when absent.
	StartLine *int `json:"start_line,omitzero"`
	EndLine   *int `json:"end_line,omitzero"`
	Offset    *int `json:"offset,omitzero"`
	Limit     *int `json:"limit,omitzero"`
}

// Format is the form in which a file is read.
type Format string

// FormatMarkdown shows documents, tables and notebooks as Markdown, images as data
// URLs, and other texts with the numbers of their lines.
const FormatMarkdown Format = "markdown"

// UnmarshalJSON refuses an unknown format.
func (f *Format) UnmarshalJSON(data []byte) (err error) {
	*f, err = decodeWord(data, FormatMarkdown)
	return err
}

// LineRange holds the first and the last line of a view, 1-based and inclusive;
// -1 is the end of the file. Nil is the whole file. The editor checks its length.
type LineRange []int

// UnmarshalJSON takes a list of integers. As in Python a boolean is a number, and
// an empty text is nothing.
func (r *LineRange) UnmarshalJSON(data []byte) error {
	*r = nil
	v := anyOf(data)
	if v == "" {
		return nil
	}
	list, ok := v.([]any)
	lines := make([]int, 0, len(list))
	for _, e := range list {
		var n int
		whole := true
		switch e := e.(type) {
		case bool:
			if e {
				n = 1
			}
		case stdjson.Number:
			n, whole = Integral(string(e))
		default:
			whole = false
		}
		ok = ok && whole
		lines = append(lines, n)
	}
	if !ok {
		return &ownError{fmt.Sprintf("Invalid `view_range` parameter: %s. It should be a list of two integers.", python(v))}
	}
	*r = lines
	return nil
}

// settle answers a range that the editor cannot use with an observation. The default
// read ignores the range.
func (a ReadAction) settle(d *decoding) (Action, error) {
	if a.ImplSource != implEditor { // any other word is the default, as in the reference
		a.ImplSource = implDefault
	}
	wrong, invalid := d.take("view_range")
	if err := d.check(); err != nil {
		return nil, err
	}
	if invalid && (a.ImplSource == implEditor || a.Dialect != "" || a.Format != "") {
		return InvalidAction{Of: a, Reason: wrong.own}, nil
	}
	return a, nil
}

// ReadObservation is the content of a file, the listing of a directory, or the
// editor's complaint (a content that begins with "ERROR:\n").
type ReadObservation struct {
	Content    string `json:"-"`
	Path       string `json:"path"`
	ImplSource string `json:"impl_source"` // "" travels as "default"
	// SHA256 is the hash of the file's bytes in hexadecimal, "" for
	// directories; it is not encoded. Code is the machine word of the editor's
	// complaint, "" if the edit succeeded; it is sent beside the extras, which clients
	// keep closed.
	SHA256 string `json:"-"`
	Code   string `json:"-"`
}

func (o ReadObservation) wire() wire {
	o.ImplSource = cmp.Or(o.ImplSource, implDefault)
	return plainWire(o, "I read the file "+o.Path+".", o.Content)
}

// WriteAction writes a file or a range of its lines.
type WriteAction struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// Start and End are 0-based lines, End exclusive, -1 for the end of the file.
	Start int `json:"start"`
	End   int `json:"end"`
	Common
	// Exact writes Content unchanged; otherwise a newline is added at its end, as
	// the protocol requires. Nil when absent: true on /v1/actions, false elsewhere.
	// Dialects with a tool that writes add no newline.
	Exact *bool `json:"exact,omitzero"`
	// Dialect is "" for the protocol's own rules. Start and End belong to "" alone.
	Dialect Dialect `json:"dialect,omitzero"`
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string `json:"if_sha256,omitzero"`
}

// WriteObservation says that a file was written.
type WriteObservation struct {
	// Path is absolute.
	Path string `json:"path"`
	// Diff is a unified diff without context, "" when nothing changed. It
	// travels beside the extras, which the stock client keeps closed, and only
	// when there is one.
	Diff string `json:"-"`
	// Content is the text for the agent, "" except in the dialects that answer a
	// write in words.
	Content string `json:"-"`
	// SHA256 is the hash of the file's bytes in hexadecimal. It is not encoded.
	SHA256 string `json:"-"`
}

func (o WriteObservation) wire() wire {
	return wire{Message: "I wrote to the file " + o.Path + ".", Content: o.Content, Extras: extrasOf(o), Diff: o.Diff}
}

// FileObservation says that a file was written, moved or removed as a whole, or a directory
// made, moved or removed with all that is in it, by a request to /v1/files.
type FileObservation struct {
	// Content is a note for the agent, usually "".
	Content string `json:"-"`
	// Path is absolute.
	Path string `json:"path"`
	// SHA256 is the hash of the bytes that were written in hexadecimal, "" where none were.
	SHA256 string `json:"sha256"`
	// Size is in bytes, of those.
	Size int64 `json:"size"`
	// Created is true if the file did not exist before.
	Created bool `json:"created"`
	// Undoable is true if undo_edit restores the previous state.
	Undoable bool `json:"undoable"`
	// Directory is true for a directory.
	Directory bool `json:"directory,omitzero"`
	// MovedFrom is the path before a move, "" for other changes.
	MovedFrom string `json:"moved_from,omitzero"`
	// Removed is how many names were removed with a directory, its own included.
	Removed int64 `json:"removed,omitzero"`
	// Entries is how many entries of an archive were unpacked into a directory; nil for other
	// changes.
	Entries *int `json:"entries,omitzero"`
}

func (o FileObservation) wire() wire {
	what := "the file "
	if o.Directory {
		what = "the directory "
	}
	message := "I removed " + what + o.Path + "."
	switch {
	case o.Entries != nil:
		message = fmt.Sprintf("I unpacked %d entries into the directory %s.", *o.Entries, o.Path)
	case o.MovedFrom != "":
		message = "I moved " + what + o.MovedFrom + " to " + o.Path + "."
	case o.SHA256 != "":
		message = "I wrote to the file " + o.Path + "."
	case o.Directory && o.Removed == 0:
		message = "I made the directory " + o.Path + "."
	}
	return plainWire(o, message, o.Content)
}

// FileConditions restrict a change to files with a hash in Match and none in NoneMatch. Hashes
// are in hexadecimal, and "*" matches any file. A nil list allows everything.
type FileConditions struct{ Match, NoneMatch []string }

// ModeHeader has the permission bits of a file in octal, such as "0644".
const ModeHeader = "X-File-Mode"

// EditAction changes a file, or several. Which fields matter depends on
// ImplSource and Command.
type EditAction struct {
	// Path is absolute. In the dialects "actiond" and "gemini" and with a draft it may be
	// relative to the session's working directory; apply_patch has none.
	Path string `json:"path"`
	// Command is view, create, str_replace, insert, undo_edit, replace, write,
	// copy, move or apply_patch.
	Command string `json:"command"`
	// FileText, OldStr and NewStr are nil when absent.
	FileText *string `json:"file_text"`
	OldStr   *string `json:"old_str"`
	NewStr   *string `json:"new_str"`
	// InsertLine is nil when absent.
	InsertLine *LineNumber `json:"insert_line"`
	// Content, Start and End belong to write and to the draft-based edit, Start
	// and End also to str_replace without a dialect, which searches these lines
	// alone. Lines are 1-based and inclusive there. Content is nil when absent;
	// the reference takes no null for it.
	Content *string `json:"content,omitzero"`
	Start   int     `json:"start"`
	End     int     `json:"end"`
	Common
	// ImplSource is "oh_aci", or "llm_based_edit" for a draft that is merged
	// into the file. Empty means "oh_aci" when encoded.
	ImplSource string `json:"impl_source"`

	// The reference server does not know the following, so they are sent only when used.

	// ExpectedReplacements belongs to replace, and to str_replace with Regex; nil means 1.
	ExpectedReplacements *int `json:"expected_replacements,omitzero"`
	// AllowMultiple lets them change every match, regardless of the number.
	AllowMultiple bool `json:"allow_multiple,omitzero"`
	// Fuzzy lets replace change the most similar lines if nothing matches.
	Fuzzy bool `json:"fuzzy,omitzero"`
	// NewPath is the target of copy and move, absolute.
	NewPath string `json:"new_path,omitzero"`
	// Regex makes str_replace search for OldStr as an expression of RE2; NewStr names
	// groups as $1 and ${name}, and ExpectedReplacements and AllowMultiple count
	// the matches.
	Regex bool `json:"regex,omitzero"`
	// Native makes the refusal of a large file name another way to edit it, and the diff a
	// patch; see [Request.Native].
	Native bool `json:"-"`
	// Edits are several replacements of str_replace or replace, instead of
	// OldStr and NewStr: each applies to the result of the previous one, and either
	// all are made or none.
	Edits []Replacement `json:"edits,omitzero"`
	// Patch is the text of apply_patch, nil when absent.
	Patch *string `json:"patch,omitzero"`
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string `json:"if_sha256,omitzero"`
	// Whole answers with the whole text before and after, of at most [MaxWhole] bytes each. It is
	// not sent.
	Whole bool `json:"-"`
	// Lint reports new findings of a linter after a draft was merged.
	Lint bool `json:"lint,omitzero"`
	// Dialect is "" for OpenHands' own editor.
	Dialect Dialect `json:"dialect,omitzero"`
}

// MaxWhole bounds each of the texts that [EditAction.Whole] asks for, in bytes.
const MaxWhole = 1 << 20

// LineNumber is the number of a line as it was sent. The editor checks it: it may be
// a string that is not a number, or a number that is not an integer.
type LineNumber string

// MarshalJSON writes an integer as a number, and anything else as a string.
func (n LineNumber) MarshalJSON() ([]byte, error) {
	if i, err := strconv.Atoi(string(n)); err == nil && strconv.Itoa(i) == string(n) {
		return []byte(n), nil
	}
	return jsontext.AppendQuote(nil, string(n))
}

// UnmarshalJSON takes a number or a string.
func (n *LineNumber) UnmarshalJSON(data []byte) error {
	switch v := anyOf(data).(type) {
	case string:
		*n = LineNumber(v)
	case stdjson.Number:
		*n = LineNumber(v)
		if whole, ok := Integral(string(v)); ok { // 1.0 is 1
			*n = LineNumber(strconv.Itoa(whole))
		}
	default:
		return &ownError{fmt.Sprintf("Invalid insert_line value: %s. Expected an integer.", Describe(v))}
	}
	return nil
}

// Replacement is one of the Edits of an EditAction.
type Replacement struct {
	OldStr string `json:"old_str"`
	NewStr string `json:"new_str"`
	// ExpectedReplacements is nil for 1.
	ExpectedReplacements *int `json:"expected_replacements,omitzero"`
	AllowMultiple        bool `json:"allow_multiple,omitzero"`
}

var replacementShape = shapeOf(Replacement{}, "old_str", "new_str")

// UnmarshalJSON refuses a replacement without its texts.
func (r *Replacement) UnmarshalJSON(data []byte) (err error) {
	*r, err = decodeInner[Replacement](replacementShape, `a list of objects with "old_str" and "new_str"`, data, true)
	return err
}

// settle answers a parameter of the editor that has a wrong type with an
// observation.
func (a EditAction) settle(d *decoding) (Action, error) {
	var reason string
	for _, name := range []string{"file_text", "old_str", "new_str", "insert_line", "command"} {
		if wrong, ok := d.take(name); ok {
			reason = cmp.Or(reason, wrong.own, fmt.Sprintf("Invalid `%s` parameter: it should be a string, got %s.", name, describe(d.sent[name])))
		}
	}
	// An unknown source has no other way to edit that it could mean.
	if sent, ok := d.sent["impl_source"]; ok && (sent.Kind() != '"' || a.ImplSource != implEditor && a.ImplSource != implDraft) {
		d.take("impl_source")
		d.refuse("impl_source", `"oh_aci" or "llm_based_edit"`)
	}
	if err := d.check(); err != nil || reason == "" {
		return a, err
	}
	return InvalidAction{Of: a, Reason: reason}, nil
}

// EditObservation is the outcome of an edit. Content begins with "ERROR:\n"
// when the editor refused.
type EditObservation struct {
	Content   string `json:"-"`
	Path      string `json:"path"`
	PrevExist bool   `json:"prev_exist"`
	// OldContent and NewContent repeat the action's old_str and new_str; of a
	// draft, and with Whole, they are the whole text before and after.
	OldContent *string `json:"old_content"`
	NewContent *string `json:"new_content"`
	ImplSource string  `json:"impl_source"` // "" travels as "oh_aci"
	// Diff is a unified diff without context, "" when nothing changed.
	Diff string `json:"diff"`
	// SHA256 is the hash of the file's bytes in hexadecimal, "" where there is
	// no file or there are several; it is not encoded. Code is the machine word of
	// the editor's complaint, "" if the edit succeeded; it is sent beside the extras,
	// which clients keep closed.
	SHA256 string `json:"-"`
	Code   string `json:"-"`
}

func (o EditObservation) wire() wire {
	w := wire{Message: "I edited the file " + o.Path + ".", Content: o.Content}
	if o.Path == "" { // a patch
		w.Message = "I edited files."
	}
	w.Extras = o.extras()
	return w
}

type plainEdit EditObservation

type editExtras struct {
	plainEdit
	Diff *string `json:"diff"`
}

func (o EditObservation) extras() editExtras {
	o.ImplSource = cmp.Or(o.ImplSource, implEditor)
	extras := editExtras{plainEdit(o), &o.Diff}
	if o.ImplSource == implDraft && o.Diff == "" { // the content is the diff
		extras.Diff = nil
	}
	return extras
}

func (o EditObservation) legacyExtras() any {
	return struct {
		editExtras
		DiffCache *string `json:"_diff_cache"` // the client's own, always null
	}{editExtras: o.extras()}
}
