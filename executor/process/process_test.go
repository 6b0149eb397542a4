package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/process"
	"github.com/actiond/actiond/internal/testhelp"
)

// long is more than any of these programs takes.
const long = time.Minute

// startTime is more than a program takes to begin on a busy machine.
const startTime = 3 * time.Second

// engine starts an engine that ends with the test.
func engine(tb testing.TB) *process.Engine {
	tb.Helper()
	e := process.New(process.Config{Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "KEPT=yes"}})
	tb.Cleanup(e.Close)
	return e
}

// start starts a program.
func start(tb testing.TB, e *process.Engine, c process.Command) *process.Process {
	tb.Helper()
	if c.Dir == "" {
		c.Dir = "/"
	}
	p := e.Prepare(c)
	if err := p.Start(); err != nil {
		tb.Fatalf("%q: %v", c.Argv, err)
	}
	return p
}

// run runs a program to its end.
func run(tb testing.TB, e *process.Engine, c process.Command) process.Result {
	tb.Helper()
	r, err := start(tb, e, c).Wait(tb.Context(), long)
	if err != nil || r.Running {
		tb.Fatalf("%q: got %+v, %v", c.Argv, r, err)
	}
	return r
}

func sh(line string) []string { return []string{"/bin/sh", "-c", line} }

// all is what a text holds where nothing is missing.
func all(t *testing.T, text process.Text) string {
	t.Helper()
	got := string(text.Head) + string(text.Tail)
	if int64(len(got)) != text.Total {
		t.Errorf("of %d bytes %d were kept", text.Total, len(got))
	}
	return got
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testhelp.WriteProgram(t, filepath.Join(dir, "tool"), "#!/bin/sh\necho tool $0\n")
	for _, test := range []struct {
		name           string
		command        process.Command
		stdout, stderr string
		code           int
		signal         string
	}{
		{"both streams", process.Command{Argv: sh("echo out; echo err >&2; exit 3")}, "out\n", "err\n", 3, ""},
		{"on the PATH", process.Command{Argv: []string{"printf", "%s|", "a b", "*", ""}}, "a b|*||", "", 0, ""},
		{"below its directory", process.Command{Argv: []string{"./tool"}, Dir: dir}, "tool ./tool\n", "", 0, ""},
		{"on its own PATH", process.Command{Argv: []string{"tool"}, Env: map[string]string{"PATH": dir}}, "tool " + dir + "/tool\n", "", 0, ""},
		{"its directory", process.Command{Argv: []string{"pwd"}, Dir: dir}, dir + "\n", "", 0, ""},
		{"variables over others", process.Command{Argv: sh("echo $KEPT $NEW $HOME"), Env: map[string]string{"NEW": "a  b", "HOME": "/h"}}, "yes a b /h\n", "", 0, ""},
		{"variables instead", process.Command{Argv: []string{"/bin/sh", "-c", "echo $KEPT$NEW $HOME"}, Env: map[string]string{"NEW": "n"}, ClearEnv: true}, "n\n", "", 0, ""},
		{"empty input", process.Command{Argv: []string{"cat"}}, "", "", 0, ""},
		{"input", process.Command{Argv: []string{"cat"}, Input: []byte("a\x00b")}, "a\x00b", "", 0, ""},
		{"input that ends at once", process.Command{Argv: []string{"wc", "-c"}, Input: []byte{}}, "0\n", "", 0, ""},
		{"input that is not read", process.Command{Argv: []string{"true"}, Input: make([]byte, 1<<20)}, "", "", 0, ""},
		{"input that is read in part", process.Command{Argv: []string{"head", "-c", "3"}, Input: bytes.Repeat([]byte("abc"), 1<<20)}, "abc", "", 0, ""},
		{"a signal", process.Command{Argv: sh("kill -9 $$")}, "", "", -1, "SIGKILL"},
		{"a terminal", process.Command{Argv: sh("test -t 1 && test -t 2 && ! test -t 0 && stty size <&1; echo err >&2"), Terminal: &process.Size{Rows: 7, Cols: 33}}, "7 33\r\nerr\r\n", "", 0, ""},
		{"a terminal to read from", process.Command{Argv: sh("stty -echo; read a; cat; echo $a"), Terminal: &process.Size{Rows: 7, Cols: 33}, Input: []byte("one\ntwo")}, "", "", 0, ""},
		{"a terminal of its own", process.Command{Argv: sh("echo hello >/dev/tty"), Terminal: &process.Size{Rows: 1, Cols: 1}}, "hello\r\n", "", 0, ""},
		{"a filter that it started", process.Command{Argv: []string{"bash", "-c", "exec > >(sleep .05; tr a-z A-Z); echo late"}}, "LATE\n", "", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := engine(t)
			e.SetDrainTime(long) // a filter ends when it does
			r := run(t, e, test.command)
			if r.ExitCode != test.code || r.Signal != test.signal || r.EndedBy != "" {
				t.Errorf("got exit code %d, signal %q, ended by %q, want %d and %q", r.ExitCode, r.Signal, r.EndedBy, test.code, test.signal)
			}
			if test.name == "a terminal to read from" { // what of it is echoed depends on the moment
				if got := all(t, r.Stdout); !strings.HasSuffix(got, "twoone\r\n") {
					t.Errorf("got %q", got)
				}
				return
			}
			if got := all(t, r.Stdout); got != test.stdout {
				t.Errorf("standard output: got %q, want %q", got, test.stdout)
			}
			if got := all(t, r.Stderr); got != test.stderr {
				t.Errorf("standard error: got %q, want %q", got, test.stderr)
			}
			if got := all(t, r.Both); len(got) != len(test.stdout+test.stderr) {
				t.Errorf("both: got %q", got)
			}
		})
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "empty": 0o700} {
		testhelp.WriteFile(t, filepath.Join(dir, name), "", mode)
	}
	testhelp.WriteProgram(t, filepath.Join(dir, "lost"), "#!/no/such/interpreter\n")
	huge := strings.Repeat("x", 1<<20)
	e := engine(t)
	for _, test := range []struct {
		name   string
		argv   []string
		dir    string
		code   int
		reason string
	}{
		{"no program", []string{"no-such-program"}, dir, 127, "no-such-program: not found"},
		{"no name", []string{""}, dir, 127, ": not found"},
		{"no file", []string{"./none"}, dir, 127, "./none: no such file or directory"},
		{"no interpreter", []string{"./lost"}, dir, 127, "./lost: no such file or directory"},
		{"no rights", []string{"./plain"}, dir, 126, "./plain: permission denied"},
		{"no program in it", []string{"./empty"}, dir, 126, "./empty: exec format error"},
		{"a directory", []string{"/"}, dir, 126, "/: permission denied"},
		{"below a file", []string{"./empty/x"}, dir, 126, "./empty/x: not a directory"},
		{"no directory", []string{"true"}, dir + "/none", 126, "true: cannot begin in " + dir + "/none: no such file or directory"},
		{"a file for a directory", []string{"true"}, dir + "/empty", 126, "true: cannot begin in " + dir + "/empty: not a directory"},
		{"too much", []string{"true", huge, huge, huge, huge}, dir, 126, "true: argument list too long: a word may have 131071 bytes; give more as standard input"},
		{"too long a word", []string{"true", huge[:1<<17]}, dir, 126, "true: argument list too long: a word may have 131071 bytes; give more as standard input"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := e.Prepare(process.Command{Argv: test.argv, Dir: test.dir, Input: []byte("x")}).Start()
			failed, ok := errors.AsType[*process.StartError](err)
			if !ok || failed.Code != test.code || failed.Reason != test.reason {
				t.Errorf("got %#v, want %d and %q", err, test.code, test.reason)
			}
		})
	}
}

