package api_test

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/testhelp"
)

// recorded reads testdata/observations.txt.
func recorded(tb testing.TB) map[string]string {
	tb.Helper()
	data := testhelp.ReadFile(tb, "testdata/observations.txt")
	lines := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if name != "#" {
			lines[name] = text
		}
	}
	return lines
}

// outcome is what this server says beside what the reference does.
var outcome = regexp.MustCompile(`,"outcome":"[a-z_]+"(,"code":"[a-z_]+")?}$`)

// The reference's observations are printed byte by byte, and obeys the document.
func TestRecordedObservations(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	for name, want := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := api.DecodeObservation([]byte(want))
			if err != nil {
				t.Fatal(err)
			}
			got, err := api.EncodeLegacy(o)
			if err != nil {
				t.Fatal(err)
			}
			if string(outcome.ReplaceAll(got, []byte("}"))) != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if err := spec.Check("LegacyObservation", got); err != nil {
				t.Error(err)
			}
		})
	}
}

// observations has at least one value of every kind.
var observations = []struct {
	name string
	o    api.Observation
	want string // JSON, or @ and the name of a recorded one
}{
	{"run", api.RunObservation{
		Content: "hello", Command: "echo hello", Outcome: api.OutcomeSucceeded,
		Metadata: api.RunMetadata{
			ExitCode: 0, PID: -1, Username: new("openhands"), Hostname: new("sandbox"), WorkingDir: new("/workspace"),
			PyInterpreterPath: new("/usr/bin/python"), Suffix: "\n[The command completed with exit code 0.]",
		},
	}, "@run/success"},
	{"run goes on", api.RunObservation{
		Content: "2", Outcome: api.OutcomeRunning, Code: api.CodeTimedOut,
		Metadata: api.RunMetadata{
			ExitCode: -1, PID: -1, Prefix: "[Below is the output of the previous command.]\n",
			Suffix: "\n[The command timed out after 2.5 seconds. You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") to interrupt/kill the previous command before sending your new command, or use the timeout parameter in execute_bash for future commands.]",
		},
	}, "@run/continuation"},
	{
		"run hidden",
		api.RunObservation{Command: "a", Hidden: true, Outcome: api.OutcomeFailed, Code: api.CodeFailed, Metadata: api.RunMetadata{ExitCode: 2, PID: 7}},
		"{\"message\":\"Command `a` executed with exit code 2.\",\"observation\":\"run\",\"content\":\"\",\"extras\":{\"command\":\"a\",\"metadata\":{\"exit_code\":2,\"pid\":7,\"username\":null,\"hostname\":null,\"working_dir\":null,\"py_interpreter_path\":null,\"prefix\":\"\",\"suffix\":\"\"},\"hidden\":true},\"success\":false,\"outcome\":\"finished\"}",
	},
	{
		"exec",
		api.ExecObservation{
			Content: "a\ufffd\nb", Stdout: "a\ufffd\n", Stderr: "b", StdoutBytes: []byte("a\xff\n"), StdoutTotal: 3, StderrTotal: 1,
			PID: new(7), ExitCode: new(2), CPUSeconds: new(0.25), MaxRSS: new(int64(4096)),
		},
		`{"message":"The program ended with exit code 2.","observation":"exec","content":"a` + "\ufffd" + `\nb","extras":{"stdout":"a` + "\ufffd" + `\n","stderr":"b","stdout_base64":"Yf8K","stderr_base64":null,` +
			`"stdout_total":3,"stderr_total":1,"truncated":false,"pid":7,"exit_code":2,"signal":null,"ended_by":null,"cpu_seconds":0.25,"max_rss":4096},"success":false,"outcome":"finished"}`,
	},
	{
		"file that was made",
		api.FileObservation{Path: "/f", SHA256: "ab", Size: 3, Created: true, Undoable: true},
		`{"message":"I wrote to the file /f.","observation":"file","content":"","extras":{"path":"/f","sha256":"ab","size":3,"created":true,"undoable":true},"outcome":"finished"}`,
	},
	{
		"file that was removed",
		api.FileObservation{Path: "/f", Content: "n"},
		`{"message":"I removed the file /f.","observation":"file","content":"n","extras":{"path":"/f","sha256":"","size":0,"created":false,"undoable":false},"outcome":"finished"}`,
	},
	{
		"exec that was killed",
		api.ExecObservation{PID: new(7), Signal: new("SIGKILL"), EndedBy: new("kill_after"), CPUSeconds: new(0.0), Truncated: true},
		`{"message":"The program was ended by SIGKILL. It was told to by kill_after.","observation":"exec","content":"","extras":{"stdout":"","stderr":"","stdout_base64":null,"stderr_base64":null,` +
			`"stdout_total":0,"stderr_total":0,"truncated":true,"pid":7,"exit_code":null,"signal":"SIGKILL","ended_by":"kill_after","cpu_seconds":0,"max_rss":null},"success":false,"outcome":"finished"}`,
	},
	{
		"exec that goes on",
		api.ExecObservation{PID: new(7)},
		`{"message":"The program goes on.","observation":"exec","content":"","extras":{"stdout":"","stderr":"","stdout_base64":null,"stderr_base64":null,` +
			`"stdout_total":0,"stderr_total":0,"truncated":false,"pid":7,"exit_code":null,"signal":null,"ended_by":null,"cpu_seconds":null,"max_rss":null},"success":false,"outcome":"running"}`,
	},
	{"run_ipython", api.IPythonObservation{
		Content: "1\n[Jupyter current working directory: /workspace]\n[Jupyter Python interpreter: /openhands/poetry/openhands-ai-5O4_aCHf-py3.12/bin/python]",
		Code:    "print(1)", Outcome: api.OutcomeSucceeded,
	}, "@ipython/text"},
	{
		"run_ipython with no images",
		api.IPythonObservation{Code: "1", ImageURLs: []string{}, Outcome: api.OutcomeSucceeded},
		`{"message":"Code executed in IPython cell.","observation":"run_ipython","content":"","extras":{"code":"1","image_urls":[]},"success":true,"outcome":"finished"}`,
	},
	{"read", api.ReadObservation{Content: "echo \"Hello, World!\"\n", Path: "/workspace/hello.sh", ImplSource: "default"}, "@read/default"},
	{"view", api.ReadObservation{
		Content: "Here's the result of running `cat -n` on /workspace/n.txt:\n     1\t1\n     2\t2\n     3\t\n",
		Path:    "/workspace/n.txt", ImplSource: "oh_aci",
	}, "@read/view"},
	{"write", api.WriteObservation{Path: "/workspace/hello.sh"}, "@write/done"},
	{
		"write with diff",
		api.WriteObservation{Path: "/a", Diff: "--- /a\n+++ /a\n@@ -0,0 +1 @@\n+<b>&"},
		`{"message":"I wrote to the file /a.","observation":"write","content":"","extras":{"path":"/a"},"diff":"--- /a\n+++ /a\n@@ -0,0 +1 @@\n+<b>&","outcome":"finished"}`,
	},
	{"edit", api.EditObservation{
		Content: "File created successfully at: /workspace/e.py", Path: "/workspace/e.py", ImplSource: "oh_aci",
		Diff: "--- /workspace/e.py\n+++ /workspace/e.py\n@@ -0,0 +1,2 @@\n+def f():\n+\treturn 1",
	}, "@edit/create"},
	{
		"edits of several files",
		api.EditObservation{Content: "Done!\nM a", ImplSource: "oh_aci"},
		`{"message":"I edited files.","observation":"edit","content":"Done!\nM a","extras":{"path":"","prev_exist":false,"old_content":null,"new_content":null,"impl_source":"oh_aci","diff":"","_diff_cache":null},"outcome":"finished"}`,
	},
	{"edit refused", api.EditObservation{
		Content:    "ERROR:\nNo replacement was performed, old_str `zz` did not appear verbatim in /workspace/n.txt.",
		Path:       "/workspace/n.txt",
		OldContent: new("zz"), NewContent: new("b"), ImplSource: "oh_aci",
	}, "@edit/error"},
	{"browse", api.BrowseObservation{
		Content: "[Current URL: http://localhost:8000/]\n============== BEGIN webpage content ==============\n# Directory listing for /\n…\n============== END webpage content ==============\n",
		URL:     "http://localhost:8000/", TriggerByAction: "browse",
		Screenshot:     "data:image/png;base64,…",
		ScreenshotPath: new("/workspace/.browser_screenshots/screenshot_20250101_000000_000000.png"),
		SetOfMarks:     "data:image/png;base64,…", GoalImageURLs: []string{}, OpenPagesURLs: []string{"http://localhost:8000/"},
		DOMObject: map[string]any{}, AXTreeObject: map[string]any{}, ExtraElementProperties: map[string]any{},
		LastBrowserAction: `goto("http://localhost:8000")`,
	}, "@browse/page"},
	{"download", api.DownloadObservation{
		Content:  `Execution of the previous action goto("http://localhost:8000/x.pdf") resulted in a file download. The downloaded file is saved at location: /workspace/file_1.pdf`,
		FilePath: "/workspace/file_1.pdf",
	}, "@download/file"},
	{"error", api.ErrorObservation{Content: "ERROR_BINARY_FILE"}, "@error/binary"},
	{
		"error with id",
		api.ErrorObservation{Content: "x", ErrorID: "no_match"},
		`{"message":"x","observation":"error","content":"x","extras":{"error_id":"no_match"},"outcome":"failed"}`,
	},
	{
		"mcp",
		api.MCPObservation{Content: "{}", Name: "fetch", Arguments: map[string]any{"url": "http://a/?b&c", "n": json.Number("1.50")}},
		`{"message":"{}","observation":"mcp","content":"{}","extras":{"name":"fetch","arguments":{"n":1.50,"url":"http://a/?b&c"}}}`,
	},
	{"null", api.NullObservation{}, "@null/none"},
	{"think", api.ThinkObservation{Content: "Your thought has been logged."}, "@think/logged"},
	{"success", api.SuccessObservation{Content: "done"}, `{"message":"done","observation":"success","content":"done","extras":{}}`},
	{"user_rejected", api.UserRejectedObservation{Content: "no"}, `{"message":"no","observation":"user_rejected","content":"no","extras":{}}`},
	{
		"task_tracking",
		api.TaskTrackingObservation{Content: "c", Command: "plan", Tasks: []api.Task{{ID: "task-1", Title: "t", Status: "todo"}}},
		`{"message":"c","observation":"task_tracking","content":"c","extras":{"command":"plan","task_list":[{"id":"task-1","title":"t","status":"todo","notes":""}]}}`,
	},
}

