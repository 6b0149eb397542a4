package notebook_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestOddCells runs what agents and libraries do in cells, all in one kernel
// that must outlive it. Some begin with "...": they must have that in their text.
func TestOddCells(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	want(t, run(t, n, "import os, signal, subprocess, sys, threading, time\nfrom IPython.display import *\nown = os.getpid()"), "")
	for _, c := range []struct{ name, code, want string }{
		{"shell", "!echo one; echo two >&2", "one\r\ntwo\r\n"}, // a terminal's line ends, as ipykernel gives them
		{"shell into a list", "x = !printf 'a\\nb'\nx", "['a', 'b']"},
		{"cell magic", "%%bash\necho one; echo two >&2", "one\ntwo\n"},
		{"cell magic that fails", "%%bash\nexit 3", "...returned non-zero exit status 3."},
		{"unknown magic", "%nothing", "UsageError: Line magic function `%nothing` not found.\n"},
		{"magic", "%pwd", "'/'"},

		// Output of a process to the kernel's own descriptors is this cell's, at its place.
		{"process", "print('a'); os.system('echo b; echo c >&2'); print('d')", "a\nb\nd\nc\n"},
		{"process as the last", "os.system('echo b') + 1", "b\n1"},
		{"no UTF-8", `print(os.write(1, b'\xff\xfe'))`, "\ufffd\ufffd2\n"},
		{"half a character", `_ = os.write(1, b'\xc3'); time.sleep(0.1); _ = os.write(1, b'\xa9')`, "é"},
		{"characters over any boundary", "_ = os.system(\"printf 'x%s' $(seq -s é 3000)\")", "x" + joined(3000, "é")},
		{"and still read", "os.system('head -c 300000 /dev/zero | tr \"\\\\0\" a'); os.system('echo; echo end')", "...a\nend\n"},
		{"surrogate", `print('\udc80')`, "\ufffd\n"},

		{"syntax", "def (", "...SyntaxError: invalid syntax"},
		{"big", "x = '" + strings.Repeat("a", 5_000_000) + "'\nlen(x)", "5000000"},
		{"many lines", strings.Repeat("x = 1\n", 20_000) + "x", "1"},
		{"exit by exception", "sys.exit(3)", "...SystemExit: 3"},
		{"interrupt of its own", "raise KeyboardInterrupt", "...KeyboardInterrupt: "},
		{"getpass", "import getpass; getpass.getpass()", "...StdinNotImplementedError: getpass was called"},
		{"no skills", "import openhands", "...ModuleNotFoundError: No module named 'openhands'"},
		{"pip without a network", "%pip install --break-system-packages --retries 0 --index-url http://127.0.0.1:9/ nothing-of-that-name", "...No matching distribution found"},

		{"markup", "HTML('<b>x</b>')", "<IPython.core.display.HTML object>"},
		{"markup alone", "display({'text/html': '<b>x</b>'}, raw=True)", "<b>x</b>"},
		{"drawing", "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "<IPython.core.display.SVG object>"},
		{"photograph", "display({'image/jpeg': '/9j/AAAA', 'text/plain': 'a'}, raw=True)", "a"},
		{"photograph alone", "display({'image/jpeg': '/9j/AAAA'}, raw=True)", "[A JPEG image is left out: only PNG is shown.]"},
		{"update", "h = display('one', display_id=True); h.update('two')", "'one'"},
		{"clear", "print('a'); clear_output(); print('b'); clear_output(wait=True); print('c')", "a\nb\nc\n"},
		{"comm", "from ipykernel.comm import Comm; c = Comm(target_name='x'); c.send({'a': 1}, buffers=[b'x' * 100000]); print('a')", "a\n"},
		{"colours", "print('\\x1b[31ma\\x1b[0;1mb\\x1b[m')", "ab\x1b[m\n"},
		{"coloured", "%colors linux\n1/0", "...ZeroDivisionError: division by zero"},
		{"no colours", "%colors nocolor", ""},

		{"await", "import asyncio; await asyncio.sleep(0.01); 'a'", "'a'"},
		{"fork", "if os.fork() == 0:\n  os._exit(7)\nos.wait()[1] >> 8", "7"},
		{"child that runs on", "child = os.fork()\nprint(end='a' if child else '')", "a"},
		{"ends after the cell", "os.waitpid(child, 0)[1]", "0"},
		{"pool", "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as p: x = p.map(abs, [-1, 2])\nx", "[1, 2]"},
		{"process that stays", "late = subprocess.Popen('read x; echo late', shell=True, stdin=subprocess.PIPE); print('a')", "a\n"},
		{"shows in a later cell", "late.communicate(b'\\n'); print('b')", "late\nb\n"},
		{"thread that stays", "go = threading.Event(); t = threading.Thread(target=lambda: (go.wait(), print('late'))); t.start(); print('a')", "a\n"},
		{"shows in a later cell too", "go.set(); t.join(); print('b')", "late\nb\n"},

		{"reset", "%reset -f", ""},
		{"has nothing", "own", "...NameError"},
		{"imports again", "import os, sys", ""},
		{"descriptors elsewhere", "f = os.open('/dev/null', os.O_WRONLY); os.dup2(f, 1); os.dup2(f, 2); os.system('echo gone'); print('a')", "a\n"},
		{"descriptors closed", "os.close(1); os.close(2); print('b')", "b\n"},
		{"and it goes on", "print('c'); print('d', file=sys.stderr)", "c\nd\n"},
	} {
		r := run(t, n, c.code)
		part, inPart := strings.CutPrefix(c.want, "...")
		if inPart && !strings.Contains(r.Text, part) || !inPart && r.Text != c.want || r.TimedOut || r.Ended != "" || r.Lost != "" {
			t.Errorf("%s: got %+.500v, want the text %.200q", c.name, r, c.want)
		}
		if c.name == "coloured" && strings.Contains(r.Text, "\x1b") {
			t.Errorf("%s: got %q, want no colours", c.name, r.Text)
		}
	}
}

// joined returns the numbers to n with sep between them.
func joined(n int, sep string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(sep)
		}
		fmt.Fprint(&b, i+1)
	}
	return b.String()
}

