package bash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// unknown is the status of a command that its shell cannot report.
const unknown = -1

// An attack is a command that tries to stop its shell from running the next one,
// or from reporting how it ended.
type attack struct {
	name, text string
	only       string // the shell that can do it; empty: all
	except     string // the shell that cannot
	status     int
	replaced   bool // the next command runs in a new shell; otherwise in the same
	either     bool // it may be either shell
}

// nobody is the user id of the hostile commands, where the tests run as root.
const nobody = 65534

// hostile returns that user; nil where the tests do not run as root.
func hostile() *identity.User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &identity.User{Name: "nobody", UID: nobody, GID: nobody, Groups: []uint32{nobody}}
}

// anyStatus is for attacks that do not say what their own status is.
const anyStatus = -2

// python is a command that runs lines of Python with its standard files on the
// terminal.
func python(lines ...string) string {
	lines = append([]string{"import ctypes, fcntl, os, signal, struct, termios, time"}, lines...)
	return "/usr/bin/python3 -c '" + strings.Join(lines, "\n") + "'"
}

// inBackground is python for lines that run while and after the shell reports.
func inBackground(lines ...string) string {
	return python(append([]string{"if os.fork(): os._exit(0)", "signal.signal(signal.SIGTTOU, signal.SIG_IGN)", "signal.signal(signal.SIGHUP, signal.SIG_IGN)"}, lines...)...)
}

var terminalAttacks = []attack{
	{name: "stopped output", text: python("termios.tcflow(0, termios.TCOOFF)")},
	{name: "stopped output, later", text: inBackground("time.sleep(0.1)", "termios.tcflow(0, termios.TCOOFF)") + "; sleep 0.2"},
	{name: "stopped output, and more of it", text: python("termios.tcflow(0, termios.TCOOFF)") + "; echo x >/dev/null; /bin/echo y; echo z"},
	{name: "stop character", text: "stty ixon; " + python(`fcntl.ioctl(0, termios.TIOCSTI, b"\x13")`)},
	{name: "line discipline", text: python(`fcntl.ioctl(0, termios.TIOCSETD, struct.pack("i", 27))`)},
	{name: "line discipline and stopped output", text: python("termios.tcflow(0, termios.TCOOFF)", `fcntl.ioctl(0, termios.TIOCSETD, struct.pack("i", 27))`)},
	{name: "exclusive mode", text: python("fcntl.ioctl(0, termios.TIOCEXCL)")},
	{name: "no permissions", text: "chmod 000 $(tty)"},
	{name: "no permissions, later", text: "(sleep 0.1; chmod 000 $(tty)) & wait"},
	{name: "no permissions, at the next command", text: "(sleep 0.1; chmod 000 $(tty)) &", either: true},
	{name: "typed ahead", text: python(`for c in b"exit 9\n": fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))`)},
	{name: "typed ahead without an end", text: python(`for c in b"exit 9": fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))`)},
	{name: "raw mode", text: "stty raw -echo -isig min 255 time 0"},
	{name: "window size", text: "stty rows 1 cols 1"},
	{name: "no window size", text: "stty rows 0 cols 0", except: "busybox"},
	{name: "open file's flags", text: python("fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC | os.O_APPEND)")},
	{name: "open file's owner", text: python("fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", "fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)")},
	{name: "no controlling terminal", text: python("fcntl.ioctl(0, termios.TIOCNOTTY)")},
	{name: "foreground process group", text: inBackground("os.setpgid(0, 0)", "os.tcsetpgrp(0, os.getpgrp())", "time.sleep(0.2)", "os.tcsetpgrp(0, os.getpgrp())", "time.sleep(1)") + "; sleep 0.1"},
	{name: "packet mode", text: python("try: fcntl.ioctl(0, termios.TIOCPKT, struct.pack(\"i\", 1))", "except OSError: pass")},
	{name: "screen left in a mode", text: `printf '\033[?1049h\033[5;5r\033(0\033[?7l\033[?6h'`},
}

