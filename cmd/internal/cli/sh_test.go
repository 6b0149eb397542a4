package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/term"

	"github.com/actiond/actiond/internal/testhelp"
)

// tmux is a real terminal whose screen can be read.
type tmux struct {
	t      *testing.T
	socket string
	last   string // screen
}

func (m *tmux) run(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-S", m.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh") // an account may have none
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// String returns the screen as it was last.
func (m *tmux) String() string { return m.last }

// types types text, and presses keys by tmux's names for them.
func (m *tmux) types(text string, keys ...string) {
	m.t.Helper()
	if text != "" {
		m.run("send-keys", "-l", text)
	}
	if len(keys) > 0 {
		m.run(append([]string{"send-keys"}, keys...)...)
	}
}

// shows waits until the screen ends with these lines and has none of them twice
// where only one was typed.
func (m *tmux) shows(want ...string) {
	m.t.Helper()
	text := strings.Join(want, "\n")
	testhelp.Eventually(m.t, func() bool {
		lines := strings.Split(m.run("capture-pane", "-p"), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		m.last = strings.TrimRight(strings.Join(lines, "\n"), "\n")
		return m.last == text || strings.HasSuffix(m.last, "\n"+text)
	}, "the screen\n%s\nends with\n%s", m, text)
}

// resize gives the window a size, and waits until the terminal has it: tmux tells
// its programs a moment later.
func (m *tmux) resize(cols, rows int) {
	m.t.Helper()
	m.run("resize-window", "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows))
	name := strings.TrimSpace(m.run("display-message", "-p", "#{pane_tty}"))
	tty, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer tty.Close()
	testhelp.Eventually(m.t, func() bool {
		gotCols, gotRows, err := term.GetSize(int(tty.Fd()))
		return err != nil || gotCols == cols && gotRows == rows
	}, "the terminal becomes %d by %d", cols, rows)
}

// TestShellScreen types into 'runtimectl sh' in a terminal of 80 by 24 and looks
// at its screen.
func TestShellScreen(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box", "--env", "LC_ALL=C.UTF-8"))
	work := filepath.Join(m.dir, "local", id, "work")
	for _, name := range []string{"alpha one/", "alpha.txt", "beta", "漢字.txt"} {
		if strings.HasSuffix(name, "/") {
			if err := os.Mkdir(filepath.Join(work, name), 0o777); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(filepath.Join(work, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := &tmux{t: t, socket: filepath.Join(m.dir, "tmux")}
	s.run("new-session", "-d", "-x", "80", "-y", "24",
		fmt.Sprintf("%s sh --on=local --state-dir %s box; sleep 1000", filepath.Join(programs(t), "runtimectl"), m.dir))
	t.Cleanup(func() { s.run("kill-server") })

	sign := "$"
	if os.Geteuid() == 0 {
		sign = "#"
	}
	// Earlier commands of agents and creations leave no trace.
	long := "box:" + work + sign
	s.shows("note: ctrl-p ctrl-q leaves, and ends nothing", long)
	s.types("PS4=; cd /", "Enter")
	prompt := "box:/" + sign
	s.shows(long+" PS4=; cd /", prompt)

	// A line wider than the window is on the screen once, however it is typed.
	line := "echo " + strings.Repeat("0123456789", 10)
	for _, key := range line {
		s.types(string(key))
	}
	start := prompt + " " + line
	s.shows(long+" PS4=; cd /", start[:80], start[80:])
	s.types("x", "Home", "Right", "Right", "Right", "Right", "BSpace")
	s.shows(long+" PS4=; cd /", prompt+" ech "+start[len(prompt)+6:81], start[81:]+"x")
	s.types("o", "End", "BSpace", "Enter")
	s.shows(start[:80], start[80:], line[5:85], line[85:], prompt)

	// Exactly as wide as the window, and one more.
	exact := strings.Repeat("e", 80-len(prompt)-1-len("echo "))
	s.types("echo " + exact)
	s.shows(line[85:], prompt+" echo "+exact)
	s.types("f", "BSpace", "Enter")
	s.shows(prompt+" echo "+exact, exact, prompt)

	// Wide characters, of which one does not fit into the last column.
	wide := strings.Repeat("漢字", 20)
	s.types("echo x" + wide)
	room := (80 - len(prompt) - len(" echo x")) / 2
	runes := []rune(wide)
	s.shows(exact, prompt+" echo x"+string(runes[:room]), string(runes[room:]))
	s.types("", "Left", "BSpace")
	s.shows(exact, prompt+" echo x"+string(runes[:room]), string(runes[room:38])+"字")
	s.types("é", "C-c")
	s.shows(prompt+" echo x"+string(runes[:room]), string(runes[room:38])+"é字^C", prompt)

	// Output arrives while a line is typed; then the window changes.
	s.types(line)
	s.shows(start[:80], start[80:])
	if code, _, errs := m.run("exec", "--session", "default", "box", "--", "echo", "of an agent"); code != 0 {
		t.Fatal(errs)
	}
	s.shows(prompt+" 'echo' 'of an agent' </dev/null", "of an agent", start[:80], start[80:])
	s.resize(50, 20)
	s.types("Z")
	s.shows("of an agent", start[:50], start[50:100], start[100:]+"Z")
	s.resize(80, 24)
	s.types("", "BSpace")
	s.shows("of an agent", start[:80], start[80:])
	s.types("", "C-c")
	s.shows("of an agent", start[:80], start[80:]+"^C", prompt)

	// Tab completes, and lists the choices when pressed twice.
	s.types("cd "+work, "Enter")
	s.types("cat be", "Tab", "C-u")
	s.types("ls al", "Tab")
	s.shows(long + " ls alpha")
	s.types("", "Tab")
	s.shows(long+" ls alpha", "alpha one/", "alpha.txt", long+" ls alpha")
	s.types("\\ ", "Tab", "C-c")
	s.shows(long+" ls alpha\\ one/^C", long)
	s.types("ls 漢", "Tab", "Enter")
	s.shows(long+" ls 漢字.txt", "漢字.txt", long)

	// Ctrl-R searches; what is searched for is never run.
	s.types("", "C-r")
	s.types("nowhere")
	s.shows("漢字.txt", "(failed search)`nowhere':")
	s.types("", "C-g")
	s.shows("漢字.txt", long)
	s.types("", "C-r")
	s.types("echo e")
	s.types("", "C-e", "C-u")
	s.shows("漢字.txt", long)
	s.types("", "C-r")
	s.types("S4")
	s.shows("漢字.txt", "(search)`S4': PS4=; cd /")
	s.types("", "Enter")
	s.shows("漢字.txt", long+" PS4=; cd /", prompt)

	s.types("echo one-two three", "M-b", "M-b", "M-d", "M-f", "C-k", "Enter")
	s.shows(prompt+" echo one- three", "one- three", prompt)

	// A pasted line is run as a whole or not at all.
	for n, want := range map[int]string{60_000: "60001", 70_000: "[the line was not run: it is longer than 65536 characters]"} {
		file := filepath.Join(t.TempDir(), "paste")
		testhelp.WriteFile(t, file, "echo "+strings.Repeat("p", n)+" | wc -c", 0o666)
		s.run("load-buffer", file)
		s.run("paste-buffer", "-r")
		s.types("", "Enter")
		s.shows(want, prompt)
	}
	s.types("exit", "Enter")
	s.shows(prompt+" exit", "", "left sandbox box; 'runtimectl sh box' comes back")
}
