package api

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ChangesHeader asks for the changes by an action where the answer cannot have another member. The response
// has the changes in the same header, see [Changes.Header].
const ChangesHeader = "X-Actiond-Changes"

// MCPChanges is the name of the changes in the _meta of the result of an MCP tool call.
const MCPChanges = "actiond/changes"

// How much of an action's changes a request asks for.
const (
	ChangesFacts = "facts" // which files, and how
	ChangesDiff  = "diff"  // and the lines of text files
)

// Modes of following changes of the workspace.
const (
	ChangesOff  = "off"
	ChangesUndo = "undo" // contents are kept, so that changes can be taken back
)

// Effects of an action.
const (
	EffectNone    = "none"
	EffectChanges = "changes"
)

// CheckChanges refuses any other word than those for how much is asked for, or "".
func CheckChanges(word string) error {
	if word == "" || word == ChangesFacts || word == ChangesDiff {
		return nil
	}
	return fmt.Errorf("must be %q or %q, got %s", ChangesFacts, ChangesDiff, Describe(word))
}

// decodeChanges reads how much is asked for, "" when absent.
func decodeChanges(raw jsontext.Value) (string, error) {
	if !isSet(raw) {
		return "", nil
	}
	word, err := text(raw, true)
	if err == nil && word == "" {
		err = errors.New(`"facts" or "diff", got ""`)
	}
	if err != nil {
		return "", fmt.Errorf(`"changes" must be %w`, err)
	}
	if err := CheckChanges(word); err != nil {
		return "", fmt.Errorf(`"changes" %w`, err)
	}
	return word, nil
}

// MayChange reports whether an action, nil for others, may change files of the workspace.
func MayChange(a Action) bool {
	switch a := a.(type) {
	case ReadAction, GlobAction, GrepAction, ListAction, InvalidAction:
		return false
	case EditAction:
		return a.Command != "view"
	case RunAction:
		a.Common = Common{}
		return a != ReadyCheck
	case ExecAction, IPythonAction, WriteAction, MCPAction, BrowseAction, BrowseInteractiveAction:
	}
	return true
}

// Changes are the net changes of the workspace from one of its states to another one.
type Changes struct {
	// Action is the number of the action that is asked for; 0 for none.
	Action uint64 `json:"action,omitzero"`
	// Before and After name the states, such as "s16"; "" where the state was not known.
	Before string `json:"before,omitzero"`
	After  string `json:"after,omitzero"`
	// By are the numbers of the actions that made all of the changes. During are those of the actions that ran
	// meanwhile, where others may have made some. One of both is not nil.
	By     []uint64 `json:"by,omitzero"`
	During []uint64 `json:"during,omitzero"`
	// Exact is true if nothing is missing or wrong; otherwise Why gives the reason, and Unsure names files that
	// could not be decided.
	Exact  bool       `json:"exact"`
	Why    string     `json:"why,omitzero"`
	Unsure []FilePath `json:"unsure,omitempty"`
	// Counts are complete, also where Paths are not, and leave out those of Ignored: the changes in directories that
	// git ignores, by their paths, and in .git.
	Counts  ChangeCounts   `json:"counts"`
	Ignored map[string]int `json:"ignored,omitempty"`
	// Paths are the changes by path. It must not be nil, which is encoded as null.
	Paths []ChangedPath `json:"paths"`
	// Truncated is true if limits left out paths, or the lines of some.
	Truncated bool `json:"truncated"`
	// Unwatched is the number of files with names outside of the workspace, by which they may have changed unseen.
	Unwatched int `json:"unwatched,omitzero"`
}

// ChangeCounts are numbers of changes.
type ChangeCounts struct {
	Created  int `json:"created"`
	Modified int `json:"modified"`
	Deleted  int `json:"deleted"`
	Renamed  int `json:"renamed"`
	Meta     int `json:"meta"`
}

// FilePath is a path relative to the workspace, whose own is ".". It is encoded as a string, or if it
// is not UTF-8 as {"base64": …}.
type FilePath string

// MarshalJSON encodes the path.
func (p FilePath) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(p)) {
		return json.Marshal(string(p))
	}
	return json.Marshal(struct {
		Base64 []byte `json:"base64"`
	}{[]byte(p)})
}

// UnmarshalJSON decodes both forms.
func (p *FilePath) UnmarshalJSON(data []byte) error {
	if jsontext.Value(data).Kind() == '"' {
		return json.Unmarshal(data, (*string)(p))
	}
	var other struct {
		Base64 []byte `json:"base64"`
	}
	if json.Unmarshal(data, &other, json.RejectUnknownMembers(true)) != nil {
		return &ownError{`must be a string, or {"base64": …} of one that is not UTF-8, got ` + describe(data)}
	}
	*p = FilePath(other.Base64)
	return nil
}

