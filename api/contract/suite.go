package contract

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

// Do runs one action. It is a method of an executor or of a client.
type Do func(ctx context.Context, req api.Request) (api.Observation, error)

// Suite tests the contract of actions. It runs on the executor, through HTTP, and on a
// container; the first that fails is the layer with the fault. dir is an empty absolute
// directory of the sandbox that commands and files may change. The suite uses a session
// named "suite".
func Suite(t *testing.T, do Do, dir string) {
	t.Helper()
	s := &suite{do: do, dir: dir}
	t.Run("commands", s.commands)
	t.Run("state", s.state)
	t.Run("limits", s.limits)
	t.Run("input", s.input)
	t.Run("death", s.death)
	t.Run("refusals", s.refusals)
	t.Run("long output", s.longOutput)
	t.Run("static", s.static)
	t.Run("sessions", s.sessions)
	t.Run("programs", s.programs)
	t.Run("files", s.files)
	t.Run("editor", s.editor)
	t.Run("searches", s.searches)
	t.Run("engines that may be missing", s.missing)
}

type suite struct {
	do  Do
	dir string
}

// observe carries out an action in the suite's session.
func (s *suite) observe(t *testing.T, a api.Action, timeout float64) api.Observation {
	t.Helper()
	req := api.Request{Action: a, Session: "suite"}
	if timeout != 0 {
		req.Timeout = &timeout
	}
	o, err := s.do(t.Context(), req)
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o
}

// run runs a command that must be answered by a run observation.
func (s *suite) run(t *testing.T, a api.RunAction, timeout float64) api.RunObservation {
	t.Helper()
	o, ok := s.observe(t, a, timeout).(api.RunObservation)
	if !ok {
		t.Fatalf("%+v: got no run observation", a)
	}
	return o
}

// sh runs a command and compares its status and its output.
func (s *suite) sh(t *testing.T, command string, status int, output string) api.RunObservation {
	t.Helper()
	o := s.run(t, api.RunAction{Command: command}, 60)
	if o.Metadata.ExitCode != status || o.Content != output {
		t.Errorf("%s: got status %d and %q, want %d and %q", command, o.Metadata.ExitCode, o.Content, status, output)
	}
	return o
}

func has(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %.400q, want %q in it", what, got, want)
	}
}

func (s *suite) commands(t *testing.T) {
	o := s.sh(t, "echo hello", 0, "hello")
	if o.Command != "echo hello" || o.Hidden || o.Metadata.Prefix != "" || o.Metadata.PID != -1 {
		t.Errorf("got %+v", o)
	}
	if want := "\n[The command completed with exit code 0.]"; o.Metadata.Suffix != want {
		t.Errorf("got suffix %q, want %q", o.Metadata.Suffix, want)
	}
	if o.Metadata.Username == nil || o.Metadata.Hostname == nil || o.Metadata.PyInterpreterPath == nil {
		t.Errorf("got metadata %+v, want it complete", o.Metadata)
	}
	s.sh(t, "(exit 7)", 7, "")
	s.sh(t, "echo $?", 0, "7")
	s.sh(t, "printf '  a\\n b\\n'", 0, "  a\n b")
	s.sh(t, "# nothing but a comment", 0, "")
	s.sh(t, "# a comment\necho a", 0, "a")
	s.sh(t, "cat <<'EOF'\n$x `y`\nEOF", 0, "$x `y`")
	if o := s.run(t, api.RunAction{Command: "echo h", Hidden: true}, 60); !o.Hidden || o.Content != "h" {
		t.Errorf("hidden: got %+v", o)
	}
}

func (s *suite) state(t *testing.T) {
	s.sh(t, "cd "+s.dir+" && mkdir sub && cd sub", 0, "")
	if o := s.sh(t, "export V=1; x=2", 0, ""); o.Metadata.WorkingDir == nil || *o.Metadata.WorkingDir != s.dir+"/sub" {
		t.Errorf("got working directory %v", o.Metadata.WorkingDir)
	}
	s.sh(t, "echo $V $x; pwd", 0, "1 2\n"+s.dir+"/sub")
	s.sh(t, "cd .. && rmdir sub", 0, "")
}