// Output is delivered: each byte once, in order, the beginning first; also to a
// listener that is slower than the program.
func TestOutput(t *testing.T) {
	t.Parallel()
	var begun int
	var got [2][]byte
	var calls sync.Mutex
	p := start(t, engine(t), process.Command{
		Argv: sh("seq 1 200000; echo err >&2"),
		Output: func(c process.Chunk) {
			if !calls.TryLock() {
				t.Error("two calls at a time")
			}
			defer calls.Unlock()
			if begun == 0 {
				if begun = c.PID; len(c.Data) > 0 {
					t.Errorf("the first chunk holds %q", c.Data)
				}
				return
			}
			if c.PID != 0 || len(c.Data) == 0 || c.Offset != int64(len(got[c.Stream])) {
				t.Errorf("got %d bytes at %d behind %d", len(c.Data), c.Offset, len(got[c.Stream]))
			}
			if len(got[c.Stream]) == 0 {
				time.Sleep(50 * time.Millisecond)
			}
			got[c.Stream] = append(got[c.Stream], c.Data...)
		},
	})
	r, err := p.Wait(t.Context(), long)
	want, failed := exec.Command("seq", "1", "200000").Output()
	if err != nil || failed != nil || begun != p.PID() || !bytes.Equal(got[process.Stdout], want) || string(got[process.Stderr]) != "err\n" {
		t.Errorf("got %d, %d and %d bytes, %v, %v, want %d", begun, len(got[process.Stdout]), len(got[process.Stderr]), err, failed, len(want))
	}
	if r.Stdout.Total != int64(len(want)) || !bytes.HasPrefix(want, r.Stdout.Head) || !bytes.HasSuffix(want, r.Stdout.Tail) || len(r.Stdout.Tail) == 0 || len(r.Stdout.Tail) == len(want) {
		t.Errorf("kept are %d and %d bytes of %d", len(r.Stdout.Head), len(r.Stdout.Tail), r.Stdout.Total)
	}
	if r.CPU <= 0 {
		t.Errorf("it took %v", r.CPU)
	}
}

