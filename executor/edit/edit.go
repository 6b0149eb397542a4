// Package edit views, creates, edits and undoes files for agents. Bytes that an edit does not touch stay unchanged.
//
// The editor reads a file as bytes, detects its byte order mark, encoding and line ends, searches a decoded view with
// plain line feeds, and writes the result by splicing bytes. Line ends, encoding, mode, owner and links stay. An edit
// that would damage the file is refused and leaves it unchanged. A change can be undone until the file changes again.
//
// A [Dialect] translates parameters and messages; all dialects use this engine. [Editor.Do] runs the editor commands,
// [Editor.Read] and [Editor.Write] the default read and write of OpenHands, [Editor.Overwrite] and [Editor.ReadLines]
// the tools of Gemini, [Editor.Patch] a patch, and [Editor.Merge] a draft.
package edit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/executor/internal/worker"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// DefaultMaxFileSize is the largest file that the editor commands view or edit, in bytes.
	DefaultMaxFileSize = 10 << 20
	// DefaultMaxReadSize is the largest file that Read returns and Write and undo_edit replace, in bytes.
	DefaultMaxReadSize = 64 << 20
)

// Config configures an [Editor]. The zero value works with the rights of the process and keeps the undo history in
// memory.
type Config struct {
	// Root is the working directory of the server. It is used only to suggest a path where a relative one was given.
	Root string
	// StateDir holds the undo history but for the contents, so that it survives a restart, and the old bytes of files that
	// are being written in place. The directory is created if it does not exist, is restricted to mode 0700, must belong
	// to this process's user and must not be a symbolic link. "" means that nothing survives a restart.
	StateDir string
	// Contents returns the store that is to have the contents before edits. It is called from the first edit on. nil keeps
	// the whole history in memory.
	Contents func() (*store.Store, error)
	// Reclaim makes room in that store, and keeps the contents for which [Editor.Needs] is true; nil means that
	// nothing else uses the store.
	Reclaim func() error
	// Older is called by New if it removes the history of an earlier version, with the number of its edits; nil calls
	// nothing.
	Older func(edits int)
	// Link is called by New for each symbolic link that it removes in the place of its own files, with its path; nil calls
	// nothing.
	Link func(path string)
	// PutBack is called by New for each file that an earlier editor of StateDir was writing in place when its process
	// ended: without an error where the file has its old bytes and mode again. The path is "" where it is not known. nil
	// calls nothing.
	PutBack func(path string, err error)
	// Temps records the temporary files that edits make; nil records nothing.
	Temps *files.Ledger
	// User is the user that files are accessed as; nil means the user of this process. The undo history is read and
	// written with the server's own rights.
	User *identity.User
	// MaxFileSize bounds the files that editor commands view and edit; 0 means DefaultMaxFileSize.
	MaxFileSize int64
	// MaxReadSize bounds the files that Read, Write and undo_edit take, and those that edits make; 0 means
	// DefaultMaxReadSize.
	MaxReadSize int64
	// MaxMemory bounds the undo history in memory, in bytes; 0 means 64 MiB.
	MaxMemory int64
}

// Editor edits files. Its methods may be called concurrently: edits of one path take turns, edits of different paths do
// not wait for each other. Close waits for its goroutines, which remove files of the undo history.
type Editor struct {
	root    string
	as      func(func() error) error // runs file system work as the user; tests replace it
	maxEdit int64
	maxRead int64
	maxScan int64 // tests replace it
	locks   locks
	large   chan struct{} // has an element for each large file that is replaced or removed as a whole, while its bytes are kept
	history *history
	state   *os.Root // nil without a state directory
	kept    *os.File // keptDir in it
	temps   *files.Ledger
	workers *worker.Pool
	close   func() error // once
	// flush brings a written file to the disk before it takes the place of the old one. Tests replace it.
	flush func(*os.File) error
}

// Result is the result of a command.
type Result struct {
	// Path is the path as messages name it: for Read and Write it is absolute, for Do it is the one that was sent,
	// without needless slashes and dots.
	Path string
	// Text is for the agent.
	Text string
	// Diff is the change as a unified diff without context lines, "" where nothing changed.
	Diff string
	// Before and After are the whole text of the one file that a command changed, with plain line feeds; "" where
	// there was, or is, no file.
	Before, After string
	// SHA256 is the hash of the file's bytes after the command in hexadecimal, "" for directories and removed files.
	SHA256 string
	// Existed reports whether the file existed before the command.
	Existed bool
	// HistoryErr is the reason why the change cannot be undone, nil if it can.
	HistoryErr error
}

// New returns an editor. It fails if the state directory cannot be used safely.
func New(c Config) (*Editor, error) {
	e := &Editor{
		root: c.Root, as: c.User.Do,
		maxEdit: c.MaxFileSize, maxRead: c.MaxReadSize, maxScan: defaultMaxScan,
		flush:   (*os.File).Sync,
		workers: worker.New(c.User, worker.DefaultTime, worker.DefaultMemory),
	}
	if e.maxEdit <= 0 {
		e.maxEdit = DefaultMaxFileSize
	}
	if e.maxRead <= 0 {
		e.maxRead = DefaultMaxReadSize
	}
	e.temps, e.large = c.Temps, make(chan struct{}, 2)
	c.MaxMemory = cmp.Or(c.MaxMemory, memoryBudget)
	if err := e.openState(&c); err != nil {
		return nil, fmt.Errorf("opening the edit history in %q: %w; give another --state-dir", c.StateDir, err)
	}
	return e, nil
}

// openState opens the state directory and the history.
func (e *Editor) openState(c *Config) (err error) {
	if c.StateDir != "" {
		if e.state, err = hostpath.OpenPrivate(c.StateDir); err != nil {
			return err
		}
		links, err := hostpath.RemoveLinks(e.state, keptDir, logName)
		for _, name := range links {
			if c.Link != nil {
				c.Link(filepath.Join(c.StateDir, name))
			}
		}
		if err == nil {
			e.kept, err = openKeptDir(e.state)
		}
		if err != nil {
			return errors.Join(err, e.state.Close())
		}
		e.putBackAll(c.PutBack)
	}
	if e.history, err = openHistory(e.state, c); err == nil && e.state != nil {
		var edits int
		if edits, err = e.history.removeOlder(e.state); edits > 0 && c.Older != nil {
			c.Older(edits)
		}
	}
	if err != nil && e.state != nil {
		return errors.Join(err, e.kept.Close(), e.state.Close())
	}
	e.close = sync.OnceValue(func() error {
		err := e.history.close()
		if e.state != nil {
			err = errors.Join(err, e.kept.Close(), e.state.Close())
		}
		return err
	})
	return err
}

// Needs reports whether a content is needed to undo an edit.
func (e *Editor) Needs(sum store.Sum) bool { return e.history.needs(sum) }

// Close releases the state directory. Its history stays for the next editor. Commands after Close can edit files but
// can neither record nor undo a change.
func (e *Editor) Close() error {
	return e.close()
}