func TestObservations(t *testing.T) {
	t.Parallel()
	spec, lines := contract.NewSpec(t), recorded(t)
	for _, tt := range observations {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if name, ok := strings.CutPrefix(want, "@"); ok {
				want = lines[name]
			}
			got, err := api.EncodeLegacy(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(tt.want, "@") {
				got = outcome.ReplaceAll(got, []byte("}"))
			}
			if string(got) != want {
				t.Errorf("encoded: got  %s\nwant %s", got, want)
			}
			if err := spec.Check("LegacyObservation", got); err != nil {
				t.Error(err)
			}
			native, err := json.Marshal(tt.o) // the same with the standard library
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Check("Observation", native); err != nil {
				t.Error(err)
			}
			for _, body := range [][]byte{got, native} {
				back, err := api.DecodeObservation(body)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(back, tt.o) {
					t.Errorf("decoded: got  %#v\nwant %#v", back, tt.o)
				}
			}
		})
	}
}

func TestEncodeObservationText(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, content, want string }{
		{"empty", "", `""`},
		{"plain", "a b", `"a b"`},
		{"no HTML escapes", "<a href='x'>&</a>", `"<a href='x'>&</a>"`},
		{"quote and backslash", `"\`, `"\"\\"`},
		{"short escapes", "\b\f\n\r\t", `"\b\f\n\r\t"`},
		{"other controls", "\x00\x1b[0m\x1f\x7f", `"\u0000\u001b[0m\u001f` + "\x7f\""},
		{"unicode", "é日🚀\u2028\u2029\ufeff", "\"é日🚀\u2028\u2029\ufeff\""},
		{"replacement character that was sent", "\ufffd", "\"\ufffd\""},
		{"one bad byte", "a\xffb", "\"a\ufffdb\""},
		{"a cut character", "a\xe6\x97", "\"a\ufffd\ufffd\""},
		{"half of a pair in UTF-8", "\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\""},
		{"bad byte before an escape", "\xc3\n", "\"\ufffd\\n\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.EncodeObservation(api.ThinkObservation{Content: tt.content})
			if err != nil {
				t.Fatal(err)
			}
			want := `{"message":` + tt.want + `,"observation":"think","content":` + tt.want + `,"extras":{},"outcome":"succeeded"}`
			if string(got) != want {
				t.Errorf("got %q, want %q", got, want)
			}
			var check struct{ Content string }
			if err := json.Unmarshal(got, &check); err != nil || check.Content != strings.ToValidUTF8(oneByOne(tt.content), "\ufffd") {
				t.Errorf("read back %q, %v", check.Content, err)
			}
		})
	}
}

