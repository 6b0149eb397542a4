package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxPatchFiles bounds the files of one patch, which are all held in memory.
const maxPatchFiles = 1000

// Patch applies a patch in the format of OpenAI's apply_patch. Its paths are relative to dir or lie below it after
// symbolic links are followed. Patch reads all files and finds all places before it writes; if a write fails, it
// restores the files written before. So either the whole patch is applied or nothing. Each file is undone by itself.
//
// Patch returns an *Error on failure. Result has neither a path nor a hash, since there may be several.
func (e *Editor) Patch(dir, patch string) (Result, error) { return e.patch(dir, patch, false) }

// NativePatch is [Editor.Patch] with a diff that patch accepts.
func (e *Editor) NativePatch(dir, patch string) (Result, error) { return e.patch(dir, patch, true) }

func (e *Editor) patch(dir, patch string, native bool) (Result, error) {
	files, err := parsePatch(patch)
	if err != nil {
		return Result{}, err
	}
	if len(files) > maxPatchFiles {
		return Result{}, refuse(CodeInvalidArgument, "The patch touches %d files. At most %d are allowed.", len(files),
			maxPatchFiles)
	}
	steps, leave, err := e.enterPatch(dir, files)
	defer leave()
	if err != nil {
		return Result{}, err
	}
	total := int64(0)
	for _, s := range steps {
		if err := e.prepare(s); err != nil {
			return Result{}, err
		}
		if total += int64(len(s.after)); s.f != nil {
			total += int64(len(s.f.data))
		}
		if total > 2*e.maxRead {
			return Result{}, refuse(CodeTooLarge, "The files of the patch are too large: more than %dMB before and after.",
				2*e.maxRead>>20)
		}
	}
	for i, s := range steps {
		if err := e.as(func() error { return s.do(e) }); err != nil {
			return Result{}, e.rollBack(steps[:i], unwritable(s.from.shown, err))
		}
	}
	return e.donePatch(steps, native), nil
}

// patchStep is the change of one file.
type patchStep struct {
	patchFile

	from, to place // equal unless the file moves
	link     *link // the symbolic link that is removed instead of its target; nil if the file itself is
	f        *file // nil for an added file and for a deleted link
	view     string
	after    []byte
	newView  string
	mode     fs.FileMode
	dirs     int // number of directories created
}

// enterPatch locks the places of a patch: all paths before all inodes, each in order, so that patches and other edits
// cannot deadlock.
func (e *Editor) enterPatch(dir string, files []patchFile) (steps []*patchStep, leave func(), err error) {
	var unlocks []func()
	leave = func() {
		for _, unlock := range slices.Backward(unlocks) {
			unlock()
		}
	}
	var root string
	err = e.as(func() (err error) {
		root, err = resolve(dir)
		return err
	})
	if err != nil {
		return nil, leave, unreadable(dir, err)
	}
	names, seen := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		s := &patchStep{patchFile: f}
		if s.from, err = e.within(root, dir, f.path); err == nil && f.moveTo != "" {
			s.to, err = e.within(root, dir, f.moveTo)
		}
		if err == nil && (f.kind == deleteFile || f.moveTo != "") {
			s.link, err = e.linkAt(root, s.from.shown)
		}
		if err != nil {
			return nil, leave, err
		}
		touched := s.touched()
		if slices.ContainsFunc(touched, func(name string) bool { return seen[name] }) {
			return nil, leave, refuse(CodeInvalidArgument, "%s Error: Duplicate Path: %s", f.verb(), f.path)
		}
		for _, name := range touched {
			seen[name], names[name] = true, true
		}
		names[s.from.real] = true
		steps = append(steps, s)
	}
	delete(names, "")
	unlocks = e.lockAll(unlocks, names)
	inodes := map[string]bool{}
	for _, s := range steps {
		for _, p := range []*place{&s.from, &s.to} {
			if p.real == "" {
				continue
			}
			if p.info, err = e.stat(p.real); err != nil {
				return nil, leave, unreadable(p.shown, err)
			}
			if key := p.inode(); key != "" {
				inodes[key] = true
			}
		}
	}
	unlocks = e.lockAll(unlocks, inodes)
	return steps, leave, nil
}

