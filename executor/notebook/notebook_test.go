package notebook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/internal/testhelp"
)

// patience is for what must come to its end, however slow the machine is.
const patience = 5 * time.Minute

// python is Debian's, for which there is a package of ipykernel.
const python = "/usr/bin/python3"

// start returns a notebook with a home of its own.
func start(t *testing.T, cfg notebook.Config) *notebook.Notebook {
	t.Helper()
	if exec.CommandContext(t.Context(), python, "-c", "import ipykernel").Run() != nil {
		t.Skip("ipykernel is not installed: apt-get install python3-ipykernel")
	}
	cfg.Programs = []string{python}
	cfg.Env = append(cfg.Env, "PATH=/usr/bin:/bin", "HOME="+t.TempDir())
	n := notebook.New(cfg)
	t.Cleanup(n.Close)
	return n
}

// run runs a cell that should come to its end.
func run(t *testing.T, n *notebook.Notebook, code string) notebook.Result {
	t.Helper()
	return runIn(t, n, "default", notebook.Cell{Code: code, Dir: "/", Timeout: patience})
}

func runIn(t *testing.T, n *notebook.Notebook, session string, c notebook.Cell) notebook.Result {
	t.Helper()
	r, err := n.Run(t.Context(), session, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, got notebook.Result, text string) {
	t.Helper()
	if got.Text != text || got.TimedOut || got.Ended != "" || got.Lost != "" {
		t.Errorf("got %+v, want the text %q", got, text)
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{Env: []string{"COLOUR=blue"}})
	for _, c := range []struct{ code, want string }{
		{"for i in range(1000): print(i)", counted(1000)},
		{"1 + 1", "2"},
		{"print('a')\n'b'", "a\n'b'"},
		{"x = 41", ""},
		{"x + 1", "42"},
		{"import sys; print('out'); print('err', file=sys.stderr)", "out\nerr\n"},
		{"import os; os.environ['COLOUR'], os.getcwd()", "('blue', '/')"},
		{"'' in sys.path", "True"},
		{"sys.stdin.read()", "''"},
		{"'\u00e9\U0001F600'", "'\u00e9\U0001F600'"},
		{"", ""},
	} {
		want(t, run(t, n, c.code), c.want)
	}
	for code, part := range map[string]string{
		"1/0":     "ZeroDivisionError: division by zero",
		"def (":   "SyntaxError",
		"input()": "StdinNotImplementedError",
	} {
		if r := run(t, n, code); !strings.Contains(r.Text, part) || strings.Contains(r.Text, "\x1b") || r.Ended != "" {
			t.Errorf("%s: got %+v, want %q in the text", code, r, part)
		}
		want(t, run(t, n, "x"), "41") // what comes after an error is not dropped
	}
	if r := run(t, n, "1"); r.Python != python {
		t.Errorf("got the interpreter %q, want %q", r.Python, python)
	}
}

// Output is complete when the cell is over, although the reply may overtake it.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	for i := range 100 {
		want(t, run(t, n, fmt.Sprintf("print(%d)", i)), fmt.Sprintf("%d\n", i))
	}
	want(t, run(t, n, "for i in range(5000): print(i, flush=True)"), counted(5000))
	want(t, run(t, n, "import os\nfor i in range(100): os.write(1, b'%d\\n' % i)"), counted(100))
}

