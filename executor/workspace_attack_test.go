package executor_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// A flood of renames while actions begin and end neither stops them nor is it missed.
func TestFloodOfRenames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 20 {
		put(t, dir, fmt.Sprintf("d%d/f", i), "text")
	}
	w := follow(t, dir, executor.WorkspaceConfig{})
	before := stepOf(w)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 5000 {
			from, to := filepath.Join(dir, fmt.Sprintf("d%d", i%20)), filepath.Join(dir, fmt.Sprintf("d%d", (i*7+1)%20))
			_ = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
			_ = os.Rename(filepath.Join(to, "f"), filepath.Join(to, "g"+strconv.Itoa(i%3)))
		}
	}()
	for last := before; ; {
		now := stepOf(w)
		w.Compare(last, now, "")
		last = now
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	after := stepOf(w)
	c := w.Compare(before, after, "")
	if c.Before == c.After || c.Counts.Created > 60 || c.Counts.Deleted > 20 {
		t.Errorf("got %+v", c.Counts)
	}
	if again := stepOf(w); again != after {
		t.Errorf("the state is %d after %d, and nothing moves", again, after)
	}
}

// More names than the limit: what is beyond is not followed, and that is said. WORKSPACE_NAMES is their number.
func TestFloodOfNames(t *testing.T) {
	t.Parallel()
	names := 3000
	if text := os.Getenv("WORKSPACE_NAMES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		names = n
	}
	dir := t.TempDir()
	put(t, dir, "a", "1")
	w := follow(t, dir, executor.WorkspaceConfig{MaxNames: names / 2})
	before := stepOf(w)
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range names {
		f, err := os.OpenFile(filepath.Join(dir, "many", strconv.Itoa(i)), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	put(t, dir, "a", "11")
	c := w.Compare(before, stepOf(w), "")
	if c.Exact || c.Why != "names limit" || c.Counts.Modified != 1 || len(c.Paths) > 200 {
		t.Errorf("got %+v, %d paths, %s", c.Counts, len(c.Paths), c.Why)
	}
	if err := os.RemoveAll(filepath.Join(dir, "many")); err != nil {
		t.Fatal(err)
	}
	stepOf(w)
	now := stepOf(w)
	put(t, dir, "b", "1")
	if c := w.Compare(now, stepOf(w), ""); !c.Exact || c.Counts != (api.ChangeCounts{Created: 1}) {
		t.Errorf("after it: got %+v, %s", c.Counts, c.Why)
	}
}

// Without watches everything is listed, and with more directories than watches the rest.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	for _, most := range []int{-1, 2} {
		dir := t.TempDir()
		for i := range 10 {
			put(t, dir, fmt.Sprintf("d%d/f", i), "text")
		}
		w := follow(t, dir, executor.WorkspaceConfig{MaxWatches: most})
		before := stepOf(w)
		put(t, dir, "d9/f", "other")
		put(t, dir, "d0/new", "")
		if c := w.Compare(before, stepOf(w), ""); !c.Exact || c.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) {
			t.Errorf("%d: got %+v, exact %t", most, c.Counts, c.Exact)
		}
		if watches, _, _, _ := w.Stats(); watches > max(most, 0) {
			t.Errorf("%d: got %d watches", most, watches)
		}
	}
}

// A mount below the workspace is not entered.
func TestMountInTheWorkspace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mounted"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(dir, "mounted"), "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "mounted"), unix.MNT_DETACH) })
	w := follow(t, dir, executor.WorkspaceConfig{})
	before := stepOf(w)
	put(t, dir, "mounted/a", "1")
	put(t, dir, "b", "1")
	c := w.Compare(before, stepOf(w), "")
	if c.Counts != (api.ChangeCounts{Created: 1}) || strings.Contains(fmt.Sprint(c.Paths), "mounted") {
		t.Errorf("got %+v", c)
	}
	// A workspace that is a mount is one as any other.
	inside := follow(t, filepath.Join(dir, "mounted"), executor.WorkspaceConfig{})
	before = stepOf(inside)
	put(t, dir, "mounted/a", "2")
	if c := inside.Compare(before, stepOf(inside), ""); !c.Exact || c.Counts != (api.ChangeCounts{Modified: 1}) {
		t.Errorf("in the mount: got %+v", c)
	}
}