// The limit of a wait leaves the program alone, and so does who leaves.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	e := engine(t)
	file := filepath.Join(t.TempDir(), "go")
	line := "echo one; until test -e " + file + "; do sleep .01; done; seq 1 100000; exit 5"
	p := start(t, e, process.Command{Argv: sh(line)})
	left := start(t, e, process.Command{Argv: sh(line), Output: func(c process.Chunk) {
		if len(c.Data) > 0 && string(c.Data) != "one\n" {
			t.Error("output was delivered after who wanted it left")
		}
	}})
	for text := ""; text != "one\n"; {
		r, err := p.Wait(t.Context(), 10*time.Millisecond)
		if err != nil || !r.Running || r.ExitCode != -1 || r.PID != p.PID() {
			t.Fatalf("got %+v, %v", r, err)
		}
		text = all(t, r.Stdout)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if _, err := left.Wait(ctx, -1); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	left.Leave()
	testhelp.WriteFile(t, file, "", 0o600)
	for p, total := range map[*process.Process]int64{p: 588899, left: 0} {
		if r, err := p.Wait(t.Context(), long); err != nil || r.ExitCode != 5 || r.Stdout.Total != total {
			t.Errorf("got exit code %d and %d bytes, %v", r.ExitCode, r.Stdout.Total, err)
		}
	}
}

func TestMaxRSS(t *testing.T) {
	t.Parallel()
	r := run(t, engine(t), process.Command{Argv: sh("head -c 300M /dev/zero | tail -c 300M | tail -c 1")})
	if r.MaxRSS < 200<<20 {
		t.Errorf("got %d bytes", r.MaxRSS)
	}
}

// alive reports whether a process is there and not dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// gone waits until a process no longer exists.
func gone(t *testing.T, pid int) {
	t.Helper()
	testhelp.Eventually(t, func() bool { return !alive(pid) }, "process %d ends", pid)
}

// pids reads numbers that a program printed.
func pids(t *testing.T, text string) (numbers []int) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		numbers = append(numbers, pid)
	}
	return numbers
}

