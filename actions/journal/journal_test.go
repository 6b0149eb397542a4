package journal_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/internal/testhelp"
)

func open(tb testing.TB, cfg journal.Config) *journal.Journal {
	tb.Helper()
	j, err := journal.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	return j
}

func intent(id string) journal.Intent {
	return journal.Intent{ID: id, Digest: sha256.Sum256([]byte(id)), Kind: "run", Session: "s", Text: "text of " + id, Form: "f"}
}

func reserve(tb testing.TB, j *journal.Journal, id string) *journal.Action {
	tb.Helper()
	a, isNew, err := j.Reserve(intent(id))
	if err != nil || !isNew {
		tb.Fatalf("reserving %s: new %t, %v", id, isNew, err)
	}
	return a
}

// known describes an action: its state, its result, and its output with the bytes
// that are missing.
func known(tb testing.TB, j *journal.Journal, id string) string {
	tb.Helper()
	a, err := j.Lookup(id)
	switch {
	case errors.Is(err, journal.ErrForgotten):
		return "forgotten"
	case err != nil:
		tb.Fatal(err)
	case a == nil:
		return "none"
	}
	result, err := a.Result()
	if err != nil {
		return "result: " + err.Error()
	}
	return fmt.Sprintf("%s %q %q", a.Info().State, result, printed(tb, a, 0))
}

// printed returns the output behind a stretch, as far as it came.
func printed(tb testing.TB, a *journal.Action, after uint64) string {
	tb.Helper()
	c := a.Follow(after)
	defer c.Close()
	var b strings.Builder
	buf := make([]byte, journal.ChunkSize)
	end := int64(-1)
	for {
		out, more, err := c.Next(buf)
		if err != nil || more != nil {
			if err != nil && !errors.Is(err, io.EOF) {
				tb.Fatal(err)
			}
			return b.String()
		}
		if end >= 0 && out.Offset != end {
			fmt.Fprintf(&b, "[%d]", out.Offset-end)
		}
		end = out.Offset + int64(len(out.Data))
		b.Write(out.Data)
	}
}

// An action that ended without a result has none, in this process as after the next start.
func TestNoResult(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := j.Reserve(journal.Intent{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	a.End(journal.Unknown, nil)
	if result, err := a.Result(); result != nil || err != nil {
		t.Errorf("got %q, %v", result, err)
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	for _, inMemory := range []bool{false, true} {
		cfg := journal.Config{}
		if !inMemory {
			cfg.Dir = filepath.Join(t.TempDir(), "j")
		}
		j := open(t, cfg)
		done := reserve(t, j, "done")
		done.Begin()
		for _, bytes := range []int64{0, 9, 2} {
			done.TookInput(bytes)
		}
		done.Deny()
		done.Output(journal.Stdout, []byte("one"))
		done.Output(journal.Stderr, []byte("two"))
		done.End(journal.Done, []byte("result"))
		done.End(journal.Cancelled, nil) // too late
		done.Output(journal.Stdout, []byte("late"))
		running := reserve(t, j, "running")
		running.Queue()
		running.Begin()
		running.Output(journal.Terminal, []byte("x"))
		queued := reserve(t, j, "queued")
		queued.Queue()
		cancelled := reserve(t, j, "cancelled")
		cancelled.End(journal.Cancelled, []byte("no"))
		dropped := reserve(t, j, "dropped")
		dropped.Begin()
		dropped.Drop()
		reserve(t, j, "only in memory")

		check := func(j *journal.Journal, want map[string]string) {
			t.Helper()
			for id, want := range want {
				if got := known(t, j, id); got != want {
					t.Errorf("in memory %t: %s: got %s, want %s", inMemory, id, got, want)
				}
			}
		}
		check(j, map[string]string{
			"done": `done "result" "onetwo"`, "running": `running "" "x"`, "queued": `reserved "" ""`,
			"cancelled": `cancelled "no" ""`, "dropped": "none", "never": "none", "only in memory": `reserved "" ""`,
		})
		if a, isNew, err := j.Reserve(intent("done")); isNew || err != nil || a.N() != done.N() {
			t.Errorf("the same id: got %t, %v", isNew, err)
		}
		other := intent("done")
		other.Digest[0]++
		if _, _, err := j.Reserve(other); !errors.Is(err, journal.ErrOther) {
			t.Errorf("another body: got %v", err)
		}
		if inMemory {
			continue
		}
		before := done.Info()
		if !before.Denied || cancelled.Info().Denied {
			t.Errorf("denied: %+v, %+v", before, cancelled.Info())
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, cfg)
		check(j, map[string]string{
			"done": `done "result" "onetwo"`, "running": `unknown "" "x"`, "queued": `refused "" ""`,
			"cancelled": `cancelled "no" ""`, "dropped": "none", "only in memory": "none",
		})
		again, _ := j.Lookup("done")
		if bytes, ok := again.Input(); bytes != 9 || !ok {
			t.Errorf("input: got %d, %t", bytes, ok)
		}
		if got := again.Info(); got != before {
			t.Errorf("after a restart: got %+v, want %+v", got, before)
		}
		if a := reserve(t, j, "next"); a.N() <= cancelled.N() {
			t.Errorf("number %d was used twice", a.N())
		}
		if p := j.Problem(); p != "" {
			t.Errorf("problem %q", p)
		}
		var ids []string
		for _, info := range j.List(0, 3, func(i journal.Info) bool { return i.State != journal.Done }) {
			ids = append(ids, info.ID)
		}
		if want := []string{"next", "cancelled", "queued"}; !slices.Equal(ids, want) {
			t.Errorf("list: got %q, want %q", ids, want)
		}
	}
}

func TestOneServerPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir()}
	open(t, cfg)
	if _, err := journal.Open(cfg); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v", err)
	}
}

