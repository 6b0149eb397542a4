package changes_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
)

func openStates(tb testing.TB, tracker *changes.Tracker, cfg changes.StatesConfig) *changes.States {
	tb.Helper()
	s, err := changes.OpenStates(tracker, cfg)
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

func get(tb testing.TB, s *changes.States, n uint64) *changes.State {
	tb.Helper()
	state, err := s.Get(n)
	if err != nil {
		tb.Fatal(n, err)
	}
	return state
}

// A state has its number as long as it is kept, also in the next process.
func TestStates(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 0)
	cfg := changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states"), MaxStates: 5, MaxBytes: 1}
	p := &program{dir: dir, random: rand.New(rand.NewPCG(1, 2))}
	tracker, err := changes.New(changes.Config{Root: dir, Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	states := openStates(t, tracker, cfg)
	if states.Earlier() != 0 {
		t.Errorf("got an earlier state %d", states.Earlier())
	}
	images := map[uint64]map[string]string{}
	for i := range 8 {
		for range 30 {
			p.act()
		}
		n := states.Add(step(t, tracker))
		if again := states.Add(step(t, tracker)); again != n || n != uint64(i+1) {
			t.Errorf("the same state is %d and %d", n, again)
		}
		images[n] = image(t, dir)
		capture(t, states)
		if n == 2 {
			if err := states.Pin(changes.Pin{Name: "a \"name\"\n", State: 2, Time: time.Unix(1, 2), Expires: time.Unix(3, 4)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(states *changes.States, n uint64, want error) {
		t.Helper()
		if _, err := states.Get(n); !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", n, err, want)
		}
		if kept, given := states.Known(n); kept != (want == nil) || given == errors.Is(want, changes.ErrNoState) {
			t.Errorf("%d: kept %v, given %v", n, kept, given)
		}
	}
	checkAll := func(states *changes.States) {
		t.Helper()
		for n, want := range []error{changes.ErrNoState, nil, nil, changes.ErrStateGone, nil, nil, nil, nil, nil, changes.ErrNoState} {
			check(states, uint64(n), want)
		}
		if got := states.Pins(); len(got) != 1 || got[0].Name != "a \"name\"\n" || !got[0].Expires.Equal(time.Unix(3, 4)) || !got[0].Time.Equal(time.Unix(1, 2)) || got[0].State != 2 {
			t.Errorf("got the pins %+v", got)
		}
	}
	checkAll(states)
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
	tracker = track(t, changes.Config{Root: dir, Store: kept})
	states = openStates(t, tracker, cfg)
	checkAll(states)
	if states.Earlier() != 8 {
		t.Errorf("got the earlier state %d", states.Earlier())
	}
	for _, n := range []uint64{1, 2, 8, 5} {
		r := restore(t, tracker, get(t, states, n), changes.RestoreOptions{})
		if d := different(images[n], image(t, dir)); d != "" || refusals(r) != "" {
			t.Fatalf("%d: refused %s, and\n%s", n, refusals(r), d)
		}
	}
	if err := states.Unpin("a \"name\"\n"); err != nil {
		t.Error(err)
	}
	if err := states.Unpin("other"); !errors.Is(err, changes.ErrNoPin) {
		t.Error(err)
	}
	states.Skip(5, 10)
	if n := states.Add(step(t, tracker)); n != 19 {
		t.Errorf("the next number is %d", n)
	}
	check(states, 1, nil)
	check(states, 2, changes.ErrStateGone)
	if err := states.Pin(changes.Pin{Name: "x", State: 2}); !errors.Is(err, changes.ErrStateGone) {
		t.Error(err)
	}
}

// The states of another tree are none of this one's, and their numbers are not used again.
func TestStatesOfAnotherRoot(t *testing.T) {
	t.Parallel()
	kept, cfg := contents(t, 0), changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")}
	first := track(t, changes.Config{Root: t.TempDir(), Store: kept})
	states := openStates(t, first, cfg)
	n := states.Add(step(t, first))
	if err := states.Pin(changes.Pin{Name: "x", State: n}); err != nil {
		t.Fatal(err)
	}
	second := track(t, changes.Config{Root: t.TempDir(), Store: kept})
	states = openStates(t, second, cfg)
	if _, err := states.Get(n); !errors.Is(err, changes.ErrStateGone) || len(states.Pins()) > 0 || states.Earlier() != 0 {
		t.Errorf("got %v, %v, earlier %d", err, states.Pins(), states.Earlier())
	}
	if next := states.Add(step(t, second)); next != n+1 {
		t.Errorf("got the number %d", next)
	}
}

// A state that is saved before its contents are kept knows them once they are, also in the next process.
func TestStatesSavedEarly(t *testing.T) {
	t.Parallel()
	dir, kept, cfg := t.TempDir(), contents(t, 0), changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")}
	do(t, dir, "write a 1\nwrite b 22")
	tracker, err := changes.New(changes.Config{Root: dir, Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	states := openStates(t, tracker, cfg)
	n, want := states.Add(step(t, tracker)), image(t, dir)
	if err := states.Pin(changes.Pin{Name: "early", State: n}); err != nil {
		t.Fatal(err)
	}
	capture(t, states)
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
	do(t, dir, "rm a\nrm b")
	tracker = track(t, changes.Config{Root: dir, Store: kept})
	r := restore(t, tracker, get(t, openStates(t, tracker, cfg), n), changes.RestoreOptions{})
	if d := different(want, image(t, dir)); d != "" || refusals(r) != "" {
		t.Errorf("refused %s, and\n%s", refusals(r), d)
	}
}

// Each state that is saved adds a line to the list, which is written anew once it has many, and is read where its end was lost.
func TestStatesList(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 0)
	cfg := changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states"), MaxStates: 10}
	list := filepath.Join(cfg.Dir, "states")
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	states := openStates(t, tracker, cfg)
	images := map[uint64]map[string]string{}
	var sizes []int
	add := func() (n uint64) {
		t.Helper()
		do(t, dir, fmt.Sprint("write a ", len(images)+1))
		n = states.Add(step(t, tracker))
		capture(t, states)
		images[n] = image(t, dir)
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, bytes.Count(text, []byte("\n")))
		return n
	}
	for range 40 {
		add()
	}
	if slices.Max(sizes) > 2*(2*cfg.MaxStates+2) || !slices.IsSorted(sizes[:cfg.MaxStates]) || slices.IsSorted(sizes) {
		t.Errorf("got lists of %v lines", sizes)
	}
	kept1 := add()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, append(text, "42 0123456789abcdef"...), 0o600); err != nil {
		t.Fatal(err)
	}
	states = openStates(t, tracker, cfg)
	kept2 := add()
	if kept2 <= kept1 {
		t.Errorf("the number %d after %d", kept2, kept1)
	}
	states = openStates(t, tracker, cfg)
	for _, n := range []uint64{kept1, kept2} {
		r := restore(t, tracker, get(t, states, n), changes.RestoreOptions{})
		if d := different(images[n], image(t, dir)); d != "" || refusals(r) != "" {
			t.Errorf("%d: refused %s, and\n%s", n, refusals(r), d)
		}
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	add() // all are written again
	if got := openStates(t, tracker, cfg); got.Earlier() != kept2+1 {
		t.Errorf("the last state is %d, want %d", got.Earlier(), kept2+1)
	}
}

// An agent that is the server's own user puts other files in the place of the list: none is written to, none is waited for, and the states
// are in a list again.
func TestStatesListReplaced(t *testing.T) {
	t.Parallel()
	fifo := func(flag int) func(list, victim string) error {
		return func(list, _ string) error {
			if err := unix.Mkfifo(list, 0o600); err != nil {
				return err
			}
			f, err := os.OpenFile(list, flag|unix.O_NONBLOCK, 0) // its other end
			t.Cleanup(func() { _ = f.Close() })
			return err
		}
	}
	for name, replace := range map[string]func(list, victim string) error{
		"a hard link":       func(list, victim string) error { return os.Link(victim, list) },
		"a symbolic link":   func(list, victim string) error { return os.Symlink(victim, list) },
		"a link beside":     func(list, victim string) error { return os.Symlink(filepath.Base(victim), list) },
		"a lost link":       func(list, victim string) error { return os.Symlink(victim+"s", list) },
		"a directory":       func(list, _ string) error { return os.MkdirAll(filepath.Join(list, "full"), 0o700) },
		"a FIFO":            func(list, _ string) error { return unix.Mkfifo(list, 0o600) },
		"a FIFO with ends":  fifo(os.O_RDWR),
		"a FIFO and reader": fifo(os.O_RDONLY),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, kept := t.TempDir(), contents(t, 0)
			cfg := changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")}
			list, victim := filepath.Join(cfg.Dir, "states"), filepath.Join(cfg.Dir, "victim")
			if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			const text = "root \"/\"\n"
			if err := os.WriteFile(victim, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			tracker := track(t, changes.Config{Root: dir, Store: kept})
			states := openStates(t, tracker, cfg)
			for i := range 6 {
				for _, file := range []string{list, list + ".tmp"}[:i%3] {
					if err := os.RemoveAll(file); err != nil {
						t.Fatal(err)
					}
					if err := replace(file, victim); err != nil {
						t.Fatal(err)
					}
				}
				if i == 4 { // the next process
					states = openStates(t, tracker, cfg)
				}
				do(t, dir, fmt.Sprint("write a ", i))
				n := states.Add(step(t, tracker))
				capture(t, states)
				if got := openStates(t, tracker, cfg); got.Earlier() != n {
					t.Errorf("%d: the last state is %d, want %d", i, got.Earlier(), n)
				}
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != text {
				t.Errorf("the other file has %q, %v", data, err)
			}
			if _, err := os.Lstat(victim + "s"); !os.IsNotExist(err) {
				t.Error("a link was followed")
			}
		})
	}
}

// Where the store is full the oldest states go, and the first, the newest and those with a pin can be restored.
func TestStatesBound(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 2<<20)
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	states := openStates(t, tracker, changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")})
	random := rand.NewChaCha8([32]byte{1})
	images := map[uint64]map[string]string{}
	for i := range 120 {
		data := make([]byte, 30_000)
		_, _ = random.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i%5)), data, 0o644); err != nil {
			t.Fatal(err)
		}
		n := states.Add(step(t, tracker))
		images[n] = image(t, dir)
		capture(t, states)
		if i == 20 {
			if err := states.Pin(changes.Pin{Name: "pin", State: n}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := kept.Stats(); got.Bytes > got.Bound {
		t.Errorf("got %+v", got)
	}
	if _, err := states.Get(2); !errors.Is(err, changes.ErrStateGone) {
		t.Errorf("the oldest state but the first: %v", err)
	}
	for _, n := range []uint64{1, 21, 120, 111} {
		r := restore(t, tracker, get(t, states, n), changes.RestoreOptions{})
		if d := different(images[n], image(t, dir)); d != "" || refusals(r) != "" {
			t.Errorf("%d: refused %s, and\n%s", n, refusals(r), d)
		}
	}
}

// A firm pin stays where the present alone fills the store, also over a restart, and other pins go, expired ones too. One that was
// taken back does not return.
func TestStatesFirm(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 2<<20)
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	cfg := changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")}
	states := openStates(t, tracker, cfg)
	random := rand.NewChaCha8([32]byte{1})
	add := func(files int) (n uint64, full bool) {
		t.Helper()
		for i := range files {
			data := make([]byte, 30_000)
			_, _ = random.Read(data)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		n = states.Add(step(t, tracker))
		err := states.Capture(t.Context(), true)
		if err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		return n, err != nil
	}
	var want map[string]string
	var firm uint64
	expires := map[string]time.Time{"expired": time.Now().Add(-time.Nanosecond), "firm": time.Now().Add(time.Hour)}
	for _, name := range []string{"other", "expired", "firm"} {
		firm, _ = add(5)
		want = image(t, dir)
		if err := states.Pin(changes.Pin{Name: name, State: firm, Expires: expires[name]}); err != nil {
			t.Fatal(err)
		}
	}
	states = openStates(t, tracker, cfg)
	for full := false; !full; {
		_, full = add(80)
	}
	if pins := states.Pins(); len(pins) != 1 || pins[0].Name != "firm" || !pins[0].Expires.Equal(expires["firm"]) {
		t.Fatalf("got the pins %+v", pins)
	}
	r := restore(t, tracker, get(t, states, firm), changes.RestoreOptions{})
	if d := different(want, image(t, dir)); d != "" || refusals(r) != "" {
		t.Errorf("refused %s, and\n%s", refusals(r), d)
	}
	add(80)
	for err := error(nil); err == nil; {
		data := make([]byte, 50)
		_, _ = random.Read(data)
		_, err = kept.Put(data)
	}
	do(t, dir, "write 1")
	states.Add(step(t, tracker))
	if err := states.Save(); !errors.Is(err, store.ErrFull) {
		t.Fatalf("saving the last state: got %v", err)
	}
	if err := states.Unpin("firm"); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
	if pins := openStates(t, tracker, cfg).Pins(); len(pins) != 0 {
		t.Errorf("the next process has the pins %+v", pins)
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

// listed are the states and pins that are known.
func listed(s *changes.States, most uint64) string {
	text := fmt.Sprint(s.Pins())
	for n := range most {
		if kept, _ := s.Known(n); kept {
			text += fmt.Sprint(" ", n)
		}
	}
	return text
}

// Whatever the file that lists states has, those of the next process have numbers of their own, each pin has a state, and what was
// read is written again.
func FuzzStatesList(f *testing.F) {
	dir, own := f.TempDir(), filepath.Join(f.TempDir(), "states")
	tracker := track(f, changes.Config{Root: dir, Store: contents(f, 0)})
	states := openStates(f, tracker, changes.StatesConfig{Dir: own})
	for range 3 {
		do(f, dir, fmt.Sprintf("write a %d", states.Add(step(f, tracker))))
	}
	if err := errors.Join(states.Pin(changes.Pin{Name: "b", State: 2, Time: time.Unix(0, 7)}), states.Save()); err != nil {
		f.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(own, "states"))
	if err != nil {
		f.Fatal(err)
	}
	root := fmt.Sprintf("root %q\n", dir)
	for _, seed := range []string{
		string(list), root + "1 " + strings.Repeat("00", 32) + "\npin \"a\" 1 0 \"\"\npin \".bisect\" 1 0 \"\"\npin \".attempt\" 1 0 \"x\"\n", root + "4611686018427387903 " + strings.Repeat("00", 32), root + "9223372036854775807\n18446744073709551615\n", root + strings.Repeat("\x00", 100<<10) + "\n7\n",
		"root \"/\"\n1 " + strings.Repeat("00", 32) + "\n", root + strings.Repeat("1 "+strings.Repeat("00", 32)+"\n", 3), "pin", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := changes.StatesConfig{Dir: t.TempDir()}
		if err := errors.Join(os.Chmod(cfg.Dir, 0o700), os.WriteFile(filepath.Join(cfg.Dir, "states"), data, 0o600)); err != nil {
			t.Fatal(err)
		}
		s := openStates(t, tracker, cfg)
		for _, p := range s.Pins() {
			if kept, given := s.Known(p.State); !kept || !given {
				t.Errorf("the pin %+v has no state", p)
			}
		}
		if n := s.Earlier(); n > 0 {
			if kept, _ := s.Known(n); !kept {
				t.Errorf("the last state %d is not kept", n)
			}
			if state, err := s.Get(n); err != nil && !errors.Is(err, changes.ErrStateGone) || err == nil && state == nil {
				t.Errorf("the last state %d: %v", n, err)
			}
		}
		before, last := listed(s, 100), s.Earlier()
		n := s.Add(step(t, tracker))
		if n <= last {
			t.Errorf("the next state has the number %d, and the last one has %d", n, last)
		}
		if n >= 1<<62 { // the next process does not believe it
			return
		}
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		next := openStates(t, tracker, cfg)
		if next.Earlier() != n {
			t.Errorf("the next process has the last state %d, want %d", next.Earlier(), n)
		}
		if got := listed(next, min(n, 100)); got != before {
			t.Errorf("got  %q\nwant %q", got, before)
		}
	})
}
