package api

// ErrorObservation reports a failure that the action's own observation cannot express.
// It must never answer a hidden run: the stock client adds a "hidden" to the extras,
// which makes it fail on this one.
type ErrorObservation struct {
	// Content is for the agent to read.
	Content string `json:"-"`
	// ErrorID is an identifier of the legacy protocol, or "".
	ErrorID string `json:"error_id"`
	// Code is the error code of a tool, or "".
	Code string `json:"-"`
	// Outcome is the outcome of the action; "" is OutcomeFailed.
	Outcome Outcome `json:"-"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}

func (o ErrorObservation) wire() wire {
	extras := struct {
		ErrorID string `json:"error_id,omitzero"`
	}{o.ErrorID}
	return wire{Message: o.Content, Content: o.Content, Extras: extras}
}

// NullObservation is an empty observation. Controllers make it.
type NullObservation struct {
	Content string `json:"-"`
}

// ThinkObservation answers a thought. Controllers make it.
type ThinkObservation struct {
	Content string `json:"-"`
}

// SuccessObservation reports a success. Controllers make it.
type SuccessObservation struct {
	Content string `json:"-"`
}

// UserRejectedObservation reports that a person rejected the action. Controllers make
// it.
type UserRejectedObservation struct {
	Content string `json:"-"`
}

// TaskTrackingObservation shows the list of tasks. Controllers make it.
type TaskTrackingObservation struct {
	Content string `json:"-"`
	// Command is "view" or "plan".
	Command string `json:"command"`
	// Tasks travel as a list, an empty one when nil.
	Tasks []Task `json:"task_list"`
}

// Task is one entry of a task list.
type Task struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Status is "todo", "in_progress" or "done".
	Status string `json:"status"`
	Notes  string `json:"notes"`
}

var taskShape = openShapeOf(Task{})

// UnmarshalJSON takes null for an absent text.
func (t *Task) UnmarshalJSON(data []byte) (err error) {
	*t, err = decodeInner[Task](taskShape, "a list of tasks", data, false)
	return err
}

func (o TaskTrackingObservation) filled() Observation {
	o.Tasks = orEmpty(o.Tasks)
	return o
}
