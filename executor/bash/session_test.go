package bash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/internal/testhelp"
)

// Waits in these tests are either for something that must happen, and then
// long, or for a limit to pass over a command that would go on for ever, and
// then short; neither is a measurement.
const (
	long  = 5 * time.Minute
	short = 300 * time.Millisecond
)

// shells are the programs that the matrix runs on. BusyBox is a shell by the name
// of sh.
func shells(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"bash", "dash", "busybox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is needed: apt-get install bash dash busybox-static", name)
		}
		if name == "busybox" {
			link := filepath.Join(testhelp.PublicDir(t), "sh")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			path = link
		}
		found[name] = path
	}
	return found
}

// session starts a session in a fresh directory, with an empty home.
func session(t *testing.T, program string) *bash.Session {
	t.Helper()
	s, err := bash.Start(t.Context(), config(t, program))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func config(t *testing.T, program string) bash.Config {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return bash.Config{
		Program: program, Dir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", treeMark},
	}
}

// do runs a command to its end.
func do(t *testing.T, s *bash.Session, text string) bash.Result {
	t.Helper()
	r, err := s.Run(t.Context(), bash.Command{Text: text, Hard: long})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if r.Outcome != bash.Completed {
		t.Fatalf("%q: got outcome %d with output %q, want it completed", text, r.Outcome, r.Output)
	}
	return r
}

// enter types input and waits for the end of the command that takes it.
func enter(t *testing.T, s *bash.Session, text string) bash.Result {
	t.Helper()
	r, err := s.Run(t.Context(), bash.Command{Text: text, Input: true, Hard: long})
	if err != nil {
		t.Fatalf("input %q: %v", text, err)
	}
	return r
}

// begin runs a command that does not end, until its output shows text.
func begin(t *testing.T, s *bash.Session, text, shows string) {
	t.Helper()
	r, err := s.Run(t.Context(), bash.Command{Text: text, Hard: short})
	output := r.Output
	for range 100 {
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if r.Outcome == bash.Completed {
			t.Fatalf("%q: completed with %q, want it to run on", text, output)
		}
		if strings.Contains(output, shows) {
			return
		}
		r, err = s.Run(t.Context(), bash.Command{Hard: short})
		output += r.Output
	}
	t.Fatalf("%q: got %q, want %q in it", text, output, shows)
}

// A matrix case runs commands one after the other. The last one's answer is
// compared; all must complete.
type matrixCase struct {
	name     string
	commands []string
	only     string // the shell that can do it; empty: all
	except   string // the shell that cannot
	status   int
	output   string // exact
	has      string // or a part of it
	restarts bool
	after    string // output of a further command, which shows that the session lives
	then     string
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	cases := []matrixCase{
		// 1. statuses and texts
		{name: "true", commands: []string{"true"}},
		{name: "false", commands: []string{"false"}, status: 1},
		{name: "status is kept for the next command", commands: []string{"sh -c 'exit 7'", "echo $?"}, output: "7"},
		{name: "exit 3", commands: []string{"exit 3"}, status: 3, restarts: true, then: "echo back", after: "back"},
		{name: "exit 300", commands: []string{"exit 300"}, status: 44, restarts: true, only: "bash"},
		{name: "kill -9", commands: []string{"kill -9 $$"}, status: 137, restarts: true, then: "echo back", after: "back"},
		{name: "kill -TERM", commands: []string{"kill -TERM $$"}, then: "echo back", after: "back"},
		{name: "kill -INT", commands: []string{"kill -INT $$; echo not reached"}, status: 130, then: "echo back", after: "back"},
		{name: "not found", commands: []string{"no_such_command_here"}, status: 127, has: "not found"},
		{name: "not executable", commands: []string{"echo x > f", "./f"}, status: 126, has: "ermission denied"},
		{name: "missing interpreter", commands: []string{"printf '#!/no/such/thing\\n' > f; chmod +x f", "./f"}, status: -1},
		{name: "directory gone", commands: []string{"mkdir d && cd d && rmdir ../d", "echo ok"}, output: "ok"},
		{name: "directory with blanks and newlines", commands: []string{"mkdir 'a  b\nc' && cd 'a  b\nc'", "pwd"}, has: "/a  b\nc"},
		{name: "comment only", commands: []string{"# nothing"}},
		{name: "16 KB of text", commands: []string{": " + strings.Repeat("x", 16<<10) + "; echo end"}, output: "end"},
		{name: "1 MiB of text", commands: []string{": '" + strings.Repeat("x", 1<<20) + "'; echo end"}, output: "end"},
		{name: "quotes", commands: []string{`echo "it's" 'a "b"' \' "\$x" '!'`}, output: `it's a "b" ' $x !`},
		{name: "exclamation mark", commands: []string{`echo "wow!ls"`}, output: "wow!ls"},
		{name: "tabs complete nothing", commands: []string{"cat <<'EOF' | od -An -c\n\tx\nEOF"}, has: `\t   x  \n`},
		{name: "leading dash", commands: []string{"-n"}, status: 127},

		// 2. background jobs
		{name: "job line", commands: []string{"sleep 30 & echo bg"}, only: "bash", has: "[1] "},
		{name: "job in a subshell", commands: []string{"(sleep 30 &); echo done"}, output: "done"},
		{name: "nohup", commands: []string{"nohup sleep 30 >/dev/null 2>&1 &", "echo ok"}, output: "ok"},
		{name: "setsid", commands: []string{"setsid sleep 30 & echo ok"}, has: "ok", except: "busybox"}, // whose shell it ends
		{name: "double fork", commands: []string{"sh -c '(sleep 30 &) &'; echo ok"}, output: "ok"},
		{name: "wait", commands: []string{"sh -c 'exit 5' & wait $!"}, status: 5},
		{name: "jobs", commands: []string{"sleep 30 &", "jobs"}, has: "Running"},
		{name: "background pid", commands: []string{"sleep 30 &", "kill -0 $! && echo lives"}, output: "lives"},

		// 3. what breaks other shells
		{name: "set -e", commands: []string{"set -e", "false"}, status: 1, restarts: true, then: "echo back", after: "back"},
		{name: "set -u", commands: []string{"set -u; echo $nope"}, status: -1, then: "set +u; echo back", after: "back"},
		{name: "set -x traces no line of ours", commands: []string{"set -x", "echo a", "set +x", "echo b"}, output: "b"},
		{name: "exec", commands: []string{"exec sh -c 'exit 9'"}, status: 9, restarts: true, then: "echo back", after: "back"},
		{name: "exec true", commands: []string{"exec true"}, restarts: true},
		{name: "exec away output", commands: []string{"exec >/dev/null", "echo seen"}, output: "seen"},
		{name: "exec close output", commands: []string{"exec 1>&-", "echo seen"}, output: "seen"},
		{name: "exec close errors and input", commands: []string{"exec 2>&- 0<&-", "cat f; echo seen"}, has: "seen"},
		{name: "exec close our descriptors", commands: []string{"exec 7>&- 8>&- 9<&-", "echo seen"}, output: "seen"},
		{name: "exit trap", commands: []string{"trap 'exit 4' EXIT", "true"}, then: "echo back", after: "back"},
		{name: "int trap", commands: []string{"trap 'echo int' INT", "echo a"}, output: "a"},
		{name: "chld trap", commands: []string{"trap ':' CHLD", "sh -c true; echo a"}, has: "a", only: "bash"},
		{name: "debug trap", commands: []string{"trap ': dbg' DEBUG", "echo a"}, output: "a", only: "bash"},
		{name: "unbalanced quote", commands: []string{"echo 'open"}, status: 2, then: "echo back", after: "back"},
		{name: "unterminated here-document", commands: []string{"cat <<EOF\ntext"}, has: "text", then: "echo back", after: "back"},
		{name: "unclosed substitution", commands: []string{"echo $(echo a"}, status: -1, then: "echo back", after: "back"},
		{name: "unfinished loop", commands: []string{"while true; do"}, status: 2, then: "echo back", after: "back"},
		{name: "prompts", commands: []string{"PS1='$ '; PS2='> '", "echo a"}, output: "a"},
		{name: "prompt command", commands: []string{"PROMPT_COMMAND='echo prompt'", "echo a"}, output: "a"},
		{name: "prompt that takes its time", commands: []string{"PS1='$(sleep 1000)'; PS0=$PS1", "echo a"}, output: "a", only: "bash"},
		{name: "sourcing files for people", commands: []string{"echo '[ -n \"$PS1\" ] && echo interactive' > f; . ./f"}, output: "interactive"},
		{name: "no history of ours", commands: []string{"history | wc -l"}, output: "0", only: "bash"},
		{name: "unset PATH", commands: []string{"unset PATH", "echo a"}, output: "a"},
		{name: "aliases of our words", commands: []string{"alias .=x eval=x printf=x builtin=x command=x exit=x set=x", "echo a"}, output: "a", only: "bash"},
		{name: "functions of our words", commands: []string{"printf() { echo p; }; read() { echo r; }; echo2() { :; }", "echo a"}, output: "a"},
		{name: "function eval", commands: []string{"eval() { echo e; }; set() { echo s; }; exit() { echo x; }", "echo a"}, output: "a", only: "bash"},
		{name: "readonly variables", commands: []string{"readonly PROMPT_COMMAND=true PS1 OLDPWD", "echo a"}, output: "a", only: "bash"},
		{name: "few descriptors", commands: []string{"ulimit -n 8", "echo a"}, output: "a", only: "bash"},
		{name: "few descriptors", commands: []string{"export V=kept; ulimit -n 8; false", "echo $V"}, output: "kept", restarts: true, except: "bash"},
		{name: "no descriptors", commands: []string{"export V=kept; ulimit -n 3; false", "echo $V"}, output: "kept", restarts: true},
		{name: "status before no descriptors", commands: []string{"ulimit -n 3; false"}, status: 1},
		{name: "no processes", commands: []string{"ulimit -u 1 2>/dev/null; :", "echo a"}, output: "a"},
		{name: "restricted shell", commands: []string{"set -r; false", "echo a"}, output: "a", restarts: true, only: "bash"},
		{name: "status before a restricted shell", commands: []string{"set -r; false"}, status: 1, only: "bash"},
		{name: "shell stops itself", commands: []string{"kill -STOP $$; echo on"}, output: "on"},
		{name: "suspend", commands: []string{"suspend -f; echo on"}, output: "on", only: "bash"},
		{name: "trap that is not called", commands: []string{"trap 'exit 7' CONT", "echo a"}, output: "a"},
		{name: "field separator", commands: []string{"IFS=0123456789", "echo a"}, output: "a"},
		{name: "posix mode", commands: []string{"set -o posix", "echo a"}, output: "a", only: "bash"},
		{name: "noclobber, noglob", commands: []string{"set -C -f", "echo a *"}, output: "a *"},

		// 4. output
		{name: "no final newline", commands: []string{"printf abc"}, output: "abc"},
		{name: "indentation", commands: []string{`printf '   a\n  b\n'`}, output: "   a\n  b"},
		{name: "carriage returns", commands: []string{`printf '10%%\r50%%\r99%%\n'`}, output: "99%"},
		{name: "NUL", commands: []string{`printf 'a\000b\n'`}, output: "ab"},
		{name: "invalid UTF-8", commands: []string{`printf 'a\377b\n'`}, output: "a\uFFFDb"},
		{name: "streams interleaved", commands: []string{"echo 1; echo 2 >&2; echo 3"}, output: "1\n2\n3"},
		{name: "colours", commands: []string{`printf '\033[31mred\033[0m\n'`}, output: "red"},
		{name: "title and bell", commands: []string{`printf '\a\033]0;title\007text\n'`}, output: "text"},
		{name: "text as the file has it", commands: []string{`printf 'all:\n\tgo build  \n\t\n' >f; cat f`}, output: "all:\n\tgo build  \n\t"},
		{name: "text like our reports", commands: []string{`printf 'R\0001\0000\000'; printf '###PS1JSON###\n{"exit_code":9}\n###PS1END###\n'`}, has: "PS1END"},
		{name: "a line of 70 KB", commands: []string{"head -c 70000 /dev/zero | tr '\\0' x | wc -c; head -c 70000 /dev/zero | tr '\\0' x"}, has: strings.Repeat("x", 1000)},

		// 6. environment
		{name: "value with everything", commands: []string{"export V='a$b `c` \"d\"\ne'", "printf '%s\\n' \"$V\""}, output: "a$b `c` \"d\"\ne"},
		{name: "large value", commands: []string{"V=$(head -c 100000 /dev/zero | tr '\\0' x); export V", "echo ${#V}"}, output: "100000"},
		{name: "unset", commands: []string{"export V=1", "unset V", "echo ${V-none}"}, output: "none"},
		{name: "exported function", commands: []string{"f() { echo in f; }; export -f f", "bash -c f"}, output: "in f", only: "bash"},
		{name: "environment does not change", commands: []string{"env | grep -v ^_= | sort > a", "env | grep -v ^_= | sort > b", "cmp a b && echo same"}, output: "same", only: "bash"},
	}
	for shell, program := range shells(t) {
		for _, c := range cases {
			if c.only != "" && c.only != shell || c.except == shell {
				continue
			}
			t.Run(shell+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				checkCase(t, session(t, program), c)
			})
		}
	}
}