// Others can neither read nor enter the directory.
func TestDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	j := open(t, journal.Config{Dir: dir})
	reserve(t, j, "a").Begin()
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

func TestForgetting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, cfg := range map[string]journal.Config{
		"count": {Dir: filepath.Join(dir, "count"), MaxActions: 10},
		"bytes": {Dir: filepath.Join(dir, "bytes"), MaxBytes: 12 << 20},
	} {
		j := open(t, cfg)
		running := reserve(t, j, "running")
		running.Begin()
		running.Output(journal.Terminal, []byte("kept"))
		for i := range 40 {
			a := reserve(t, j, fmt.Sprint(i))
			a.Begin()
			a.End(journal.Done, make([]byte, 1<<20))
		}
		check := func(j *journal.Journal, running string) {
			t.Helper()
			for id, want := range map[string]string{"running": running, "0": "forgotten", "25": "forgotten"} {
				if got := known(t, j, id); got != want {
					t.Errorf("%s: %s: got %.80s, want %s", name, id, got, want)
				}
			}
			if got := known(t, j, "39"); !strings.HasPrefix(got, "done ") {
				t.Errorf("%s: got %.80s", name, got)
			}
			if _, _, err := j.Reserve(intent("0")); !errors.Is(err, journal.ErrForgotten) {
				t.Errorf("%s: reserving again: %v", name, err)
			}
			// A file goes with its last action.
			if got := j.Stats().Bytes; got > 20<<20 {
				t.Errorf("%s: %d bytes", name, got)
			}
		}
		check(j, `running "" "kept"`)
		_ = j.Close()
		var size int64
		entries, _ := os.ReadDir(cfg.Dir)
		for _, e := range entries {
			info, _ := e.Info()
			size += info.Size()
		}
		if size > 20<<20 {
			t.Errorf("%s: %d bytes in files", name, size)
		}
		check(open(t, cfg), `unknown "" "kept"`)
	}
}