// counted returns the numbers below n, a line for each.
func counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(dir, "o'd\\d \xff")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	cell := func(code, dir string) string {
		return runIn(t, n, "", notebook.Cell{Code: code, Dir: dir, Timeout: patience}).Text
	}
	const where = "import os; print(os.getcwdb().hex())"
	hexOf := func(s string) string { return fmt.Sprintf("%x\n", s) }
	for _, c := range []struct{ code, dir, want string }{
		{where, dir, hexOf(dir)},
		{"os.chdir('/')", dir, ""},
		{where, dir, hexOf("/")}, // until the shell moves
		{where, odd, hexOf(odd)},
		{where, filepath.Join(dir, "missing"), hexOf(odd)},
		{where, dir, hexOf(dir)},
	} {
		if got := cell(c.code, c.dir); got != c.want {
			t.Errorf("%s in %q: got %q, want %q", c.code, c.dir, got, c.want)
		}
	}
	again := filepath.Join(dir, "again")
	for range 2 { // the second of that name is another directory
		if err := os.Mkdir(again, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := cell(where, again); got != hexOf(again) {
			t.Errorf("got %q, want %q", got, hexOf(again))
		}
		if err := os.Remove(again); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	r := run(t, n, "from IPython.display import Image, display; import base64; Image(data=base64.b64decode('"+png+"'))")
	if len(r.Images) != 1 || strings.TrimSpace(r.Images[0]) != "data:image/png;base64,"+png || r.Text != "<IPython.core.display.Image object>" {
		t.Errorf("got %+v", r)
	}
	r = run(t, n, "display({'image/png': 'A' * 5_000_000, 'text/plain': 'big'}, raw=True); print('after')")
	if r.Images != nil || !strings.HasPrefix(r.Text, "big\n[An image ") || !strings.HasSuffix(r.Text, "after\n") {
		t.Errorf("got %d images, %q", len(r.Images), r.Text)
	}
	r = run(t, n, "for i in range(40): display({'image/png': 'AAAA'}, raw=True)")
	if len(r.Images) != 32 || strings.Count(r.Text, "[An image is left out: there are more than 32.]") != 8 {
		t.Errorf("got %d images, %q", len(r.Images), r.Text)
	}
}

func TestFlood(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	for _, code := range []string{
		"print('begin' + 'x' * 50_000_000 + 'end')",
		"for i in range(50): print('begin' if i == 0 else 'x' * 1_000_000, end='end' if i == 49 else '')",
	} {
		r := run(t, n, code)
		if !strings.HasPrefix(r.Text, "begin") || !strings.HasSuffix(strings.TrimSpace(r.Text), "end") ||
			len(r.Text) > 2*notebook.Half+100 || len(r.Text) < 2*notebook.Half {
			t.Errorf("%s: got %d bytes", code, len(r.Text))
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	n, r := cutShort(t, "time.sleep(300)")
	if r.Text != "a\n" || !r.TimedOut || r.Ended != "" {
		t.Errorf("got %+v, want what was printed and no end", r)
	}
	want(t, run(t, n, "print('free', x)"), "free 1\n")
	n, r = cutShort(t, "while True:\n  try:\n    while True: time.sleep(300)\n  except KeyboardInterrupt: pass")
	if r.Text != "a\n" || !r.TimedOut || r.Ended != "ignored the interrupt and was killed" {
		t.Errorf("got %+v, want what was printed and the end", r)
	}
	if r = run(t, n, "x"); !strings.Contains(r.Text, "NameError") || r.Lost != "" {
		t.Errorf("got %+v, want a new kernel", r)
	}
}

// cutShort runs a cell in a new kernel that has an x: it prints a, and then does
// what goes on until a limit passes. Where the machine is so busy that the limit
// passes over the beginning, another kernel has twice the time.
func cutShort(t *testing.T, code string) (*notebook.Notebook, notebook.Result) {
	t.Helper()
	for limit := 3 * time.Second; ; limit *= 2 {
		n := start(t, notebook.Config{})
		// An interrupt loads much the first time.
		run(t, n, "import collections, ctypes, itertools, os, signal, time\nx = 1\nraise KeyboardInterrupt")
		begun := filepath.Join(t.TempDir(), "begun")
		soon := time.Now().Add(limit / 2)
		r := runIn(t, n, "default", notebook.Cell{Code: "open('" + begun + "', 'w').close()\nprint('a', flush=True)\n" + code, Dir: "/", Timeout: limit})
		if info, err := os.Stat(begun); err == nil && info.ModTime().Before(soon) {
			return n, r
		}
		n.Close()
	}
}

func TestDeath(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	for code, ended := range map[string]string{
		"import os; print('a', flush=True); os.kill(os.getpid(), 9)": "was killed by signal 9 (killed)",
		"print('a', flush=True); import os; os._exit(3)":             "ended with status 3",
		"print('a', flush=True); exit()":                             "was ended by exit",
		// The child keeps what the kernel had open.
		"import os, time; print('a', flush=True); os.fork() and os.kill(os.getpid(), 9); time.sleep(300)": "was killed by signal 9 (killed)",
	} {
		r := runIn(t, n, "default", notebook.Cell{Code: code, Dir: "/", Timeout: -1})
		// Output in the moment of the death may still have been in the kernel.
		if r.Text != "a\n" && r.Text != "" || r.Ended != ended {
			t.Errorf("%s: got %+v, want the end %q", code, r, ended)
		}
		want(t, run(t, n, "1"), "1")
	}
	// Between cells, the next one is told.
	pid := number(t, run(t, n, "import os; os.getpid()").Text)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, "the kernel ends")
	if r := run(t, n, "2"); r.Text != "2" || r.Lost != "was killed by signal 9 (killed)" {
		t.Errorf("got %+v, want to be told of the old kernel", r)
	}
}

// A stopped kernel goes on, as a stopped shell does.
func TestStopped(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	pid := number(t, run(t, n, "import os; os.getpid()").Text)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want(t, run(t, n, "os.getpid()"), strconv.Itoa(pid))
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A process that a kernel started ends with it, in whichever session or group it is, and
// nothing is left of it in the file system.
func TestClose(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	r := run(t, n, "import subprocess, os\n"+
		"a = subprocess.Popen(['sleep', '300'])\n"+
		"b = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"+
		"c = subprocess.Popen(['sh', '-c', 'sleep 300 & sleep 300'], start_new_session=True)\n"+
		"import sys; print(os.getpid(), a.pid, b.pid, c.pid, os.path.dirname(sys.argv[1]))")
	fields := strings.Fields(r.Text)
	if len(fields) != 5 {
		t.Fatalf("got %q", r.Text)
	}
	info, err := os.Stat(fields[4])
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the directory of the sockets: got %v, %v", info, err)
	}
	// A cell that runs is answered.
	busy := make(chan notebook.Result, 1)
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		r, _ := n.Run(context.WithoutCancel(t.Context()), "busy", notebook.Cell{
			Code: "import time; open('" + began + "', 'w').close(); time.sleep(300)", Dir: "/", Timeout: -1,
		})
		busy <- r
	}()
	testhelp.Eventually(t, func() bool { return exists(began) }, "the cell begins")
	n.Close()
	if r := <-busy; r.Ended == "" {
		t.Errorf("got %+v, want the end of the kernel", r)
	}
	for _, pid := range fields[:4] {
		testhelp.Eventually(t, func() bool { return !alive(pid) }, "process %s ends", pid)
	}
	if exists(fields[4]) {
		t.Errorf("%s is left", fields[4])
	}
	if _, err := n.Run(t.Context(), "default", notebook.Cell{}); !errors.Is(err, notebook.ErrClosed) {
		t.Errorf("got %v, want %v", err, notebook.ErrClosed)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// alive reports whether a process runs; a zombie does not.
func alive(pid string) bool {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func TestSessions(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() {
			_, err := n.Run(t.Context(), name, notebook.Cell{Code: "x = '" + name + "'", Dir: "/", Timeout: patience})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b", "c"} {
		want(t, runIn(t, n, name, notebook.Cell{Code: "x", Dir: "/", Timeout: -1}), "'"+name+"'")
	}
	if !n.CloseSession("a") || n.CloseSession("a") {
		t.Error("the session a should end once")
	}
	if r := runIn(t, n, "a", notebook.Cell{Code: "x", Dir: "/", Timeout: -1}); !strings.Contains(r.Text, "NameError") {
		t.Errorf("got %+v, want a new kernel", r)
	}
}

// A caller that goes away leaves its cell running, and who comes after it waits.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	dir := t.TempDir()
	want(t, run(t, n, "import os, time"), "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := n.Run(ctx, "default", notebook.Cell{
			Code: "open('" + dir + "/began', 'w').close()\nwhile not os.path.exists('" + dir + "/go'): time.sleep(0.01)\nx = 7", Dir: "/", Timeout: -1,
		})
		done <- err
	}()
	testhelp.Eventually(t, func() bool { return exists(dir + "/began") }, "the cell begins")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := n.Run(t.Context(), "default", notebook.Cell{Code: "1", Dir: "/", Timeout: time.Millisecond}); !errors.Is(err, notebook.ErrBusy) {
		t.Errorf("got %v, want %v", err, notebook.ErrBusy)
	}
	testhelp.WriteFile(t, dir+"/go", "", 0o600)
	want(t, run(t, n, "x"), "7")
}

func TestIdle(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{IdleTime: time.Millisecond})
	pid := run(t, n, "import os; os.getpid()").Text
	testhelp.Eventually(t, func() bool { return !alive(pid) }, "kernel %s ends", pid)
	if r := run(t, n, "1"); r.Text != "1" || r.Lost != "was stopped after 1ms without a cell" {
		t.Errorf("got %+v, want to be told of the old kernel", r)
	}
}