// No ordinary user has the rights that these need.
var privilegedAttacks = []attack{
	{name: "other owner", text: "chown 12345:12345 $(tty); chmod 000 $(tty)"},
	{name: "locked modes", text: "stty raw -echo; " + python(`fcntl.ioctl(0, 0x5457, b"\xff" * 60)`)}, // TIOCSLCKTRMIOS
	{name: "terminal taken by another session", text: inBackground("os.setsid()", "fcntl.ioctl(0, termios.TIOCSCTTY, 1)", "time.sleep(5)") + "; true; sleep 0.3 </dev/null >/dev/null 2>&1 & sleep 0.3", replaced: true, only: "bash"},
	{name: "hang-up that is ignored", text: "trap '' HUP; " + python("ctypes.CDLL(None).vhangup()"), status: anyStatus, replaced: true},
}

var promptAttacks = []attack{
	{name: "prompt command", text: "PROMPT_COMMAND='sleep 1000'"},
	{name: "prompt commands", text: "PROMPT_COMMAND=(true 'sleep 1000')", only: "bash"},
	{name: "prompt command that loops", text: "PROMPT_COMMAND='while :; do :; done'"},
	{name: "prompt command that reads", text: "PROMPT_COMMAND='read x; read y; cat'"},
	{name: "prompt command that exits", text: "PROMPT_COMMAND='exit 3'"},
	{name: "prompt command and an interrupt", text: "PROMPT_COMMAND='sleep 1000'; kill -INT $$", status: 130},
	{name: "prompt command that stays", text: "readonly PROMPT_COMMAND='sleep 1000'"},
	{name: "prompt command that stays and exits", text: "readonly PROMPT_COMMAND='exit 3'", only: "bash", replaced: true},
	{name: "prompt command that stays and loops", text: "readonly PROMPT_COMMAND='while :; do :; done'", only: "bash", replaced: true},
	{name: "prompt command that stays and eats the script", text: "readonly PROMPT_COMMAND='cat >/dev/null'", only: "bash", replaced: true},
	{name: "prompt with a substitution", text: "PS1='$(sleep 1000)' PS2=$PS1 PS0=$PS1"},
	{name: "prompt with backquotes", text: "PS1='`sleep 1000`' PS2=$PS1 PS0=$PS1"},
	{name: "prompt and posix mode", text: "set -o posix; shopt -s promptvars; PS1='$(sleep 1000)' PS2=$PS1 PS0=$PS1", only: "bash"},
	{name: "prompt that reads", text: "PS1='$(cat)' PS2=$PS1 PS0=$PS1"},
	{name: "prompt and an interrupt", text: "PS1='$(sleep 1000)'; kill -INT $$", status: 130},
	{name: "prompt that stays", text: "readonly PS1='$(sleep 1000; true)'", only: "bash"},
	{name: "prompt that stays and eats the script", text: "readonly PS1='$(cat)'", replaced: true},
	{name: "prompt that stays and takes time", text: "sleep 0.1; readonly PS1='$(sleep 0.2)'"},
	{name: "auto-logout", text: "TMOUT=1; (sleep 1.5) "},
	{name: "files for other shells", text: "ENV='$(sleep 1000)' BASH_ENV='$(sleep 1000)'; export ENV BASH_ENV"},
	{name: "trace prompt", text: "PS4='$(sleep 1000)'"},
}

