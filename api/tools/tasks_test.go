package tools_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/api/tools"
)

// A task list is kept, so it has a bound.
func TestLongTaskList(t *testing.T) {
	t.Parallel()
	_, problem := tools.Parse("", "task_tracker", `{"command":"plan","task_list":[{"title":"`+strings.Repeat("x", 70_000)+`"}]}`)
	const want = `tool "task_tracker": argument "task_list" must have at most 65536 bytes of text, got 70006`
	if problem == nil || problem.Code != tools.InvalidArgument || problem.Text != want {
		t.Errorf("got %v, want %s", problem, want)
	}
}
