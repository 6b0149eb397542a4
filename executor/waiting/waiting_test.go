package waiting_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/waiting"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// patience is how long a program may take to come to its rest on a machine under load.
const patience = 60 * time.Second

// program is one that runs on a terminal.
type program struct {
	cmd           *exec.Cmd
	master, slave *os.File
	shell         bool
}

// start starts a line of sh, or words, on a terminal of its own.
func start(t *testing.T, dir string, words ...string) *program {
	t.Helper()
	if len(words) == 1 {
		words = []string{"bash", "--norc", "-c", words[0]}
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		t.Skip(err)
	}
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	_ = pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80})
	cmd := &exec.Cmd{Path: path, Args: words}
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, slave, slave, slave
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TERM=xterm", "LC_ALL=C.UTF-8", "PS1=> "}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: cmd, master: master, slave: slave}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, master)
	}()
	t.Cleanup(func() {
		killSession(cmd.Process.Pid)
		_ = cmd.Wait()
		_ = slave.Close()
		_ = master.Close()
		<-drained
	})
	return p
}

// killSession kills all processes of a session.
func killSession(id int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && session == id {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// target is what there is to be looked at now.
func (p *program) target(t *testing.T) waiting.Target {
	t.Helper()
	group, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPGRP)
	if err != nil {
		t.Fatal(err)
	}
	return waiting.Target{PID: p.cmd.Process.Pid, Shell: p.shell, Group: group, Terminal: p.slave.Name()}
}

// until looks until ok is true of what is found, and returns it.
func until(t *testing.T, in *waiting.Inspector, target func() waiting.Target, ok func(waiting.Finding) bool) waiting.Finding {
	t.Helper()
	var f waiting.Finding
	testhelp.Eventually(t, func() bool { f = in.Inspect(target())[0]; return ok(f) }, "found at last: %+v", &f)
	return f
}

// silentPort is a port that takes connections and never answers.
func silentPort(t *testing.T) int {
	t.Helper()
	l := testhelp.Listen(t)
	return l.Addr().(*net.TCPAddr).Port
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	port := silentPort(t)
	connect := fmt.Sprintf("import socket; s=socket.create_connection(('127.0.0.1',%d)); ", port)
	peer := fmt.Sprintf("tcp 127.0.0.1:%d", port)
	for _, test := range []struct {
		name   string
		words  []string
		reason waiting.Reason
		on     string // "" is not compared
		or     []waiting.Reason
		reads  string // in the command line of the process, "" is not compared
	}{
		{name: "cat", words: []string{"cat"}, reason: waiting.Input, on: "terminal", reads: "cat"},
		{name: "shell's read", words: []string{"read x"}, reason: waiting.Input, on: "terminal", reads: "bash"},
		{name: "shell's read with a time", words: []string{"read -t 1000 x"}, reason: waiting.Input, on: "terminal"},
		{name: "read of a child", words: []string{"bash -c 'read x'; true"}, reason: waiting.Input, on: "terminal", reads: "bash -c read"},
		{name: "yes or no", words: []string{"read -p 'Do you want to continue? [Y/n] ' answer"}, reason: waiting.Input, on: "terminal"},
		{name: "interactive shell", words: []string{"bash", "--norc", "-i"}, reason: waiting.Input, on: "terminal", reads: "bash --norc"},
		{name: "dash", words: []string{"dash", "-c", "read x"}, reason: waiting.Input, on: "terminal"},
		{name: "busybox", words: []string{"busybox", "sh", "-c", "read x"}, reason: waiting.Input, on: "terminal"},
		{name: "python's input", words: []string{"python3", "-c", "input('Name: ')"}, reason: waiting.Input, on: "terminal"},
		{name: "python's prompt", words: []string{"python3", "-q", "-i"}, reason: waiting.Input, on: "terminal"},
		{name: "password on /dev/tty", words: []string{"python3", "-c", "import getpass; getpass.getpass()"}, reason: waiting.Input, on: "terminal"},
		{name: "password on /dev/tty, input elsewhere", words: []string{"python3 -c 'import getpass; getpass.getpass()' </dev/null"}, reason: waiting.Input, on: "terminal"},
		{name: "less", words: []string{"less", "/proc/self/status", "/etc/passwd"}, reason: waiting.Input, on: "terminal", reads: "less"},
		{name: "pager at the end of a pipe", words: []string{"yes | less"}, reason: waiting.Input, on: "terminal", reads: "less"},
		{name: "vi", words: []string{"vi", "new"}, reason: waiting.Input, on: "terminal", reads: "vi"},
		{name: "top", words: []string{"top", "-d", "100"}, reason: waiting.Input, on: "terminal", reads: "top"},
		{
			name:   "editor of a commit",
			words:  []string{"git init -q . && git -c core.editor=vi -c user.name=n -c user.email=e commit --allow-empty"},
			reason: waiting.Input, on: "terminal", reads: "vi",
		},
		{
			name:   "terminal or network",
			words:  []string{"python3", "-c", connect + "import select; select.select([0,s],[],[])"},
			reason: waiting.Input, on: "terminal", or: []waiting.Reason{waiting.Network},
		},
		{
			name:   "poll of terminal and network",
			words:  []string{"python3", "-c", connect + "import select; p=select.poll(); p.register(0,1); p.register(s,1); p.poll(100000)"},
			reason: waiting.Input, on: "terminal", or: []waiting.Reason{waiting.Network},
		},
		{
			name:   "epoll of the terminal",
			words:  []string{"python3", "-c", "import select,os; r,w=os.pipe(); p=select.epoll(); p.register(0,1); p.register(r,1); p.poll()"},
			reason: waiting.Input, on: "terminal",
		},
		{
			name:   "thread that reads beside one that waits for the network",
			words:  []string{"python3", "-c", connect + "import threading,os; threading.Thread(target=lambda: os.read(0,1)).start(); s.recv(1)"},
			reason: waiting.Input, on: "terminal", or: []waiting.Reason{waiting.Network},
		},
		{name: "sleep", words: []string{"sleep", "1000"}, reason: waiting.Sleeping, reads: "sleep"},
		{name: "sleep in a script", words: []string{"sleep 1000; true"}, reason: waiting.Sleeping, reads: "sleep"},
		{name: "pipe of a sleep", words: []string{"sleep 1000 | cat"}, reason: waiting.Sleeping, reads: "sleep"},
		{name: "poll for a time", words: []string{"python3", "-c", "import select; select.select([],[],[],1000)"}, reason: waiting.Sleeping},
		{name: "endless loop", words: []string{"while :; do :; done"}, reason: waiting.Busy},
		{name: "lock", words: []string{"exec 9>held; flock 9; flock held true"}, reason: waiting.Lock, on: "/held", reads: "flock"},
		{
			name:   "lock of a range",
			words:  []string{"python3", "-c", "import fcntl,os\nf=open('r','w'); fcntl.lockf(f,2)\nif os.fork()==0: fcntl.lockf(f,2)\nos.wait()"},
			reason: waiting.Lock, on: "/r",
		},
		{name: "curl", words: []string{"curl", "-s", fmt.Sprintf("http://127.0.0.1:%d/", port)}, reason: waiting.Network, on: peer, reads: "curl"},
		{name: "socket", words: []string{"python3", "-c", connect + "s.recv(1)"}, reason: waiting.Network, on: peer},
		{
			name: "server", words: []string{"python3", "-c", "import socket; s=socket.create_server(('127.0.0.1',0)); s.accept()"},
			reason: waiting.Connection, on: "port ",
		},
		{name: "full pipe", words: []string{"mkfifo f; exec 9<>f; dd if=/dev/zero of=f"}, reason: waiting.Pipe, on: "/f", reads: "dd"},
		{name: "empty pipe", words: []string{"mkfifo f; exec 9<>f; cat f"}, reason: waiting.Pipe, on: "/f", reads: "cat"},
		{name: "FIFO without another side", words: []string{"mkfifo f; cat f"}, reason: waiting.Other, on: "the opening of a file"},
		{name: "stopped", words: []string{"python3 -c 'import os; os.kill(os.getpid(), 19)'; true"}, reason: waiting.Stopped, reads: "python3"},
		{name: "reader beside a sleep", words: []string{"cat </dev/tty >/dev/null & sleep 1000"}, reason: waiting.Input, reads: "cat"},
		{name: "signal", words: []string{"python3", "-c", "import signal; signal.pause()"}, reason: waiting.Other, on: "a signal"},
		{name: "locked thread", words: []string{"python3", "-c", "import threading; l=threading.Lock(); l.acquire(); l.acquire()"}, reason: waiting.Mutex},
		{
			name:   "what may not be seen",
			words:  []string{"python3", "-c", "import ctypes,os; ctypes.CDLL(None).prctl(4,0,0,0,0); os.setuid(os.getuid()); os.read(0,1)"},
			reason: waiting.Unknown,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name == "what may not be seen" && os.Geteuid() == 0 {
				t.Skip("root may see it")
			}
			if program, _, _ := strings.Cut(test.reads, " "); program != "" {
				if _, err := exec.LookPath(program); err != nil {
					t.Skip(err) // a line of sh starts it
				}
			}
			dir := t.TempDir()
			p := start(t, dir, test.words...)
			in := waiting.New(nil)
			never := test.reason != waiting.Input
			f := until(t, in, func() waiting.Target { return p.target(t) }, func(f waiting.Finding) bool {
				if never && f.Reason == waiting.Input {
					t.Fatalf("it never reads the terminal: %+v", f)
				}
				return f.Reason == test.reason && strings.Contains(f.Process.Command, test.reads) && strings.Contains(f.On, test.on) &&
					slices.Equal(f.Or, test.or) // a thread comes to its rest later than another
			})
			if want := test.reason == waiting.Input && test.or == nil; f.AwaitsInput() != want {
				t.Errorf("AwaitsInput is %t", !want)
			}
		})
	}
}

