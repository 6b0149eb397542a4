package tools

import (
	"fmt"
	"strings"
	"sync"

	"github.com/actiond/actiond/api"
)

// maxLists bounds the task lists that are kept, as many as a sandbox has
// sessions.
const maxLists = 64

// Tasks keeps the task list of each session, so that a model can read the list that it
// wrote. The zero value is ready, and may be used concurrently.
type Tasks struct {
	mu    sync.Mutex
	lists map[string][]api.Task
}

// Answer completes the observation of a call that runs nothing: it stores a plan, and
// shows the stored one for a view. Other observations are returned unchanged.
func (t *Tasks) Answer(session string, o api.Observation) api.Observation {
	tracking, ok := o.(api.TaskTrackingObservation)
	if !ok {
		return o
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if tracking.Command != "plan" {
		tracking.Tasks = t.lists[session]
		tracking.Content = show(tracking.Tasks)
		return tracking
	}
	if t.lists == nil || t.lists[session] == nil && len(t.lists) >= maxLists {
		t.lists = map[string][]api.Task{} // a list is soon written anew
	}
	t.lists[session] = tracking.Tasks
	tracking.Content = fmt.Sprintf("The task list has %d entries now.", len(tracking.Tasks))
	return tracking
}

// show writes a list for a model.
func show(tasks []api.Task) string {
	if len(tasks) == 0 {
		return `There is no task list yet. Write one with the command "plan".`
	}
	var b strings.Builder
	for i, t := range tasks {
		fmt.Fprintf(&b, "%d. [%s] %s (id %s)\n", i+1, t.Status, t.Title, t.ID)
		if t.Notes != "" {
			fmt.Fprintf(&b, "   %s\n", t.Notes)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