var trapAttacks = []attack{
	{name: "DEBUG that runs a program", text: "trap 'sleep 0.01' DEBUG", only: "bash"},
	{name: "DEBUG that loops", text: "trap 'while :; do :; done' DEBUG", only: "bash", status: unknown, replaced: true},
	{name: "DEBUG that skips", text: "shopt -s extdebug; trap false DEBUG", only: "bash", status: unknown, replaced: true},
	{name: "DEBUG that reads the script", text: "trap 'read -t 0.01 x' DEBUG", only: "bash", either: true},
	{name: "DEBUG that reads a part of the script", text: "trap 'trap - DEBUG; read -t 1 -d { x' DEBUG", only: "bash", either: true},
	{name: "DEBUG that prints", text: "trap 'echo noise; printf \"\\0R\\0\"' DEBUG", only: "bash"},
	{name: "DEBUG that sets arguments", text: `trap 'set -- $BASH_COMMAND' DEBUG`, only: "bash"},
	{name: "DEBUG that fills the begin pipe", text: "trap 'head -c 100000 /dev/zero >&2' DEBUG", only: "bash", status: anyStatus, either: true},
	{name: "ERR", text: "trap 'sleep 0.01; echo err >/dev/null' ERR; false", only: "bash", status: 1},
	{name: "RETURN", text: "set -T; trap 'sleep 0.01' RETURN; false", only: "bash", status: 1},
	{name: "CHLD", text: "trap 'sleep 0.01; /bin/echo noise >/dev/null' CHLD; /bin/true", only: "bash"},
	{name: "CHLD that prints", text: "trap 'echo noise >&2' CHLD; (/bin/true)", only: "bash"},
	{name: "EXIT", text: "trap 'sleep 0.01' EXIT"},
	{name: "every signal ignored", text: "for s in 1 2 3 4 5 6 7 8 10 11 12 13 14 15 16 17 18 20 21 22 23 24 25 26 27 28 29 30 31; do trap '' $s; done"},
	{name: "interrupt", text: "kill -INT $$", status: 130},
	{name: "stop", text: "kill -STOP $$"},
	{name: "stop, later", text: "(sleep 0.1; kill -STOP $$) & sleep 0.2"},
}

var optionAttacks = []attack{
	{name: "allexport", text: "set -a"},
	{name: "no globbing, no clobbering", text: "set -f -C"},
	{name: "nounset", text: "set -u"},
	{name: "nounset and an unset variable", text: "set -u; echo $no_such_variable", status: anyStatus},
	{name: "errexit", text: "set -e; shopt -s inherit_errexit 2>/dev/null || :"},
	{name: "noexec", text: "set -n", status: unknown, replaced: true, except: "bash"},
	{name: "noexec in bash", text: "set -n", only: "bash"},
	{name: "keyword", text: "set -k", only: "bash"},
	{name: "one command", text: "set -t", only: "bash", replaced: true},
	{name: "no job control", text: "set +m"},
	{name: "notify", text: "set -b"},
	{name: "restricted", text: "set -r", only: "bash", replaced: true},
	{name: "history and its expansion", text: "set -o history -H", only: "bash"},
	{name: "ignoreeof", text: "set -o ignoreeof", only: "bash"},
	{name: "posix variable", text: "POSIXLY_CORRECT=1"},
	{name: "posix mode with functions", text: "set -o posix; printf() { :; }; pwd() { :; }", only: "bash"},
	{name: "shell options on", text: "shopt -s $(shopt | cut -f 1 | grep -v -e restricted -e login -e extdebug) 2>/dev/null; :", only: "bash"},
	{name: "shell options off", text: "shopt -u $(shopt | cut -f 1 | grep -v -e restricted -e login -e interactive_comments) 2>/dev/null; :", only: "bash"},
	{name: "field separators", text: "IFS='R01\\/ '"},
	{name: "no field separators", text: "IFS="},
	{name: "function nesting", text: "FUNCNEST=1", only: "bash"},
	{name: "trace to standard output", text: "BASH_XTRACEFD=1", only: "bash"},
	{name: "all variables unset", text: "for v in $(set | sed -n 's/^\\([A-Za-z_][A-Za-z_0-9]*\\)=.*/\\1/p'); do case $v in kept|saved) ;; *) unset $v;; esac; done 2>/dev/null; :", except: "dash"},
	{name: "variables that the server's lines set", text: "readonly PROMPT_COMMAND PS1 PS2 PS0 TMOUT IFS"},
	{name: "variable of the server's own", text: "readonly actiond_status", status: unknown, replaced: true},
	{name: "no PATH", text: "PATH="},
	{name: "locale", text: "LC_ALL=xx_YY.unknown 2>/dev/null; export LC_ALL"},
	{name: "umask", text: "umask 777"},
	{name: "directory gone", text: "mkdir gone; cd gone; rmdir ../gone"},
}