// A result that is larger than the journal is kept until the next one, so that its caller gets it.
func TestForgettingLarge(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]journal.Config{"memory": {MaxBytes: 1 << 20}, "files": {Dir: t.TempDir(), MaxBytes: 1 << 20}} {
		j := open(t, cfg)
		reserve(t, j, "before").End(journal.Done, nil)
		large := reserve(t, j, "large")
		large.Begin()
		large.End(journal.Done, make([]byte, 2<<20))
		if result, err := large.Result(); len(result) != 2<<20 || err != nil {
			t.Errorf("%s: got %d bytes, %v", name, len(result), err)
		}
		if got := known(t, j, "before"); got != "forgotten" {
			t.Errorf("%s: an older one: %.80s", name, got)
		}
		reserve(t, j, "next").End(journal.Done, nil)
		if got := known(t, j, "large"); got != "forgotten" {
			t.Errorf("%s: after the next one: %.80s", name, got)
		}
	}
}

func TestForgettingByAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := open(t, journal.Config{})
		reserve(t, j, "old").End(journal.Done, nil)
		time.Sleep(8 * 24 * time.Hour)
		reserve(t, j, "new").End(journal.Done, nil)
		if got := known(t, j, "old"); got != "forgotten" {
			t.Errorf("got %s", got)
		}
	})
}