func (s *suite) limits(t *testing.T) {
	o := s.run(t, api.RunAction{Command: "echo on; sleep 1000"}, 0.5)
	if o.Metadata.ExitCode != -1 || o.Metadata.WorkingDir != nil || o.Metadata.Prefix != "" {
		t.Errorf("hard limit: got %+v", o)
	}
	has(t, "suffix", o.Metadata.Suffix, "\n[The command timed out after 0.5 seconds. You may wait longer to see additional output")
	o = s.run(t, api.RunAction{Command: "ls"}, 60)
	if o.Metadata.Prefix != "[Below is the output of the previous command.]\n" {
		t.Errorf("refused: got prefix %q", o.Metadata.Prefix)
	}
	has(t, "suffix", o.Metadata.Suffix, `[Your command "ls" is NOT executed. The previous command is still running - You CANNOT send new commands`)
	o = s.run(t, api.RunAction{Command: "", Blocking: true}, 0.25)
	has(t, "suffix of a poll", o.Metadata.Suffix, "timed out after 0.25 seconds.")
	o = s.run(t, api.RunAction{Command: "C-c", IsInput: true}, 60)
	if o.Metadata.ExitCode != 130 || o.Content != "^C" || o.Metadata.Suffix != "\n[The command completed with exit code 130. CTRL+C was sent.]" {
		t.Errorf("C-c: got %+v", o)
	}
}

func (s *suite) input(t *testing.T) {
	for content, a := range map[string]api.RunAction{
		"ERROR: No previous running command to retrieve logs from.": {},
		"ERROR: No previous running command to interact with.":      {Command: "x", IsInput: true},
	} {
		if o := s.run(t, a, 60); o.Content != content || o.Command != "" || o.Metadata.ExitCode != -1 {
			t.Errorf("%+v: got %+v", a, o)
		}
	}
	o := s.run(t, api.RunAction{Command: "printf 'Name: '; read n; echo Hello $n"}, 0.5)
	for i := 0; i < 100 && o.Content == ""; i++ { // a busy machine needs longer to begin it
		o = s.run(t, api.RunAction{}, 0.5)
	}
	has(t, "prompt", o.Content, "Name:")
	if o := s.run(t, api.RunAction{Command: "Ada", IsInput: true}, 60); o.Content != "Hello Ada" || o.Metadata.ExitCode != 0 {
		t.Errorf("input: got %+v", o)
	}
}

func (s *suite) death(t *testing.T) {
	o := s.run(t, api.RunAction{Command: "kill -9 $$"}, 60)
	if o.Metadata.ExitCode != 137 {
		t.Errorf("got status %d", o.Metadata.ExitCode)
	}
	has(t, "suffix", o.Metadata.Suffix, "[The command completed with exit code 137.]\n[The shell was killed by signal 9")
	s.sh(t, "echo $V back", 0, "1 back")
}

func (s *suite) refusals(t *testing.T) {
	const multiple = "ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a single command via && or ;\n" +
		"Provided commands:\n(1) echo a\n(2) echo b"
	if o := s.observe(t, api.RunAction{Command: "echo a\necho b"}, 60); o != (api.ErrorObservation{Content: multiple, Outcome: api.OutcomeNotStarted}) {
		t.Errorf("two commands: got %+v", o)
	}
	// Clients cannot decode an error observation for a hidden command.
	if o := s.run(t, api.RunAction{Command: "echo a\necho b", Hidden: true}, 60); o.Content != multiple || !o.Hidden {
		t.Errorf("two hidden commands: got %+v", o)
	}
}