var builtinAttacks = []attack{
	{name: "function builtin", text: "builtin() { :; }; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "function builtin that fails", text: "builtin() { return 3; }; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "functions that guard each other", text: "builtin() { :; }; unset() { :; }; enable() { :; }; command() { :; }; trap() { :; }; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "function builtin that cannot be unset", text: "builtin() { :; }; readonly -f builtin", only: "bash", status: unknown, replaced: true},
	{name: "function builtin that hangs", text: "builtin() { sleep 1000; }", only: "bash", status: anyStatus, either: true},
	{name: "function command", text: "command() { :; }; sh -c 'exit 6'", status: 6},
	{name: "functions", text: "printf() { :; }; pwd() { :; }; read() { :; }; cat() { :; }; sh -c 'exit 6'", status: 6},
	{name: "functions with names of special builtins", text: "eval() { :; }; set() { :; }; exit() { :; }; unset() { :; }; declare() { :; }; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "no printf", text: "enable -n printf; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "no builtin", text: "enable -n builtin; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "no eval", text: "enable -n eval; sh -c 'exit 6'", only: "bash", status: 6, replaced: true},
	{name: "no pwd", text: "enable -n pwd; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "few builtins", text: "enable -n printf pwd unset declare alias set test . source trap :; sh -c 'exit 6'", only: "bash", status: 6},
	{name: "no builtins", text: "enable -n $(enable -a | cut -d ' ' -f 2)", only: "bash", status: unknown, replaced: true},
	{name: "aliases", text: "for w in eval builtin command printf pwd unset exit . : alias export; do alias $w=false; done; sh -c 'exit 6'", status: 6},
	{name: "aliases of reserved words", text: "alias '{=echo' '}=echo' if=echo", only: "bash"},
}

var descriptorAttacks = []attack{
	{name: "no standard files", text: "exec 0<&- 1>&- 2>&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-"},
	{name: "other standard files", text: "exec </dev/null >/dev/full 2>&1"},
	{name: "copy of the report pipe", text: "exec 11>&-", only: "bash", status: anyStatus, either: true},
	{name: "copy of the script", text: "exec 10>&-", only: "bash", status: anyStatus, either: true},
	{name: "copy of the begin pipe", text: "exec 12>&-", only: "bash", status: unknown, replaced: true},
	{name: "all copies", text: "exec 10>&- 11>&- 12>&- 13>&-; echo x", only: "bash", status: anyStatus, replaced: true},
	{name: "copy of the script in ash", text: "exec 11>&-; true", only: "busybox", status: unknown, replaced: true},
	{name: "copy of the report pipe in ash", text: "exec 12>&-; true", only: "busybox", status: unknown, replaced: true},
	{name: "copy of the begin pipe in ash", text: "exec 13>&-; true", only: "busybox", status: unknown, replaced: true},
	{name: "copies in dash", text: "exec 10>&- 11>&- 12>&- 13>&-; true", only: "dash", status: anyStatus, either: true},
	{name: "every descriptor", text: "for i in $(seq 0 20); do eval \"exec $i>&-\"; done; true", status: anyStatus, either: true},
	{name: "descriptor of job control", text: "exec 255>&-", only: "bash"},
	{name: "another reader of the script", text: "(exec cat <&10 >/dev/null 2>&1) & sleep 0.1", only: "bash", either: true},
	{name: "file size", text: "ulimit -f 0; false", status: 1},
	{name: "descriptors all taken", text: "ulimit -n 100; while { exec {fd}</dev/null; } 2>/dev/null; do :; done", only: "bash", status: anyStatus, either: true},
}

// With few descriptors a shell cannot open the terminal, and with fewer it cannot
// put its standard files back.
func descriptorLimits() (attacks []attack) {
	for _, limit := range []int{2, 3, 5, 6, 7, 8, 10, 11, 12, 13} {
		for _, shell := range []string{"bash", "dash", "busybox"} {
			if limit < 3 && shell != "bash" { // the others print errors without an end
				continue
			}
			attacks = append(attacks, attack{
				name: fmt.Sprintf("%d descriptors", limit), text: fmt.Sprintf("ulimit -n %d; true", limit), only: shell,
				status: anyStatus, replaced: shell != "bash" || limit < 6,
			})
		}
	}
	return attacks
}

// Whatever a command does to its shell, it is answered with its true status, or
// with none, and the next commands run: in the same shell wherever that is
// possible.
func TestSurvive(t *testing.T) {
	t.Parallel()
	for _, attacks := range [][]attack{terminalAttacks, promptAttacks, trapAttacks, optionAttacks, builtinAttacks, descriptorAttacks, descriptorLimits()} {
		checkAttacks(t, attacks, hostile())
	}
}

// In some images sh is bash, which then is in POSIX mode.
func TestSurviveBashAsSh(t *testing.T) {
	t.Parallel()
	sh := filepath.Join(testhelp.PublicDir(t), "sh")
	if err := os.Symlink("/bin/bash", sh); err != nil {
		t.Fatal(err)
	}
	for _, a := range []attack{
		{name: "nothing", text: "sh -c 'exit 6'", status: 6},
		{name: "prompt command", text: "PROMPT_COMMAND='sleep 1000'"},
		{name: "prompt", text: "PS1='$(sleep 1000)' PS2=$PS1 PS0=$PS1"},
		{name: "stopped output", text: python("termios.tcflow(0, termios.TCOOFF)")},
		{name: "function command", text: "command() { :; }; sh -c 'exit 6'", status: 6},
		{name: "interrupt", text: "kill -INT $$", status: 130},
		{name: "few descriptors", text: "ulimit -n 3; false", status: 1, replaced: true},
	} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			checkAttack(t, session(t, sh), a)
		})
	}
}

func TestSurvivePrivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can do this to a terminal")
	}
	checkAttacks(t, privilegedAttacks, nil)
}

// The shell's echo of a long line of the server's waits in the begin pipe, which is
// emptied while the line is sent and by looks at the command.
func TestTraceOfLongText(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			do(t, s, "set -xv")
			if r := do(t, s, ": '"+strings.Repeat("x", 300<<10)+"'; (exit 6)"); r.Status != 6 || r.Restarted != "" {
				t.Errorf("got status %d, restarted %q, want 6 in the same shell", r.Status, r.Restarted)
			}
		})
	}
}

// A trap or a prompt can take the begin pipe from the shell. No later command runs twice then, and
// none is ended for it.
func TestLostBeginPipe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"trap 'exec 2>/dev/null' DEBUG", "readonly PROMPT_COMMAND='exec 2>/dev/null'; trap 'exec 2>/dev/null' USR1; kill -USR1 $$"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s := session(t, "/bin/bash")
			do(t, s, text)
			do(t, s, "sleep 0.1") // the prompt has run
			begin(t, s, "echo ready; read x", "ready")
			<-time.After(4 * time.Second) // more than patience
			if r := enter(t, s, "typed"); r.Status != 0 || r.Restarted != "" {
				t.Errorf("a builtin that waits: got status %d, restarted %q", r.Status, r.Restarted)
			}
			if r := do(t, s, "echo ran >>log; kill -9 $$"); r.Restarted == "" {
				t.Errorf("got %+v, want a new shell", r)
			}
			if r := do(t, s, "cat log"); r.Output != "ran" {
				t.Errorf("got %q, want that the command ran once", r.Output)
			}
		})
	}
}

// A process of an earlier command cannot take the messages that commands begin, which would run again.
func TestBeginPipeIsClosed(t *testing.T) {
	t.Parallel()
	cfg := config(t, "/bin/bash")
	if cfg.User = hostile(); cfg.User != nil { // root opens everything
		cfg.Dir = testhelp.PublicDir(t)
	}
	s, err := bash.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, text := range []string{"cat </proc/$$/fd/12", ": >/proc/$$/fd/12"} {
		if r := do(t, s, text); r.Status != 1 || !strings.Contains(r.Output, "Permission denied") {
			t.Errorf("%s: got status %d and %q", text, r.Status, r.Output)
		}
	}
}

