package notebook_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/internal/testhelp"
)

// fakeKernel is a kernel without Python in its cells: it does what their code
// names, and answers in order otherwise.
const fakeKernel = `#!` + python + ` -SE
import hashlib, hmac, json, os, signal, socket, struct, sys, threading, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
c = json.load(open(sys.argv[3]))
conns, deaf, leaving = {}, threading.Event(), threading.Event()

def frames(*parts):
    return b"".join(struct.pack(">BQ", 2 | (i + 1 < len(parts)), len(p)) + p for i, p in enumerate(parts))

def message(kind, parent, content, key=c["key"]):
    parts = [json.dumps(x).encode() for x in ({"msg_type": kind}, parent, {}, content)]
    mac = hmac.new(key.encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()
    return frames(b"topic", b"<IDS|MSG>", mac, *parts)

def need(conn, n):
    data = b""
    while len(data) < n:
        part = conn.recv(n - len(data))
        if not part: sys.exit()
        data += part
    return data

def receive(conn):
    parts, more = [], True
    while more:
        flags, = need(conn, 1)
        size, = struct.unpack(">Q", need(conn, 8)) if flags & 2 else need(conn, 1)
        data, more = need(conn, size), flags & 1
        if not flags & 4: parts.append(data)
    return parts

def shake(conn, kind):
    conn.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    conn.sendall(bytes([4, len(ready)]) + ready)
    need(conn, 64)
    flags, size = need(conn, 2)
    need(conn, size)

def serve(s, name):
    conn, _ = s.accept()
    conns[name] = conn
    shake(conn, {"iopub": b"PUB", "hb": b"REP"}.get(name, b"ROUTER"))
    if name == "shell": return cells(conn)
    while True:
        parts = receive(conn)
        if name == "hb" and leaving.is_set(): conn.shutdown(socket.SHUT_RDWR); time.sleep(0.1); os._exit(3)
        if name == "hb" and not deaf.is_set(): conn.sendall(frames(*parts))
        if name == "control": os._exit(0)

def cells(shell):
    while True:
        h, _, _, content = receive(shell)[2:6]
        parent, code = json.loads(h), json.loads(content)["code"]
        while "iopub" not in conns: time.sleep(0.001)
        iopub = conns["iopub"]
        def say(text, parent=parent, **kw): iopub.sendall(message("stream", parent, {"text": text}, **kw))
        word = code.split(" ")[0]
        if word == "forged": say("forged", key="other")
        if word == "unsigned": iopub.sendall(frames(b"<IDS|MSG>", b"", *[b"{}"] * 4))
        if word == "stranger": say("stranger", {"msg_id": "other"}); say("nobody", {}); say("list", [1]); say("number", 5)
        if word == "fails": shell.sendall(message("execute_reply", parent, {"status": "error", "ename": "UsageError"}))
        if word == "alien": iopub.sendall(message("status", {"msg_id": "other"}, {"execution_state": "idle"}))
        if word == "early":
            say("\x1b[31mearly\x1b[0m ")
            while not os.path.exists(code.split(" ")[1]): time.sleep(0.01)
        if word == "small":
            one = message("stream", parent, {"text": "x"})
            for i in range(100): iopub.sendall(one * 1000)
        if word == "wide": say("\u65e5" * 100_000)
        if word == "huge": say("x" * 50_000_000)
        if word == "deep": iopub.sendall(frames(b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"[" * 900_000))
        if word == "lists":
            iopub.sendall(message("display_data", parent, {"data": {"a": [[]] * 3_500_000}}))
            iopub.sendall(message("display_data", parent, {"data": {"%x" % i: 0 for i in range(1_000_000)}}))
            iopub.sendall(message("error", parent, {"traceback": [""] * 3_500_000}))
            shell.sendall(message("execute_reply", parent, {"payload": [{}] * 3_500_000}))
        if word == "parts": iopub.sendall(b"\x01\x01x" * 7 + frames(b"<IDS|MSG>", b"", *[b"{}"] * 4, *[b"buffer"] * 100_000))
        if word == "junk": iopub.sendall(b"\x02\xff\xff\xff\xff\xff\xff\xff\xff")
        if word == "endless": 
            while True: iopub.sendall(b"\x01\x01x" * 10_000)
        if word == "deaf": deaf.set()
        if word == "leaving": leaving.set()
        if word == "closes": [x.shutdown(socket.SHUT_RDWR) for x in conns.values()]; time.sleep(300)
        if word == "reads-nothing": shell.sendall(message("execute_reply", parent, {})); iopub.sendall(message("status", parent, {"execution_state": "idle"})); time.sleep(300)
        if word == "dies": os._exit(3)
        if word == "waits": open(code.split(" ")[1], "w").close(); time.sleep(300)
        if word != "only-idle": shell.sendall(message("execute_reply", parent, {}))
        if word != "only-reply":
            say("ok")
            iopub.sendall(message("status", parent, {"execution_state": "idle"}))

threads = []
for name in ("shell", "iopub", "control", "hb"):
    s = socket.socket(socket.AF_UNIX)
    s.bind("%s-%d" % (c["ip"], c[name + "_port"]))
    s.listen()
    threads.append(threading.Thread(target=serve, args=(s, name), daemon=True))
for t in threads: t.start()
os.write(3, b"ready /fake\n")
time.sleep(300)
`

