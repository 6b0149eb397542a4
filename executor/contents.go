package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/hostpath"
)

// contentsPerName is how many contents are kept for each name that may be followed: both follow the memory of the sandbox.
const contentsPerName = 4

// errNoStateDir says why there is no store.
var errNoStateDir = errors.New("the server has no directory for contents: start it with --state-dir")

// errStatesUnknown says why the store makes no room.
var errStatesUnknown = errors.New("nothing is removed from it until the states of the workspace are known")

// openStore opens the store of contents, which lies in the state directory of the workspace.
func (e *Executor) openStore() (*store.Store, error) {
	cfg := e.cfg.Workspace
	if cfg.StateDir == "" {
		return nil, errNoStateDir
	}
	dir := filepath.Join(cfg.StateDir, "contents")
	if info, err := os.Lstat(cfg.StateDir); err == nil && info.Mode().Type() == fs.ModeSymlink && os.Remove(cfg.StateDir) == nil {
		e.warnOfLink(cfg.StateDir) // it never led anywhere: the server follows none there
	}
	for _, private := range []string{cfg.StateDir, dir} {
		if err := e.removeLinks(private); err != nil {
			return nil, fmt.Errorf("opening the store of contents %q: %w", private, err)
		}
	}
	contents, err := store.Open(store.Config{Dir: dir, MaxBytes: cfg.StoreBytes, MaxContents: contentsPerName * cmp.Or(cfg.MaxNames, 500_000)})
	if err == nil {
		e.opened.Store(contents)
	}
	return contents, err
}

// removeLinks removes the links in a directory of the server's own, where an agent that is the same user put them to
// switch undo off.
func (e *Executor) removeLinks(dir string) error {
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return err
	}
	removed, err := hostpath.RemoveLinks(root)
	for _, name := range removed {
		e.warnOfLink(filepath.Join(dir, name))
	}
	return errors.Join(err, root.Close())
}

func (e *Executor) warnOfLink(path string) {
	e.cfg.Logger.WarnContext(context.Background(), "removed a symbolic link in the place of a file of the server's own", slog.String("path", path))
}

// closeStore closes the store, if it was opened.
func (e *Executor) closeStore() error {
	if contents := e.opened.Load(); contents != nil {
		return contents.Close()
	}
	return nil
}

// reclaim makes room in the store, and keeps the contents that states and the undo history need. It fails where the
// states of an earlier process are not known, whose contents it would lose.
func (w *Workspace) reclaim() error {
	if w.cfg.Dir == "" || w.cfg.Mode == api.ChangesFacts || w.Info().Baseline.Why == string(changes.WhyRoot) {
		contents, err := w.deps.contents()
		if err == nil {
			_, err = contents.Reclaim(w.deps.needed)
		}
		return err
	}
	if !channel.Closed(w.first) || w.states == nil {
		return errStatesUnknown
	}
	_, err := w.states.Reclaim()
	return err
}

// openContents returns the store for contents of the workspace, or nil and why there is none.
func (w *Workspace) openContents() (*store.Store, string) {
	if w.cfg.Mode == api.ChangesFacts {
		return nil, "the server was started with --changes facts: start it with --changes undo"
	}
	contents, err := w.deps.contents()
	if err != nil {
		if !errors.Is(err, errNoStateDir) {
			w.deps.logger.WarnContext(w.ctx, "changes of the workspace cannot be taken back", slog.Any("error", err))
		}
		return nil, err.Error()
	}
	return contents, ""
}

// planDir is where a restore leaves its plan.
func (w *Workspace) planDir(contents *store.Store) string {
	if contents == nil {
		return ""
	}
	return w.cfg.StateDir
}

// off says that nothing is followed, and why.
func (w *Workspace) off(why string) {
	mode, noUndo := api.ChangesFacts, "the workspace is not followed"
	if w.cfg.Dir == "" {
		mode, noUndo = api.ChangesOff, "the server was started with --changes off: start it with --changes undo"
	}
	w.info.Store(&api.ChangesInfo{Mode: mode, NoUndo: noUndo, Baseline: api.Baseline{State: api.BaselineOff, Why: why}})
}

// baselineIs says how far the first state is known, and why changes cannot be taken back; "" if they can.
func (w *Workspace) baselineIs(noUndo, state string, files int, bytes int64) {
	info := &api.ChangesInfo{Mode: api.ChangesUndo, NoUndo: noUndo, Baseline: api.Baseline{State: state, Files: files, Bytes: bytes}}
	if noUndo != "" {
		info.Mode = api.ChangesFacts
	}
	w.info.Store(info)
}

// Info says how changes are followed.
func (w *Workspace) Info() api.ChangesInfo {
	info := *w.info.Load()
	if info.Mode != api.ChangesUndo {
		return info
	}
	if contents, err := w.deps.contents(); err == nil {
		stats := contents.Stats()
		info.Store = &api.ChangesStore{Bytes: stats.Bytes, Bound: stats.Bound}
	}
	if t := w.tracker.Load(); t != nil && info.Store != nil {
		p := t.Keeping()
		info.Store.Pending, info.Store.Evicted = p.AllFiles-p.Files, w.states.Evicted()
	}
	return info
}

// NoUndo says why changes cannot be taken back, and names the flag; "" if they can.
func (w *Workspace) NoUndo() string { return w.info.Load().NoUndo }

// readOrKeep keeps the contents of the present state, or only reads them; false once the workspace is closed.
func (w *Workspace) readOrKeep(tracker *changes.Tracker, noUndo string) bool {
	if noUndo != "" {
		return w.readContents(tracker)
	}
	err := w.states.Capture(w.ctx, false)
	if w.ctx.Err() != nil {
		return false
	}
	if err != nil { // what is not kept is named where it is asked for
		w.deps.logger.WarnContext(w.ctx, "contents of the workspace are not kept", slog.Any("error", err))
	}
	return true
}