// A process that root left can take those messages. A command then runs once, and how it ended is
// not known, also where the thief kills the shell.
func TestBeginMessageTaken(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can open the begin pipe")
	}
	for status, then := range map[int]string{unknown: "pass", 128 + 9: `time.sleep(0.3); os.kill(int(os.environ["shell"]), signal.SIGKILL)`} {
		wait := "sleep 1"
		if status != unknown {
			wait = "sleep 5" // the thief ends it
		}
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			s := session(t, "/bin/bash")
			thief := do(t, s, "export shell=$$; "+inBackground(
				`pipe = os.open("/proc/%s/fd/12" % os.environ["shell"], os.O_RDONLY)`,
				`open("ready", "w")`,
				`while not os.path.exists("armed"): time.sleep(0.001)`, // the message of this command is the server's
				`open("reads", "w")`,
				"while message := os.read(pipe, 4096):",
				` if b"\0" in message: `+then,
			)+"; until [ -e ready ]; do sleep 0.01; done")
			testhelp.WriteFile(t, filepath.Join(thief.Dir, "armed"), "", 0o600)
			testhelp.Eventually(t, func() bool {
				_, err := os.Stat(filepath.Join(thief.Dir, "reads"))
				return err == nil
			}, "the thief reads")
			for try := range 30 {
				log := fmt.Sprintf("log%d", try)
				r := do(t, s, "echo ran >>"+log+"; "+wait)
				if r.Status == 0 && r.Restarted == "" {
					continue // the server was faster
				}
				if r.Status != status || r.Restarted == "" {
					t.Errorf("got status %d, restarted %q, want %d and a new shell", r.Status, r.Restarted, status)
				}
				if r := do(t, s, "cat "+log); r.Output != "ran" {
					t.Errorf("got %q, want that the command ran once", r.Output)
				}
				return
			}
			t.Error("no message was taken")
		})
	}
}

// A process that a command left cannot have the next one run again by reports that it did not begin, whatever
// the standard input of the shell is.
func TestForgedReport(t *testing.T) {
	t.Parallel()
	const forge = `printf '\0R%s\0%d\0%d\0\0\0/bin\0/\0' "$token" $((seq + 1)) "$seq"`
	const wait = "until [ -e forged ]; do sleep 0.1; done; sleep 0.2"
	learn, report := forgery()
	for name, tt := range map[string]struct{ before, times, text string }{
		"once":                 {"sleep 0.3", "1", wait},
		"again and again":      {"until [ -e started ]; do sleep 0.01; done", "2000", ">started; sleep 0.01"},
		"a loop over a file":   {"sleep 0.3", "1", "echo >list; while read -r line; do " + wait + "; done <list"},
		"standard input gone":  {"sleep 0.3", "1", "exec <&-; " + wait},
		"another input":        {"sleep 0.3", "1", "exec </dev/null; " + wait},
		"the terminal by name": {"sleep 0.3", "1", "exec </dev/tty; " + wait},
	} {
		for shell, program := range shells(t) {
			t.Run(name+"/"+shell, func(t *testing.T) {
				t.Parallel()
				s := session(t, program)
				do(t, s, learn[shell])
				do(t, s, "trap - DEBUG 2>/dev/null || :; ("+tt.before+"; i=0; while [ $i -lt "+tt.times+" ]; do "+
					forge+report[shell]+"; i=$((i + 1)); done; >forged) &")
				r := do(t, s, "echo ran >>log; "+tt.text+"; (exit 6)")
				// Only a report from the time in which the shell's input is its script can be its own.
				if r.Status != 6 && (name == "once" || r.Status != unknown || r.Restarted == "") {
					t.Errorf("got status %d, restarted %q, want 6, or an unknown one and a new shell", r.Status, r.Restarted)
				}
				// The shell may say here that the job has ended.
				if r := do(t, s, "cat log"); strings.Count(r.Output, "ran") != 1 {
					t.Errorf("got %q, want that the command ran once", r.Output)
				}
			})
		}
	}
}

