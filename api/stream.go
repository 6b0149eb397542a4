package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"
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
	encode(w *writer) error
}

// Output is what came out of a session's terminal, as it came: with the
// carriage returns, colours and echoes that the observation leaves out.
type Output struct {
	// Offset is that of the first byte of Data, in bytes since the session began.
	Offset int64
	// Missed counts the bytes before Offset that nobody will get: the reader was
	// so slow that they are no longer kept.
	Missed int64
	// Data is empty only where the last bytes were missed.
	Data []byte
}

// Heartbeat says that the action goes on.
type Heartbeat struct{}

// Finished is the end of an action.
type Finished struct {
	Observation Observation
}

// Failed is the end of an answer without an observation: what an answer that is
// no stream would say with its status.
type Failed struct {
	// Status is 4xx where the action was refused and nothing was done, and 500
	// where the outcome is unknown.
	Status int
	Detail string
	// ID finds the failure in the server's log; empty where there is nothing to find.
	ID string
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

// EncodeEvent returns the JSON of an event, on one line and without a newline
// at its end. It fails where EncodeObservation does.
func EncodeEvent(e Event) ([]byte, error) {
	var w writer
	w.open("")
	w.text("event", e.Kind())
	if err := e.encode(&w); err != nil {
		return nil, err
	}
	w.close()
	return w.buf, nil
}

func (o Output) encode(w *writer) error {
	w.grow(len(o.Data)*4/3 + 128)
	w.literal("offset", strconv.FormatInt(o.Offset, 10))
	if o.Missed > 0 {
		w.literal("missed", strconv.FormatInt(o.Missed, 10))
	}
	if utf8.Valid(o.Data) {
		w.text("text", string(o.Data))
	} else {
		w.text("base64", base64.StdEncoding.EncodeToString(o.Data))
	}
	return nil
}

func (Heartbeat) encode(*writer) error { return nil }

func (e Finished) encode(w *writer) error {
	observation, err := EncodeObservation(e.Observation)
	w.literal("observation", string(observation))
	return err
}

func (e Failed) encode(w *writer) error {
	w.integer("status", e.Status)
	w.text("detail", e.Detail)
	w.textIfAny("id", e.ID)
	return nil
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
	p, err := newParser(data)
	if err != nil {
		return nil, err
	}
	if p.peek() != '{' {
		return nil, p.noObject("an object")
	}
	f := &fields{of: "member", values: map[string]any{}}
	var observation []byte
	if err := p.object(func(name string) (err error) {
		if name != "observation" {
			f.values[name], err = p.value()
			return err
		}
		begin := p.pos
		err = p.skip()
		observation = data[begin:p.pos]
		return err
	}); err != nil {
		return nil, err
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	kind := f.needText("event")
	if err := f.check(); err != nil {
		return nil, err
	}
	switch kind {
	case "output":
		return decodeOutput(f)
	case "observation":
		o, err := DecodeObservation(observation)
		return Finished{Observation: o}, err
	case "error":
		e := Failed{Status: f.integer("status", http.StatusInternalServerError), Detail: f.text("detail", ""), ID: f.text("id", "")}
		return e, f.check()
	}
	return Heartbeat{}, nil
}

func decodeOutput(f *fields) (Event, error) {
	o := Output{Offset: int64(f.integer("offset", -1)), Missed: int64(f.integer("missed", 0))}
	text, encoded := f.text("text", ""), f.text("base64", "")
	if err := f.check(); err != nil {
		return nil, err
	}
	o.Data = []byte(text)
	if encoded != "" {
		var err error
		if o.Data, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
	}
	if o.Offset < 0 || o.Missed < 0 || o.Missed > o.Offset {
		return nil, fmt.Errorf("output at offset %d, %d missed: no such place", o.Offset, o.Missed)
	}
	if len(o.Data) == 0 && o.Missed == 0 || text != "" && encoded != "" {
		return nil, errors.New("output must have one of text and base64")
	}
	return o, nil
}
