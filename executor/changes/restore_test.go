package changes_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// image describes all that a restore brings back, by path: type, mode, owner, time, content, link, extended attributes, and
// the other names of the file.
func image(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all, names := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("mode %o owner %d:%d time %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch d.Type() {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" content %q %d %x", data[:min(len(data), 100)], len(data), sha256.Sum256(data))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " to " + target
		}
		if !d.IsDir() && st.Nlink > 1 {
			if names[st.Ino] == "" {
				names[st.Ino] = rel
			}
			text += fmt.Sprintf(" %d names, the first is %s", st.Nlink, names[st.Ino])
		}
		list := make([]byte, 1024)
		n, err := unix.Llistxattr(path, list)
		if err != nil {
			return err
		}
		xattrs := strings.Split(string(list[:n]), "\x00")
		slices.Sort(xattrs)
		for _, name := range xattrs {
			value := make([]byte, 1024)
			if name != "" {
				n, err := unix.Lgetxattr(path, name, value)
				if err != nil {
					return err
				}
				text += fmt.Sprintf(" %s=%q", name, value[:n])
			}
		}
		all[rel] = text
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// different says what differs in two images; "" if nothing does.
func different(want, got map[string]string) string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			all = append(all, fmt.Sprintf("%s\n  is     %s\n  should %s", path, got[path], want[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if want[path] == "" {
			all = append(all, path+" should not be there")
		}
	}
	return strings.Join(all, "\n")
}

func restore(tb testing.TB, tracker *changes.Tracker, to *changes.State, o changes.RestoreOptions) *changes.Restored {
	tb.Helper()
	r, err := tracker.Restore(to, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Random programs: a restore to a random earlier state makes all as it was, and can be taken back.
//
// CHANGES_STEPS is the number of steps of a run, CHANGES_SEED its seed.
func TestRestorePrograms(t *testing.T) {
	t.Parallel()
	steps, seed := 100, rand.Uint64()
	if text := os.Getenv("CHANGES_STEPS"); text != "" {
		steps, _ = strconv.Atoi(text)
	}
	if text := os.Getenv("CHANGES_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	for _, maxWatches := range []int{0, -1} {
		for place, dir := range places(t) {
			t.Run(fmt.Sprintf("%s/%d", place, maxWatches), func(t *testing.T) {
				t.Parallel()
				t.Logf("CHANGES_SEED=%d", seed)
				cfg := changes.Config{MaxWatches: maxWatches, Store: contents(t, 0)}
				runRestores(t, &program{dir: dir, random: rand.New(rand.NewPCG(seed, 1))}, cfg, steps)
			})
		}
	}
}

func runRestores(t *testing.T, p *program, cfg changes.Config, steps int) {
	t.Helper()
	for range 30 {
		p.act()
	}
	cfg.Root, cfg.StateDir = p.dir, filepath.Join(t.TempDir(), "state")
	tracker := track(t, cfg)
	type moment struct {
		state *changes.State
		image map[string]string
	}
	look := func() moment {
		t.Helper()
		now := moment{step(t, tracker), image(t, p.dir)}
		keep(t, tracker)
		return now
	}
	history := []moment{look()}
	restores := 0
	for n := range steps {
		p.log, p.linked = nil, false
		for range 1 + p.random.IntN(6) {
			p.act()
		}
		history = append(history, look())
		for range p.random.IntN(3) {
			to := history[p.random.IntN(len(history))]
			before := image(t, p.dir)
			r := restore(t, tracker, elsewhere(t, p.random.IntN(3), tracker, to.state), changes.RestoreOptions{})
			restores++
			last := r.After
			if d := different(to.image, image(t, p.dir)); d != "" || r.RefusedCount > 0 {
				t.Fatalf("step %d: refused %q, and\n%s\nprogram:\n%s\nbefore %q", n, r.Refused, d, strings.Join(p.log, "\n"), before)
			}
			if p.random.IntN(2) == 0 {
				back := restore(t, tracker, r.Before, changes.RestoreOptions{})
				last = back.After
				if d := different(before, image(t, p.dir)); d != "" || back.RefusedCount > 0 {
					t.Fatalf("step %d, taken back: refused %q, and\n%s\nprogram:\n%s\nfirst %s, then %s, before\n%s", n, back.Refused, d, strings.Join(p.log, "\n"),
						facts(r.Changes), facts(back.Changes), different(to.image, before))
				}
			}
			now := look()
			if c := changes.Compare(last, now.state, changes.Limits{}); facts(c) != "" {
				t.Fatalf("step %d: after the restore %s", n, facts(c))
			}
			history = append(history, now)
		}
		if len(history) > 20 {
			history = history[len(history)-20:]
		}
	}
	t.Logf("%d steps, %d restores", steps, restores)
}

// elsewhere returns a state as another process would have it.
func elsewhere(t *testing.T, how int, tracker *changes.Tracker, s *changes.State) *changes.State {
	t.Helper()
	var err error
	switch how {
	case 0:
		s, err = changes.DecodeState(s.Encode(nil))
	case 1:
		sum, failed := tracker.Save(s)
		if err = failed; err == nil {
			s, err = tracker.Load(sum)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