// fake returns a notebook with that program in the place of Python.
func fake(t *testing.T, script string) *notebook.Notebook {
	t.Helper()
	return fakeConfig(t, script, notebook.Config{})
}

func fakeConfig(t *testing.T, script string, cfg notebook.Config) *notebook.Notebook {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python)
	}
	program := filepath.Join(t.TempDir(), "fake")
	testhelp.WriteProgram(t, program, script)
	cfg.Programs = []string{program}
	n := notebook.New(cfg)
	t.Cleanup(n.Close)
	return n
}

// A kernel is believed nothing that is not signed and not of this cell, and
// whatever it does ends the cell or the kernel, not the server.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	const killed = "was killed by signal 9 (killed)"
	const deaf = "ignored the interrupt and was killed"
	for name, c := range map[string]struct {
		code, text, ended, lost string
		timesOut                bool
		next                    string // the cell after it, whose result counts
	}{
		"in order":             {code: "fine", text: "ok"},
		"wrong key":            {code: "forged", text: "ok"},
		"no signature":         {code: "unsigned", text: "ok"},
		"other cells":          {code: "stranger", text: "ok"},
		"idle for another":     {code: "alien", text: "ok"},
		"nesting":              {code: "deep", text: "ok"},
		"no message":           {code: "junk", ended: killed},
		"idle, no reply":       {code: "only-idle", text: "ok", ended: deaf, timesOut: true},
		"reply, no idle":       {code: "only-reply", ended: deaf, timesOut: true},
		"closes its sockets":   {code: "closes", ended: killed},
		"dies":                 {code: "dies", ended: "ended with status 3"},
		"a delimiter too late": {code: "endless", ended: killed},
		"no heartbeat":         {code: "deaf", text: "ok", next: "fine", lost: "did not answer its heartbeat and was killed"},
		"hangs up and ends":    {code: "leaving", text: "ok", next: "fine", lost: "ended with status 3"},
		"reads nothing":        {code: "reads-nothing", next: "fine " + strings.Repeat("x", 5_000_000), ended: killed},
		"many buffers":         {code: "parts", text: "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fake(t, fakeKernel)
			timeout := patience
			if c.timesOut { // over what a kernel does that is there already
				runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: timeout})
				timeout = 2 * time.Second
			}
			r := runIn(t, n, "", notebook.Cell{Code: c.code, Timeout: timeout})
			if c.next != "" {
				r = runIn(t, n, "", notebook.Cell{Code: c.next, Timeout: timeout})
			}
			if r.Text != c.text || r.Ended != c.ended || r.Lost != c.lost || r.TimedOut != c.timesOut {
				t.Errorf("got %+.300v, want %+.300v", r, c)
			}
			if r = runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience}); r.Text != "ok" {
				t.Errorf("the next cell: got %+v", r)
			}
		})
	}
}

// A reply alone may say that a cell failed, as that of an unknown magic does.
func TestFailedReply(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	for code, raised := range map[string]bool{"fails": true, "fine": false} {
		if r := runIn(t, n, "", notebook.Cell{Code: code, Timeout: patience}); r.Raised != raised || r.Text != "ok" {
			t.Errorf("%s: got %+v, want raised %v", code, r, raised)
		}
	}
}

// Neither many messages nor huge ones take much memory.
func TestHostileFlood(t *testing.T) {
	n := fake(t, fakeKernel)
	runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience})
	before := heap()
	for _, code := range []string{"small", "huge", "deep", "lists"} {
		r := runIn(t, n, "", notebook.Cell{Code: code, Timeout: patience})
		if !strings.HasSuffix(r.Text, "ok") || r.Ended != "" {
			t.Errorf("%s: got %+.100v", code, r)
		}
	}
	if grown := heap() - before; grown > 96<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// The name of a socket has at most 108 bytes.
func TestLongTemporaryDirectory(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), strings.Repeat("long-", 20))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	n := fake(t, fakeKernel)
	if r := runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience}); r.Text != "ok" {
		t.Errorf("got %+v", r)
	}
	if left := entries(t, tmp); left != 0 {
		t.Errorf("%d files are left", left)
	}
}