// oneByOne keeps invalid bytes apart, which strings.ToValidUTF8 joins.
func oneByOne(s string) string { return string([]rune(s)) }

func TestEncodeObservationErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		o    api.Observation
		want string
	}{
		{"nothing", nil, "encoding observation: it is nil"},
		{"no number", api.MCPObservation{Arguments: map[string]any{"x": math.Inf(1)}}, `marshal from Go float64 within "/extras/arguments/x": unsupported value: +Inf`}, // the library varies its first words,
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if data, err := api.EncodeObservation(tt.o); err == nil || !strings.HasSuffix(err.Error(), tt.want) || data != nil {
				t.Errorf("got %q, %v, want %s", data, err, tt.want)
			}
		})
	}
}

func TestDecodeObservation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     api.Observation
		err      string // part of the error
	}{
		{"the least", `{"observation":"null"}`, api.NullObservation{}, ""},
		{"unknown keys are ignored", `{"id":3,"observation":"error","content":"x","extras":{"error_id":"e","new":[1]},"cause":{"a":1},"outcome":"failed"}`, api.ErrorObservation{Content: "x", ErrorID: "e"}, ""},
		{"run with defaults", `{"observation":"run","extras":{"command":"ls"}}`, api.RunObservation{Command: "ls", Outcome: api.OutcomeNotStarted, Metadata: api.RunMetadata{ExitCode: -1, PID: -1}}, ""},
		{"run with null metadata", `{"observation":"run","extras":{"command":"ls","metadata":null,"hidden":null}}`, api.RunObservation{Command: "ls", Outcome: api.OutcomeNotStarted, Metadata: api.RunMetadata{ExitCode: -1, PID: -1}}, ""},
		{"unknown metadata is ignored", `{"observation":"run","extras":{"command":"ls","metadata":{"exit_code":3,"load":1}}}`, api.RunObservation{Command: "ls", Outcome: api.OutcomeFailed, Code: api.CodeFailed, Metadata: api.RunMetadata{ExitCode: 3, PID: -1}}, ""},
		{"read without source", `{"observation":"read","content":"a","extras":{"path":"/a"},"outcome":"finished"}`, api.ReadObservation{Content: "a", Path: "/a", ImplSource: "default"}, ""},
		{"edit without source", `{"observation":"edit","extras":{},"outcome":"finished"}`, api.EditObservation{ImplSource: "llm_based_edit"}, ""},
		{"read with an empty source", `{"observation":"read","extras":{"path":"/a","impl_source":""}}`, api.ReadObservation{Path: "/a", ImplSource: "default"}, ""},
		{"edit with an empty source", `{"observation":"edit","extras":{"impl_source":""}}`, api.EditObservation{ImplSource: "oh_aci"}, ""},
		{"a diff that is not a write's", `{"observation":"null","diff":5}`, api.NullObservation{}, ""},
		{"half of a pair", `{"observation":"think","content":"a\ud800b"}`, api.ThinkObservation{Content: "a\ufffdb"}, ""},
		{"the last of equal names", `{"observation":"think","content":"a","content":"b"}`, api.ThinkObservation{Content: "b"}, ""},

		{"nothing", ``, nil, "ends where an object should stand"},
		{"no object", `[]`, nil, "must be an object, got a list"},
		{"more than one", `{"observation":"null"}{}`, nil, "where the end should stand"},
		{"not UTF-8", "{\"observation\":\"think\",\"content\":\"\xff\"}", nil, "not valid UTF-8 at byte 34"},
		{"no kind", `{"content":"x"}`, nil, `member "observation" is missing`},
		{"kind of a wrong type", `{"observation":1}`, nil, `member "observation" must be a string, got the number 1`},
		{"unknown kind", `{"observation":"fly"}`, nil, `observation "fly" is unknown`},
		{"content of a wrong type", `{"observation":"null","content":{}}`, nil, `member "content" must be a string, got an object`},
		{"extras of a wrong type", `{"observation":"null","extras":[]}`, nil, `member "extras" must be an object, got a list`},
		{"extra missing", `{"observation":"run","extras":{}}`, nil, `observation "run": extra "command" is missing`},
		{"extra of a wrong type", `{"observation":"read","extras":{"path":1},"outcome":"finished"}`, nil, `observation "read": extra "path" must be a string, got the number 1`},
		{"metadata of a wrong type", `{"observation":"run","extras":{"command":"a","metadata":{"exit_code":"x"}}}`, nil, `extra "metadata": member "exit_code" must be an integer`},
		{"task of a wrong type", `{"observation":"task_tracking","extras":{"task_list":["x"]}}`, nil, `extra "task_list" must be a list of tasks, got the string "x"`},
		{"task list of a wrong type", `{"observation":"task_tracking","extras":{"task_list":{}}}`, nil, `extra "task_list" must be a list of objects, got an object`},
		{"title of a wrong type", `{"observation":"task_tracking","extras":{"task_list":[{"title":1}]}}`, nil, `extra "task_list"[0]: member "title" must be a string`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.DecodeObservation([]byte(tt.in))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error: got %v, want %q", err, tt.err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// FuzzDecodeObservation: an observation or an error and never both, and what
// was decoded survives a round trip.
func FuzzDecodeObservation(f *testing.F) {
	for _, line := range recorded(f) {
		f.Add([]byte(line))
	}
	for _, tt := range observations {
		if !strings.HasPrefix(tt.want, "@") {
			f.Add([]byte(tt.want))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := api.DecodeObservation(data)
		if (first == nil) == (err == nil) {
			t.Fatalf("got %v and %v", first, err)
		}
		if err != nil {
			return
		}
		again, err := api.EncodeObservation(first)
		if err != nil {
			t.Fatalf("encoding %+v: %v", first, err)
		}
		second, err := api.DecodeObservation(again)
		if err != nil {
			t.Fatalf("decoding %s: %v", again, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("first  %+v\nsecond %+v", first, second)
		}
	})
}

// How an action went is a member, and comes back; the legacy protocol has words of its own.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	run := func(code int, suffix string) api.RunObservation {
		return api.RunObservation{Metadata: api.RunMetadata{ExitCode: code, PID: -1, Suffix: suffix}}
	}
	exec := func(o api.ExecObservation) api.ExecObservation {
		o.PID = new(7)
		return o
	}
	for _, tt := range []struct {
		name         string
		o            api.Observation
		outcome      api.Outcome
		code         string
		error        string // error_code
		legacy, word string // the outcome and the code
	}{
		{"a command that ended well", run(0, "\n[The command completed with exit code 0.]"), "succeeded", "", "", "finished", ""},
		{"a command that failed", run(1, "\n[The command completed with exit code 1.]"), "failed", "command_failed", "command_failed", "finished", ""},
		{"a command whose end is unknown", run(-1, "\n[The command ended, and its exit code is unknown.]"), "failed", "command_failed", "command_failed", "finished", ""},
		{"a command that is silent", run(-1, "\n[The command has no new output after 10 seconds. You may"), "running", "", "", "running", ""},
		{"a command whose time is over", run(-1, "\n[The command timed out after 5.0 seconds. You may wait longer"), "running", "timed_out", "", "running", ""},
		{"a command that was refused", run(-1, "\n[Your command \"\n[The command timed out after\" is NOT executed."), "not_started", "busy", "busy", "not_started", ""},
		{"nothing to ask for more of", run(-1, ""), "not_started", "", "not_started", "not_started", ""},
		{"a command that was cancelled", api.RunObservation{Outcome: api.OutcomeCancelled}, "cancelled", "", "cancelled", "finished", ""},
		{"a program", exec(api.ExecObservation{ExitCode: new(0)}), "succeeded", "", "", "finished", ""},
		{"a program that failed", exec(api.ExecObservation{ExitCode: new(3)}), "failed", "command_failed", "command_failed", "finished", ""},
		{"a program that a signal ended", exec(api.ExecObservation{Signal: new("SIGSEGV")}), "failed", "command_failed", "command_failed", "finished", ""},
		{"a program whose time was over", exec(api.ExecObservation{ExitCode: new(0), EndedBy: new("kill_after")}), "failed", "timed_out", "timed_out", "finished", ""},
		{"a program that was cancelled", exec(api.ExecObservation{ExitCode: new(0), EndedBy: new("cancel")}), "cancelled", "", "cancelled", "finished", ""},
		{"a program that goes on", exec(api.ExecObservation{}), "running", "timed_out", "", "running", ""},
		{"a program that did not start", api.ExecObservation{ExitCode: new(127)}, "not_started", "", "not_started", "not_started", ""},
		{"a cell", api.IPythonObservation{}, "succeeded", "", "", "finished", ""},
		{"a cell that raised", api.IPythonObservation{Failure: "command_failed"}, "failed", "command_failed", "command_failed", "finished", "command_failed"},
		{"a cell whose time was over", api.IPythonObservation{Failure: "timed_out"}, "failed", "timed_out", "timed_out", "finished", "timed_out"},
		{"a cell that was cancelled", api.IPythonObservation{Outcome: api.OutcomeCancelled}, "cancelled", "", "cancelled", "finished", "command_failed"},
		{"a view", api.ReadObservation{Content: "x", ImplSource: "oh_aci"}, "succeeded", "", "", "finished", ""},
		{"a view that was refused", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "oh_aci", Code: "file_not_found"}, "failed", "file_not_found", "file_not_found", "failed", "file_not_found"},
		{"a view by a server that has no words", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "oh_aci"}, "failed", "", "command_failed", "finished", ""},
		{"a file about errors", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "default"}, "succeeded", "", "", "finished", ""},
		{"an edit", api.EditObservation{Content: "done"}, "succeeded", "", "", "finished", ""},
		{"an edit that was refused", api.EditObservation{Content: "ERROR:\nx", Code: "conflict"}, "failed", "conflict", "conflict", "failed", "conflict"},
		{"a write", api.WriteObservation{}, "succeeded", "", "", "finished", ""},
		{"a file", api.FileObservation{}, "succeeded", "", "", "finished", ""},
		{"a search", api.SearchObservation{}, "succeeded", "", "", "", ""},
		{"a page", api.BrowseObservation{}, "succeeded", "", "", "", ""},
		{"a page that failed", api.BrowseObservation{Error: true}, "failed", "command_failed", "command_failed", "", ""},
		{"a tool of a server", api.MCPObservation{Content: api.MCPResult{Meta: []byte("{}"), Content: []byte("[]"), Structured: []byte("null")}.Text()}, "succeeded", "", "", "", ""},
		{"a tool of a server that failed", api.MCPObservation{Content: api.MCPResult{Meta: []byte("{}"), Content: []byte("[]"), Structured: []byte("null"), IsError: true}.Text()}, "failed", "command_failed", "command_failed", "", ""},
		{"a thought", api.ThinkObservation{}, "succeeded", "", "", "", ""},
		{"an error", api.ErrorObservation{Code: "binary_file"}, "failed", "binary_file", "binary_file", "failed", "binary_file"},
		{"an error without a word", api.ErrorObservation{}, "failed", "", "command_failed", "failed", ""},
		{"an error before the start", api.ErrorObservation{Outcome: api.OutcomeNotStarted}, "not_started", "", "not_started", "not_started", ""},
		{"an error that ends a wait", api.ErrorObservation{Outcome: api.OutcomeUnknown}, "unknown", "", "unknown", "", ""},
		{"a search that was cancelled", api.ErrorObservation{Outcome: api.OutcomeCancelled}, "cancelled", "", "cancelled", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, err := api.EncodeObservation(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			legacy, err := api.EncodeLegacy(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			old, err := api.DecodeObservation(legacy)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []api.Observation{tt.o, decoded(t, body), api.WithOutcome(old, tt.outcome)} {
				if outcome, code := api.OutcomeOf(o); outcome != tt.outcome || code != tt.code {
					t.Errorf("%#v: got %s, %q, want %s, %q", o, outcome, code, tt.outcome, tt.code)
				}
				if isError, code := api.ToolFailure(o); code != tt.error || isError != (code != "") {
					t.Errorf("%#v: got %v, %q, want %q", o, isError, code, tt.error)
				}
			}
			for body, want := range map[string][2]string{string(body): {string(tt.outcome), tt.code}, string(legacy): {tt.legacy, tt.word}} {
				var said struct{ Outcome, Code string }
				if err := json.Unmarshal([]byte(body), &said); err != nil || [2]string{said.Outcome, said.Code} != want {
					t.Errorf("got %v in %s, want %v", err, body, want)
				}
			}
		})
	}
}