func checkCase(t *testing.T, s *bash.Session, c matrixCase) {
	t.Helper()
	var r bash.Result
	for _, command := range c.commands {
		r = do(t, s, command)
	}
	if c.status == -1 && r.Status == 0 || c.status != -1 && r.Status != c.status {
		t.Errorf("got status %d, want %d; output %q", r.Status, c.status, r.Output)
	}
	if c.has == "" && c.output != "" && r.Output != c.output {
		t.Errorf("got output %.300q, want %.300q", r.Output, c.output)
	}
	if !strings.Contains(r.Output, c.has) {
		t.Errorf("got output %.300q, want %.300q in it", r.Output, c.has)
	}
	if got := r.Restarted != ""; got != c.restarts {
		t.Errorf("got restarted %q, want a restart: %v", r.Restarted, c.restarts)
	}
	if c.then != "" {
		if r := do(t, s, c.then); r.Output != c.after {
			t.Errorf("%q afterwards: got %q, want %q", c.then, r.Output, c.after)
		}
	}
}

// The directory is where the shell is, whatever a command calls it.
func TestDirectory(t *testing.T) {
	t.Parallel()
	for shell, program := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			start := s.Info().Dir
			for _, c := range []struct{ command, want string }{
				{"true", start},
				{"PWD=/etc", start},
				{"unset PWD; :", start},
				{"mkdir 'a\n' && cd 'a\n'", start + "/a\n"},
				{"rmdir ../a*", start + "/a\n"},
				{"cd " + start + "; mkdir d; ln -s d link; cd link", start + "/link"},
				{"pwd() { echo /etc; }; cd ../d", start + "/d"},
				{"readonly PWD; cd / 2>/dev/null", "/"},
			} {
				if r := do(t, s, c.command); r.Dir != c.want {
					t.Errorf("%s: got %q, want %q", c.command, r.Dir, c.want)
				}
			}
		})
	}
}