func (s *suite) longOutput(t *testing.T) {
	o := s.run(t, api.RunAction{Command: `seq 50000 | sed 's,^,Line ,'`}, 60)
	has(t, "prefix", o.Metadata.Prefix, "[Previous command outputs are truncated. Showing the last ")
	for _, part := range []string{"Line 40000\n", "Line 50000", "\n[... Observation truncated due to length ...]\n"} {
		has(t, "content", o.Content, part)
	}
	o = s.run(t, api.RunAction{Command: `seq 5000 | sed 's,.*,Line & é,'`}, 60)
	if n := len([]rune(o.Content)); n != 30047 || o.Metadata.Prefix != "" {
		t.Errorf("got %d code points and prefix %q, want 30047 and none", n, o.Metadata.Prefix)
	}
	if o = s.run(t, api.RunAction{Command: `seq 5000 | sed 's,^,Line ,'`, Hidden: true}, 60); strings.Contains(o.Content, "truncated") {
		t.Error("hidden output was shortened")
	}
}

func (s *suite) static(t *testing.T) {
	s.sh(t, "only=here", 0, "")
	o := s.run(t, api.RunAction{Command: "pwd; echo $only", IsStatic: true, Cwd: api.Directory(s.dir)}, 60)
	if o.Content != s.dir || o.Metadata.ExitCode != 0 {
		t.Errorf("got %+v", o)
	}
	if o := s.run(t, api.RunAction{Command: "echo x", IsStatic: true, Cwd: "/no/such/directory"}, 60); o.Content != "x" {
		t.Errorf("in a directory that is not there: got %+v", o)
	}
	s.sh(t, "echo $only", 0, "here")
}

func (s *suite) sessions(t *testing.T) {
	s.run(t, api.RunAction{Command: "sleep 1000"}, 0.1)
	timeout := 60.0
	o, err := s.do(t.Context(), api.Request{Session: "suite-2", Timeout: &timeout, Action: api.RunAction{Command: "echo $only free"}})
	if run, ok := o.(api.RunObservation); err != nil || !ok || run.Content != "free" {
		t.Errorf("another session: got %+v, %v", o, err)
	}
	// A file action waits for no shell.
	if _, ok := s.observe(t, api.ReadAction{Path: "/", ImplSource: "oh_aci", End: -1}, 0).(api.ReadObservation); !ok {
		t.Error("a view was not answered while a command runs")
	}
	s.run(t, api.RunAction{Command: "C-c", IsInput: true}, 60)
}

// programs run without the shell of a session, and beside its commands.
func (s *suite) programs(t *testing.T) {
	exec := func(a api.ExecAction, timeout float64) api.ExecObservation {
		o, ok := s.observe(t, a, timeout).(api.ExecObservation)
		if !ok {
			t.Fatalf("%+v: got no exec observation", a)
		}
		return o
	}
	s.sh(t, "cd / && export INHERITED='a  b'", 0, "")
	s.run(t, api.RunAction{Command: "sleep 1000"}, 0.1)
	defer s.run(t, api.RunAction{Command: "C-c", IsInput: true}, 60)
	if o := exec(api.ExecAction{Command: "pwd\necho \"$INHERITED\"; cat", Inherit: true}, 60); o.Stdout != "/\na  b\n" || o.Stderr != "" {
		t.Errorf("inherited: got %+v", o)
	}
	o := exec(api.ExecAction{Command: "pwd; echo \"$A\" >&2; cat; exit 3", Cwd: api.Directory(s.dir), Env: api.Variables{"A": "a  b"}, Input: "in"}, 60)
	if o.Stdout != s.dir+"\nin" || o.Stderr != "a  b\n" || o.ExitCode == nil || *o.ExitCode != 3 || o.PID == nil || o.Signal != nil || o.CPUSeconds == nil || o.Truncated {
		t.Errorf("got %+v", o)
	}
	if len(o.Content) != len(o.Stdout+o.Stderr) || !strings.Contains(o.Content, o.Stderr) {
		t.Errorf("got content %q", o.Content)
	}
	if o := exec(api.ExecAction{Argv: []string{"printf", "%s.", "$A", "\xc3\xa9"}}, 60); o.Content != "$A.é." || o.StdoutTotal != 6 || *o.ExitCode != 0 {
		t.Errorf("words: got %+v", o)
	}
	if o := exec(api.ExecAction{Argv: []string{"printf", `\377`}}, 60); o.Stdout != "\ufffd" || !bytes.Equal(o.StdoutBytes, []byte{0xff}) {
		t.Errorf("a byte: got %+v", o)
	}
	if o := exec(api.ExecAction{Argv: []string{"no-such-program"}}, 60); o.ExitCode == nil || *o.ExitCode != 127 || o.PID != nil || o.Content != "no-such-program: not found" {
		t.Errorf("no program: got %+v", o)
	}
	if o := exec(api.ExecAction{Argv: []string{"cat"}, InputBytes: []byte{'a', 0xff, 0}}, 60); !bytes.Equal(o.StdoutBytes, []byte{'a', 0xff, 0}) {
		t.Errorf("bytes: got %+v", o)
	}
	if o := exec(api.ExecAction{Command: "test -t 0 && test -t 1 && echo terminal", TTY: &api.TTY{Rows: 24, Cols: 80}}, 60); o.Stdout != "terminal\r\n" {
		t.Errorf("on a terminal: got %+v", o)
	}
	if o := exec(api.ExecAction{Command: "echo on; sleep 1000", KillAfter: 1}, 0.3); o.ExitCode != nil || o.Signal != nil || o.CPUSeconds != nil || o.PID == nil {
		t.Errorf("not waited for: got %+v", o)
	}
	if o := exec(api.ExecAction{Command: "sleep 1000", KillAfter: 0.1}, 60); o.ExitCode != nil || o.Signal == nil || *o.Signal != "SIGTERM" || o.EndedBy == nil || *o.EndedBy != "kill_after" {
		t.Errorf("killed: got %+v", o)
	}
}

