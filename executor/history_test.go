package executor_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// noise is a text of 100 kB that cannot be compressed to less than half of it.
func noise(seed uint64) string {
	var data [50_000]byte
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return hex.EncodeToString(data[:])
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	data := testhelp.ReadFile(t, path)
	return string(data)
}

// The contents before edits stay in a small store that states of the workspace fill, and these in one that edits
// fill: the oldest ones of both give way.
func TestUndoInAFullStore(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"undo": api.ChangesUndo, "facts": api.ChangesFacts, "not followed": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, dir := t.TempDir(), t.TempDir()
			cfg := executor.Config{
				WorkingDir: dir, StateDir: state,
				Workspace: executor.WorkspaceConfig{Dir: dir, Mode: mode, StateDir: filepath.Join(state, "changes"), StoreBytes: 2 << 20},
			}
			if mode == "" {
				cfg.Workspace.Private = []string{dir}
			}
			e, dir := start(t, cfg)
			e.Workspace().Await(t.Context())
			edit := func(e *executor.Executor, a api.EditAction, path string) string {
				a.Path, a.ImplSource = path, "oh_aci"
				o, err := e.Do(t.Context(), api.Request{Action: a})
				if err != nil {
					t.Fatal(err)
				}
				return o.(api.EditObservation).Content
			}
			change := func(i int) string {
				path := filepath.Join(dir, fmt.Sprint(i))
				old, now := "unchanged", "changed"
				testhelp.WriteFile(t, path, noise(uint64(i))+"\n"+old+"\n", 0o644)
				if got := edit(e, api.EditAction{Command: "str_replace", OldStr: &old, NewStr: &now}, path); !strings.HasPrefix(got, "The file") {
					t.Fatal(got)
				}
				return path
			}
			var paths []string
			for i := range 60 {
				paths = append(paths, change(i))
				e.Workspace().Step()
				if i == 30 { // the store is full of contents of states and of edits
					if err := e.Close(); err != nil {
						t.Fatal(err)
					}
					e, _ = start(t, cfg)
					e.Workspace().Await(t.Context())
				}
			}
			kept := 0
			for i, path := range paths {
				got := edit(e, api.EditAction{Command: "undo_edit"}, path)
				ok := strings.HasPrefix(got, "Last edit")
				if ok {
					kept++
				} else if i == len(paths)-1 {
					t.Errorf("the last edit: %.200s", got)
				}
				if want := map[bool]string{true: "unchanged\n", false: "\nchanged\n"}[ok]; !strings.HasSuffix(fileText(t, path), want) {
					t.Errorf("%s: got %.200s", path, got)
				}
			}
			if kept < 3 || kept == len(paths) {
				t.Errorf("%d of %d edits were kept", kept, len(paths))
			}
		})
	}
}

// Where the states of the workspace are not known, a full store keeps the edits that it has.
func TestUndoWithoutStates(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	e, dir := start(t, executor.Config{
		StateDir: state,
		Workspace: executor.WorkspaceConfig{
			Dir: filepath.Join(state, "missing"), Mode: api.ChangesUndo, StateDir: filepath.Join(state, "changes"), StoreBytes: 2 << 20,
		},
	})
	e.Workspace().Await(t.Context())
	kept := 0
	for _, command := range []string{"str_replace", "undo_edit"} {
		for i := range 30 {
			a := api.EditAction{Command: command, Path: filepath.Join(dir, fmt.Sprint(i)), ImplSource: "oh_aci"}
			if command == "str_replace" {
				a.OldStr, a.NewStr = new("unchanged"), new("changed")
				testhelp.WriteFile(t, a.Path, noise(uint64(i))+"\nunchanged\n", 0o644)
			}
			o, err := e.Do(t.Context(), api.Request{Action: a})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(o.(api.EditObservation).Content, "Last edit") {
				kept++
			}
		}
	}
	if kept < 3 {
		t.Errorf("%d edits were kept", kept)
	}
}
