// Package edit is the one edit engine of the sandbox: it views, creates, edits and undoes files for agents, and promises
// that what an edit does not touch stays as it is, byte for byte.
//
// A file is read as bytes, decided upon (byte order mark, encoding, line ends, binary or not), matched on a decoded view
// with plain line feeds, and changed by splicing bytes. Line ends, encoding, mode, owner and links stay; what cannot be
// done without damage is refused and leaves the file as it was. Every change can be undone while the file is still what
// the change made of it.
//
// Dialects only translate parameters and words. This package has two: the commands of the OpenHands editor (Do) and its
// default read and write (Read, Write). It knows nothing of the house it stands in.
package edit

import (
	"fmt"
	"os"
)

const (
	// DefaultMaxFileSize is the largest file that the editor commands view or edit, in bytes.
	DefaultMaxFileSize = 10 << 20
	// DefaultMaxReadSize is the largest file that Read returns and Write and undo_edit replace, in bytes.
	DefaultMaxReadSize = 64 << 20
)

// Config says how an Editor works. The zero value is useful: it works with the rights of the process and keeps the undo
// history in memory.
type Config struct {
	// Root is the working directory of the server. It is used only to suggest a path where a relative one was given.
	Root string
	// StateDir holds the undo history, so that it survives a restart; "" keeps it in memory. The directory is made when it
	// is not there, is narrowed to mode 0700, must belong to this process's user and must not be a symbolic link.
	StateDir string
	// As runs file system work with the rights of the sandbox's user and returns what its argument returns; nil runs it as
	// it is. The undo history is read and written outside of it, with the server's own rights.
	As func(func() error) error
	// NewFileOwner owns the files and directories that are made, where As is nil; with As, and without NewFileOwner, they
	// are left to whoever makes them. It is for directories that nobody hostile can write to: only As keeps a server that
	// runs as root from being led elsewhere between two looks at a path.
	NewFileOwner *Owner
	// MaxFileSize bounds the files that editor commands view and edit; 0 means DefaultMaxFileSize.
	MaxFileSize int64
	// MaxReadSize bounds the files that Read, Write and undo_edit take, and those that edits make; 0 means
	// DefaultMaxReadSize.
	MaxReadSize int64
}

// Owner is a numeric user and group.
type Owner struct {
	UID, GID int
}

// Editor edits files. Its methods may be called concurrently: edits of one path are done one after the other, edits of
// different paths do not wait for each other. It owns no goroutines.
type Editor struct {
	root    string
	as      func(func() error) error
	owner   *Owner
	maxEdit int64
	maxRead int64
	locks   locks
	history *history
	// flush brings a written file to the disk before it takes the place of the old one. Tests replace it.
	flush func(*os.File) error
}

// Result is what a command did.
type Result struct {
	// Path is the path as it is named in texts: for Read and Write it is absolute, for Do it is the one that was sent,
	// without needless slashes and dots.
	Path string
	// Text is what the agent is shown.
	Text string
	// Diff is the change as a unified diff without context lines, "" where nothing changed.
	Diff string
	// SHA256 is the hash of the file's bytes after the command in hexadecimal, "" for directories and removed files.
	SHA256 string
	// Existed says that the file was there before the command.
	Existed bool
	// HistoryErr says why a change that was made cannot be undone, nil where it can.
	HistoryErr error
}

// New returns an editor. It fails where the state directory cannot be used safely.
func New(c Config) (*Editor, error) {
	e := &Editor{
		root: c.Root, as: c.As, owner: c.NewFileOwner,
		maxEdit: c.MaxFileSize, maxRead: c.MaxReadSize,
		flush: (*os.File).Sync,
	}
	if e.as == nil {
		e.as = func(work func() error) error { return work() }
	} else {
		e.owner = nil
	}
	if e.maxEdit <= 0 {
		e.maxEdit = DefaultMaxFileSize
	}
	if e.maxRead <= 0 {
		e.maxRead = DefaultMaxReadSize
	}
	h, err := openHistory(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("opening edit history %q: %w", c.StateDir, err)
	}
	e.history = h
	return e, nil
}

// Close releases the state directory. The history in it stays for the next editor; commands after Close can edit, and
// can neither record nor undo.
func (e *Editor) Close() error {
	return e.history.close()
}
