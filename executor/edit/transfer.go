package edit

import (
	"errors"
	"fmt"
	"strings"
)

// transfer copies or moves a file of any content to a path where none is. The new file has the old one's bytes and mode. Like
// a patch, a move by the name of a symbolic link takes the link away and leaves its target.
func (e *Editor) transfer(c Command) (Result, error) {
	if c.NewPath == "" {
		return Result{}, missing("new_path", c.Name)
	}
	if !strings.HasPrefix(c.NewPath, "/") {
		return Result{}, invalid(CodePathNotAllowed, "new_path", c.NewPath, "The path should be an absolute path, starting with `/`.")
	}
	steps, leave, err := e.enterPatch("/", []patchFile{{kind: updateFile, path: c.Path, moveTo: cleanPath(c.NewPath)}})
	defer leave()
	if err != nil {
		return Result{}, err
	}
	s := steps[0]
	s.from.want = hash(strings.ToLower(c.IfSHA256))
	switch {
	case !s.from.exists():
		return Result{}, notFound(s.from.shown)
	case s.from.isDir():
		return Result{}, invalid(CodeIsDirectory, "path", s.from.shown, fmt.Sprintf("The path %s is a directory. %s takes one file.", s.from.shown, c.Name))
	case s.to.exists():
		return Result{}, invalid(CodeAlreadyExists, "new_path", s.to.shown, fmt.Sprintf("The path %s exists. Nothing was changed.", s.to.shown))
	}
	if s.f, s.view, err = e.loadAny(s.from); err != nil {
		return Result{}, err
	}
	s.after, s.mode = s.f.data, s.f.info.Mode()
	err = e.as(func() (err error) {
		if c.Name == "move" {
			return s.do(e)
		}
		s.dirs, err = e.create(s.to.real, s.after, creation{mode: s.mode, exact: true})
		return err
	})
	if err != nil {
		return Result{}, unwritable(s.to.shown, err)
	}
	sum := hashOf(s.after)
	r := Result{Existed: true, SHA256: string(sum), HistoryErr: e.history.push(s.to.real, &entry{after: sum, dirs: s.dirs})}
	verb, header := "copied", "copy"
	if c.Name == "move" {
		verb, header = "moved", "rename"
		path, en := s.taken()
		r.HistoryErr = errors.Join(r.HistoryErr, e.history.push(path, en))
	}
	from, to := patchName(s.from.shown), patchName(s.to.shown)
	r.Diff = fmt.Sprintf("diff --git %s %s\nsimilarity index 100%%\n%s from %s\n%s to %s", from, to, header, from, header, to)
	r.Text = fmt.Sprintf("The file %s has been %s to %s.", s.from.shown, verb, s.to.shown)
	if c.Name == "move" {
		r.Text += " Each path is undone by itself: undo_edit of the old one brings the file back, and of the new one removes it there."
	}
	return r, nil
}