// Where a shell does not know its directory any more, the last one that it knew
// is told.
func TestDirectoryGone(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "set -o posix; mkdir g; cd g")
	if r := do(t, s, "rmdir ../g; cd ."); r.Dir != s.Info().Dir || filepath.Base(r.Dir) != "g" {
		t.Errorf("got %q, want the directory that is gone", r.Dir)
	}
}

// A shell that had to be started anew has what the old one had saved.
func TestRestartRestores(t *testing.T) {
	t.Parallel()
	for shell, program := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			do(t, s, "export V='a b' W=1; f() { echo func $1; }; alias q='echo al'")
			do(t, s, "mkdir -p sub; cd sub")
			r := do(t, s, "kill -9 $$")
			if r.Status != 137 || !strings.Contains(r.Restarted, "signal 9") {
				t.Errorf("got status %d, restarted %q", r.Status, r.Restarted)
			}
			got := do(t, s, `echo "$V $W ${PWD##*/}"`).Output
			if got != "a b 1 sub" {
				t.Errorf("got %q, want the variables and the directory", got)
			}
			if shell != "bash" {
				return
			}
			if got := do(t, s, "f 1; q").Output; got != "func 1\nal" {
				t.Errorf("got %q, want the function and the alias", got)
			}
		})
	}
}

