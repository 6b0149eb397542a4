package edit

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"strconv"

	"github.com/actiond/actiond/executor/internal/store"
)

// Internals with a contract of their own are tested by themselves.

// IsPlaceholder is isPlaceholder.
var IsPlaceholder = isPlaceholder

// Drain is drain.
var Drain = drain

// UnifiedDiff is unifiedDiff.
var UnifiedDiff = unifiedDiff

// LineDiff is lineDiff.
var LineDiff = lineDiff

// SetFlush replaces what brings written files to the disk: to measure without it, or to let it fail.
func (e *Editor) SetFlush(flush func(*os.File) error) { e.flush = flush }

// SetMaxScan replaces how much of a file is read to count lines or to hash it.
func (e *Editor) SetMaxScan(most int64) { e.maxScan = most }

// SetAs replaces what runs file system work as the user.
func (e *Editor) SetAs(as func(func() error) error) { e.as = as }

// DecodesBack says whether the decoded form of bytes leads back to them, in one piece and at every line.
func DecodesBack(raw []byte) bool {
	t, err := decode(raw)
	if err != nil {
		return true
	}
	coded, err := t.charset.encode(t.body)
	if err != nil || !bytes.Equal(append(bytes.Clone(raw[:t.mark]), coded...), raw) || t.view != lineFeeds(t.body) {
		return false
	}
	for line := range lineCount(t.view) + 1 {
		at := lineStart(t.view, line)
		head, err := t.charset.encode(t.body[:t.bodyOffsets([]int{at})[0]])
		if err != nil || t.offsets(at)[0] != t.mark+len(head) {
			return false
		}
		if lineFeeds(t.body[:t.bodyOffsets([]int{at})[0]]) != t.view[:at] {
			return false
		}
	}
	return true
}

// SpliceView puts a text after a line, and returns the view that splice gives and the view of the new bytes.
func SpliceView(raw []byte, line, text string) (view, fresh string, ok bool) {
	t, err := decode(raw)
	after, lineErr := strconv.Atoi(line)
	if err != nil || lineErr != nil || after < 0 || after > lineCount(t.view) {
		return "", "", false
	}
	at := lineStart(t.view, after)
	spliced, view, err := t.splice([]change{{at, at, text}})
	if err != nil {
		return "", "", false
	}
	body, ok := t.charset.decode(spliced[t.mark:])
	return view, lineFeeds(body), ok
}

// LogRecord is an edit as the log of the history has it.
func LogRecord(path, before, after string, mode fs.FileMode) []byte {
	sum := func(s string) store.Sum { return sha256.Sum256([]byte(s)) }
	r := record{kind: wasEdited, mode: mode, size: int64(len(before)), key: sum(path), before: sum(before), after: sum(after)}
	return r.append(nil)
}

// ReparseLog reads a log and writes it again.
func ReparseLog(raw []byte) (back []byte, records int) {
	records = readLog(raw, func(r record) { back = r.append(back) })
	return back, records
}

// NumberLines is numberLines.
var NumberLines = numberLines