// The clock of the machine may be set while no process has the journal: a bubble's clock begins in the year 2000.
// Only the time counts during which one has it.
func TestForgettingByAgeWithAClockThatIsSet(t *testing.T) {
	t.Parallel()
	run := func(cfg journal.Config, id string, wait time.Duration, want string) {
		t.Helper()
		j := open(t, cfg)
		if wait > 0 {
			time.Sleep(wait)
		}
		reserve(t, j, id).End(journal.Done, nil)
		got := ""
		for _, info := range j.List(0, 10, func(journal.Info) bool { return true }) {
			got += info.ID
		}
		if got != want {
			t.Errorf("with %s: got %s, want %s", id, got, want)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	past := func(t *testing.T, cfg journal.Config, id string, wait time.Duration, want string) {
		t.Helper()
		synctest.Test(t, func(*testing.T) { run(cfg, id, wait, want) })
	}
	const day = 24 * time.Hour
	t.Run("forward", func(t *testing.T) {
		t.Parallel()
		cfg := journal.Config{Dir: t.TempDir()}
		past(t, cfg, "a", 0, "a")
		past(t, cfg, "b", 4*day, "ba")
		run(cfg, "c", 0, "cba")
		past(t, cfg, "d", 2*day, "dcba")
		past(t, cfg, "e", 2*day, "edcb")
	})
	t.Run("backward", func(t *testing.T) {
		t.Parallel()
		cfg := journal.Config{Dir: t.TempDir()}
		run(cfg, "a", 0, "a")
		past(t, cfg, "b", 4*day, "ba")
		past(t, cfg, "c", 4*day, "cb")
	})
	t.Run("idle", func(t *testing.T) { // the last process recorded nothing before its end
		t.Parallel()
		cfg := journal.Config{Dir: t.TempDir()}
		past(t, cfg, "a", 0, "a")
		synctest.Test(t, func(t *testing.T) {
			j := open(t, cfg)
			time.Sleep(8 * day)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
		run(cfg, "b", 0, "b")
	})
	t.Run("full files", func(t *testing.T) { // the first ones are removed, and with them the ages there
		t.Parallel()
		cfg := journal.Config{Dir: t.TempDir(), MaxActions: 3}
		synctest.Test(t, func(t *testing.T) {
			j := open(t, cfg)
			time.Sleep(5 * day)
			for i := range 4 {
				reserve(t, j, fmt.Sprint(i)).End(journal.Done, make([]byte, 3<<20))
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
		past(t, cfg, "4", 4*day, "432")
	})
}

// Of an output that is too long the head and the tail are kept.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir(), MaxOutput: 4 << 20}
	j := open(t, cfg)
	a := reserve(t, j, "a")
	a.Begin()
	line := bytes.Repeat([]byte("x"), 999)
	const lines = 20_000
	for i := range lines {
		a.Output(journal.Terminal, append(fmt.Appendf(nil, "%08d", i), line...))
	}
	check := func(a *journal.Action) {
		t.Helper()
		c := a.Follow(0)
		defer c.Close()
		buf := make([]byte, journal.ChunkSize)
		var end, missing, kept int64
		gaps := 0
		for {
			out, more, err := c.Next(buf)
			if err != nil || more != nil {
				break
			}
			if out.Offset != end {
				gaps++
				missing += out.Offset - end
			}
			if want := fmt.Sprintf("%08d", out.Offset/1007); string(out.Data[:8]) != want || out.Seq != uint64(out.Offset/1007)+1 {
				t.Fatalf("at %d: got %s, stretch %d", out.Offset, out.Data[:8], out.Seq)
			}
			kept += int64(len(out.Data))
			end = out.Offset + int64(len(out.Data))
		}
		if end != lines*1007 || gaps != 1 || kept+missing != end || kept < 2<<20 || kept > 6<<20 {
			t.Errorf("end %d, gaps %d, kept %d, missing %d", end, gaps, kept, missing)
		}
		for _, offset := range []int64{0, 1007*17 + 3, end - 5} {
			c := a.From(offset)
			out, _, err := c.Next(buf)
			for err == nil && out.Offset+int64(len(out.Data)) <= offset {
				out, _, err = c.Next(buf)
			}
			if err != nil || out.Offset > offset {
				t.Errorf("from %d: got %d, %v", offset, out.Offset, err)
			}
			c.Close()
		}
	}
	check(a)
	_ = j.Close()
	j = open(t, cfg)
	b, _ := j.Lookup("a")
	check(b)
	if got := b.Info().Output; got != lines*1007 {
		t.Errorf("got %d bytes", got)
	}
}

// Readers see what is written, in order, while it is written.
func TestFollow(t *testing.T) {
	t.Parallel()
	j := open(t, journal.Config{Dir: t.TempDir()})
	a := reserve(t, j, "a")
	a.Begin()
	type end struct {
		text string
		err  error
	}
	ends := make(chan end)
	for range 4 {
		go func() {
			c := a.Follow(0)
			defer c.Close()
			buf := make([]byte, journal.ChunkSize)
			var b strings.Builder
			for {
				out, more, err := c.Next(buf)
				switch {
				case err != nil:
					ends <- end{b.String(), err}
					return
				case more != nil:
					<-more
				default:
					b.Write(out.Data)
				}
			}
		}()
	}
	var want strings.Builder
	for i := range 3000 {
		text := fmt.Sprintf("%d %s\n", i, strings.Repeat("y", i%200))
		want.WriteString(text)
		a.Output(journal.Terminal, []byte(text))
	}
	a.End(journal.Done, nil)
	for range 4 {
		if got := <-ends; got.text != want.String() || !errors.Is(got.err, io.EOF) {
			t.Errorf("got %d bytes and %v, want %d", len(got.text), got.err, want.Len())
		}
	}
	if got := printed(t, a, 2990); !strings.HasPrefix(got, "2990 ") {
		t.Errorf("got %.40q", got)
	}
}

// Whatever write the process died at, what came before is there, and nothing else.
func TestEveryPrefix(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir()}
	j := open(t, cfg)
	a := reserve(t, j, "a")
	a.Queue()
	a.Begin()
	a.Output(journal.Terminal, []byte("out"))
	b := reserve(t, j, "b")
	b.Begin()
	a.End(journal.Done, []byte("A"))
	b.End(journal.Done, []byte("B"))
	_ = j.Close()
	name := filepath.Join(cfg.Dir, "log-0000000000000001")
	whole := testhelp.ReadFile(t, name)
	// The known size rises with the records written.
	ranks := map[string][]string{
		"a": {"none", `refused "" ""`, `unknown "" ""`, `unknown "" "out"`, `done "A" "out"`},
		"b": {"none", `unknown "" ""`, `done "B" ""`},
	}
	last, seen := map[string]int{}, map[string]bool{}
	for size := range len(whole) + 1 {
		dir := t.TempDir()
		testhelp.WriteFile(t, filepath.Join(dir, filepath.Base(name)), whole[:size], 0o600)
		j, err := journal.Open(journal.Config{Dir: dir})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for id, states := range ranks {
			got := known(t, j, id)
			rank := slices.Index(states, got)
			if rank < last[id] {
				t.Fatalf("%d bytes: %s is %s", size, id, got)
			}
			last[id], seen[id+got] = rank, true
		}
		if p := j.Problem(); p != "" {
			t.Fatalf("%d bytes: %s", size, p)
		}
		reserve(t, j, "after").End(journal.Done, []byte("fine"))
		_ = j.Close()
		j = open(t, journal.Config{Dir: dir})
		if got := known(t, j, "after"); got != `done "fine" ""` {
			t.Fatalf("%d bytes: after it: %s", size, got)
		}
		_ = j.Close()
	}
	if len(seen) != 8 {
		t.Errorf("saw %v", seen)
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	make := func() (string, []string) {
		cfg := journal.Config{Dir: t.TempDir()}
		j := open(t, cfg)
		for i := range 9 {
			a := reserve(t, j, fmt.Sprint(i))
			a.Begin()
			a.End(journal.Done, bytes.Repeat([]byte("r"), 1<<20))
		}
		_ = j.Close()
		files, _ := filepath.Glob(filepath.Join(cfg.Dir, "log-*"))
		return cfg.Dir, files
	}
	t.Run("middle", func(t *testing.T) {
		t.Parallel()
		dir, files := make()
		f, _ := os.OpenFile(files[0], os.O_WRONLY, 0)
		_, _ = f.WriteAt(bytes.Repeat([]byte{0xff}, 300), 1<<20)
		_ = f.Close()
		j := open(t, journal.Config{Dir: dir})
		if p := j.Problem(); !strings.Contains(p, "damaged") {
			t.Errorf("problem %q", p)
		}
		if got := known(t, j, "8"); !strings.HasPrefix(got, "done ") {
			t.Errorf("got %.50s", got)
		}
	})
	t.Run("result", func(t *testing.T) { // of which the start reads the header alone
		t.Parallel()
		dir, files := make()
		f, _ := os.OpenFile(files[0], os.O_WRONLY, 0)
		_, _ = f.WriteAt([]byte{0xff}, 1<<19)
		_ = f.Close()
		j := open(t, journal.Config{Dir: dir})
		a, isNew, err := j.Reserve(intent("0"))
		if isNew || err != nil {
			t.Fatalf("it runs again: %v", err)
		}
		for range 2 {
			if result, err := a.Result(); result != nil || err != nil || a.Info().State != journal.Unknown || a.Info().Result != 0 {
				t.Errorf("got %.20q, %v, %+v", result, err, a.Info())
			}
		}
		if p := j.Problem(); !strings.Contains(p, "damaged: "+filepath.Base(files[0])+" cannot be read from byte ") {
			t.Errorf("problem %q", p)
		}
		if got := known(t, j, "1"); !strings.HasPrefix(got, "done ") {
			t.Errorf("got %.50s", got)
		}
		if n := j.Stats().States[journal.Unknown]; n != 1 {
			t.Errorf("%d actions are unknown", n)
		}
	})
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		dir, files := make()
		f, _ := os.OpenFile(files[1], os.O_WRONLY, 0)
		_, _ = f.WriteAt([]byte{2}, 8)
		_ = f.Close()
		if _, err := journal.Open(journal.Config{Dir: dir}); !errors.Is(err, journal.ErrNewer) {
			t.Errorf("got %v", err)
		}
	})
}

// Actions go on where nothing can be written.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	a := reserve(t, j, "a")
	a.Begin()
	a.Output(journal.Terminal, []byte("x"))
	a.End(journal.Done, []byte("r"))
	if info := a.Info(); info.State != journal.Done || !info.Lost || info.Output != 1 {
		t.Errorf("got %+v", info)
	}
	if p := j.Problem(); !strings.Contains(p, "not recorded") {
		t.Errorf("problem %q", p)
	}
}

// An action that a client got an answer for is there after the process was killed.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$")
		cmd.Env = append(os.Environ(), "JOURNAL_TEST_DIR="+dir)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var told []string
		for lines := bufio.NewScanner(stdout); len(told) < 20*round+7 && lines.Scan(); {
			told = append(told, lines.Text())
		}
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
		j := open(t, journal.Config{Dir: dir})
		for _, id := range told {
			if got, want := known(t, j, id), fmt.Sprintf("done %q %q", "result "+id, "output "+id); got != want {
				t.Fatalf("round %d: %s: got %s, want %s", round, id, got, want)
			}
		}
		if p := j.Problem(); p != "" || len(told) == 0 {
			t.Fatalf("round %d: %d told, problem %q", round, len(told), p)
		}
		_ = j.Close()
	}
}

// TestKilledChild is the process that TestKilled kills.
func TestKilledChild(t *testing.T) { //nolint:paralleltest // it is another process
	dir := os.Getenv("JOURNAL_TEST_DIR")
	if dir == "" {
		return
	}
	j := open(t, journal.Config{Dir: dir})
	for i := 0; ; i++ {
		id := fmt.Sprint(os.Getpid(), "-", i)
		a := reserve(t, j, id)
		if i%3 == 0 {
			a.Queue()
		}
		a.Begin()
		a.Output(journal.Terminal, []byte("output "+id))
		a.End(journal.Done, []byte("result "+id))
		if _, err := fmt.Fprintln(os.Stdout, id); err != nil {
			return
		}
	}
}

func TestSync(t *testing.T) {
	t.Parallel()
	j := open(t, journal.Config{Dir: t.TempDir(), Sync: true})
	a := reserve(t, j, "a")
	a.Begin()
	a.End(journal.Done, []byte("r"))
	if got := known(t, j, "a"); got != `done "r" ""` || j.Problem() != "" {
		t.Errorf("got %s, %s", got, j.Problem())
	}
}

// Without texts on the disk, a restart knows states alone.
func TestNoText(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir(), NoText: true}
	j := open(t, cfg)
	a := reserve(t, j, "a")
	a.Begin()
	a.Output(journal.Terminal, []byte("s3cret"))
	a.End(journal.Done, []byte("s3cret"))
	if got := known(t, j, "a"); got != `done "s3cret" "s3cret"` {
		t.Errorf("got %s", got)
	}
	_ = j.Close()
	files, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	for _, name := range files {
		if data, _ := os.ReadFile(name); bytes.Contains(data, []byte("s3cret")) || bytes.Contains(data, []byte("text of")) {
			t.Errorf("%s has text", name)
		}
	}
	j = open(t, cfg)
	if got := known(t, j, "a"); got != `done "" ""` {
		t.Errorf("got %s", got)
	}
}