func TestAbsent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := filepath.Join(dir, "python3")
	testhelp.WriteProgram(t, fake, "#!/bin/sh\necho absent ModuleNotFoundError: here is none >&3\n")
	n := notebook.New(notebook.Config{Programs: []string{filepath.Join(dir, "missing"), fake}})
	defer n.Close()
	for range 30 { // its words and its end come together
		_, err := n.Run(t.Context(), "", notebook.Cell{Code: "1", Timeout: -1})
		if !errors.Is(err, notebook.ErrAbsent) || !strings.Contains(err.Error(), "here is none") {
			t.Fatalf("got %v, want %v with its reason", err, notebook.ErrAbsent)
		}
	}
}

// A program in the kernel's place may say and send what it likes: the caller
// gets an error.
func TestHostileKernel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, script := range map[string]string{
		"dies":           "exit 3",
		"says too much":  "head -c 10000000 /dev/zero >&3; sleep 300",
		"nobody listens": "echo ready /bin/sh >&3; sleep 300",
		"complains":      "echo it is broken >&2; exit 1",
		"gives a reason": "echo broken OSError: it is broken >&3; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			testhelp.WriteProgram(t, fake, "#!/bin/sh\n"+script+"\n")
			n := notebook.New(notebook.Config{Programs: []string{fake}})
			defer n.Close()
			_, err := n.Run(t.Context(), "", notebook.Cell{Code: "1", Timeout: -1})
			if err == nil {
				t.Fatal("a cell ran")
			}
			if (name == "complains" || name == "gives a reason") && (!strings.Contains(err.Error(), "it is broken") || errors.Is(err, notebook.ErrAbsent)) {
				t.Errorf("got %v, want what it said", err)
			}
		})
	}
}