// Work that a command wants done before prompts never holds up the commands after it.
func TestPromptCommand(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	begin(t, s, "PROMPT_COMMAND='sleep 1000'; echo set; sleep 1000", "set")
	if r := enter(t, s, "C-c"); r.Outcome != bash.Completed || r.Status != 130 || r.Restarted != "" {
		t.Fatalf("got %+v", r)
	}
	for range 2 {
		if r := do(t, s, "echo a"); r.Output != "a" {
			t.Errorf("got %q", r.Output)
		}
	}
}

// A shell that dies between two commands is replaced, and the next answer says so.
func TestDeathWhileIdle(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "(while ! [ -e go ]; do sleep 0.01; done; kill -9 $$) & disown")
	testhelp.WriteFile(t, filepath.Join(s.Info().Dir, "go"), "", 0o600)
	testhelp.Eventually(t, func() bool { return s.Info().PID == 0 }, "the shell ends")
	if r := do(t, s, "echo back"); r.Output != "back" || r.Restarted == "" {
		t.Errorf("got %q, restarted %q", r.Output, r.Restarted)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := session(t, "/bin/bash")
	r, err := s.Run(ctx, bash.Command{Text: "echo a; sleep 1000", Soft: short, Hard: long})
	again := r.Continued
	for err == nil && r.Outcome == bash.Silent && r.Output == "" { // not yet, on a busy machine
		r, err = s.Run(ctx, bash.Command{Soft: short, Hard: long})
	}
	if err != nil || r.Outcome != bash.Silent || r.Output != "a" || again {
		t.Fatalf("soft limit: got %+v, %v, continued at first: %t", r, err, again)
	}
	r, err = s.Run(ctx, bash.Command{Text: "echo b", Hard: long})
	if err != nil || r.Outcome != bash.Refused || r.Output != "" || !r.Continued {
		t.Fatalf("command while running: got %+v, %v", r, err)
	}
	r, err = s.Run(ctx, bash.Command{Hard: time.Millisecond})
	if err != nil || r.Outcome != bash.TimedOut {
		t.Fatalf("poll: got %+v, %v", r, err)
	}
	r, err = s.Run(ctx, bash.Command{Text: "C-c", Hard: long})
	if err != nil || r.Outcome != bash.Refused {
		t.Fatalf("key without input: got %+v, %v", r, err)
	}
	if r = enter(t, s, "C-c"); r.Status != 130 || r.Output != "^C" || r.Key != "C" {
		t.Fatalf("C-c: got %+v", r)
	}
	if r, err = s.Run(ctx, bash.Command{Hard: long}); err != nil || r.Outcome != bash.NothingToPoll {
		t.Errorf("poll of nothing: got %+v, %v", r, err)
	}
	if r = enter(t, s, "x"); r.Outcome != bash.NothingToType {
		t.Errorf("input for nothing: got %+v", r)
	}
	if r, err = s.Run(ctx, bash.Command{Text: "echo a\necho b", Hard: long}); err != nil || r.Outcome != bash.Multiple || len(r.Commands) != 2 {
		t.Errorf("two commands: got %+v, %v", r, err)
	}
	if r = do(t, s, "C-c"); r.Status != 130 || do(t, s, "echo $?").Output != "130" {
		t.Errorf("C-c on an idle shell: got %+v", r)
	}
}