// Texts in memory have the bound of a journal in memory.
func TestNoTextBound(t *testing.T) {
	t.Parallel()
	j := open(t, journal.Config{Dir: t.TempDir(), NoText: true})
	result := make([]byte, 8<<20)
	for i := range 6 {
		a := reserve(t, j, fmt.Sprint(i))
		a.Begin()
		a.End(journal.Done, result)
	}
	if got := j.Stats().Bytes; got > 32<<20 {
		t.Errorf("%d bytes are kept", got)
	}
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	j := open(f, journal.Config{Dir: dir})
	for _, id := range []string{"a", "b"} {
		a := reserve(f, j, id)
		a.Queue()
		a.Begin()
		a.Output(journal.Stdout, []byte("out"))
		a.Change(2, []byte("change"))
		a.End(journal.Done, []byte("result"))
		j.Note(3, []byte("another"))
	}
	reserve(f, j, "c").Begin()
	_ = j.Close()
	whole, _ := os.ReadFile(filepath.Join(dir, "log-0000000000000001"))
	f.Add(whole, []byte{})
	f.Add(whole[:100], whole)
	f.Add([]byte("actiondj\x01\x00\x00\x00\x00\x00\x00\x00"), []byte("actiondj\x02\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, log, out []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"log-0000000000000001": log, "out-0000000000000003-00000000": out, "forgotten": out} {
			testhelp.WriteFile(t, filepath.Join(dir, name), data, 0o600)
		}
		j, err := journal.Open(journal.Config{Dir: dir})
		if errors.Is(err, journal.ErrNewer) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range j.List(0, 100, func(journal.Info) bool { return true }) {
			known(t, j, info.ID)
		}
		j.Changes(0, 100)
		a, isNew, err := j.Reserve(intent("mine"))
		if isNew && err == nil {
			a.End(journal.Done, []byte("r"))
			if got := known(t, j, "mine"); got != `done "r" ""` {
				t.Errorf("got %s", got)
			}
		}
		_ = j.Close()
	})
}