func (s *suite) files(t *testing.T) {
	s.sh(t, "cd "+s.dir, 0, "")
	path := s.dir + "/f.txt"
	for _, c := range []struct {
		action api.Action
		want   api.Observation
	}{
		{api.WriteAction{Path: "f.txt", Content: "a\nb", End: -1}, api.WriteObservation{Path: path, Diff: "--- " + path + "\n+++ " + path + "\n@@ -0,0 +1,2 @@\n+a\n+b"}},
		{api.ReadAction{Path: "f.txt", End: -1}, api.ReadObservation{Content: "a\nb\n", Path: path, ImplSource: "default"}},
		{api.ReadAction{Path: path, Start: 1, End: -1}, api.ReadObservation{Content: "b\n", Path: path, ImplSource: "default"}},
		{api.ReadAction{Path: s.dir, End: -1}, api.ErrorObservation{Content: "Path is a directory: " + s.dir + ". You can only read files", Code: "is_directory"}},
		{api.ReadAction{Path: path + "x", End: -1}, api.ErrorObservation{Content: "File not found: " + path + "x. Your current working directory is " + s.dir + ".", Code: "file_not_found"}},
		{api.WriteAction{Path: s.dir, End: -1}, api.ErrorObservation{Content: "Path is a directory: " + s.dir + ". You can only write to files", Code: "is_directory"}},
	} {
		s.compare(t, c.action, c.want)
	}
	s.sh(t, "cat f.txt", 0, "a\nb")
}

func (s *suite) searches(t *testing.T) {
	s.sh(t, "mkdir -p "+s.dir+"/s/sub && cd "+s.dir+"/s && echo needle > sub/n.txt && echo '*.o' > .gitignore && touch x.o", 0, "")
	dir := s.dir + "/s"
	for _, c := range []struct {
		action api.Action
		want   api.Observation
	}{
		{api.GlobAction{Pattern: "**/*.{txt,o}"}, api.SearchObservation{Action: "glob", Path: dir, Count: 1, Content: dir + "/sub/n.txt", Files: []string{dir + "/sub/n.txt"}}},
		{api.GrepAction{Pattern: "NEED", IgnoreCase: true, After: new(0)}, api.SearchObservation{Action: "grep", Path: dir, Count: 1, Content: "File: " + dir + "/sub/n.txt\nL1: needle"}},
		{api.ListAction{}, api.SearchObservation{Action: "list_directory", Path: dir, Count: 2, Content: "[DIR] sub\n.gitignore (4 bytes)\n(1 ignored)"}},
		{api.GlobAction{Pattern: "*", Path: "nope"}, api.ErrorObservation{Content: "There is no file or directory " + dir + "/nope.", Code: "file_not_found"}},
	} {
		s.compare(t, c.action, c.want)
	}
	s.sh(t, "rm -r "+dir+" && cd "+s.dir, 0, "")
}

