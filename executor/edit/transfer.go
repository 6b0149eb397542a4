package edit

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// transfer copies or moves a file of any content to a path where no file exists. A copy has the file's bytes and mode;
// a move keeps the file itself on one file system. Like a patch, a move by the name of a symbolic link takes the link
// away and leaves its target.
func (e *Editor) transfer(c Command) (Result, error) {
	if c.NewPath == "" {
		return Result{}, missing("new_path", c.Name)
	}
	if !strings.HasPrefix(c.NewPath, "/") {
		return Result{}, invalid(CodePathNotAllowed, "new_path", c.NewPath,
			"The path should be an absolute path, starting with `/`.")
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
		return Result{}, invalid(CodeIsDirectory, "path", s.from.shown,
			fmt.Sprintf("The path %s is a directory. %s takes one file.", s.from.shown, c.Name))
	case s.to.exists():
		return Result{}, invalid(CodeAlreadyExists, "new_path", s.to.shown,
			fmt.Sprintf("The path %s exists. Nothing was changed.", s.to.shown))
	}
	if s.f, s.view, err = e.loadAny(s.from); err != nil {
		return Result{}, withAdvice(err, "Use cp or mv in a shell.")
	}
	s.after, s.mode = s.f.data, s.f.info.Mode()
	err = e.as(func() (err error) {
		if c.Name == "move" {
			return s.rename(e)
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
	r.Diff = fmt.Sprintf("diff --git %s %s\nsimilarity index 100%%\n%s from %s\n%s to %s", from, to, header, from, header,
		to)
	r.Text = fmt.Sprintf("The file %s has been %s to %s.", s.from.shown, verb, s.to.shown)
	if c.Name == "move" {
		r.Text += " Each path is undone by itself: undo_edit of the old one brings the file back, and of the new one removes it there."
	}
	return r, nil
}

// rename moves the file itself, so that its owner, its attributes and its other names stay, and otherwise works like a
// patch: for a link, and between file systems.
func (s *patchStep) rename(e *Editor) error {
	if s.link != nil {
		return s.do(e)
	}
	made, err := files.MakeDirs(filepath.Dir(s.to.real))
	if err == nil {
		err = s.f.unchanged()
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, s.from.real, unix.AT_FDCWD, s.to.real, unix.RENAME_NOREPLACE)
	}
	if err == nil {
		s.dirs = len(made)
		return nil
	}
	files.RemoveDirs(made)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return s.do(e)
	}
	return err
}
