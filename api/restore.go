package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// StateRef names a state of the workspace: by its id, such as "s16", by the name of a checkpoint, or by the number of
// an action, for the state after it. In JSON a number may be an integer.
type StateRef string

// StateStart names the first state of the workspace, unless a checkpoint has the name, and FirstState is its number.
const (
	StateStart = "start"
	FirstState = 1
)

// UnmarshalJSON decodes a text or an integer.
func (s *StateRef) UnmarshalJSON(data []byte) error {
	switch jsontext.Value(data).Kind() {
	case '"':
		return json.Unmarshal(data, (*string)(s))
	case '0':
		if n, err := strconv.ParseUint(string(data), 10, 63); err == nil {
			*s = StateRef(strconv.FormatUint(n, 10))
			return nil
		}
	}
	return &ownError{fmt.Sprintf("must be a state such as \"s16\", a checkpoint or the number of an action, got %s", describe(data))}
}

// RestoreRequest asks to bring the workspace back to an earlier state. One of To, Before, Only and Last is set.
type RestoreRequest struct {
	To StateRef `json:"to,omitzero"`
	// Before is the number of an action: the state before it is restored.
	Before uint64 `json:"before,omitzero"`
	// Only is the number of an action whose changes alone are taken back. Paths that changed since are refused.
	Only uint64 `json:"only,omitzero"`
	// Last takes back the last action, upload or restore that changed something.
	Last bool `json:"last,omitzero"`
	// Paths are the files and directories that are restored, with all below; nil means everything. With Only they must be
	// nil.
	Paths []FilePath `json:"paths,omitempty"`
	// All does nothing where Only would refuse a path.
	All bool `json:"all,omitzero"`
	// DryRun reports the changes without making them.
	DryRun bool `json:"dry_run,omitzero"`
	// Force restores also while actions run.
	Force bool `json:"force,omitzero"`
	// Diff asks for the lines of text files.
	Diff bool `json:"diff,omitzero"`
}

// RestoreOptions limit a restore.
type RestoreOptions struct {
	// Paths are relative to the workspace; nil means everything.
	Paths []string
	// All has Revert do nothing if it would refuse a path.
	All bool
	// DryRun reports the changes without making them.
	DryRun bool
	// Diff asks for the lines of text files.
	Diff bool
}

// Pin is a state with a name: a checkpoint.
type Pin struct {
	Name  string
	State uint64
	Time  time.Time
	// Expires is until when the state goes last where the store has no room, after later ones too; zero for never.
	Expires time.Time
}

// Restored is the answer of a restore: its changes, from the state Before to the state After. A restore to Before takes
// it back.
type Restored struct {
	Changes `json:",inline"`
	DryRun  bool `json:"dry_run"`
	// Refused are the paths that are not as in the target, at most 1,000 and 64 KiB of RefusedCount. It must not be nil, which is
	// encoded as null.
	Refused      []RefusedPath `json:"refused"`
	RefusedCount int           `json:"refused_count"`
	// Lost are files whose content before the restore was not kept, so that it cannot be had again.
	Lost []FilePath `json:"lost,omitempty"`
	// Unread are files that may differ from the target in their contents, which are too large to be kept.
	Unread []FilePath `json:"unread,omitempty"`
	// Split are files whose other names were not asked for, and which are files of their own by now.
	Split []FilePath `json:"split,omitempty"`
	// Living are the processes of the agent that went on, and may have files open that were replaced.
	Living []int `json:"living,omitempty"`
}

// RefusedPath is a path that could not be restored, and why.
type RefusedPath struct {
	Path       string `json:"path,omitzero"`
	PathBase64 []byte `json:"path_base64,omitzero"`
	Why        string `json:"why"`
}

// NewRefusedPath returns a refusal of a path that may be no UTF-8.
func NewRefusedPath(path, why string) RefusedPath {
	if !utf8.ValidString(path) {
		return RefusedPath{PathBase64: []byte(path), Why: why}
	}
	return RefusedPath{Path: path, Why: why}
}

// CheckpointRequest asks to give the present state a name.
type CheckpointRequest struct {
	Name string `json:"name"`
	// Verify lists the whole workspace before, which also finds changes without an
	// event.
	Verify bool `json:"verify,omitzero"`
	// Wait is how long the answer waits for contents, in seconds; nil means 60.
	Wait *float64 `json:"wait_seconds,omitzero"`
	// Expires is for how many seconds the state is the last one to go where the store has no room, after later ones too.
	// From then on the checkpoint makes room for another where there are too many. 0 means that it does neither.
	Expires float64 `json:"expires_seconds,omitzero"`
}

