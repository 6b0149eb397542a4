package changes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
)

func openStates(tb testing.TB, tracker *changes.Tracker, dir string) *changes.States {
	tb.Helper()
	s, err := changes.OpenStates(tracker, dir)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func capture(tb testing.TB, s *changes.States) {
	tb.Helper()
	if err := s.Capture(tb.Context(), true); err != nil {
		tb.Fatal(err)
	}
}

func get(tb testing.TB, s *changes.States, id string) *changes.State {
	tb.Helper()
	state, err := s.Get(id)
	if err != nil {
		tb.Fatal(id, err)
	}
	return state
}

// A state has an id as long as it is used, also in the next process.
func TestStates(t *testing.T) {
	t.Parallel()
	dir, kept, list := t.TempDir(), contents(t, 0), filepath.Join(t.TempDir(), "states")
	p := &program{dir: dir, random: rand.New(rand.NewPCG(1, 2))}
	tracker, err := changes.New(changes.Config{Root: dir, Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	states := openStates(t, tracker, list)
	images := map[string]map[string]string{}
	var ids []string
	for range 8 {
		for range 30 {
			p.act()
		}
		id := states.Add(step(t, tracker))
		if again := states.Add(step(t, tracker)); again != id {
			t.Errorf("the same state is %s and %s", id, again)
		}
		images[id], ids = image(t, dir), append(ids, id)
		capture(t, states)
	}
	states.Drop(ids[1])
	states.Drop(ids[1])
	states.Drop(ids[2])
	if err := states.Keep(ids[2]); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]error{ids[1]: changes.ErrStateGone, "s9": changes.ErrNoState, "s0": changes.ErrNoState, "s01": changes.ErrNoState, "x": changes.ErrNoState, ids[2]: nil} {
		if _, err := states.Get(id); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", id, err, want)
		}
	}
	capture(t, states)
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
	tracker = track(t, changes.Config{Root: dir, Store: kept})
	states = openStates(t, tracker, list)
	for _, id := range ids[2:] {
		if err := states.Keep(id); err != nil {
			t.Fatal(err)
		}
	}
	states.Sweep()
	if _, err := states.Get(ids[0]); !errors.Is(err, changes.ErrStateGone) {
		t.Errorf("a state that is not used: %v", err)
	}
	for _, id := range append(ids[2:], ids[3]) {
		r := restore(t, tracker, get(t, states, id), changes.RestoreOptions{})
		if d := different(images[id], image(t, dir)); d != "" || refusals(r) != "" {
			t.Fatalf("%s: refused %s, and\n%s", id, refusals(r), d)
		}
	}
	if id := states.Add(step(t, tracker)); id != "s9" {
		t.Errorf("the next id is %s", id)
	}
}

// Where the store is full the oldest states go, and the newest and those that are pinned can be restored.
func TestStatesBound(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 2<<20)
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	states := openStates(t, tracker, filepath.Join(t.TempDir(), "states"))
	random := rand.NewChaCha8([32]byte{1})
	images := map[string]map[string]string{}
	var ids []string
	for i := range 120 {
		data := make([]byte, 30_000)
		_, _ = random.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i%5)), data, 0o644); err != nil {
			t.Fatal(err)
		}
		id := states.Add(step(t, tracker))
		images[id], ids = image(t, dir), append(ids, id)
		capture(t, states)
		if i == 20 {
			if err := states.Pin(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := kept.Stats(); got.Bytes > got.Bound {
		t.Errorf("got %+v", got)
	}
	if _, err := states.Get(ids[0]); !errors.Is(err, changes.ErrStateGone) {
		t.Errorf("the oldest state: %v", err)
	}
	for _, id := range []string{ids[20], ids[119], ids[110]} {
		r := restore(t, tracker, get(t, states, id), changes.RestoreOptions{})
		if d := different(images[id], image(t, dir)); d != "" || refusals(r) != "" {
			t.Errorf("%s: refused %s, and\n%s", id, refusals(r), d)
		}
	}
}

// One change in a large directory is saved in little space.
func TestSaveLarge(t *testing.T) {
	t.Parallel()
	dir, kept := fastPlace(t), contents(t, 0)
	for i := range 5000 {
		do(t, dir, fmt.Sprintf("write %d", i))
	}
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	save := func() (store.Sum, int64) {
		t.Helper()
		state := step(t, tracker)
		keep(t, tracker)
		before := kept.Stats().Bytes
		sum, err := tracker.Save(state)
		if err != nil {
			t.Fatal(err)
		}
		return sum, kept.Stats().Bytes - before
	}
	first, all := save()
	do(t, dir, "write 76 1") // the files that are just made are looked at again
	save()
	do(t, dir, "write 77 1")
	_, one := save()
	if one > all/10 {
		t.Errorf("all: %d bytes, one change: %d", all, one)
	}
	state, err := tracker.Load(first)
	if err != nil {
		t.Fatal(err)
	}
	if got := facts(changes.Compare(state, step(t, tracker), changes.Limits{})); got != "modified 76, modified 77" {
		t.Errorf("got %s", got)
	}
	if _, err := tracker.Load(store.Sum{1}); !errors.Is(err, store.ErrNotKept) {
		t.Error(err)
	}
}