// Hostile programs and their results.
func TestAttacks(t *testing.T) {
	t.Parallel()
	const daemon = `setsid sh -c 'sleep 1000 & echo $!'` // of another session, without parents, with our pipes
	for _, test := range []struct {
		name  string
		c     process.Command
		check func(t *testing.T, e *process.Engine, p *process.Process, r process.Result)
	}{
		{"output without end", process.Command{Argv: []string{"yes", "x"}, KillAfter: 3 * time.Second}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if kept := len(r.Stdout.Head) + len(r.Stdout.Tail); r.Stdout.Total < 1<<20 || kept != 256<<10 || r.EndedBy != process.ByKillAfter || r.Signal != "SIGTERM" {
				t.Errorf("kept are %d of %d bytes, ended by %s and %q", kept, r.Stdout.Total, r.Signal, r.EndedBy)
			}
		}},
		{"a daemon holds the streams", process.Command{Argv: sh(daemon)}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if pid := pids(t, all(t, r.Stdout))[0]; !alive(pid) || r.ExitCode != 0 {
				t.Error("the daemon did not outlive the program that was not ended")
			}
		}},
		{"a daemon writes for ever", process.Command{Argv: sh(`setsid sh -c 'sleep 1000 & echo $!; yes >&2 & echo $!'; echo end`)}, func(t *testing.T, e *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			text, ok := strings.CutSuffix(all(t, r.Stdout), "end\n")
			if !ok {
				t.Fatalf("got %q", text)
			}
			writer := pids(t, text)[1]
			if !alive(writer) {
				t.Error("it ended with the program")
			}
			e.Close()
			gone(t, writer)
		}},
		{"a daemon holds the input", process.Command{Argv: sh(`setsid sh -c 'sleep 1000 <&0 >/dev/null 2>&1 & echo $!'`), Input: make([]byte, 1<<20)}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			pids(t, all(t, r.Stdout))
		}},
		{"kill_after and daemons", process.Command{Argv: sh(daemon + "; sleep 1000 & echo $!; wait"), KillAfter: 200 * time.Millisecond}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if r.EndedBy != process.ByKillAfter {
				t.Errorf("ended by %q", r.EndedBy)
			}
			for _, pid := range pids(t, all(t, r.Stdout)) {
				gone(t, pid)
			}
		}},
		{"kill_after and what was left behind", process.Command{Argv: sh(daemon), KillAfter: startTime}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if r.EndedBy != "" {
				t.Errorf("ended by %q", r.EndedBy)
			}
			gone(t, pids(t, all(t, r.Stdout))[0])
		}},
		{"kill_after and deaf ears", process.Command{Argv: sh("trap '' TERM HUP INT; sleep 1000 & echo $!; while :; do wait; done"), KillAfter: startTime}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			gone(t, pids(t, all(t, r.Stdout))[0])
			if r.Signal != "SIGKILL" {
				t.Errorf("ended by %q", r.Signal)
			}
		}},
		{"kill_after and time to clean up", process.Command{Argv: sh("trap 'sleep .1; echo clean; exit 4' TERM; sleep 1000 & wait"), KillAfter: startTime}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if got := all(t, r.Stdout); got != "clean\n" || r.ExitCode != 4 {
				t.Errorf("got %q and exit code %d", got, r.ExitCode)
			}
		}},
		{"kill_after and a stopped program", process.Command{Argv: sh("kill -STOP $$"), KillAfter: 200 * time.Millisecond}, func(*testing.T, *process.Engine, *process.Process, process.Result) {}},
		{"no descriptor of the server's", process.Command{Argv: sh("ls /proc/$$/fd"), Input: []byte("x")}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			plain := exec.Command("/bin/sh", "-c", "ls /proc/$$/fd") // which has what this test was started with
			plain.Stdin = strings.NewReader("x")
			want, err := plain.Output()
			got := all(t, r.Stdout)
			if err != nil || !strings.HasPrefix(got, "0\n1\n") {
				t.Errorf("got descriptors %q, %v", got, err)
			}
			for line := range strings.Lines(got) {
				if !strings.Contains("\n"+string(want), "\n"+line) {
					t.Errorf("got descriptor %q, want those of %q", line, want)
				}
			}
		}},
		{"nothing of the server's environment", process.Command{Argv: []string{"env"}, ClearEnv: true}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if got := all(t, r.Stdout); !strings.HasPrefix(got, "ACTIOND_TREE=") || strings.Count(got, "\n") != 1 {
				t.Errorf("got %q", got)
			}
		}},
		{"no terminal of the server's", process.Command{Argv: sh("echo x >/dev/tty")}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if r.ExitCode == 0 {
				t.Error("it has one")
			}
		}},
		{"a variable for the server's copy", process.Command{Argv: []string{"true"}, Env: map[string]string{"GODEBUG": "inittrace=1", "LD_PRELOAD": "/no/such.so"}}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if strings.Contains(all(t, r.Stderr), "init ") {
				t.Errorf("the copy said %q", all(t, r.Stderr))
			}
		}},
		{"signals to its parent's group", process.Command{Argv: sh("kill -TERM 0")}, func(t *testing.T, _ *process.Engine, _ *process.Process, r process.Result) {
			t.Helper()
			if r.Signal != "SIGTERM" {
				t.Errorf("got %+v", r)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := engine(t)
			p := start(t, e, process.Command{
				Argv: test.c.Argv, Dir: "/", Env: test.c.Env, ClearEnv: test.c.ClearEnv, Input: test.c.Input, KillAfter: test.c.KillAfter,
			})
			r, err := p.Wait(t.Context(), long)
			if err != nil || r.Running {
				t.Fatalf("got %+v, %v", r, err)
			}
			test.check(t, e, p, r)
		})
	}
}