// The holder of a lock is named.
func TestLockHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := start(t, dir, "flock held sleep 1000")
	until(t, waiting.New(nil), func() waiting.Target { return holder.target(t) }, func(f waiting.Finding) bool {
		return f.Reason == waiting.Sleeping
	})
	p := start(t, dir, "flock", "held", "true")
	f := until(t, waiting.New(nil), func() waiting.Target { return p.target(t) }, func(f waiting.Finding) bool {
		return f.Reason == waiting.Lock && f.Holder != 0
	})
	if !strings.HasSuffix(f.On, "/held") {
		t.Errorf("got %+v", f)
	}
}

// A shell with job control: what is in its background is not the command, and is listed.
func TestBackground(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "bash", "--norc", "-i")
	p.shell = true
	if _, err := p.master.WriteString("sleep 1001 &\nsleep 1002 &\nsleep 1003 | cat\n"); err != nil {
		t.Fatal(err)
	}
	until(t, waiting.New(nil), func() waiting.Target { return p.target(t) }, func(f waiting.Finding) bool {
		got := make([]string, 0, len(f.Others))
		for _, o := range f.Others {
			got = append(got, fmt.Sprint(o.Command, " ", o.Background))
		}
		slices.Sort(got)
		return f.Process.Command == "sleep 1003" && f.Reason == waiting.Sleeping &&
			slices.Equal(got, []string{"cat false", "sleep 1001 true", "sleep 1002 true"})
	})
}

