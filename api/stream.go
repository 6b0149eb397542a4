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

// Event is an event of a streamed action: an Output, a Heartbeat, a Finished or a
// Failed, and nothing else. One of the last two ends the stream.
//
//sumtype:decl
type Event interface {
	// Kind returns the name of the event on the wire, such as "output".
	Kind() string
	event()
}

// Output is raw output of a session's terminal, with the carriage returns, colours and
// echoes that the observation leaves out, or output of a program. The first Output of a
// program has no Data and reports the start.
type Output struct {
	// Seq is the number of the event within its action, from 1 on; 0 if it is unknown.
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

// The streams of a program. Its output to a terminal is StreamStdout.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// Watch observes the progress of an action. Functions that are nil are not called; the others
// are called one at a time, and not after the action was answered.
type Watch struct {
	// Turn is the action's place in the queue of its session; nil takes one now.
	Turn Turn
	// Queue is called before the action waits for its turn in its session, each time if it
	// waits more than once.
	Queue func()
	// Begin is called before the action does anything. If it returns an error, the
	// action does nothing and fails with it.
	Begin func() error
	// Take is called before the action takes so many bytes of memory, and waits for them. If it
	// returns an error, the action does nothing and fails with it.
	Take func(bytes int64) error
	// Hold keeps the memory that Take took until release, which may be called later: of work that goes on
	// once the action was answered. It is called again only after release.
	Hold func() (release func())
	// Output receives the output as it arrives. The command waits for it, and Data is only
	// valid during the call.
	Output func(Output)
	// Cancelled is closed when a client cancels the action: its command must end, and its
	// observation says so. A nil channel is never closed.
	Cancelled <-chan struct{}
	// Program is called once the program of an [ExecAction] was started.
	Program func(Program)
	// Looks receives, once a command or a program begins, a function that inspects it. The
	// function may be called concurrently, at any time; it returns nil after the end of the
	// command.
	Looks func(look func() *Waiting)
	// Operator is true if an operator sent the action, and not an agent: its program may run
	// as another user than the sandbox's if that allows it.
	Operator bool
}

// Turn is the place of an action in the queue of its session. Actions begin in the order in
// which they took their turns.
type Turn interface {
	// Leave gives the turn back. It is idempotent.
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
	// PID returns its process id.
	PID() int
	// Write appends data to the program's input, and ends the input if end is set. offset is
	// that of the first byte of data; bytes before the current end are not written again. It
	// waits for the program to read the data; ctx bounds that, and its cause is the error
	// then. next is the offset of the next byte, also with an error.
	Write(ctx context.Context, offset int64, data []byte, end bool) (next int64, err error)
	// Signal sends a signal, such as "SIGINT", to the program's process group.
	Signal(name string) error
	// Resize sets the size of the program's terminal.
	Resize(size TTY) error
}

// Begins calls Begin.
func (w Watch) Begins() error {
	if w.Begin == nil {
		return nil
	}
	return w.Begin()
}

// LargeSize is how many bytes of a body, a file or an answer are so many that they wait for
// memory: smaller ones are small beside the fixed memory of an action.
const LargeSize = 128 << 10

// Takes calls Take.
func (w Watch) Takes(bytes int64) error {
	if w.Take == nil {
		return nil
	}
	return w.Take(bytes)
}

// Holds calls Hold.
func (w Watch) Holds() (release func()) {
	if w.Hold == nil {
		return func() {}
	}
	return w.Hold()
}

// Heartbeat reports that the action is still running.
type Heartbeat struct {
	// Waiting describes its command or program; nil if it is unknown, or for other actions.
	Waiting *Waiting `json:"waiting,omitzero"`
}

// Finished is the end of an action.
type Finished struct {
	// Seq is as in Output.
	Seq         uint64
	Observation Observation
}

// Failed is the end of a stream without an observation. An answer that is not streamed
// reports the same with its status.
type Failed struct {
	// Seq is as in Output.
	Seq uint64 `json:"-"`
	// Status is 4xx if the action was refused and nothing was done, and 500 if the
	// outcome is unknown.
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// ID finds the failure in the server's log; "" without an entry.
	ID string `json:"id,omitzero"`
}

func (Output) event()    {}
func (Heartbeat) event() {}
func (Finished) event()  {}
func (Failed) event()    {}

// wireEvent holds the members of every event.
type wireEvent struct {
	Event string `json:"event"`
	Seq   uint64 `json:"seq,omitzero"`
}

// wireOutput is an Output on the wire. Its data is text, or base64 if it is not UTF-8 or
// a quarter of it is NUL.
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

// EncodeFinished is EncodeEvent of a Finished whose encoded observation comes between head and tail.
func EncodeFinished(seq uint64) (head, tail []byte, err error) {
	return EncodeAround(struct {
		wireEvent
		Observation jsontext.Value `json:"observation"`
	}{wireEvent: wireEvent{Event: Finished{}.Kind(), Seq: seq}})
}

// EncodeAround returns the JSON before and behind a last member that is null: the
// caller has its JSON, which may be large.
func EncodeAround(v any) (head, tail []byte, err error) {
	data, err := Encode(v)
	head, ok := bytes.CutSuffix(data, []byte("null}"))
	if err == nil && !ok {
		err = errors.New("encoding around a member: it is not the last one, or not null")
	}
	return head, []byte("}"), err
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

// DecodeEvent reads one event. It ignores unknown members, and returns a Heartbeat for an
// unknown event, so that the answers of a newer server can be decoded.
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

// output checks an output and returns it.
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
