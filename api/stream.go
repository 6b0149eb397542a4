package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one thing that the answer of a streamed action tells: an Output, a
// Heartbeat, a Finished or a Failed, and nothing else. One of the last two ends
// the answer.
//
//sumtype:decl
type Event interface {
	// Kind returns the name of the event on the wire, such as "output".
	Kind() string
	event()
}

// Output is what came out of a session's terminal, as it came: with the
// carriage returns, colours and echoes that the observation leaves out. Or it is what
// a program wrote, whose first one has no Data and says that it runs.
type Output struct {
	// Seq is the place of the event among those of its action, from 1 on; 0 where it
	// is not known.
	Seq uint64
	// PID is the process id of a program in its first output, otherwise 0.
	PID int
	// Stream is StreamStdout or StreamStderr, of a program; empty for a session's terminal.
	Stream string
	// Offset is that of the first byte of Data, in bytes since the action, or the
	// stream of the program, began.
	Offset int64
	// Missed counts the bytes before Offset that were dropped.
	Missed int64
	// Data is empty only where the last bytes were missed, and with a PID.
	Data []byte
}

// The streams of a program. What it writes to a terminal is its standard output.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// Watch hears how an action goes on. Fields that are nil are not called; the others are
// called one after another, and not after the action was answered.
type Watch struct {
	// Turn is the place of the action in its session, as [Turn] says; nil: it takes one now.
	Turn Turn
	// Queue is called before the action waits for its turn in its session, each time if it
	// waits more than once.
	Queue func()
	// Begin is called before the action does anything. If it returns an error, the
	// action does nothing and fails with it.
	Begin func() error
	// Output gets the output as it comes. The command waits for it, and Data is only
	// valid during the call.
	Output func(Output)
	// Cancelled is closed once a client cancels the action: its command is to end, and
	// its observation says so. nil never is.
	Cancelled <-chan struct{}
	// Program is called once the program of an [ExecAction] was started; nil calls nothing.
	Program func(Program)
	// Looks gets, once a command or a program begins, a function that finds out what it does.
	// That may be called concurrently, at any time; it returns nil where the command has
	// ended.
	Looks func(look func() *Waiting)
	// Operator says that the action came in a request of an operator, not in one that an
	// agent composes: its program may run as root where the sandbox allows that.
	Operator bool
}

// Turn is the place of an action among those of its session, which begin in the order in which
// they took theirs.
type Turn interface {
	// Leave gives the place back. Further calls have no effect.
	Leave()
}

// CanLook calls Looks.
func (w Watch) CanLook(look func() *Waiting) {
	if w.Looks != nil {
		w.Looks(look)
	}
}

// Program is a program that an action started. Its methods may be called concurrently, and
// return an *[Error] with status 409 where the program cannot do it.
type Program interface {
	// Write appends data to the program's input, whose first byte is that at an
	// offset, and ends the input if end is set. What repeats earlier input is not written
	// again. It waits for the program to take the data; ctx bounds that, and its cause is
	// the error then. next is where the input goes on, also with an error.
	Write(ctx context.Context, offset int64, data []byte, end bool) (next int64, err error)
	// Signal sends a signal, such as "SIGINT", to the program's process group.
	Signal(name string) error
	// Resize gives the program's terminal a size.
	Resize(size TTY) error
}

// Begins calls Begin.
func (w Watch) Begins() error {
	if w.Begin == nil {
		return nil
	}
	return w.Begin()
}

// Heartbeat says that the action goes on.
type Heartbeat struct {
	// Waiting is what its command or program does; nil where it is not known, or the action
	// is another one.
	Waiting *Waiting `json:"waiting,omitzero"`
}

// Finished is the end of an action.
type Finished struct {
	// Seq is as in Output.
	Seq         uint64
	Observation Observation
}

// Failed is the end of an answer without an observation: what an answer that is
// no stream would say with its status.
type Failed struct {
	// Seq is as in Output.
	Seq uint64 `json:"-"`
	// Status is 4xx where the action was refused and nothing was done, and 500
	// where the outcome is unknown.
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// ID finds the failure in the server's log; empty where there is nothing to find.
	ID string `json:"id,omitzero"`
}

// Kind returns "output".
func (Output) Kind() string { return "output" }

// Kind returns "heartbeat".
func (Heartbeat) Kind() string { return "heartbeat" }

// Kind returns "observation".
func (Finished) Kind() string { return "observation" }

// Kind returns "error".
func (Failed) Kind() string { return "error" }

func (Output) event()    {}
func (Heartbeat) event() {}
func (Finished) event()  {}
func (Failed) event()    {}