// TestGarbage has a kernel that shakes hands and then sends what is no message.
func TestGarbage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python)
	}
	fake := filepath.Join(t.TempDir(), "garbage")
	script := `#!` + python + `
import json, os, socket, sys, threading
c = json.load(open(sys.argv[3]))
greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
def serve(s):
    conn, _ = s.accept()
    conn.sendall(greeting + b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")
    try:
        while True: conn.sendall(b"\x02\xff\xff\xff\xff\xff\xff\xff\xff" + os.urandom(65536))
    except OSError: pass
listening = []
for name in ("shell", "iopub", "control", "hb"):
    s = socket.socket(socket.AF_UNIX)
    s.bind("%s-%d" % (c["ip"], c[name + "_port"]))
    s.listen()
    listening.append(threading.Thread(target=serve, args=(s,)))
for t in listening: t.start()
os.write(3, b"ready /garbage\n")
for t in listening: t.join()
`
	testhelp.WriteProgram(t, fake, script)
	n := notebook.New(notebook.Config{Programs: []string{fake}})
	defer n.Close()
	if r, err := n.Run(t.Context(), "", notebook.Cell{Code: "1", Timeout: -1}); err == nil {
		t.Errorf("got %+v, want an error", r)
	}
}

// Init may take as long as a start, and what it made is there for the first cell.
func TestInit(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{Init: "import time; time.sleep(31); y = 5"})
	if r := run(t, n, "y"); r.Text != "5" || r.InitFailed != "" {
		t.Errorf("got %+v", r)
	}
}