// Output that never stops does not reset the hard limit, and does not keep the
// answer from coming.
func TestHardLimitDuringOutput(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	r, err := s.Run(t.Context(), bash.Command{Text: "yes", Soft: long, Hard: short})
	for i := 0; i < 100 && err == nil && r.Outcome == bash.TimedOut && r.Omitted == 0; i++ { // not much yet, on a busy machine
		r, err = s.Run(t.Context(), bash.Command{Soft: long, Hard: short})
	}
	if err != nil || r.Outcome != bash.TimedOut || r.Omitted == 0 {
		t.Fatalf("got outcome %d, %d omitted, %v", r.Outcome, r.Omitted, err)
	}
	if r := enter(t, s, "C-c"); r.Status != 130 {
		t.Errorf("got %d", r.Status)
	}
}

// A background job that floods the terminal holds up no answer.
func TestFloodFromTheBackground(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "yes & disown")
	for range 20 {
		do(t, s, "true")
	}
	do(t, s, "kill $!")
	if r := do(t, s, "echo alone"); !strings.HasSuffix(r.Output, "alone") {
		t.Errorf("got %.100q", r.Output)
	}
}

func TestInteraction(t *testing.T) {
	t.Parallel()
	for shell, program := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			begin(t, s, "printf 'Name: '; read n && echo Hello $n", "Name:")
			if r := enter(t, s, "Ada"); r.Output != "Hello Ada" || r.Status != 0 || !r.Continued {
				t.Errorf("read: got %+v", r)
			}
			begin(t, s, "cat", "")
			var lines atomic.Int64
			r, err := s.Run(t.Context(), bash.Command{
				Text: "line one", Input: true, Hard: long,
				Output:      func(c bash.Chunk) { lines.Add(int64(bytes.Count(c.Data, []byte("\n")))) },
				AwaitsInput: func() bool { return lines.Load() == 2 }, // that of the terminal, and that of cat
			})
			if err != nil || r.Output != "line one" {
				t.Errorf("cat: got %+v, %v", r, err)
			}
			if r := enter(t, s, "C-d"); r.Status != 0 || r.Output != "" || r.Key != "D" {
				t.Errorf("C-d: got %+v", r)
			}
			if shell == "busybox" {
				// It misses a key about once in twenty runs on a busy machine, and
				// its children ignore C-\\.
				return
			}
			begin(t, s, "while :; do :; done", "")
			if r := enter(t, s, "C-c"); r.Status != 130 {
				t.Errorf("C-c in a loop of the shell: got %+v", r)
			}
			begin(t, s, "sh -c 'echo on; sleep 60'", "on")
			if r := enter(t, s, "C-z"); r.Status != 148 || r.Key != "Z" {
				t.Errorf("C-z: got %+v", r)
			}
			begin(t, s, "fg", "sleep 60")
			if r := enter(t, s, "C-c"); r.Status != 130 {
				t.Errorf("C-c after fg: got %+v", r)
			}
			begin(t, s, "sh -c 'trap \"\" INT TERM; echo deaf; sleep 60'", "deaf")
			if r := enter(t, s, `C-\`); r.Outcome != bash.Completed {
				t.Errorf("C-\\ on a program that ignores C-c: got %+v", r)
			}
		})
	}
}

// A C-c does not wait for the answer that it is to bring about. It may come at
// any moment, also while the shell still reads the command's line: a signal
// that reaches the shell itself just before it starts a program is lost, as at
// any terminal, and pressing again helps.
func TestKeyDuringWait(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	for range 10 {
		answered := make(chan bash.Result, 1)
		go func() {
			r, _ := s.Run(context.Background(), bash.Command{Text: ": " + strings.Repeat("'x' \"y\" ", 30) + "; sleep 1000", Hard: -1})
			answered <- r
		}()
		for !s.Info().Busy {
			runtime.Gosched()
		}
		waiting := true
		for waiting {
			if _, err := s.Run(t.Context(), bash.Command{Text: "C-c", Input: true, Hard: short}); err != nil {
				t.Fatal(err)
			}
			select {
			case r := <-answered:
				waiting = false
				if r.Outcome != bash.Completed || r.Status != 130 || !strings.HasPrefix(r.Output, "^C") {
					t.Fatalf("the one who waited: got %+.300v", r)
				}
			default:
			}
		}
		if r := do(t, s, "echo next"); r.Output != "next" || r.Restarted != "" {
			t.Fatalf("the command after it: got %+.300v", r)
		}
	}
}

// A caller that goes away leaves the command running and its output for the
// next one to ask.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, bash.Command{Text: "echo before; read x; echo after $x", Hard: -1})
		done <- err
	}()
	waitBusy(t, s)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	r := enter(t, s, "me")
	if r.Outcome != bash.Completed || !strings.HasPrefix(r.Output, "before\n") || !strings.HasSuffix(r.Output, "after me") {
		t.Errorf("got %+v", r)
	}
}

// Terminal modes that a command left do not reach the next one.
func TestTerminalRestored(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	before := do(t, s, "stty -a").Output
	do(t, s, "stty raw -echo")
	if after := do(t, s, "stty -a").Output; after != before {
		t.Errorf("got %q, want %q", after, before)
	}
	if got := do(t, s, "stty size").Output; got != "1000 1000" {
		t.Errorf("got size %q", got)
	}
	if got := do(t, s, "tty").Output; !strings.HasPrefix(got, "/dev/pts/") {
		t.Errorf("got %q, want the terminal itself", got)
	}
}

// Descriptors of the server do not reach commands.
func TestNoDescriptorsLeak(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	// Other descriptors than standard files of a child of this process: the runner of
	// the tests left them open.
	want, err := exec.CommandContext(t.Context(), "ls", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, "ls /proc/self/fd | cat").Output; got != strings.TrimSpace(string(want)) {
		t.Errorf("got descriptors %q, want %q", got, want)
	}
}

// The person's own files are read, and one that ends the shell is left out.
func TestPersonalFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bashrc, want string }{
		"variable": {"greeting=hello; [ -n \"$PS1\" ] && interactive=yes", "hello yes"},
		"exit":     {"greeting=hello; exit 1", ""},
		"set -e":   {"set -e; false", ""},
		"function": {"prompt() { return 3; }; PROMPT_COMMAND=prompt; greeting=hi", "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, "/bin/bash")
			home := strings.TrimPrefix(cfg.Env[1], "HOME=")
			testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), c.bashrc, 0o600)
			s, err := bash.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := strings.TrimSpace(do(t, s, "echo $greeting $interactive").Output); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Start files that do not end are left out, and the first answer says so.
func TestSlowStartFiles(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, program)
			file := filepath.Join(t.TempDir(), "start")
			if name == "bash" {
				file = filepath.Join(strings.TrimPrefix(cfg.Env[1], "HOME="), ".bashrc")
			}
			testhelp.WriteFile(t, file, "export early=yes; sleep 100000", 0o600)
			cfg.Env = append(cfg.Env, "ENV="+file)
			var logged time.Duration
			cfg.Slow = func(_ context.Context, limit time.Duration) { logged = limit }
			s, err := bash.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r := do(t, s, "echo first$early")
			if r.Output != "first" || r.Status != 0 || r.Restarted != "" || r.SlowStart == 0 || r.SlowStart != logged {
				t.Errorf("got %+v, and %v in the log", r, logged)
			}
			if r := do(t, s, "kill -9 $$"); r.SlowStart != 0 || !strings.Contains(r.Restarted, "signal 9") {
				t.Errorf("the next command: got %+v", r)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bash.Config){
		"no program":   func(c *bash.Config) { c.Program = "/no/such/shell" },
		"no directory": func(c *bash.Config) { c.Dir = "/no/such/directory" },
		"not a shell":  func(c *bash.Config) { c.Program = "/bin/false" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, "/bin/bash")
			change(&cfg)
			if s, err := bash.Start(t.Context(), cfg); err == nil {
				s.Close()
				t.Error("got no error")
			}
		})
	}
}

// A server that a script put into the background ignores interrupts; the
// commands of its shells do not.
func TestSignalsIgnoredByLauncher(t *testing.T) {
	t.Parallel()
	if os.Getenv("ACTIOND_TEST_DEAF") != "" {
		s := session(t, "/bin/bash")
		begin(t, s, "echo on; sleep 1000", "on")
		if r := enter(t, s, "C-c"); r.Status != 130 {
			t.Errorf("got %+v", r)
		}
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap '' INT HUP; exec "$0" -test.run='^TestSignalsIgnoredByLauncher$'`, program)
	cmd.Env = append(os.Environ(), "ACTIOND_TEST_DEAF=yes")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A program in the shell's place is a command like any other, however long it
// runs.
// When memory runs out, a command goes before the process that tells of it.
func TestCommandsGoFirst(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		if got := do(t, session(t, program), "cat /proc/self/oom_score_adj").Output; strings.TrimSpace(got) != "1000" {
			t.Errorf("%s: got a score of %q", name, got)
		}
	}
}