// forgery returns for each shell a command that learns the token of its reports, and the redirection to the report pipe by the
// descriptor where the shell keeps it while it evaluates a command.
func forgery() (learn, report map[string]string) {
	learn, report = map[string]string{
		"bash": `trap '[[ $BASH_COMMAND =~ ([0-9a-f]{16})\ ([0-9]+) ]] && token=${BASH_REMATCH[1]} seq=${BASH_REMATCH[2]}' DEBUG`,
	}, map[string]string{"bash": " >&11"}
	for _, posix := range []string{"dash", "busybox"} {
		learn[posix] = `command() { case ${3-} in ????????????????) token=$3 seq=$4; unset -f command;; esac; "$@"; }`
		report[posix] = " >/proc/self/fd/12"
	}
	return learn, report
}

// A process that the shell forked can forge the end of a command, which then goes on: its status is the forged one. The
// next command comes after it, in the same shell, and neither runs twice.
func TestForgedEnd(t *testing.T) {
	t.Parallel()
	learn, report := forgery()
	for shell, program := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			do(t, s, learn[shell])
			do(t, s, "trap - DEBUG 2>/dev/null || :; (until [ -e begun ]; do sleep 0.01; done; "+
				`printf '\0R%s\0%d\0%d 3\0\0\0/bin\0/\0' "$token" $((seq + 1)) $((seq + 1))`+report[shell]+"; >forged) &")
			if r := do(t, s, "echo once >>log; >begun; until [ -e forged ]; do sleep 0.01; done; sleep 0.3; (exit 6)"); r.Status != 3 {
				t.Errorf("got status %d, want the forged 3", r.Status)
			}
			if r := do(t, s, "echo then >>log; cat log"); r.Status != 0 || !strings.Contains(r.Output, "once\nthen") || strings.Count(r.Output, "once") != 1 || r.Restarted != "" {
				t.Errorf("then: got status %d and %q, restarted %q, want that both ran once", r.Status, r.Output, r.Restarted)
			}
		})
	}
}

// A trap that hangs before each command of the shell hangs before the server's
// lines too. Keys still end commands, and a reset is not needed for that.
func TestHangingTrap(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "trap 'sleep 1000' DEBUG")
	for range 2 {
		r, err := s.Run(t.Context(), bash.Command{Text: "echo back", Hard: short})
		for i := 0; i < 100 && err == nil && r.Outcome != bash.Completed; i++ {
			r, err = s.Run(t.Context(), bash.Command{Text: "C-c", Input: true, Hard: short})
		}
		if err != nil || r.Outcome != bash.Completed {
			t.Fatalf("got %+v, %v", r, err)
		}
	}
}

func checkAttacks(t *testing.T, attacks []attack, user *identity.User) {
	t.Helper()
	for shell, program := range shells(t) {
		for _, a := range attacks {
			if a.only != "" && a.only != shell || a.except == shell {
				continue
			}
			t.Run(shell+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				dir := testhelp.PublicDir(t)
				cfg := config(t, program)
				cfg.Dir, cfg.Env[1], cfg.User = dir, "HOME="+dir, user
				s, err := bash.Start(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				checkAttack(t, s, a)
			})
		}
	}
}

func checkAttack(t *testing.T, s *bash.Session, a attack) {
	t.Helper()
	do(t, s, "kept=1; export saved=2")
	r := do(t, s, a.text)
	if a.status != anyStatus && r.Status != a.status {
		t.Errorf("got status %d, want %d; output %q, restarted %q", r.Status, a.status, r.Output, r.Restarted)
	}
	replaced := r.Restarted != ""
	r = do(t, s, `echo "back $kept $saved"`)
	replaced = replaced || r.Restarted != ""
	want := map[bool]string{false: "back 1 2", true: "back  2"}[replaced]
	if r.Status != 0 || !strings.Contains(r.Output, want) {
		t.Errorf("the next command: got status %d and %q, want %q; restarted %q", r.Status, r.Output, want, r.Restarted)
	}
	if replaced != a.replaced && !a.either {
		t.Errorf("got a new shell: %v, want %v (%s)", replaced, a.replaced, r.Restarted)
	}
	if r = do(t, s, "cd /"); r.Status != 0 || r.Dir != "/" {
		t.Errorf("then: got status %d and directory %q, want /", r.Status, r.Dir)
	}
	if r = do(t, s, "/bin/false"); r.Status != 1 {
		t.Errorf("then: got status %d and %q, want 1", r.Status, r.Output)
	}
}