// Checkpoint is a state with a name. It is kept until the checkpoint is removed.
type Checkpoint struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Time  time.Time `json:"time"`
	// Missing is the number of files that a restore would refuse, because their contents are not kept (yet).
	Missing int `json:"missing"`
	// MissingPaths are some of these.
	MissingPaths []FilePath `json:"missing_paths,omitempty"`
	// Expires is the end of expires_seconds; zero without them.
	Expires time.Time `json:"expires,omitzero"`
}

// Checkpoints is the list of checkpoints, the oldest first.
type Checkpoints struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// maxCheckpointName bounds the name of a checkpoint, in bytes.
const maxCheckpointName = 100

// CheckCheckpointName refuses names that are no text of letters, digits and a few signs, or look like a state or a
// number.
func CheckCheckpointName(name string) error {
	if name == "" || len(name) > maxCheckpointName {
		return fmt.Errorf("must have 1 to %d characters", maxCheckpointName)
	}
	digits := strings.TrimPrefix(name, "s")
	if strings.Trim(digits, "0123456789") == "" {
		return fmt.Errorf("must not look like a state or the number of an action, got %q", name)
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("-_.:/", c)) {
			return errors.New("must begin with a letter or digit, and have only letters, digits and -_.:/")
		}
	}
	return nil
}

// maxRestorePaths bounds the paths of a restore.
const maxRestorePaths = 1000

var (
	restoreShape    = shapeOf(RestoreRequest{})
	checkpointShape = shapeOf(CheckpointRequest{}, "name")
)

// DecodeRestore reads the body of a restore. An error is an *[Error]: with status 400 if a member is wrong, and 422 if
// those do not fit together.
func DecodeRestore(body []byte) (RestoreRequest, error) {
	r, err := decodeBody[RestoreRequest](restoreShape, body, nil)
	if err != nil {
		return r, err
	}
	named := []string{}
	for _, m := range []struct {
		name string
		set  bool
	}{{"to", r.To != ""}, {"before", r.Before > 0}, {"only", r.Only > 0}, {"last", r.Last}} {
		if m.set {
			named = append(named, m.name)
		}
	}
	switch {
	case len(named) == 0:
		return r, Invalid(`body: one of "to", "before", "only" and "last" must say what is restored`)
	case len(named) > 1:
		return r, Invalid(fmt.Sprintf("body: only one of to, before, only and last may be sent, got %s", strings.Join(named, " and ")))
	case r.Only > 0 && r.Paths != nil:
		return r, Invalid(`body.paths: not allowed beside "only", which takes back a whole action`)
	case r.All && r.Only == 0:
		return r, Invalid(`body.all: only allowed beside "only"`)
	case r.Paths != nil && len(r.Paths) == 0:
		return r, Invalid("body.paths: must name a path; leave it out to restore everything")
	case len(r.Paths) > maxRestorePaths:
		return r, Invalid(fmt.Sprintf("body.paths: must have at most %d paths, got %d", maxRestorePaths, len(r.Paths)))
	}
	return r, nil
}

// Bounds of the seconds of a checkpoint.
const (
	maxCheckpointWait    = 600
	MaxCheckpointExpires = 366 * 24 * 3600
)

// DecodeCheckpoint reads the body that makes a checkpoint. An error is an *[Error].
func DecodeCheckpoint(body []byte) (CheckpointRequest, error) {
	r, err := decodeBody[CheckpointRequest](checkpointShape, body, nil)
	if err != nil {
		return r, err
	}
	if err := CheckCheckpointName(r.Name); err != nil {
		return r, Invalid("body.name: " + err.Error())
	}
	switch {
	case r.Wait != nil && !(*r.Wait >= 0 && *r.Wait <= maxCheckpointWait):
		return r, Invalid(fmt.Sprintf("body.wait_seconds: must be 0 to %d, got %s", maxCheckpointWait, FormatSeconds(*r.Wait)))
	case !(r.Expires >= 0 && r.Expires <= MaxCheckpointExpires):
		return r, Invalid(fmt.Sprintf("body.expires_seconds: must be 0 to %d, got %s", MaxCheckpointExpires, FormatSeconds(r.Expires)))
	}
	return r, nil
}