// A cancelled program ends with all that it started, whatever it does against that.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, line string
		code       int
		signal     string
		left       bool // what it printed the numbers of lives on
		by         string
	}{
		{"a line", "sleep 1000 & echo $!; echo >&2; wait", -1, "SIGINT", false, process.ByCancel},
		{"time to clean up", "trap 'exit 4' INT; sleep 1000 & echo $!; echo >&2; wait", 4, "", false, process.ByCancel},
		{"no ear for SIGINT", "trap '' INT; sleep 1000 & echo $!; echo >&2; wait", -1, "SIGTERM", false, process.ByCancel},
		{"no ears", "trap '' INT TERM HUP; sleep 1000 & echo $!; echo >&2; while :; do wait; done", -1, "SIGKILL", false, process.ByCancel},
		{"a daemon", "setsid sh -c 'trap \"\" INT; sleep 1000 & echo $!'; sleep 1000 & echo >&2; wait", -1, "SIGINT", false, process.ByCancel},
		{"its own end", "setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'", 0, "", true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ready := make(chan struct{})
			p := start(t, engine(t), process.Command{Argv: sh(test.line), Dir: "/", Output: func(c process.Chunk) {
				if c.Stream == process.Stderr {
					close(ready)
				}
			}})
			if test.left {
				if _, err := p.Wait(t.Context(), long); err != nil {
					t.Fatal(err)
				}
			} else {
				<-ready
			}
			var twice sync.WaitGroup
			twice.Go(p.Cancel)
			twice.Go(p.Cancel)
			twice.Wait()
			r, err := p.Wait(t.Context(), long)
			if err != nil || r.ExitCode != test.code || r.Signal != test.signal || r.EndedBy != test.by {
				t.Errorf("got %+v, %v", r, err)
			}
			pid := pids(t, all(t, r.Stdout))[0]
			if !test.left {
				gone(t, pid)
			} else if !alive(pid) {
				t.Error("what it had left behind is gone")
			}
		})
	}
	p := engine(t).Prepare(process.Command{Argv: []string{"/no/such"}, Dir: "/"})
	if err := p.Start(); err == nil {
		t.Error("it was started")
	}
	p.Cancel()
}

// A stream of input is taken once, in order, whatever is sent twice, and ends once.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, tty := range []*process.Size{nil, {Rows: 24, Cols: 80}} {
		t.Run(fmt.Sprint("terminal: ", tty != nil), func(t *testing.T) {
			t.Parallel()
			line := "cat"
			if tty != nil {
				line = "stty -echo; cat"
			}
			p := start(t, engine(t), process.Command{Argv: sh(line), Stream: true, Terminal: tty})
			for _, step := range []struct {
				offset int64
				data   string
				end    bool
				next   int64
				err    error
			}{
				{0, "", false, 0, nil},
				{0, "one\n", false, 4, nil},
				{0, "one\n", false, 4, nil},
				{0, "one\ntwo", false, 7, nil},
				{8, "x", false, 7, &process.GapError{Offset: 7}},
				{7, "\n", false, 8, nil},
				{4, "two\n", true, 8, nil},
				{4, "two\n", true, 8, nil},
				{8, "", true, 8, nil},
				{8, "x", false, 8, process.ErrInputEnded},
				{9, "x", false, 8, &process.GapError{Offset: 8}},
			} {
				next, err := p.Write(t.Context(), step.offset, []byte(step.data), step.end)
				if next != step.next || fmt.Sprint(err) != fmt.Sprint(step.err) {
					t.Errorf("%q at %d: got %d, %v, want %d, %v", step.data, step.offset, next, err, step.next, step.err)
				}
			}
			r, err := p.Wait(t.Context(), long)
			if got := strings.ReplaceAll(all(t, r.Stdout), "\r", ""); err != nil || tty == nil && got != "one\ntwo\n" || !strings.Contains(got, "two\n") || r.ExitCode != 0 {
				t.Errorf("got %q, exit code %d, %v", got, r.ExitCode, err)
			}
		})
	}
}