// A program without a terminal waits for its caller where it reads the pipe that the
// caller writes to, and for another process at any other pipe.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "cat; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var stat unix.Stat_t
	raw, err := in.(*os.File).SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &stat) }), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	target := waiting.Target{PID: cmd.Process.Pid, Stdin: fmt.Sprintf("pipe:[%d]", stat.Ino)}
	until(t, waiting.New(nil), func() waiting.Target { return target }, func(f waiting.Finding) bool {
		return f.AwaitsInput() && f.On == "standard input" && f.Process.Command == "cat"
	})
	target.Stdin = ""
	until(t, waiting.New(nil), func() waiting.Target { return target }, func(f waiting.Finding) bool { return f.Reason == waiting.Pipe })
}

// A server of root's looks with the rights of the sandbox's user.
func TestUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("root alone has other users")
	}
	p := start(t, "/", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat")
	user := &identity.User{Name: "nobody", UID: 65534, GID: 65534}
	until(t, waiting.New(user), func() waiting.Target { return p.target(t) }, func(f waiting.Finding) bool {
		return f.Reason == waiting.Input && f.Process.Command == "cat"
	})
	// With the rights of another user alone the kernel does not say it.
	own := &identity.User{Name: "other", UID: 65533, GID: 65533}
	if f := waiting.New(own).Inspect(p.target(t))[0]; f.Reason != waiting.Input && f.Reason != waiting.Unknown {
		t.Errorf("got %+v", f)
	}
}

