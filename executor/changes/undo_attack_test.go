package changes_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
)

// attacked restores two states in turn while an attack runs.
func attacked(t *testing.T, tracker *changes.Tracker, states []*changes.State, attack func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		attack()
	}()
	for i := 0; ; i++ {
		restore(t, tracker, states[i%len(states)], changes.RestoreOptions{})
		select {
		case <-done:
			return
		default:
		}
	}
}

// A link that takes the place of a directory or a file during a restore leads nowhere.
func TestUndoSwappedLinks(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			outside, root := t.TempDir(), filepath.Join(dir, "w")
			do(t, outside, "mkdir d/e\nwrite d/a secret\nwrite d/e/b secret\nwrite f secret\nxattr f 1")
			do(t, dir, "mkdir w/d/e\nwrite w/d/a 1\nwrite w/d/e/b 1\nwrite w/f 1\nmkdir links")
			for _, name := range []string{"d", "f"} {
				if err := os.Symlink(filepath.Join(outside, name), filepath.Join(dir, "links", name)); err != nil {
					t.Fatal(err)
				}
			}
			want := image(t, outside)
			tracker, first := undoable(t, changes.Config{Root: root})
			do(t, root, "write d/a 22\nrm d/e\nwrite d/new 1\nchmod f 700\nxattr f 2\ntouch d 1")
			second := step(t, tracker)
			keep(t, tracker)
			attacked(t, tracker, []*changes.State{first, second}, func() {
				for i := range 3000 {
					name := []string{"d", "f"}[i%4/2]
					_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, name), unix.AT_FDCWD, filepath.Join(dir, "links", name), unix.RENAME_EXCHANGE)
				}
			})
			if d := different(want, image(t, outside)); d != "" {
				t.Error(d)
			}
			if r := restore(t, tracker, first, changes.RestoreOptions{}); refusals(r) != "" {
				t.Errorf("in peace: %s", refusals(r))
			}
		})
	}
}

// While a program changes everything without rest, restores end; after it they are exact.
func TestUndoRestless(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			p := &program{dir: dir, random: rand.New(rand.NewPCG(seed, 3)), restless: true}
			for range 40 {
				p.act()
			}
			want := image(t, dir)
			tracker, first := undoable(t, changes.Config{Root: dir})
			for range 40 {
				p.act()
			}
			second := step(t, tracker)
			keep(t, tracker)
			attacked(t, tracker, []*changes.State{first, second}, func() {
				for range 1000 {
					p.act()
				}
			})
			r := restore(t, tracker, first, changes.RestoreOptions{})
			if d := different(want, image(t, dir)); d != "" || refusals(r) != "" {
				t.Errorf("refused %s, and\n%s", refusals(r), d)
			}
		})
	}
}

// Renames without rest, also of what a restore works with, neither hang it nor lead it elsewhere.
func TestUndoRenames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var build, change strings.Builder
	for i := range 100 {
		fmt.Fprintf(&build, "mkdir d%d\nwrite d%d/a %d\n", i, i, i)
		fmt.Fprintf(&change, "mv d%d e%d\nwrite e%d/a x%d\n", i, (i*7+1)%100, (i*7+1)%100, i)
	}
	do(t, dir, build.String())
	want := image(t, dir)
	tracker, first := undoable(t, changes.Config{Root: dir})
	do(t, dir, change.String())
	second := step(t, tracker)
	keep(t, tracker)
	attacked(t, tracker, []*changes.State{first, second}, func() {
		for i := range 5000 {
			names, _ := filepath.Glob(filepath.Join(dir, "*"))
			scratch, _ := filepath.Glob(filepath.Join(dir, ".actiond-restore-*"))
			inner, _ := filepath.Glob(filepath.Join(dir, ".actiond-restore-*", "*"))
			all := slices.Concat(names, scratch, inner)
			if len(all) > 1 {
				_ = unix.Renameat2(unix.AT_FDCWD, all[i%len(all)], unix.AT_FDCWD, all[(i*13+5)%len(all)], unix.RENAME_EXCHANGE)
			}
		}
	})
	restore(t, tracker, second, changes.RestoreOptions{})
	if r := restore(t, tracker, first, changes.RestoreOptions{}); refusals(r) != "" {
		t.Errorf("refused %s", refusals(r))
	}
	if d := different(want, image(t, dir)); d != "" {
		t.Error(d)
	}
}