// What a child of a fork does when the cell is over: it ends, and does not wait
// for cells at full speed.
func TestForkedChildEnds(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	r := run(t, n, "import os\nchildren = [os.fork() for _ in range(1)]\nif children[0] == 0: raise ValueError('of the child')")
	if r.Ended != "" {
		t.Fatalf("got %+v", r)
	}
	want(t, run(t, n, "os.waitpid(children[0], 0)[1]"), "0")
}

// A cell that cannot be interrupted is killed, with what it printed; one that
// can keeps its kernel.
func TestDeafCells(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code string
		dies bool
	}{
		"signal ignored": {"signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(300)", true},
		"signal blocked": {"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); time.sleep(300)", true},
		"holds the GIL":  {"ctypes.PyDLL(None).sleep(300)", false},
		"loop in C":      {"collections.deque(itertools.repeat(0), maxlen=0)", true},
		"loop in Python": {"while True: pass", false},
		"stopped itself": {"os.kill(os.getpid(), signal.SIGSTOP); os.read(os.pipe()[0], 1)", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, r := cutShort(t, c.code)
			dead := r.Ended == "ignored the interrupt and was killed"
			if r.Text != "a\n" || !r.TimedOut || dead != c.dies || !dead && r.Ended != "" {
				t.Errorf("got %+v, want what was printed, and the end: %t", r, c.dies)
			}
			if r = run(t, n, "print('b')"); r.Text != "b\n" || r.Lost != "" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// A cancelled cell is interrupted, and the kernel lives on.
func TestCancel(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	cancel := make(chan struct{})
	r, err := n.Stream(t.Context(), "default", notebook.Cell{Code: "x = 7\nprint('a', flush=True)\nimport time; time.sleep(300)", Dir: "/", Timeout: -1, Cancelled: cancel},
		func(c notebook.Chunk) {
			if strings.HasPrefix(string(c.Data), "a") {
				close(cancel)
			}
		})
	if err != nil || !r.Interrupted || r.TimedOut || r.Ended != "" || r.Text != "a\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	want(t, run(t, n, "x"), "7")
}

// The server's memory does not grow with what a cell prints.
func TestFloodTakesLittleMemory(t *testing.T) {
	n := start(t, notebook.Config{})
	want(t, run(t, n, "1"), "1")
	before := heap()
	for _, code := range []string{
		"print('begin' + 'x' * 50_000_000 + 'end')",
		"print('begin')\nfor i in range(200): print('x' * 1_000_000)\nprint('end')",
		"import os, sys; print('begin', flush=True); os.system('head -c 50000000 /dev/zero | tr \"\\\\0\" x'); print('end')",
		"print('begin')\nfor i in range(100_000): print(i)\nprint('end')",
	} {
		r := run(t, n, code)
		if !strings.HasPrefix(r.Text, "begin") || !strings.HasSuffix(r.Text, "end\n") || len(r.Text) > 2*notebook.Half+100 {
			t.Errorf("%s: got %d bytes, from %.10q", code, len(r.Text), r.Text)
		}
	}
	if grown := heap() - before; grown > 96<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// heap is the most memory that the heap of this process has had, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys)
}

// A cell that ends its kernel is answered though its caller set no limit.
func TestEnds(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	for code, ended := range map[string]string{
		"quit()":  "was ended by exit",
		"exit(3)": "was ended by exit",
		"import os, time; os.kill(os.getpid(), 15); time.sleep(300)": "was killed by signal 15 (terminated)",
		"import os; os.abort()":                      "was killed by signal 6 (aborted)",
		"import ctypes; ctypes.string_at(0)":         "was killed by signal 11 (segmentation fault)",
		"import os; os.execv('/bin/true', ['true'])": "ended with status 0",
	} {
		r := runIn(t, n, "default", notebook.Cell{Code: code, Dir: "/", Timeout: -1})
		if r.Text != "" || r.Ended != ended || r.TimedOut {
			t.Errorf("%s: got %+v, want the end %q", code, r, ended)
		}
		want(t, run(t, n, "1"), "1")
	}
	// What it is made into, or has closed all its sockets for, does not end by itself.
	for _, code := range []string{
		"import os; os.execv('/bin/sleep', ['sleep', '300'])",
		"import os\nos.closerange(3, 1000)\nwhile True: pass",
	} {
		if r := runIn(t, n, "default", notebook.Cell{Code: code, Dir: "/", Timeout: -1}); r.Text != "" || r.Ended == "" || r.TimedOut {
			t.Errorf("%s: got %+v, want an end", code, r)
		}
		want(t, run(t, n, "1"), "1")
	}
}

// The end of a kernel whose cell no caller waited for any more is reported by the
// next cell.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := n.Run(ctx, "default", notebook.Cell{Timeout: -1, Dir: "/", Code: "import os, time; open('" + dir + "/began', 'w').close()\n" +
			"while not os.path.exists('" + dir + "/go'): time.sleep(0.01)\nos._exit(3)"})
		done <- err
	}()
	testhelp.Eventually(t, func() bool { return exists(dir + "/began") }, "the cell begins")
	cancel()
	<-done
	if s := n.Sessions(); len(s) != 1 || s[0].State != notebook.Busy || s[0].PID == 0 || s[0].Python != python {
		t.Errorf("got %+v, want a busy kernel", s)
	}
	testhelp.WriteFile(t, dir+"/go", "", 0o600)
	r := run(t, n, "1")
	if r.Text != "1" || r.Lost != "ended with status 3" {
		t.Errorf("got %+v, want to be told of the old kernel", r)
	}
	want(t, run(t, n, "2"), "2") // once
}