// Input that is not read holds up its writer and nothing else, and says how far it came.
func TestWriteUnread(t *testing.T) {
	t.Parallel()
	e := engine(t)
	p := start(t, e, process.Command{Argv: sh("head -c 1; exec sleep 1000"), Stream: true})
	data := make([]byte, 1<<20)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	first := make(chan int64, 1)
	go func() {
		next, err := p.Write(ctx, 0, data, false)
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		first <- next
	}()
	for r := (process.Result{}); r.Stdout.Total == 0; {
		r, _ = p.Wait(t.Context(), time.Millisecond)
	}
	cancel(why)
	next := <-first
	if next <= 0 || next >= int64(len(data)) {
		t.Errorf("got %d of %d bytes", next, len(data))
	}
	if again, err := p.Write(ctx, next, data, false); again != next || !errors.Is(err, why) {
		t.Errorf("again: got %d, %v", again, err)
	}
	p.Cancel()
	if _, err := p.Write(t.Context(), next, data, false); !errors.Is(err, process.ErrUnread) {
		t.Errorf("after the end: got %v", err)
	}
	closed := start(t, e, process.Command{Argv: sh("exec <&-; echo; exec sleep 1000"), Stream: true})
	for r := (process.Result{}); r.Stdout.Total == 0; {
		r, _ = closed.Wait(t.Context(), time.Millisecond)
	}
	if _, err := closed.Write(t.Context(), 0, data, false); !errors.Is(err, process.ErrUnread) {
		t.Errorf("a closed input: got %v", err)
	}
	none := start(t, e, process.Command{Argv: []string{"sleep", "1000"}})
	if _, err := none.Write(t.Context(), 0, data, false); !errors.Is(err, process.ErrNoInput) {
		t.Errorf("no stream: got %v", err)
	}
	left := start(t, e, process.Command{Argv: []string{"cat"}, Stream: true})
	left.Leave()
	if r, err := left.Wait(t.Context(), long); err != nil || r.ExitCode != 0 {
		t.Errorf("left: got %+v, %v", r, err)
	}
}