// A tree of 10,000 directories in each other is removed and brought back.
func TestUndoDeep(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	tracker, empty := undoable(t, changes.Config{Root: dir})
	at := deep(t, dir, 10_000)
	fd, err := unix.Openat(at, "a", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte("deep")); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	full := step(t, tracker)
	keep(t, tracker)
	if r := restore(t, tracker, empty, changes.RestoreOptions{}); refusals(r) != "" || r.After.Names() != 0 {
		t.Fatalf("refused %.1000s, %d names are left", refusals(r), r.After.Names())
	}
	if r := restore(t, tracker, full, changes.RestoreOptions{}); refusals(r) != "" || r.After.Names() != 10_001 {
		t.Fatalf("refused %.1000s, got %d names", refusals(r), r.After.Names())
	}
	has(t, tracker, step(t, tracker), strings.Repeat("d/", 10_000)+"a", "deep")
}

// The user's rights decide: others' files are named and stay as they are, directories that are closed for writing are
// restored.
func TestUndoOthersFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := public(t)
	do(t, dir, "write root 1\nmkdir own/closed\nwrite own/closed/a 1\nwrite own/b 1\nmkdir others\nwrite others/a 1\nwrite roots 1")
	for _, name := range []string{".", "own", "own/closed", "own/closed/a", "own/b"} {
		if err := os.Chown(filepath.Join(dir, name), int(nobody.UID), int(nobody.GID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "own/closed"), 0o555); err != nil {
		t.Fatal(err)
	}
	first := image(t, dir)
	tracker, before := undoable(t, changes.Config{Root: dir, User: nobody})
	do(t, dir, "write root 2\nchmod root 700\nrm own\nwrite others/a 2\nrm roots\nmkdir mine\nwrite mine/a 1\nmkdir rootdir\nwrite rootdir/a 1")
	if err := errors.Join(os.Chown(filepath.Join(dir, "mine"), int(nobody.UID), 0), os.Chmod(filepath.Join(dir, "mine"), 0o500)); err != nil {
		t.Fatal(err)
	}
	now := image(t, dir)
	r := restore(t, tracker, before, changes.RestoreOptions{})
	want := "others: operation not permitted, others/a: operation not permitted, root: operation not permitted, rootdir/a: operation not permitted, roots: operation not permitted"
	for _, x := range r.Refused {
		if !strings.Contains(want, x.Path+": "+x.Why) && x.Path != "rootdir" {
			t.Errorf("refused %s: %s", x.Path, x.Why)
		}
	}
	got := image(t, dir)
	for path, text := range first {
		switch path {
		case "root": // it belongs to root, and nobody may replace it but not give the new one to root
			text = now[path]
		case "others", "others/a":
			text = now[path]
		case "roots":
			text = ""
		}
		if got[path] != text {
			t.Errorf("%s\n is    %s\nshould %s", path, got[path], text)
		}
	}
	if got["mine"] != "" || got["mine/a"] != "" || got["rootdir/a"] != now["rootdir/a"] {
		t.Errorf("got %q", got)
	}
}

// A file that has a name outside keeps it: it is written in place.
func TestUndoNameOutside(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			do(t, dir, "mkdir w\nwrite w/a before\nmkdir out\nln w/a out/a\nwrite w/b 1\nln w/b out/b")
			root := filepath.Join(dir, "w")
			first := image(t, dir)
			tracker, before := undoable(t, changes.Config{Root: root})
			do(t, dir, "write w/a after\nchmod w/a 700\nrm w/b")
			if r := restore(t, tracker, before, changes.RestoreOptions{}); refusals(r) != "" {
				t.Errorf("refused %s", refusals(r))
			}
			got := image(t, dir)
			for _, path := range []string{"out/a", "w/a", "w"} {
				if got[path] != first[path] {
					t.Errorf("%s\n is    %s\nshould %s", path, got[path], first[path])
				}
			}
			if !strings.Contains(got["w/b"], `content "1"`) {
				t.Errorf("w/b is %s", got["w/b"])
			}
		})
	}
}