func TestExecIsACommand(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "export kept=yes")
	if r := do(t, s, "exec sh -c 'sleep 2; exit 9'"); r.Status != 9 {
		t.Errorf("got status %d, want 9", r.Status)
	}
	if r := do(t, s, "echo $kept"); r.Output != "yes" {
		t.Errorf("got %q", r.Output)
	}
	begin(t, s, "exec cat", "")
	if r := enter(t, s, "C-d"); r.Status != 0 || r.Restarted == "" {
		t.Errorf("got %+v", r)
	}
}

// longCmdline is a program that says of its command line that it is as long as
// this, and then waits.
const longCmdline = `
import ctypes, signal, struct, sys
length = 256 << 20
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
start = libc.mmap(None, ctypes.c_size_t(length), 3, 0x4022, -1, ctypes.c_long(0))
stat = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
field = lambda n: int(stat[n - 3])
map = struct.pack("<11QQII", field(26), field(27), field(45), field(46), field(47), libc.sbrk(0), field(28),
    start, start + length, field(50), field(51), 0, 0, 0xffffffff)
if libc.prctl(35, 14, map, ctypes.c_ulong(len(map)), 0):
    sys.exit("refused")
print("ready", flush=True)
signal.pause()
`

// A program's reports of itself are not believed: the server's memory is not
// filled with a command line.
func TestLongCommandLine(t *testing.T) { //nolint:paralleltest // it measures this process
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("there is no /usr/bin/python3")
	}
	s := session(t, "/bin/bash")
	begin(t, s, python+" -c '"+longCmdline+"'", "ready")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	enter(t, s, "C-c")
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
		t.Errorf("an interrupt took %d MiB of memory", took)
	}
}