func (s *suite) editor(t *testing.T) {
	path := s.dir + "/e.txt"
	edited := func(content, diff string, old, new *string) api.EditObservation {
		if diff != "" {
			diff = "--- " + path + "\n+++ " + path + "\n" + diff
		}
		return api.EditObservation{Content: content, Path: path, OldContent: old, NewContent: new, ImplSource: "oh_aci", Diff: diff}
	}
	edit := func(command string, a api.EditAction) api.EditAction {
		a.Command, a.Path, a.ImplSource, a.Start, a.End = command, path, "oh_aci", 1, -1
		return a
	}
	one, two, text := "one", "two", "one\nlast\n"
	missed := edited("ERROR:\nNo replacement was performed, old_str `one` did not appear verbatim in "+path+".", "", &one,
		&two)
	missed.Code = "no_match"
	const review = "Review the changes and make sure they are as expected. Edit the file again if necessary."
	for _, c := range []struct {
		action api.Action
		want   api.Observation
	}{
		{edit("create", api.EditAction{FileText: &text}), edited("File created successfully at: "+path, "@@ -0,0 +1,2 @@\n+one\n+last", nil, nil)},
		{
			edit("str_replace", api.EditAction{OldStr: &one, NewStr: &two}),
			edited("The file "+path+" has been edited. Here's the result of running `cat -n` on a snippet of "+path+":\n     1\ttwo\n     2\tlast\n     3\t\n"+review,
				"@@ -1 +1 @@\n-one\n+two", &one, &two),
		},
		{edit("str_replace", api.EditAction{OldStr: &one, NewStr: &two}), missed},
		{
			edit("undo_edit", api.EditAction{}),
			edited("Last edit to "+path+" undone successfully. Here's the result of running `cat -n` on "+path+":\n     1\tone\n     2\tlast\n     3\t\n", "@@ -1 +1 @@\n-two\n+one", nil, nil),
		},
		{
			api.ReadAction{Path: path, ImplSource: "oh_aci", ViewRange: []int{2, 2}, End: -1},
			api.ReadObservation{Content: "Here's the result of running `cat -n` on " + path + ":\n     2\tlast\n", Path: path, ImplSource: "oh_aci"},
		},
	} {
		s.compare(t, c.action, c.want)
	}
	s.sh(t, "cat "+path, 0, "one\nlast")
}

// missing tests that actions of missing engines are answered with an observation.
func (s *suite) missing(t *testing.T) {
	if o := s.observe(t, api.IPythonAction{Code: "1", IncludeExtra: true}, 60); o.Kind() != "error" && o.Kind() != "run_ipython" {
		t.Errorf("notebook: got %+v", o)
	}
	if o := s.observe(t, api.BrowseAction{URL: "http://127.0.0.1:1/"}, 60); o.Kind() != "error" && o.Kind() != "browse" {
		t.Errorf("browser: got %+v", o)
	}
}

// compare looks at the encoded observation: values that are known in process alone,
// such as hashes, differ between the depths.
func (s *suite) compare(t *testing.T, a api.Action, want api.Observation) {
	t.Helper()
	if got := s.observe(t, a, 0); !bytes.Equal(encoded(t, got), encoded(t, want)) {
		t.Errorf("%+v:\n got %+v\nwant %+v", a, got, want)
	}
}

func encoded(t *testing.T, o api.Observation) []byte {
	t.Helper()
	body, err := api.EncodeObservation(o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