// ChangedPath is one change. A path has one at most, but the target of a rename may have a second one.
type ChangedPath struct {
	// Op is "created", "modified", "deleted", "renamed" or "meta", which is another mode, owner or extended attribute,
	// and of files also another time of modification.
	Op string `json:"op"`
	// From is the path before a rename, otherwise "". A path that is not UTF-8 is in the other member.
	From       string `json:"from,omitzero"`
	FromBase64 []byte `json:"from_base64,omitzero"`
	Path       string `json:"path,omitzero"`
	PathBase64 []byte `json:"path_base64,omitzero"`
	// OldMode and Mode are the types and modes before and after, as git writes them, such as "100755" or "120000" for a
	// symbolic link, but with all bits of the mode; "" where there was or is no file, or where no lines were asked for.
	OldMode string `json:"old_mode,omitzero"`
	Mode    string `json:"mode,omitzero"`
	// Diff has the hunks of a unified diff of a text file, or of the target of a symbolic link, without a file header, and
	// Lines the numbers of added and removed lines. Of another type than before, all lines before are removed first.
	Diff  string  `json:"diff,omitzero"`
	Lines *[2]int `json:"lines,omitzero"`
	// Content is "" if the content after the change, of a deleted file that before it, can be had. Otherwise it is
	// "pending" (it is to be kept), "lost" (the file changed before it was kept) or "large".
	Content string `json:"content,omitzero"`
}

// NewChangedPath returns a change of paths that may be no UTF-8.
func NewChangedPath(op, path, from string) ChangedPath {
	c := ChangedPath{Op: op}
	if c.Path = path; !utf8.ValidString(path) {
		c.Path, c.PathBase64 = "", []byte(path)
	}
	if c.From = from; !utf8.ValidString(from) {
		c.From, c.FromBase64 = "", []byte(from)
	}
	return c
}

// Names returns the paths as they are.
func (c ChangedPath) Names() (path, from string) {
	path, from = c.Path, c.From
	if c.PathBase64 != nil {
		path = string(c.PathBase64)
	}
	if c.FromBase64 != nil {
		from = string(c.FromBase64)
	}
	return path, from
}

// None reports whether nothing changed, as far as it is known.
func (c *Changes) None() bool {
	return c.Counts == ChangeCounts{} && len(c.Ignored) == 0 && len(c.Unsure) == 0
}

// Header returns the changes as the value of [ChangesHeader], such as "n=17; +1 ~2 -0 >0; exact": created, modified or
// of other attributes, deleted, renamed, then "!" and the number of ignored changes if there are any; at the end
// "exact", or "inexact:" and the reason.
func (c *Changes) Header() string {
	n := c.Counts
	text := fmt.Sprintf("+%d ~%d -%d >%d", n.Created, n.Modified+n.Meta, n.Deleted, n.Renamed)
	ignored := 0
	for _, more := range c.Ignored {
		ignored += more
	}
	if ignored > 0 {
		text += fmt.Sprintf(" !%d", ignored)
	}
	if c.Action > 0 {
		text = fmt.Sprintf("n=%d; ", c.Action) + text
	}
	if c.Exact {
		return text + "; exact"
	}
	return text + "; inexact:" + c.Why
}

// StateName returns the name of a state by its number; "" for 0.
func StateName(n uint64) string {
	if n == 0 {
		return ""
	}
	return "s" + strconv.FormatUint(n, 10)
}

// StateNumber is the reverse of StateName; false for any other text.
func StateNumber(name string) (n uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, "s")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil && n > 0
}

// WhyEarly is why the changes by an action are not known that did not wait any longer for the first list of the workspace.
const WhyEarly = "before the workspace was known"

// DecodeChanges decodes the JSON of Changes.
func DecodeChanges(data []byte) (*Changes, error) {
	c := &Changes{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("decoding changes: %w", err)
	}
	return c, nil
}