// wireEvent is what every event has on the wire.
type wireEvent struct {
	Event string `json:"event"`
	Seq   uint64 `json:"seq,omitzero"`
}

// wireOutput is an Output on the wire: its data is text, or in base64 where it is
// not UTF-8 or a quarter of it is NUL.
type wireOutput struct {
	PID    int     `json:"pid,omitzero"`
	Stream string  `json:"stream,omitzero"`
	Offset int64   `json:"offset"`
	Missed int64   `json:"missed,omitzero"`
	Text   *string `json:"text,omitzero"`
	Base64 []byte  `json:"base64,omitzero"`
}

// An event is decoded by the members of its own kind alone: a newer server may
// give the others another meaning.
var (
	eventShape     = openShapeOf(wireEvent{}, "event")
	outputShape    = openShapeOf(wireOutput{Offset: -1})
	heartbeatShape = openShapeOf(Heartbeat{})
	failedShape    = openShapeOf(Failed{Status: http.StatusInternalServerError})
)

// EncodeFinished is EncodeEvent of a Finished with the encoded observation of an answer.
func EncodeFinished(seq uint64, observation []byte) ([]byte, error) {
	return Encode(struct {
		wireEvent
		Observation jsontext.Value `json:"observation"`
	}{wireEvent{Event: Finished{}.Kind(), Seq: seq}, observation})
}

// EncodeEvent returns the JSON of an event, on one line and without a newline
// at its end. It fails where EncodeObservation does.
func EncodeEvent(e Event) ([]byte, error) {
	head := wireEvent{Event: e.Kind()}
	switch e := e.(type) {
	case Output:
		head.Seq = e.Seq
		o := wireOutput{PID: e.PID, Stream: e.Stream, Offset: e.Offset, Missed: e.Missed, Base64: e.Data}
		if utf8.Valid(e.Data) && 4*bytes.Count(e.Data, []byte{0}) <= len(e.Data) { // JSON has six bytes for a NUL
			o.Text, o.Base64 = new(string(e.Data)), nil
		}
		return Encode(struct {
			wireEvent
			wireOutput
		}{head, o})
	case Finished:
		head.Seq = e.Seq
		o, err := wireOf(e.Observation)
		if err != nil {
			return nil, err
		}
		return Encode(struct {
			wireEvent
			Observation wire `json:"observation"`
		}{head, o})
	case Failed:
		head.Seq = e.Seq
		return Encode(struct {
			wireEvent
			Failed
		}{head, e})
	case Heartbeat:
		return Encode(struct {
			wireEvent
			Heartbeat
		}{head, e})
	}
	return Encode(head)
}

// DecodeEvent reads one event. Members that it does not know are ignored, and
// so is, as a Heartbeat, an event that it does not know: a newer server can be
// understood.
func DecodeEvent(data []byte) (Event, error) {
	e, err := decodeEvent(data)
	if err != nil {
		return nil, fmt.Errorf("decoding event: %w", err)
	}
	return e, nil
}

func decodeEvent(data []byte) (Event, error) {
	sent, err := readMembers(data, unlimited, "an object")
	if err != nil {
		return nil, err
	}
	head, err := decodeAs[wireEvent](eventShape, "member", sent, false)
	if err != nil {
		return nil, err
	}
	switch head.Event {
	case "output":
		w, err := decodeAs[wireOutput](outputShape, "member", sent, false)
		if err != nil {
			return nil, err
		}
		o, err := w.output()
		o.Seq = head.Seq
		return o, err
	case "observation":
		o, err := DecodeObservation(sent["observation"])
		return Finished{Seq: head.Seq, Observation: o}, err
	case "error":
		failed, err := decodeAs[Failed](failedShape, "member", sent, false)
		failed.Seq = head.Seq
		return failed, err
	case "heartbeat":
		return decodeAs[Heartbeat](heartbeatShape, "member", sent, false)
	}
	return Heartbeat{}, nil
}

// output checks what came.
func (w wireOutput) output() (Output, error) {
	if w.Offset < 0 || w.Missed < 0 || w.Missed > w.Offset {
		return Output{}, fmt.Errorf("output at offset %d, %d missed: no such place", w.Offset, w.Missed)
	}
	text := ""
	if w.Text != nil {
		text = *w.Text
	}
	if text != "" && len(w.Base64) > 0 || text == "" && len(w.Base64) == 0 && w.Missed == 0 && w.PID == 0 {
		return Output{}, errors.New("output must have one of text and base64")
	}
	data := w.Base64
	if len(data) == 0 {
		data = []byte(text)
	}
	return Output{PID: w.PID, Stream: w.Stream, Offset: w.Offset, Missed: w.Missed, Data: data}, nil
}
