package api

// ErrorObservation says that an action came out badly in a way that its own
// observation cannot say. It must never answer a hidden run: the stock client
// adds a "hidden" to the extras, which breaks it here.
type ErrorObservation struct {
	// Content is for the agent to read.
	Content string
	// ErrorID is a machine word, or "".
	ErrorID string
	// Code is the machine word of a tool's complaint, or "". It is not encoded:
	// clients keep the extras closed.
	Code string
}

// Kind returns "error".
func (ErrorObservation) Kind() string { return "error" }
func (ErrorObservation) observation() {}

func (o ErrorObservation) encode(w *writer) {
	w.head(o.Content, o.Kind(), o.Content)
	w.text("error_id", o.ErrorID)
	w.close()
	w.close()
}

// NullObservation says that there is nothing to say. Controllers make it.
type NullObservation struct {
	Content string
}

// Kind returns "null".
func (NullObservation) Kind() string { return "null" }
func (NullObservation) observation() {}

func (o NullObservation) encode(w *writer) { w.notice("No observation", o.Kind(), o.Content) }

// ThinkObservation answers a thought. Controllers make it.
type ThinkObservation struct {
	Content string
}

// Kind returns "think".
func (ThinkObservation) Kind() string { return "think" }
func (ThinkObservation) observation() {}

func (o ThinkObservation) encode(w *writer) { w.notice(o.Content, o.Kind(), o.Content) }

// SuccessObservation says that something worked. Controllers make it.
type SuccessObservation struct {
	Content string
}

// Kind returns "success".
func (SuccessObservation) Kind() string { return "success" }
func (SuccessObservation) observation() {}

func (o SuccessObservation) encode(w *writer) { w.notice(o.Content, o.Kind(), o.Content) }

// UserRejectedObservation says that a person forbade the action. Controllers
// make it.
type UserRejectedObservation struct {
	Content string
}

// Kind returns "user_rejected".
func (UserRejectedObservation) Kind() string { return "user_rejected" }
func (UserRejectedObservation) observation() {}

func (o UserRejectedObservation) encode(w *writer) { w.notice(o.Content, o.Kind(), o.Content) }

// notice writes an observation that has no extras.
func (w *writer) notice(message, kind, content string) {
	w.head(message, kind, content)
	w.close()
	w.close()
}

// TaskTrackingObservation shows the list of tasks. Controllers make it.
type TaskTrackingObservation struct {
	Content string
	// Command is "view" or "plan".
	Command string
	// Tasks travel as a list, an empty one when nil.
	Tasks []Task
}

// Task is one entry of a task list.
type Task struct {
	ID    string
	Title string
	// Status is "todo", "in_progress" or "done".
	Status string
	Notes  string
}

// Kind returns "task_tracking".
func (TaskTrackingObservation) Kind() string { return "task_tracking" }
func (TaskTrackingObservation) observation() {}

func (o TaskTrackingObservation) encode(w *writer) {
	w.head(o.Content, o.Kind(), o.Content)
	w.text("command", o.Command)
	w.key("task_list")
	w.buf = append(w.buf, '[')
	for _, t := range o.Tasks {
		w.open("")
		w.text("id", t.ID)
		w.text("title", t.Title)
		w.text("status", t.Status)
		w.text("notes", t.Notes)
		w.close()
	}
	w.buf = append(w.buf, ']')
	w.close()
	w.close()
}

func decodeTaskTrackingObservation(content string, f *fields) (Observation, error) {
	o := TaskTrackingObservation{Content: content, Command: f.text("command", ""), Tasks: []Task{}}
	v, _ := f.take("task_list")
	list, ok := v.([]any)
	if v != nil && !ok {
		f.complain("task_list", v, "a list of tasks")
	}
	for _, e := range list {
		members, ok := e.(map[string]any)
		if !ok {
			f.complain("task_list", e, "a list of tasks")
			break
		}
		task := fields{of: `observation "task_tracking": task`, values: members}
		o.Tasks = append(o.Tasks, Task{
			ID:     task.text("id", ""),
			Title:  task.text("title", ""),
			Status: task.text("status", ""),
			Notes:  task.text("notes", ""),
		})
		if err := task.check(); err != nil {
			return nil, err
		}
	}
	return o, nil
}
