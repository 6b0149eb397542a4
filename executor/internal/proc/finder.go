package proc

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/actiond/actiond/internal/identity"
)

const (
	// maxAnswers bounds the answers that a Finder keeps: one per PATH of a session.
	maxAnswers = 64
	// maxPathParts and maxPathLength bound a PATH whose answer is kept.
	maxPathParts  = 64
	maxPathLength = 16 << 10
)

// Finder finds a program on the PATH of a shell, as `which` does for a user. It
// keeps each answer and watches the paths that the answer depends on, so that a repeated
// question costs one system call and no access to a file system, which may be a
// round trip to another process (FUSE). An answer that cannot be watched is not
// kept.
//
// Its methods may be called concurrently. It owns no goroutine; two descriptors
// stay open until Close.
type Finder struct {
	name string
	user *identity.User

	mu      sync.Mutex
	watch   *watch // nil before the first question
	broken  bool   // no watch can be had
	answers map[question]answer

	path     string // of the last question
	relative bool   // it has a relative part
}

type question struct{ path, dir string }

// answer is the path of a program, or "". One that is not kept says that watching
// failed, which need not be tried again before something changes.
type answer struct {
	program string
	kept    bool
}

// NewFinder returns a Finder of the program name. user looks for it, and its quota
// of inotify instances is charged with one.
func NewFinder(name string, user *identity.User) *Finder {
	return &Finder{name: name, user: user, answers: map[question]answer{}}
}

// Find returns the first program of that name in the directories of a PATH, ""
// where there is none. A relative part of the PATH begins at dir.
func (f *Finder) Find(path, dir string) string {
	// A lookup that waits for a file system must not block the others.
	if !f.mu.TryLock() {
		return f.look(path, dir, nil).program
	}
	defer f.mu.Unlock()
	if f.watch != nil && f.watch.changed() {
		f.forget()
	}
	if path != f.path {
		f.path = path
		f.relative = slices.ContainsFunc(filepath.SplitList(path), func(part string) bool { return !filepath.IsAbs(part) })
	}
	key := question{path: path}
	if f.relative {
		key.dir = dir
	}
	if known, ok := f.answers[key]; ok && known.kept {
		return known.program
	} else if ok || f.broken {
		return f.look(path, dir, nil).program
	}
	if len(f.answers) >= maxAnswers {
		f.forget()
	}
	if f.watch == nil {
		var err error
		if f.watch, err = newWatch(f.user); err != nil {
			f.broken = true
			return f.look(path, dir, nil).program
		}
	}
	found := f.look(path, dir, f.watch)
	f.answers[key] = found
	return found.program
}

// look searches the directories with the user's rights. With a watch it first
// watches the paths that it is about to look at.
func (f *Finder) look(path, dir string, w *watch) (found answer) {
	parts := filepath.SplitList(path)
	found.kept = w != nil && len(parts) <= maxPathParts && len(path)+len(dir) <= maxPathLength
	_ = f.user.Do(func() error {
		for _, part := range parts {
			if !filepath.IsAbs(part) {
				part = filepath.Join(dir, part)
			}
			file := filepath.Join(part, f.name)
			if found.kept {
				found.kept = w.follow(file) == nil
			}
			if IsExecutable(file) {
				found.program = file
				return nil
			}
		}
		return nil
	})
	return found
}

// forget drops all answers and the watches for them.
func (f *Finder) forget() {
	clear(f.answers)
	if f.watch != nil {
		f.watch.reset()
	}
}

// Close stops watching. Find keeps no answers afterwards.
func (f *Finder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.answers)
	f.broken = true
	if f.watch != nil {
		f.watch.close()
		f.watch = nil
	}
}

// splitPath returns the components of a path.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