// ChangesIn returns the changes in the answer of an action; nil without any.
func ChangesIn(body []byte) (*Changes, error) {
	sent, _, err := scanObservation(body, "changes")
	if raw := sent["changes"]; err == nil && isSet(raw) {
		return DecodeChanges(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding changes: %w", err)
	}
	return nil, nil //nolint:nilnil // there are none
}

// AddChanges returns the parts of an answer, which is a JSON object with members, with changes at its end.
func AddChanges(body []byte, changes *Changes) (parts [][]byte, err error) {
	return addMember([][]byte{body}, "changes", changes)
}

func addMember(parts [][]byte, name string, value any) ([][]byte, error) {
	data, err := Encode(value)
	if err != nil {
		return nil, err
	}
	head, ok := bytes.CutSuffix(parts[len(parts)-1], []byte("}"))
	if !ok {
		return nil, fmt.Errorf("adding %s: the answer is not an object", name)
	}
	return append(slices.Clone(parts[:len(parts)-1]), head, slices.Concat([]byte(`,"`+name+`":`), data, []byte("}"))), nil
}

// RawChanges returns changes as JSON for an encoder of another library.
func RawChanges(c *Changes) (jsontext.Value, error) { return Encode(c) }

// Causes of changes.
const (
	CauseAction     = "action"
	CauseUpload     = "upload"     // a request that is no action
	CauseOutside    = "outside"    // no action ran, and no process of the agent
	CauseBackground = "background" // no action ran, and a process of the agent
	CauseOffline    = "offline"    // no server ran
	CauseRestore    = "restore"
)

// ChangeEntry is an entry of the log of changes.
type ChangeEntry struct {
	// N is the number of the action; nil if it was none.
	N *uint64 `json:"n"`
	// Kind is the name of the action, "upload", or the cause.
	Kind string `json:"kind"`
	// Text is the command, the code or the path of the action, shortened; "" if it was none.
	Text string `json:"text,omitzero"`
	// Cause is one of the causes of changes.
	Cause   string       `json:"cause"`
	Time    time.Time    `json:"time"`
	Before  string       `json:"before"`
	After   string       `json:"after"`
	Counts  ChangeCounts `json:"counts"`
	Ignored int          `json:"ignored,omitzero"` // ignored changes
	Exact   bool         `json:"exact"`
	Why     string       `json:"why,omitzero"`
}

// ChangeLog is a page of the log of changes, the newest first.
type ChangeLog struct {
	Entries []ChangeEntry `json:"entries"`
	// Next is the "before" of the next page; 0 at the end.
	Next uint64 `json:"next,omitzero"`
}

// ChangesInfo says how changes of the workspace are followed.
type ChangesInfo struct {
	// Mode is "undo", "facts" or "off".
	Mode string `json:"mode"`
	// NoUndo says why changes cannot be taken back, and names the flag; "" if they can.
	NoUndo   string   `json:"no_undo,omitzero"`
	Baseline Baseline `json:"baseline"`
	// Store measures the kept contents; nil in the other modes.
	Store *ChangesStore `json:"store,omitzero"`
}

// ChangesStore says how much of contents is kept, in bytes and files.
type ChangesStore struct {
	Bytes int64 `json:"bytes"`
	Bound int64 `json:"bound"`
	// Pending is how many files are still to be kept.
	Pending int64 `json:"pending"`
	// Evicted is how many states went because there was no room for their contents.
	Evicted int64 `json:"evicted"`
}

// Baseline is the state of the workspace to which the first changes are compared.
type Baseline struct {
	// State is "running", "done" or "off".
	State string `json:"state"`
	// Why says why the workspace is not followed, "" if it is.
	Why   string `json:"why,omitzero"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// States of a Baseline.
const (
	BaselineRunning = "running"
	BaselineDone    = "done"
	BaselineOff     = "off"
)

// EventChanges is the name of a ChangesEvent.
const EventChanges = "changes"

// ChangesEvent is an event of a stream of changes.
type ChangesEvent struct {
	Event   string `json:"event"`
	Changes `json:",inline"`
}

// NoState refuses a request for a state that is not kept, or never was.
func NoState(name string, gone bool) *Error {
	if gone {
		return &Error{Status: http.StatusGone, Detail: fmt.Sprintf("The state %s is no longer kept: the oldest go where there are too many or their contents have no room, and without contents all at the end of the server", Excerpt(name))}
	}
	return NotFound(fmt.Sprintf("There is no state %s", Excerpt(name)))
}

// ChangeRecord is the record of changes in the journal.
type ChangeRecord struct {
	Cause string `json:"cause"`
	// Kind is the name of the action; "" means the cause.
	Kind    string   `json:"kind,omitzero"`
	Changes *Changes `json:"changes"`
}

// EncodeChangeRecord encodes a record.
func EncodeChangeRecord(r ChangeRecord) ([]byte, error) { return Encode(r) }

// DecodeChangeRecord decodes a record by [EncodeChangeRecord].
func DecodeChangeRecord(data []byte) (r ChangeRecord, err error) {
	if err = json.Unmarshal(data, &r); err == nil && r.Changes == nil {
		err = errors.New("there are none")
	}
	if err != nil {
		return ChangeRecord{}, fmt.Errorf("decoding changes: %w", err)
	}
	if r.Cause == "bisect" { // of an earlier server, which restored the present after one
		r.Cause = CauseRestore
	}
	return r, nil
}