// BenchmarkAction is what a command without output costs.
func BenchmarkAction(b *testing.B) {
	for name, cfg := range map[string]journal.Config{
		"disk": {Dir: filepath.Join(b.TempDir(), "j")}, "memory": {}, "sync": {Dir: filepath.Join(b.TempDir(), "s"), Sync: true},
	} {
		b.Run(name, func(b *testing.B) {
			j, err := journal.Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			result := make([]byte, 400)
			for i := 0; b.Loop(); i++ {
				a, _, err := j.Reserve(journal.Intent{ID: fmt.Sprint(name, i), Kind: "run", Text: "true"})
				if err != nil {
					b.Fatal(err)
				}
				a.Begin()
				a.End(journal.Done, result)
			}
		})
	}
}

// BenchmarkOpen opens a journal of 10,000 actions.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	j, err := journal.Open(journal.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		a, _, _ := j.Reserve(journal.Intent{ID: fmt.Sprint(i), Kind: "run", Text: "true"})
		a.Begin()
		a.End(journal.Done, make([]byte, 400))
	}
	_ = j.Close()
	for b.Loop() {
		j, err := journal.Open(journal.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		_ = j.Close()
	}
}

// The lengths of streams are the same after a restart, also where their output has files
// of its own.
func TestStreamLengths(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir()}
	j := open(t, cfg)
	a := reserve(t, j, "a")
	a.Begin()
	for range 100 {
		a.Output(journal.Stdout, make([]byte, 20_000))
		a.Output(journal.Stderr, make([]byte, 10_000))
	}
	a.End(journal.Done, nil)
	want := a.Info()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, cfg)
	b, _ := j.Lookup("a")
	if got := b.Info(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := len(printed(t, b, 0)); got != 3_000_000 {
		t.Errorf("got %d bytes", got)
	}
}