func (e *Editor) lockAll(unlocks []func(), keys map[string]bool) []func() {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		unlocks = append(unlocks, e.locks.lock(key))
	}
	return unlocks
}

// within resolves a path of a patch, which must be below root.
func (e *Editor) within(root, dir, path string) (place, error) {
	p := place{shown: absolutePath(dir, path)}
	err := e.as(func() (err error) {
		p.real, err = resolve(p.shown)
		return err
	})
	if err != nil {
		return p, unreadable(path, err)
	}
	if !below(root, p.real) {
		return p, refuse(CodePathNotAllowed, "Absolute or escaping paths are not allowed: %s leads out of %s. Nothing was changed.", path, dir)
	}
	return p, nil
}

func below(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// touched returns the paths of a step, which no other step of the patch may have.
func (s *patchStep) touched() []string {
	paths := []string{s.from.shown, s.from.real}
	if s.link != nil {
		paths[1] = s.link.path
	}
	if s.moveTo != "" {
		paths = append(paths, s.to.real)
	}
	return paths
}

// link is a symbolic link: its path, which contains no other link, and its target.
type link struct{ path, target string }

func (l *link) remove() error {
	if target, err := os.Readlink(l.path); err != nil || target != l.target {
		return errors.Join(errChanged, err)
	}
	return os.Remove(l.path)
}

func (l *link) entry() *entry {
	return &entry{mode: fs.ModeSymlink, data: []byte(l.target)}
}

// linkAt returns the symbolic link at an absolute path, nil without one. The link must be below root.
func (e *Editor) linkAt(root, path string) (*link, error) {
	var l *link
	slash := strings.LastIndexByte(path, '/')
	err := e.as(func() error {
		dir, err := resolve(path[:slash])
		if err != nil {
			return err
		}
		at := filepath.Join(dir, path[slash+1:])
		if target, err := os.Readlink(at); err == nil {
			l = &link{at, target}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case l != nil && !below(root, l.path):
		return nil, refuse(CodePathNotAllowed, "Absolute or escaping paths are not allowed: the link %s is at %s. Nothing was changed.", path, l.path)
	}
	return l, nil
}

// prepare reads the file of a step and computes its new content.
func (e *Editor) prepare(s *patchStep) error {
	s.mode = 0o666
	switch {
	case s.kind == addFile && s.from.exists():
		return refuse(CodeAlreadyExists, "Add File Error: File already exists: %s", s.path)
	case s.kind == addFile:
		if len(s.added) > 0 {
			s.newView = strings.Join(s.added, "\n") + "\n"
		}
		s.after = []byte(s.newView)
		return nil
	case !s.from.exists():
		return refuse(CodeFileNotFound, "%s Error: Missing File: %s", s.verb(), s.path)
	case s.from.isDir():
		return refuse(CodeIsDirectory, "The path %s is a directory. A patch changes files.", s.path)
	case s.to.exists():
		return refuse(CodeAlreadyExists, "Update File Error: Cannot move %s, %s already exists", s.path, s.moveTo)
	}
	var err error
	switch {
	case s.kind == deleteFile && s.link != nil:
		return nil
	case s.kind == deleteFile:
		s.f, s.view, err = e.loadAny(s.from)
		return err
	}
	var t *text
	if s.f, t, err = e.open(s.from); err != nil {
		return err
	}
	s.view, s.mode = t.view, s.f.info.Mode()
	changes, err := patched(s.path, t.view, s.hunks)
	if err != nil {
		return err
	}
	s.after, s.newView, err = e.splice(s.from, t, changes)
	return err
}

// before returns the bytes of the file before the step, nil without one.
func (s *patchStep) before() []byte {
	if s.f == nil {
		return nil
	}
	return s.f.data
}

// do makes the change of a step. It runs with the user's rights.
func (s *patchStep) do(e *Editor) (err error) {
	switch {
	case s.kind == addFile:
		s.dirs, err = e.create(s.from.real, s.after, creation{mode: s.mode})
	case s.kind == deleteFile:
		err = s.take()
	case s.moveTo == "":
		if string(s.f.data) != string(s.after) {
			err = e.overwrite(s.f, s.after, s.mode)
		}
	default:
		if s.dirs, err = e.create(s.to.real, s.after, creation{mode: s.mode, exact: true}); err != nil {
			return err
		}
		if err = s.take(); err != nil {
			err = errors.Join(err, removeNew(s.to.real, s.dirs))
		}
	}
	return err
}

// take removes the file or link that a step deletes or moves.
func (s *patchStep) take() error {
	if s.link == nil {
		return s.f.remove(0)
	}
	return s.link.remove()
}

// give restores it.
func (s *patchStep) give(e *Editor) error {
	if s.link != nil {
		return os.Symlink(s.link.target, s.link.path)
	}
	_, err := e.create(s.from.real, s.f.data, creation{mode: s.f.info.Mode(), exact: true})
	return err
}

// taken returns the version that give would restore, for the history.
func (s *patchStep) taken() (path string, en *entry) {
	if s.link != nil {
		return s.link.path, s.link.entry()
	}
	return s.from.real, &entry{mode: s.f.info.Mode(), data: s.f.data}
}

// takeBack undoes do. It runs with the user's rights.
func (s *patchStep) takeBack(e *Editor) error {
	switch {
	case s.kind == addFile:
		return removeNew(s.from.real, s.dirs)
	case s.kind == deleteFile:
		return s.give(e)
	case s.moveTo == "":
		now, err := readFile(s.from.real, e.maxRead)
		if err != nil {
			return err
		}
		if string(now.data) != string(s.after) {
			return errChanged
		}
		return e.overwrite(now, s.f.data, s.f.info.Mode())
	}
	if err := s.give(e); err != nil {
		return err
	}
	return removeNew(s.to.real, s.dirs)
}

// removeNew removes a file that was just created, and the directories created for it.
func removeNew(path string, dirs int) error {
	info, err := lookAt(path)
	if err != nil || info == nil {
		return err
	}
	return (&file{path: path, info: info}).remove(dirs)
}

// rollBack undoes steps, the last first, and reports the steps that could not be undone.
func (e *Editor) rollBack(done []*patchStep, cause *Error) error {
	var left []string
	for _, s := range slices.Backward(done) {
		if err := e.as(func() error { return s.takeBack(e) }); err != nil {
			left = append(left, fmt.Sprintf("%s (%v)", s.path, err))
		}
	}
	if len(left) > 0 {
		return &Error{cause.Code, fmt.Sprintf("%s\nThe patch was taken back, but for %s.", cause.Message, strings.Join(left, ", ")), cause}
	}
	return &Error{cause.Code, cause.Message + "\nNothing of the patch was done.", cause}
}

// donePatch records the steps and describes them.
func (e *Editor) donePatch(steps []*patchStep, native bool) Result {
	var text, diff strings.Builder
	text.WriteString("Done!")
	var failed []error
	push := func(path string, en *entry) { failed = append(failed, e.history.push(path, en)) }
	for _, s := range steps {
		at := s.from
		switch {
		case s.kind == addFile:
			fmt.Fprintf(&text, "\nA %s", s.path)
			push(s.from.real, &entry{after: hashOf(s.after), dirs: s.dirs})
		case s.kind == deleteFile:
			fmt.Fprintf(&text, "\nD %s", s.path)
			push(s.taken())
		case s.moveTo != "":
			fmt.Fprintf(&text, "\nR %s -> %s", s.path, s.moveTo)
			at = s.to
			push(s.taken())
			push(s.to.real, &entry{after: hashOf(s.after), dirs: s.dirs})
		case string(s.f.data) == string(s.after):
			fmt.Fprintf(&text, "\n= %s (nothing to change)", s.path)
		default:
			fmt.Fprintf(&text, "\nM %s", s.path)
			push(s.from.real, &entry{after: hashOf(s.after), mode: s.f.info.Mode(), data: s.f.data})
		}
		at.native = native
		if d := at.diff(lineDiff, s.before(), s.after, s.view, s.newView); d != "" {
			if diff.Len() > 0 {
				diff.WriteByte('\n')
			}
			diff.WriteString(d)
		}
	}
	return Result{Text: text.String(), Diff: diff.String(), Existed: true, HistoryErr: errors.Join(failed...)}
}