// A cell begins when its kernel is there and its turn has come, unless it must not.
func TestBegin(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	var calls []string
	cell := notebook.Cell{Code: "print('ran', flush=True)", Dir: "/", Timeout: patience}
	cell.Queue = func() { calls = append(calls, "queue") }
	cell.Begin = func() error {
		if len(n.Sessions()) != 1 {
			t.Error("it began without a kernel")
		}
		calls = append(calls, "begin")
		return nil
	}
	want(t, runIn(t, n, "default", cell), "ran\n")
	no := errors.New("no")
	cell.Begin = func() error { return no }
	if r, err := n.Run(t.Context(), "default", cell); !errors.Is(err, notebook.ErrNotBegun) || !errors.Is(err, no) || r.Text != "" {
		t.Errorf("got %+v, %v", r, err)
	}
	want(t, run(t, n, "print(1)"), "1\n")
	if got := strings.Join(calls, " "); got != "queue begin queue" {
		t.Errorf("got %s", got)
	}
	none := notebook.New(notebook.Config{Programs: []string{"/no/such/python"}})
	t.Cleanup(none.Close)
	cell.Begin = func() error {
		t.Error("it began without a kernel")
		return nil
	}
	if _, err := none.Run(t.Context(), "default", cell); !errors.Is(err, notebook.ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

// A kernel ends when its server is killed, also while it starts, and takes its files along.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	start(t, notebook.Config{}) // or skip
	const read, unread = -1, -2 // the line that says that it is ready
	for _, delay := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, read, unread} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "k")
			must(t, os.Mkdir(dir, 0o700))
			connection := `{"transport":"ipc","ip":"` + dir + `/k","key":"k","signature_scheme":"hmac-sha256","shell_port":1,"iopub_port":2,"stdin_port":3,"control_port":4,"hb_port":5}`
			must(t, os.WriteFile(filepath.Join(dir, "connection.json"), []byte(connection), 0o600))
			ours, theirs, err := notebook.SocketPair()
			must(t, err)
			defer ours.Close()
			cmd := exec.Command(python, "-c", notebook.Launcher, filepath.Join(dir, "connection.json"))
			cmd.ExtraFiles = []*os.File{theirs}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			must(t, cmd.Start())
			must(t, theirs.Close())
			if delay == unread {
				poll := []unix.PollFd{{Fd: int32(ours.Fd()), Events: unix.POLLIN}}
				n, err := unix.Poll(poll, int(patience.Milliseconds()))
				for errors.Is(err, unix.EINTR) { // by a signal of the Go runtime
					n, err = unix.Poll(poll, int(patience.Milliseconds()))
				}
				if n != 1 {
					t.Errorf("it does not say that it is ready: %v", err)
				}
			}
			if delay == read {
				if line, err := bufio.NewReader(ours).ReadString('\n'); !strings.HasPrefix(line, "ready ") {
					t.Errorf("got %q, %v", line, err)
				}
			}
			<-time.After(delay)
			must(t, ours.Close())
			ended := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			if err := cmd.Wait(); err == nil || !ended.Stop() {
				t.Errorf("it ended with %v", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its directory is there: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