// A workspace that is a link may lead elsewhere by now, but never to what could not be followed at first: a restore would empty it.
func TestWorkspaceLinkLeadsToState(t *testing.T) {
	t.Parallel()
	base, real := t.TempDir(), t.TempDir()
	link, private := filepath.Join(t.TempDir(), "link"), filepath.Join(base, "private")
	put(t, base, "private/changes/own", "1")
	put(t, base, "keep", "1")
	put(t, real, "a", "1")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	w := follow(t, link, executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "state"), Private: []string{private}})
	first := kept(t, w)
	for _, to := range []string{base, private, filepath.Join(private, "changes")} { // a regression would empty "/"
		if err := errors.Join(os.Remove(link), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
		if c := w.Compare(first, stepOf(w), ""); c.Why != "root" || c.Counts.Created != 0 {
			t.Errorf("%s: got %+v", to, c)
		}
		_, _ = w.Restore(first, api.RestoreOptions{}) // of the directory that it was
		if got := texts(t, base); fmt.Sprint(got) != "map[keep:1 private/changes/own:1]" {
			t.Fatalf("%s: the files are %v", to, got)
		}
	}
	if err := errors.Join(os.Remove(link), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	put(t, real, "a", "2")
	stepOf(w)
	if r, err := w.Restore(first, api.RestoreOptions{}); err != nil || len(r.Refused) > 0 || texts(t, real)["a"] != "1" {
		t.Errorf("back again: got %+v, %v", r, err)
	}
}

// An agent that is the server's own user puts links in the place of the server's files. The server starts, follows none of them, says
// so, and changes can be taken back.
func TestLinksInStateDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kept", "undo", "changes", "changes/contents", "changes/contents/lock", "changes/contents/seg-1", "changes/contents/seg-9", "changes/states", "changes/restore"} {
		for _, to := range []string{"out/file", "out/dir", "missing", "here"} {
			t.Run(name+" to "+to, func(t *testing.T) {
				t.Parallel()
				base := t.TempDir()
				state, work := filepath.Join(base, "state"), filepath.Join(base, "work")
				put(t, base, "out/file", "theirs")
				put(t, base, "out/dir/file", "theirs")
				put(t, work, "a", "1")
				cfg := executor.Config{
					WorkingDir: work, StateDir: state, Env: os.Environ(),
					Workspace: executor.WorkspaceConfig{Dir: work, StateDir: filepath.Join(state, "changes")},
				}
				server := func(log io.Writer) (*executor.Workspace, func()) {
					cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
					e, err := executor.New(t.Context(), cfg)
					if err != nil {
						t.Fatal(err)
					}
					e.Workspace().Await(t.Context())
					return e.Workspace(), func() {
						if err := e.Close(); err != nil {
							t.Error(err)
						}
					}
				}
				w, end := server(io.Discard)
				kept(t, w)
				end()

				link := filepath.Join(state, name)
				target := map[string]string{"here": filepath.Base(link) + ".own"}[to]
				if target == "" {
					target = filepath.Join(base, to)
				}
				if err := errors.Join(os.RemoveAll(link+".own"), ignoreMissing(os.Rename(link, link+".own")), os.Symlink(target, link)); err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				w, end = server(&log)
				if got := strings.Count(log.String(), "removed a symbolic link"); got != 1 || !strings.Contains(log.String(), "path="+link+"\n") {
					t.Errorf("logged %s", log.String())
				}
				if why := w.NoUndo() + w.Info().Baseline.Why; why != "" {
					t.Errorf("changes cannot be taken back: %s", why)
				}
				first := kept(t, w)
				put(t, work, "a", "2")
				stepOf(w)
				if _, err := w.Restore(first, api.RestoreOptions{}); err != nil || texts(t, work)["a"] != "1" {
					t.Errorf("got %v, the files are %v", err, texts(t, work))
				}
				end()
				if got := texts(t, filepath.Join(base, "out")); fmt.Sprint(got) != "map[dir/file:theirs file:theirs]" {
					t.Errorf("outside are %v", got)
				}
				if _, err := os.Lstat(filepath.Join(base, "missing")); err == nil {
					t.Error("the link was followed")
				}
			})
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
