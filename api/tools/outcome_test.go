package tools_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	run := func(code int, suffix string) api.Observation {
		return api.RunObservation{Metadata: api.RunMetadata{ExitCode: code, Suffix: suffix}}
	}
	tests := []struct {
		name    string
		o       api.Observation
		isError bool
		code    string
	}{
		{"a command that ended well", run(0, "\n[The command completed with exit code 0.]"), false, ""},
		{"a command that failed", run(1, "\n[The command completed with exit code 1.]"), true, "command_failed"},
		{"a command that is silent", run(-1, "\n[The command has no new output after 10 seconds. You may wait longer"), false, ""},
		{"a command whose time is over", run(-1, "\n[The command timed out after 5.0 seconds. You may wait longer"), true, "timed_out"},
		{"a command that was refused", run(-1, "\n[Your command \"ls\" is NOT executed."), true, "command_failed"},
		{"nothing to ask for more of", run(-1, ""), true, "command_failed"},
		{"an error", api.ErrorObservation{Content: "x", Code: "no_match"}, true, "no_match"},
		{"an error without a word", api.ErrorObservation{Content: "x"}, true, "command_failed"},
		{"a view", api.ReadObservation{Content: "x", ImplSource: "oh_aci"}, false, ""},
		{"a view that was refused", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "oh_aci", Code: "file_not_found"}, true, "file_not_found"},
		{"a view by a server that has no words", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "oh_aci"}, true, ""},
		{"a file that speaks of errors", api.ReadObservation{Content: "ERROR:\nx", ImplSource: "default"}, false, ""},
		{"an edit", api.EditObservation{Content: "done"}, false, ""},
		{"an edit that was refused", api.EditObservation{Content: "ERROR:\nx", Code: "conflict"}, true, "conflict"},
		{"a write", api.WriteObservation{}, false, ""},
		{"a search", api.SearchObservation{}, false, ""},
		{"a cell", api.IPythonObservation{}, false, ""},
		{"a cell that raised", api.IPythonObservation{Failure: "command_failed"}, true, "command_failed"},
		{"a page", api.BrowseObservation{}, false, ""},
		{"a page that failed", api.BrowseObservation{Error: true}, true, "command_failed"},
		{"a thought", api.ThinkObservation{}, false, ""},
	}
	for _, tt := range tests {
		if isError, code := tools.Outcome(tt.o); isError != tt.isError || code != tt.code {
			t.Errorf("%s: got %v and %q, want %v and %q", tt.name, isError, code, tt.isError, tt.code)
		}
	}
}

// A task list is kept, so it has a bound.
func TestLongTaskList(t *testing.T) {
	t.Parallel()
	_, problem := tools.Parse("", "task_tracker", `{"command":"plan","task_list":[{"title":"`+strings.Repeat("x", 70_000)+`"}]}`)
	const want = `tool "task_tracker": argument "task_list" must have at most 65536 bytes of text, got 70006`
	if problem == nil || problem.Code != tools.InvalidArgument || problem.Text != want {
		t.Errorf("got %v, want %s", problem, want)
	}
}
