package changes_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
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

const killedCheckpoints = 6

// texts are the paths and contents below a directory.
func texts(tb testing.TB, dir string) (all string) {
	tb.Helper()
	files := tree(tb, dir)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all += fmt.Sprintf("%s %q\n", path, files[path].content)
	}
	return all
}

// checkpointFiles writes what the workspace has at a checkpoint.
func checkpointFiles(tb testing.TB, root string, i int) {
	tb.Helper()
	do(tb, root, fmt.Sprintf("write same %d\nmkdir d%d/e\nwrite d%d/a %d\nwrite d%d/e/b %s", i, i, i, i, i, strings.Repeat(fmt.Sprint(i), 9000)))
}

// openKilled opens the states in a directory, which has the workspace in w.
func openKilled(tb testing.TB, dir string) (tracker *changes.Tracker, states *changes.States, end func()) {
	tb.Helper()
	contents, err := store.Open(store.Config{Dir: filepath.Join(dir, "state", "contents")})
	if err != nil {
		tb.Fatal(err)
	}
	if tracker, err = changes.New(changes.Config{Root: filepath.Join(dir, "w"), StateDir: filepath.Join(dir, "state"), Store: contents}); err != nil {
		tb.Fatal(err)
	}
	return tracker, openStates(tb, tracker, changes.StatesConfig{Dir: filepath.Join(dir, "state")}), func() {
		if err := errors.Join(tracker.Close(), contents.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// Wherever a process is killed while it captures contents and makes checkpoints, each checkpoint that it answered is complete, and each
// one that the next process finds has its state.
func TestCheckpointKilled(t *testing.T) {
	if dir := os.Getenv("CHANGES_TEST_CHECKPOINT"); dir != "" {
		tracker, states, end := openKilled(t, dir)
		defer end()
		makeCheckpoints(t, dir, tracker, states)
		return
	}
	t.Parallel()
	base := t.TempDir()
	var want []string
	for i := range killedCheckpoints {
		checkpointFiles(t, base, i)
		want = append(want, texts(t, base))
	}
	killed := 0
	for round := range 12 {
		dir := t.TempDir()
		private := filepath.Join(dir, "state", "contents")
		if err := errors.Join(os.MkdirAll(private, 0o700), os.Mkdir(filepath.Join(dir, "w"), 0o755)); err != nil {
			t.Fatal(err)
		}
		answered, ended := killAt(t, dir, round*4, filepath.Dir(private), private)
		if !ended {
			killed++
		}
		tracker, states, end := openKilled(t, dir)
		step(t, tracker)
		pins := map[string]uint64{}
		for _, p := range states.Pins() {
			pins[p.Name] = p.State
			get(t, states, p.State)
		}
		for i := range answered {
			n, ok := pins[fmt.Sprint("c", i)]
			if !ok {
				t.Fatalf("round %d: the checkpoint %d of %d is not there: %v", round, i, answered, pins)
			}
			state := get(t, states, n)
			if missing, some := tracker.Missing(state); missing > 0 {
				t.Fatalf("round %d: of the checkpoint %d %d contents are missing: %v", round, i, missing, some)
			}
			if r := restore(t, tracker, state, changes.RestoreOptions{}); refusals(r) != "" {
				t.Fatalf("round %d: the checkpoint %d refused %s", round, i, refusals(r))
			}
			if got := texts(t, filepath.Join(dir, "w")); got != want[i] {
				t.Fatalf("round %d: the checkpoint %d has %s", round, i, got)
			}
		}
		end()
	}
	if killed == 0 {
		t.Error("no process was killed")
	}
}

// makeCheckpoints makes checkpoints, and says which are made.
func makeCheckpoints(t *testing.T, dir string, tracker *changes.Tracker, states *changes.States) {
	t.Helper()
	for i := range killedCheckpoints {
		checkpointFiles(t, filepath.Join(dir, "w"), i)
		n := states.Add(step(t, tracker))
		if err := states.Pin(changes.Pin{Name: fmt.Sprint("c", i), State: n}); err != nil {
			t.Fatal(err)
		}
		capture(t, states)
		fmt.Println("made")
	}
}

// killAt kills a process that makes checkpoints in a directory at a change in its own directories, and returns how many it said to be
// made.
func killAt(t *testing.T, dir string, change int, private ...string) (answered int, ended bool) {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(watch) }()
	for _, name := range private {
		if _, err := unix.InotifyAddWatch(watch, name, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestCheckpointKilled$")
	child.Env = append(os.Environ(), "CHANGES_TEST_CHECKPOINT="+dir)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	child.Stdout = in
	if err := errors.Join(child.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	var said []byte
	for events := 0; events <= change; {
		ready := []unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}, {Fd: int32(out.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		switch {
		case ready[1].Revents&unix.POLLIN != 0:
			n, err := out.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, buf[:n]...)
		case ready[1].Revents != 0: // it has ended
			events = change + 1
		case ready[0].Revents != 0:
			if _, err := unix.Read(watch, buf); err != nil {
				t.Fatal(err)
			}
			events++
		}
	}
	_ = child.Process.Kill()
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(append(said, rest...)), "made\n"), child.Wait() == nil
}