// Text typed for one command does not answer the question of another.
func TestTypedAheadIsDropped(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	begin(t, s, "sleep 1", "")
	if _, err := s.Run(t.Context(), bash.Command{Text: "y", Input: true, Hard: 0}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), bash.Command{Hard: long}); err != nil || r.Outcome != bash.Completed {
		t.Fatalf("got %+v, %v", r, err)
	}
	begin(t, s, "read -p 'delete? ' x; echo got=$x", "delete?")
	if r := enter(t, s, "n"); r.Output != "got=n" {
		t.Errorf("got %q", r.Output)
	}
}

// Nothing that stops the shell or its output is for good.
func TestStopped(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, "suspend")
	begin(t, s, "sleep 1", "")
	if _, err := s.Run(t.Context(), bash.Command{Text: "C-s", Input: true, Hard: 0}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), bash.Command{Hard: long}); err != nil || r.Outcome != bash.Completed {
		t.Fatalf("got %+v, %v", r, err)
	}
	if r := do(t, s, "echo seen"); r.Output != "seen" {
		t.Errorf("after C-s: got %+v", r)
	}
	begin(t, s, "trap '' INT; while :; do :; done", "")
	if r := enter(t, s, `C-\`); r.Outcome != bash.Completed || r.Restarted == "" {
		t.Errorf("a loop that traps every key: got %+v", r)
	}
	do(t, s, "true")
}

// A saved function that keeps a shell from starting is given up.
func TestPoisonedState(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	do(t, s, `builtin() { case $1 in cd) sleep 1000;; *) command builtin "$@";; esac; }`)
	do(t, s, "exit")
	if r := do(t, s, "echo back"); r.Output != "back" {
		t.Errorf("got %+v", r)
	}
}

// Large output keeps its end, and what is kept is bounded.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	r := do(t, s, `for i in $(seq 1 50000); do echo "Line $i"; done`)
	first, _, _ := strings.Cut(r.Output, "\n")
	if r.Omitted == 0 || !strings.HasSuffix(r.Output, "Line 50000") {
		t.Errorf("got %d omitted, end %q", r.Omitted, r.Output[len(r.Output)-20:])
	}
	if first < "Line 38638" || first > "Line 40000" {
		t.Errorf("got first line %q, want it from 38638 to 40000", first)
	}
	r = do(t, s, "yes | head -c 20000000")
	if len(r.Output) > 9<<20 {
		t.Errorf("got %d bytes", len(r.Output))
	}
	if r = do(t, s, "head -c 20000000 /dev/zero | tr '\\0' x"); len(r.Output) > 2<<20 || !strings.HasPrefix(r.Output, "xxx") {
		t.Errorf("one line: got %d bytes", len(r.Output))
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := session(t, "/bin/bash")
	begin(t, s, "sh -c 'trap \"\" HUP; echo deaf; sleep 1000'", "deaf")
	s.Close()
	if _, err := s.Run(t.Context(), bash.Command{Text: "true", Hard: long}); !errors.Is(err, bash.ErrClosed) {
		t.Errorf("got %v, want %v", err, bash.ErrClosed)
	}
	s.Close()
}

// A long row of commands leaves nothing behind. It runs alone, because it
// counts what this process has.
func TestNothingLeftBehind(t *testing.T) { //nolint:paralleltest // see above
	s := session(t, "/bin/bash")
	do(t, s, "true")
	before := holdings(t)
	for i := range 2000 {
		if got := do(t, s, fmt.Sprintf("echo %d", i)).Output; got != fmt.Sprint(i) {
			t.Fatalf("command %d: got %q", i, got)
		}
	}
	for range 20 {
		do(t, s, "kill -9 $$")
	}
	do(t, s, "true")
	if after := holdings(t); after != before {
		t.Errorf("got %+v, want %+v as before", after, before)
	}
}

type counts struct{ descriptors, goroutines, children int }

// holdings counts what this process holds, once it has settled.
func holdings(t *testing.T) counts {
	t.Helper()
	var last counts
	for same := 0; same < 100; same++ {
		runtime.Gosched()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		children, err := filepath.Glob("/proc/self/task/*/children") // a shell is a child of the thread that made it
		if err != nil {
			t.Fatal(err)
		}
		now := counts{descriptors: len(fds), goroutines: runtime.NumGoroutine()}
		for _, list := range children {
			pids, _ := os.ReadFile(list) // a thread may be gone
			now.children += len(strings.Fields(string(pids)))
		}
		if now != last {
			same, last = 0, now
		}
	}
	return last
}

// The limit of a command covers the start of the shell that takes the place of one
// that ended, and the shell after that starts whatever kept this one.
func TestLimitCoversRestart(t *testing.T) {
	t.Parallel()
	cfg := config(t, "/bin/bash")
	s, err := bash.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	home := strings.TrimPrefix(cfg.Env[1], "HOME=")
	slow, ran := filepath.Join(home, "slow"), filepath.Join(home, "ran")
	for name, text := range map[string]string{slow: "", filepath.Join(home, ".bashrc"): "while [ -e " + slow + " ]; do /bin/sleep 0.01; done"} {
		testhelp.WriteFile(t, name, text, 0o600)
	}
	do(t, s, "exit 3")
	r, err := s.Run(t.Context(), bash.Command{Text: "touch " + ran, Hard: 300 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "did not become ready in the time of the command") {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran all the same")
	}
	if got := do(t, s, "echo works").Output; got != "works" {
		t.Errorf("the next command: got %q", got)
	}
}

// The limits of commands that end while a shell starts cost it nothing: the start goes
// on, with the personal files and the saved state.
func TestRestartOutlivesLimits(t *testing.T) {
	t.Parallel()
	cfg := config(t, "/bin/bash")
	home := strings.TrimPrefix(cfg.Env[1], "HOME=")
	hold, held := filepath.Join(home, "hold"), filepath.Join(home, "held")
	personal := "greeting=hello; while [ -e " + hold + " ]; do : > " + held + "; /bin/sleep 0.01; done"
	testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), personal, 0o600)
	s, err := bash.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do(t, s, "export kept=yes; : > "+hold)
	do(t, s, "exit")
	for _, text := range []string{"echo no", ""} {
		if r, err := s.Run(t.Context(), bash.Command{Text: text, Hard: 100 * time.Millisecond}); err == nil {
			t.Errorf("%q: got %+v, want the error of a start that takes longer", text, r)
		}
	}
	testhelp.Eventually(t, func() bool { _, err := os.Stat(held); return err == nil }, "the start file is held up")
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	if r := do(t, s, "echo $kept $greeting"); r.Output != "yes hello" {
		t.Errorf("got %q, want the saved state and the personal files", r.Output)
	}
}

// Close ends a start that no caller waits for, and its shell.
func TestCloseEndsStart(t *testing.T) {
	t.Parallel()
	cfg := config(t, "/bin/bash")
	home := strings.TrimPrefix(cfg.Env[1], "HOME=")
	hold, pid := filepath.Join(home, "hold"), filepath.Join(home, "pid")
	personal := "if [ -e " + hold + " ]; then echo $$ > " + pid + "; while :; do /bin/sleep 0.01; done; fi"
	testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), personal, 0o600)
	s, err := bash.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, ": > "+hold)
	do(t, s, "exit")
	if _, err := s.Run(t.Context(), bash.Command{Text: "true", Hard: 100 * time.Millisecond}); err == nil {
		t.Error("the command ran")
	}
	s.Close()
	if data, err := os.ReadFile(pid); err == nil {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(data))); err == nil {
			t.Errorf("shell %s is left", data)
		}
	}
}