// What is mounted inside is named and not entered.
func TestUndoMount(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	do(t, other, "write a secret\nmkdir d")
	do(t, dir, "mkdir m\nwrite m/x 1\nmkdir d/m\nwrite b 1")
	tracker, before := undoable(t, changes.Config{Root: dir})
	want := image(t, other)
	for _, at := range []string{"m", "d/m"} {
		if err := unix.Mount(other, filepath.Join(dir, at), "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, at), unix.MNT_DETACH) })
	}
	do(t, dir, "write b 2\nmkdir e\nmv d e/d")
	r := restore(t, tracker, before, changes.RestoreOptions{})
	if d := different(want, image(t, other)); d != "" {
		t.Error(d)
	}
	for _, path := range []string{"m", "d/m"} {
		if !strings.Contains(refusals(r), path+": another file system is mounted there") {
			t.Errorf("%s is not named: %s", path, refusals(r))
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || string(data) != "1" {
		t.Errorf("b: %q (%v)", data, err)
	}
}

// What is mounted inside during a restore stays as it is: the restore enters no file system that came after its listing.
func TestUndoMountAppears(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	do(t, other, "write a secret\nwrite b secret\nmkdir d\nwrite d/a secret")
	var build, change strings.Builder
	for i := range 20 {
		fmt.Fprintf(&build, "mkdir d%d/d\nwrite d%d/a %d\nwrite d%d/b 1\nwrite d%d/d/a 1\n", i, i, i, i, i)
		fmt.Fprintf(&change, "write d%d/a x%d\nrm d%d/b\nwrite d%d/c 1\nrm d%d/d\n", i, i, i, i, i)
	}
	do(t, dir, build.String())
	want, theirs := image(t, dir), image(t, other)
	tracker, first := undoable(t, changes.Config{Root: dir})
	do(t, dir, change.String())
	second := step(t, tracker)
	keep(t, tracker)
	if err := unix.Mount(other, filepath.Join(dir, "d0"), "", unix.MS_BIND, ""); err != nil {
		t.Skip(err)
	}
	unmount := func() {
		for i := range 20 {
			for unix.Unmount(filepath.Join(dir, fmt.Sprint("d", i)), unix.MNT_DETACH) == nil {
			}
		}
	}
	t.Cleanup(unmount)
	attacked(t, tracker, []*changes.State{first, second}, func() {
		for i := range 200 {
			_ = unix.Mount(other, filepath.Join(dir, fmt.Sprint("d", i*7%20)), "", unix.MS_BIND, "") // where it is missing at the moment
			if i%10 == 9 {
				unmount()
			}
		}
	})
	unmount()
	if d := different(theirs, image(t, other)); d != "" {
		t.Errorf("what was mounted is changed:\n%s", d)
	}
	r := restore(t, tracker, first, changes.RestoreOptions{})
	if d := different(want, image(t, dir)); d != "" || refusals(r) != "" {
		t.Errorf("refused %s, and\n%s", refusals(r), d)
	}
}

// On a full disk the files that had no room are named; the next restore brings them back.
func TestUndoFullDisk(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	root := filepath.Join(mount, "w")
	do(t, mount, "mkdir w/d")
	for i := range 10 {
		if err := os.WriteFile(filepath.Join(root, "d", fmt.Sprint(i)), fmt.Appendf(make([]byte, 60_000, 60_010), "%d", i), 0o644); err != nil {
			t.Fatal(err)
		}
		// Otherwise they would be holes.
		if err := os.WriteFile(filepath.Join(root, "d", "text"+fmt.Sprint(i)), []byte(strings.Repeat(fmt.Sprint(i), 60_000)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first := image(t, root)
	tracker, before := undoable(t, changes.Config{Root: root})
	for range 5 {
		keep(t, tracker) // what a busy machine left out
	}
	do(t, root, "rm d")
	var system unix.Statfs_t
	if err := unix.Statfs(mount, &system); err != nil {
		t.Fatal(err)
	}
	hog := filepath.Join(mount, "hog")
	if err := os.WriteFile(hog, make([]byte, int(system.Bavail)*int(system.Bsize)-300_000), 0o644); err != nil {
		t.Fatal(err)
	}
	r := restore(t, tracker, before, changes.RestoreOptions{})
	if !strings.Contains(refusals(r), "no space left on device") || len(r.Refused) > 18 {
		t.Errorf("refused %s", refusals(r))
	}
	if err := os.Remove(hog); err != nil {
		t.Fatal(err)
	}
	r = restore(t, tracker, before, changes.RestoreOptions{})
	if d := different(first, image(t, root)); d != "" || refusals(r) != "" {
		t.Errorf("refused %s, and\n%s", refusals(r), d)
	}
}

// A restore whose process is killed is ended by the next one, wherever that happens.
func TestUndoKilled(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("CHANGES_TEST_KILLED"); dir != "" {
		beKilled(t, dir)
		return
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "w")
	var build, change strings.Builder
	for i := range 30 {
		fmt.Fprintf(&build, "mkdir w/d%d/e\nwrite w/d%d/a %d\nwrite w/d%d/e/b %d\nln w/d%d/a w/l%d\nxattr w/d%d/a %d\ntouch w/d%d %s\n",
			i, i, i, i, i, i, i, i, i, i, strings.Repeat("x", i+1))
		fmt.Fprintf(&change, "mv w/d%d w/x%d\nmv w/x%d/e w/e%d\nwrite w/x%d/a new%d\nrm w/l%d\nwrite w/n%d 1\n", i, i, i, i, i, i, i, i)
	}
	do(t, dir, build.String())
	want := image(t, root)
	killed := 0
	cfg := changes.Config{Root: root, StateDir: filepath.Join(dir, "state")}
	open := func() (*changes.Tracker, func()) {
		t.Helper()
		contents, err := store.Open(store.Config{Dir: filepath.Join(dir, "contents")})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store = contents
		tracker, err := changes.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return tracker, func() {
			if err := errors.Join(tracker.Close(), contents.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	tracker, end := open()
	keep(t, tracker)
	encoded := step(t, tracker).Encode(nil)
	end()
	if err := os.WriteFile(filepath.Join(dir, "target"), encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 25 {
		do(t, dir, change.String())
		child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUndoKilled$")
		child.Env = append(os.Environ(), "CHANGES_TEST_KILLED="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.InotifyAddWatch(watch, root, unix.IN_CREATE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// The events of the restore itself say how far it is; it waits for nothing of this process.
		events, buf := 0, make([]byte, 64) // which one event fits into
		pipe, _ := out.(*os.File)
		for events <= round*6 {
			ready := []unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}, {Fd: int32(pipe.Fd()), Events: unix.POLLIN}}
			if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			if ready[0].Revents == 0 && ready[1].Revents != 0 {
				break // it has ended
			}
			if ready[0].Revents != 0 {
				if _, err := unix.Read(watch, buf); err != nil {
					t.Fatal(err)
				}
				events++
			}
		}
		_ = child.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		if child.Wait() != nil {
			killed++
		}
		_ = unix.Close(watch)
		left, _ := filepath.Glob(filepath.Join(cfg.StateDir, "restore"))
		tracker, end := open()
		r, err := tracker.Resume()
		if err != nil || (r == nil) != (len(left) == 0) {
			t.Fatalf("round %d: the plan is %v, resumed %v (%v)", round, left, r, err)
		}
		if r != nil {
			if d := different(want, image(t, root)); d != "" || refusals(r) != "" {
				t.Fatalf("round %d: refused %s, and\n%s", round, refusals(r), d)
			}
		}
		if again, err := tracker.Resume(); again != nil || err != nil {
			t.Errorf("resumed twice: %v (%v)", again, err)
		}
		state, err := changes.DecodeState(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if r := restore(t, tracker, state, changes.RestoreOptions{}); refusals(r) != "" {
			t.Errorf("refused %s", refusals(r))
		}
		if d := different(want, image(t, root)); d != "" {
			t.Fatalf("round %d:\n%s", round, d)
		}
		end()
	}
	if killed < 10 {
		t.Errorf("only %d restores were killed", killed)
	}
}

// beKilled restores a state in another process.
func beKilled(t *testing.T, dir string) {
	t.Helper()
	encoded, err := os.ReadFile(filepath.Join(dir, "target"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := changes.DecodeState(encoded)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := store.Open(store.Config{Dir: filepath.Join(dir, "contents")})
	if err != nil {
		t.Fatal(err)
	}
	tracker := track(t, changes.Config{Root: filepath.Join(dir, "w"), Store: contents, StateDir: filepath.Join(dir, "state")})
	restore(t, tracker, state, changes.RestoreOptions{})
}