func TestSignalAndResize(t *testing.T) {
	t.Parallel()
	e := engine(t)
	p := start(t, e, process.Command{
		Argv:   sh("trap 'stty size; exit 3' WINCH; trap 'echo usr1' USR1; echo; while :; do sleep .01; done"),
		Stream: true, Terminal: &process.Size{Rows: 10, Cols: 20},
	})
	until(t, p, "\n")
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	until(t, p, "usr1")
	if err := p.Resize(process.Size{Rows: 33, Cols: 44}); err != nil {
		t.Error(err)
	}
	if r, err := p.Wait(t.Context(), long); err != nil || r.ExitCode != 3 || !strings.Contains(all(t, r.Stdout), "33 44") {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, process.ErrEnded) {
		t.Errorf("got %v", err)
	}
	if err := p.Resize(process.Size{Rows: 1, Cols: 1}); !errors.Is(err, process.ErrEnded) {
		t.Errorf("got %v", err)
	}
	if err := start(t, e, process.Command{Argv: []string{"sleep", "1000"}}).Resize(process.Size{Rows: 1, Cols: 1}); !errors.Is(err, process.ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
}

// until waits until a program has written something.
func until(t *testing.T, p *process.Process, what string) {
	t.Helper()
	for text := ""; !strings.Contains(text, what); {
		r, err := p.Wait(t.Context(), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		text = string(r.Stdout.Head)
	}
}

// The end of a terminal's input that the terminal did not take is typed by the next call.
func TestWriteEndAgain(t *testing.T) {
	t.Parallel()
	p := start(t, engine(t), process.Command{
		Argv: sh(`trap go=1 USR1; stty raw -echo; echo ready; while [ -z "$go" ]; do sleep .01; done
			while [ -z "$(dd bs=4096 count=1 2>/dev/null | tr -d x)" ]; do :; done`),
		Stream: true, Terminal: &process.Size{Rows: 10, Cols: 20},
	})
	until(t, p, "ready")
	full := errors.New("full")
	write := func(offset int64, data []byte, end bool) (int64, error) {
		ctx, stop := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, full)
		defer stop()
		return p.Write(ctx, offset, data, end)
	}
	data := bytes.Repeat([]byte("x"), 1<<20)
	next := int64(0)
	for before := int64(-1); next > before; { // until it takes nothing
		before = next
		var err error
		if next, err = write(next, data, false); !errors.Is(err, full) {
			t.Fatalf("got %d, %v", next, err)
		}
	}
	if again, err := write(next, nil, true); again != next || !errors.Is(err, full) {
		t.Fatalf("the end: got %d, %v, want %d", again, err, next)
	}
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if again, err := p.Write(t.Context(), next, nil, true); again != next || err != nil {
		t.Errorf("again: got %d, %v, want %d", again, err, next)
	}
	if r, err := p.Wait(t.Context(), long); err != nil || r.ExitCode != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A listener that takes nothing does not keep a program alive.
func TestKillAfterWithoutAListener(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release() // also for the engine's Close
	p := start(t, engine(t), process.Command{Argv: sh("echo; exec sleep 1000"), KillAfter: 500 * time.Millisecond, Output: func(c process.Chunk) {
		if c.PID == 0 {
			<-free
		}
	}})
	gone(t, p.PID())
	release()
	if r, err := p.Wait(t.Context(), long); err != nil || r.EndedBy != process.ByKillAfter {
		t.Errorf("got %+v, %v", r, err)
	}
}

// Programs and what they started end with the engine.
func TestClose(t *testing.T) {
	t.Parallel()
	e := engine(t)
	p := start(t, e, process.Command{Argv: sh("setsid sleep 1000 & echo $!; trap '' TERM; sleep 1000 & wait; wait; sleep 1000")})
	var text string
	for !strings.HasSuffix(text, "\n") {
		r, err := p.Wait(t.Context(), 5*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		text = all(t, r.Stdout)
	}
	e.Close()
	r, err := p.Wait(t.Context(), 0)
	if err != nil || r.Running || r.EndedBy != process.ByServer {
		t.Errorf("got %+v, %v", r, err)
	}
	gone(t, pids(t, text)[0])
	if err := e.Prepare(process.Command{Argv: sh("true"), Dir: "/"}).Start(); !errors.Is(err, process.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	e := process.New(process.Config{Max: 2})
	defer e.Close()
	sleep := process.Command{Argv: []string{"sleep", "1000"}, Dir: "/"}
	run(t, e, process.Command{Argv: []string{"true"}})
	testhelp.Eventually(t, func() bool { return e.Live() == 0 }, "the program is forgotten") // a moment after the answer
	start(t, e, sleep)
	run(t, e, process.Command{Argv: sh("sleep 1000 &")}) // which keeps its streams
	if err := e.Prepare(sleep).Start(); !errors.Is(err, process.ErrMany) {
		t.Errorf("got %v", err)
	}
}

// Whatever is written is kept in the same way, in whatever pieces it comes.
func TestKeptIsExact(t *testing.T) {
	t.Parallel()
	e := engine(t)
	for _, size := range []int{0, 1, 128<<10 - 1, 128 << 10, 128<<10 + 1, 256 << 10, 256<<10 + 1, 1 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i % 251)
		}
		r := run(t, e, process.Command{Argv: []string{"cat"}, Input: data})
		head := min(size, 128<<10)
		want := slices.Concat(data[:head], data[max(head, size-128<<10):])
		if got := slices.Concat(r.Stdout.Head, r.Stdout.Tail); !bytes.Equal(got, want) || r.Stdout.Total != int64(size) {
			t.Errorf("of %d bytes %d are counted, and %d are kept where %d should be", size, r.Stdout.Total, len(got), len(want))
		}
	}
}

// A program that closes its terminal before its end, as cat does, is not hung up on.
func TestClosedTerminal(t *testing.T) {
	t.Parallel()
	r := run(t, engine(t), process.Command{
		Argv: sh("exec <&- >&- 2>&-; sleep .3; echo again >/dev/tty; exit 5"), Terminal: &process.Size{Rows: 24, Cols: 80},
	})
	if r.ExitCode != 5 || all(t, r.Stdout) != "again\r\n" {
		t.Errorf("got exit code %d, signal %q, %q", r.ExitCode, r.Signal, all(t, r.Stdout))
	}
}

// The time of the last output comes from a monotonic clock.
func TestLastOutputIsMonotonic(t *testing.T) {
	t.Parallel()
	p := start(t, engine(t), process.Command{Argv: sh("sleep 60")})
	at, running := p.Place()
	if !running || !strings.Contains(at.LastOutput.String(), " m=") {
		t.Errorf("got %v, running %v: want a time with a reading of the monotonic clock", at.LastOutput, running)
	}
}