// After many kernels that were closed, died or were never ready, nothing of
// them is left: no process, descriptor, goroutine or file.
func TestNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	n := fake(t, fakeKernel)
	cell := func(code string) { runIn(t, n, "", notebook.Cell{Code: code, Timeout: patience}) }
	cell("fine")
	n.CloseSession("")
	goroutines, descriptors := runtime.NumGoroutine(), entries(t, "/proc/self/fd")
	for i := range 200 {
		switch i % 4 {
		case 0:
			cell("fine")
			n.CloseSession("")
		case 1:
			cell("dies")
		case 2:
			cell("junk")
		case 3:
			closeDuringStart(t, n)
		}
	}
	testhelp.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, "the goroutines that report ends are gone")
	if got := entries(t, "/proc/self/fd"); got > descriptors {
		t.Errorf("%d descriptors are open, %d were", got, descriptors)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "actiond-kernel-*")); left != nil {
		t.Errorf("%s are left", left)
	}
	if s := n.Sessions(); s != nil {
		t.Errorf("%+v are left", s)
	}
	// An orphan that was killed is reaped a moment later.
	testhelp.Eventually(t, func() bool { return len(children()) == 0 }, "no process is left")
}

// children returns the ids of this program's children, each with a space behind it.
func children() (ids []byte) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		ids = append(ids, data...)
	}
	return ids
}

// closeDuringStart closes the session of a cell that may not have begun.
func closeDuringStart(t *testing.T, n *notebook.Notebook) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := n.Run(context.WithoutCancel(t.Context()), "", notebook.Cell{Code: "fine", Timeout: patience})
		done <- err
	}()
	for !n.CloseSession("") { // as early as can be
		runtime.Gosched()
	}
	if err := <-done; err != nil && !errors.Is(err, notebook.ErrClosed) {
		t.Error(err)
	}
	n.CloseSession("")
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Close ends a kernel that is not ready yet, and who waits for it is told.
func TestCloseDuringStart(t *testing.T) {
	t.Parallel()
	began := filepath.Join(t.TempDir(), "began")
	n := fake(t, "#!/bin/sh\ntouch "+began+"\nsleep 300")
	done := make(chan error, 1)
	go func() {
		_, err := n.Run(context.WithoutCancel(t.Context()), "", notebook.Cell{Code: "1", Timeout: -1})
		done <- err
	}()
	testhelp.Eventually(t, func() bool { return exists(began) }, "the kernel begins")
	if s := n.Sessions(); len(s) != 1 || s[0].State != notebook.Busy || s[0].PID != 0 {
		t.Errorf("got %+v, want a session that starts", s)
	}
	n.Close()
	if err := <-done; !errors.Is(err, notebook.ErrClosed) {
		t.Errorf("got %v, want %v", err, notebook.ErrClosed)
	}
}

// There are so many kernels and no more; one that has ended takes no place, and
// its end is told of all the same.
func TestMaxKernels(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	cell := func(session string) (notebook.Result, error) {
		return n.Run(t.Context(), session, notebook.Cell{Code: "fine", Timeout: patience})
	}
	for name := range strings.SplitSeq("abcdefgh", "") {
		if _, err := cell(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cell("i"); !errors.Is(err, notebook.ErrMany) {
		t.Errorf("got %v, want %v", err, notebook.ErrMany)
	}
	pid := n.Sessions()[3].PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return n.Sessions()[3].State == notebook.Ended }, "the kernel ends")
	if _, err := cell("i"); err != nil {
		t.Error(err)
	}
	if _, err := cell("d"); !errors.Is(err, notebook.ErrMany) {
		t.Errorf("got %v, want %v", err, notebook.ErrMany)
	}
	n.CloseSession("a")
	if r, err := cell("d"); err != nil || r.Lost == "" {
		t.Errorf("got %+v, %v, want to be told of the old kernel", r, err)
	}
}

// A cell and the end of an idle kernel exclude each other: each cell runs, in
// the old kernel or, told so, in a new one.
func TestIdleRace(t *testing.T) {
	t.Parallel()
	n := fakeConfig(t, fakeKernel, notebook.Config{IdleTime: time.Millisecond})
	for i := range 60 {
		r := runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience})
		if r.Text != "ok" || r.Ended != "" || r.Lost != "" && r.Lost != "was stopped after 1ms without a cell" {
			t.Fatalf("got %+v", r)
		}
		time.Sleep(time.Duration(i%6) * 300 * time.Microsecond) // around the limit
	}
}

// A file that the user puts into the directory of the sockets is not the server's to
// read, write or remove.
func TestForeignFiles(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	n := fake(t, strings.Replace(fakeKernel, "threads = []", "os.makedirs(os.path.dirname(c['ip']) + '/own/tree'); threads = []", 1))
	runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience})
	n.Close()
	left, _ := filepath.Glob(filepath.Join(tmp, "actiond-kernel-*", "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "own" {
		t.Errorf("%q are left, want what the kernel put there", left)
	}
}