// A reader that falls behind in the middle of an output that is too long goes on behind
// what was removed.
func TestReaderOfWhatIsRemoved(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		j := open(t, journal.Config{Dir: dir, MaxOutput: 4 << 20})
		a := reserve(t, j, "a")
		a.Begin()
		piece := make([]byte, journal.ChunkSize)
		write := func(bytes int) {
			for range bytes / len(piece) {
				a.Output(journal.Stdout, piece)
			}
		}
		write(3 << 20)
		c := a.Follow(0)
		defer c.Close()
		buf := make([]byte, journal.ChunkSize)
		var end int64
		next := func() (more <-chan struct{}, err error) {
			out, more, err := c.Next(buf)
			if err == nil && more == nil {
				end = out.Offset + int64(len(out.Data))
			}
			return more, err
		}
		for end < 5<<19 { // into the file that is removed first
			if more, err := next(); more != nil || err != nil {
				t.Fatal(more, err)
			}
		}
		write(20 << 20)
		for {
			more, err := next()
			if err != nil {
				t.Fatalf("in %q at %d: %v", dir, end, err)
			}
			if more != nil {
				break
			}
		}
		if want := a.Info().Output; end != want {
			t.Errorf("in %q: read to %d, want %d", dir, end, want)
		}
	}
}