func decoded(t *testing.T, body []byte) api.Observation {
	t.Helper()
	o, err := api.DecodeObservation(body)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The outcome is found in an answer as it is in the decoded one, also where it has none.
func TestOutcomeIn(t *testing.T) {
	t.Parallel()
	for _, o := range []api.Observation{
		api.ReadObservation{Content: `{"outcome":"failed"}`},
		api.ReadObservation{Code: "file_not_found"},
		api.WriteObservation{},
		api.ErrorObservation{Outcome: api.OutcomeUnknown},
		api.ErrorObservation{Code: "x"},
		api.RunObservation{Outcome: api.OutcomeCancelled},
	} {
		encoded, err := api.EncodeObservation(o)
		if err != nil {
			t.Fatal(err)
		}
		legacy, err := api.EncodeLegacy(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{encoded, legacy} {
			decoded, err := api.DecodeObservation(body)
			if err != nil {
				t.Fatal(err)
			}
			want, wantCode := api.OutcomeOf(decoded)
			if outcome, code := api.OutcomeIn(body); outcome != want || code != wantCode {
				t.Errorf("%s: got %q %q, want %q %q", body, outcome, code, want, wantCode)
			}
		}
	}
}

// AnswerSize is half of the bytes of the JSON.
func TestAnswerSize(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "\"\\\n\t\r\b\f", "\x01\x1f\x7f", "äöü\U0001F600"} {
		o := api.ReadObservation{Content: strings.Repeat(text, 1<<20)}
		encoded, err := api.EncodeObservation(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := 2 * api.AnswerSize(o); got > int64(len(encoded)) || got < int64(len(encoded))-1000 {
			t.Errorf("%q: got %d, want about %d", text, got, len(encoded))
		}
	}
}