// A session that has nothing any more, not even news, is none.
func TestSessionIsForgotten(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	r := run(t, n, "import os; os._exit(3)")
	if s := n.Sessions(); r.Ended == "" || len(s) != 0 || n.CloseSession("default") {
		t.Errorf("got %+v, %+v, want nothing", r, s)
	}
}

// A variable that is set counts from the next kernel on.
func TestSetEnv(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{Env: []string{"COLOUR=blue"}})
	const colour = "import os; print(os.environ['COLOUR'], os.environ.get('SHAPE'))"
	want(t, run(t, n, colour), "blue None\n")
	n.SetEnv([]string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "COLOUR=red", "SHAPE=round"})
	want(t, run(t, n, colour), "blue None\n")
	n.CloseSession("default")
	want(t, run(t, n, colour), "red round\n")
}

// Without a home that it may write to, a kernel starts all the same.
func TestNoHome(t *testing.T) {
	t.Parallel()
	n := start(t, notebook.Config{})
	n.SetEnv([]string{"PATH=/usr/bin:/bin", "HOME=/proc/none"})
	want(t, run(t, n, "1 + 1"), "2")
}

// When memory runs out, a kernel goes before the server does, and no sooner than a
// shell.
func TestKernelsGoFirst(t *testing.T) {
	t.Parallel()
	want(t, run(t, start(t, notebook.Config{}), "print(open('/proc/self/oom_score_adj').read())"), "1000\n\n")
}