// The id of a forgotten action that cannot be written is written with the next one.
func TestForgottenIsWrittenLater(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: t.TempDir(), MaxActions: 1}
	j := open(t, cfg)
	for i := range 5 {
		if i == 2 {
			j.BreakForgotten()
		}
		reserve(t, j, fmt.Sprint(i)).End(journal.Done, make([]byte, 5<<20)) // a file each
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, cfg)
	for i := range 4 {
		if got := known(t, j, fmt.Sprint(i)); got != "forgotten" {
			t.Errorf("%d: got %s", i, got)
		}
	}
}

// An action whose caller was told that it did not run does not begin afterwards, and one
// that began is not said to be refused.
func TestBeginAndEndAtOnce(t *testing.T) {
	t.Parallel()
	j := open(t, journal.Config{})
	ended := reserve(t, j, "ended")
	ended.End(journal.Refused, nil)
	if err := ended.Begin(); !errors.Is(err, journal.ErrCancelled) {
		t.Errorf("it began after its end: %v", err)
	}
	began := reserve(t, j, "began")
	if err := began.Begin(); err != nil {
		t.Fatal(err)
	}
	began.End(journal.Refused, nil)
	for id, want := range map[string]string{"ended": `refused "" ""`, "began": `unknown "" ""`} {
		if got := known(t, j, id); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

// Behind damage in the middle of a file no id is free again, what ended is found
// where its record is whole, and text that looks like records is not taken for them.
func TestDamageFreesNoIdentity(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"payload", "header"} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			cfg := journal.Config{Dir: t.TempDir()}
			j := open(t, cfg)
			queued := reserve(t, j, "queued")
			queued.Queue()
			mark := strings.Repeat("M", 100)
			marked := intent("marked")
			marked.Text = mark
			first, _, err := j.Reserve(marked)
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Begin(); err != nil {
				t.Fatal(err)
			}
			forger := reserve(t, j, "forger")
			if err := forger.Begin(); err != nil {
				t.Fatal(err)
			}
			forger.Output(journal.Stdout, journal.DropRecord(forger.N()))
			after := reserve(t, j, "after")
			if err := after.Begin(); err != nil {
				t.Fatal(err)
			}
			after.End(journal.Done, []byte("result"))
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(cfg.Dir, "log-*"))
			data := testhelp.ReadFile(t, files[0])
			at := bytes.Index(data, []byte(mark)) // in the payload; its header is the one before
			if damage == "header" {
				at = bytes.Index(data, []byte("marked")) - 60
			}
			copy(data[at:], bytes.Repeat([]byte{0xff}, 8))
			if damage == "header" { // so that what the forger printed is searched for records
				copy(data[bytes.Index(data, journal.DropRecord(forger.N()))-20:], bytes.Repeat([]byte{0xff}, 8))
			}
			testhelp.WriteFile(t, files[0], data, 0o600)
			for range 2 { // and when it is opened again
				j = open(t, cfg)
				if p := j.Problem(); !strings.Contains(p, "damaged") {
					t.Errorf("problem %q", p)
				}
				done := `done "result" ""`
				if damage == "header" {
					done = `unknown "" ""`
				}
				for id, want := range map[string]string{"queued": `unknown "" ""`, "after": done} {
					if got := known(t, j, id); got != want {
						t.Errorf("%s: got %s, want %s", id, got, want)
					}
				}
				if _, isNew, err := j.Reserve(intent("forger")); isNew || err != nil {
					t.Errorf("an id behind the damage is free: %v", err)
				}
				if a := reserve(t, j, "next"); a.N() <= after.N() {
					t.Errorf("number %d was used twice", a.N())
				} else {
					a.Drop()
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