// An agent's names and numbers of processes neither grow an answer nor break its lines.
func TestHostile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, strings.Repeat("a", 100)+"\x1b[31m\nb")
	testhelp.WriteFile(t, name, "#!/bin/sh\nread x\n", 0o700)
	p := start(t, dir, "for i in $(seq 80); do sleep 1000 & done; sh '"+name+"' "+strings.Repeat("long ", 1000))
	f := until(t, waiting.New(nil), func() waiting.Target { return p.target(t) }, func(f waiting.Finding) bool {
		return f.Reason == waiting.Input && len(f.Others)+f.More == 80 // the list is older than the look
	})
	if len(f.Others) != 16 || len(f.Process.Command) > 256 || strings.ContainsAny(f.Process.Command, "\x1b\n") {
		t.Errorf("%d others and %d, %q", len(f.Others), f.More, f.Process.Command)
	}
}

func TestNone(t *testing.T) {
	t.Parallel()
	if f := waiting.New(nil).Inspect(waiting.Target{PID: 1 << 30})[0]; f.Reason != waiting.Unknown || f.Process.PID != 0 {
		t.Errorf("got %+v", f)
	}
	if f := waiting.New(nil).Inspect(); len(f) != 0 {
		t.Errorf("got %+v", f)
	}
}

// TestBuild looks at random moments of a build, which never reads its terminal. WAITING_LOOKS
// has another number of them.
func TestBuild(t *testing.T) {
	t.Parallel()
	looks := 0
	_, _ = fmt.Sscan(cmp.Or(os.Getenv("WAITING_LOOKS"), "60"), &looks)
	dir := t.TempDir()
	makefile := `all: a b c d e f g h
a b c d e f g h:
	@printf 'int %s(void){return 0;}\n' $@ >$@.c; gcc -O1 -c $@.c 2>&1 | cat; sh -c 'sed s/0/1/ $@.c | sort >$@.x'; x=$$(cat $@.x); test -t 0; stty -a </dev/tty >/dev/null
.PHONY: all a b c d e f g h
`
	testhelp.WriteFile(t, filepath.Join(dir, "Makefile"), makefile, 0o600)
	for _, tool := range []string{"make", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	p := start(t, dir, "while make -s -j3; do :; done; exec sleep 0")
	in := waiting.New(nil)
	reasons := map[waiting.Reason]int{}
	for range looks {
		f := in.Inspect(p.target(t))[0]
		reasons[f.Reason]++
		if f.Reason == waiting.Input || f.AwaitsInput() {
			t.Errorf("a false wait for input: %+v", f)
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
	}
	t.Log(reasons)
	if len(reasons) == 1 && reasons[waiting.Unknown] > 0 {
		t.Error("nothing was found out")
	}
}
