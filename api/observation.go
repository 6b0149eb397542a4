package api

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
)

// Observation is the result of an action: one of the types of this package
// whose name ends in Observation, and nothing else. The tags of their fields are
// the names of the extras on the wire.
//
//sumtype:decl
type Observation interface {
	// Kind returns the name of the observation on the wire, such as "run".
	Kind() string
	wire() wire
}

// observations are all that the protocol knows. A line gives the values of absent
// extras and the names of those that must come.
var observations = []*shape{
	openShapeOf(RunObservation{Metadata: unknownMetadata}, "command"),
	openShapeOf(ExecObservation{}),
	openShapeOf(IPythonObservation{}, "code"),
	openShapeOf(ReadObservation{ImplSource: implDefault}, "path"),
	openShapeOf(WriteObservation{}, "path"),
	openShapeOf(FileObservation{}),
	openShapeOf(EditObservation{ImplSource: implDraft}),
	openShapeOf(SearchObservation{}),
	openShapeOf(BrowseObservation{ActivePageIndex: -1}, "url", "trigger_by_action"),
	openShapeOf(DownloadObservation{}, "file_path"),
	openShapeOf(MCPObservation{}),
	openShapeOf(TaskTrackingObservation{}),
	openShapeOf(ErrorObservation{}),
	openShapeOf(NullObservation{}),
	openShapeOf(ThinkObservation{}),
	openShapeOf(SuccessObservation{}),
	openShapeOf(UserRejectedObservation{}),
}

// wire is an observation as it travels. The extras hold exactly the keys of the
// protocol, as the stock client breaks on any other.
type wire struct {
	Message string `json:"message"`
	Kind    string `json:"observation"`
	Content string `json:"content"`
	Extras  any    `json:"extras"`
	Success *bool  `json:"success,omitzero"` // of a command, a program and a cell
	Diff    string `json:"diff,omitzero"`    // of a write
	// Beside the extras, where the stock client ignores them.
	Outcome Outcome `json:"outcome,omitzero"`
	Code    string  `json:"code,omitzero"`
}

// Outcome says in a word what became of an action.
type Outcome string

// The outcomes.
const (
	Ended      Outcome = "finished"    // it ran to its end, whether or not that was good
	Running    Outcome = "running"     // it goes on, and the observation is a part of its result
	NotStarted Outcome = "not_started" // it did nothing, and may be sent again
	Refused    Outcome = "failed"      // it changed nothing; the code, if there is one, says why
	NotKnown   Outcome = "unknown"     // it may have begun; travels as no outcome
)

// fileOutcome is that of a file action with a machine word for its failure, or "".
func fileOutcome(code string) Outcome {
	if code != "" {
		return Refused
	}
	return Ended
}

// filler is an observation whose nil lists travel as empty ones.
type filler interface {
	filled() Observation
}

// Content returns what the agent reads of an observation, without the notes
// around a command's output; "" for nil.
func Content(o Observation) string {
	if o == nil {
		return ""
	}
	return o.wire().Content
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// EncodeObservation returns the JSON of an observation, without a newline at
// its end: message, observation, content, extras in this order, then success
// for run and run_ipython. The extras hold exactly the keys of the protocol,
// as the stock client breaks on any other. Invalid UTF-8 becomes U+FFFD. It
// fails only where a free-form object holds what JSON cannot say.
func EncodeObservation(o Observation) ([]byte, error) {
	w, err := wireOf(o)
	if err != nil {
		return nil, err
	}
	content := w.Content
	w.Content = "" // most of many observations, so that it is put in below
	data, err := Encode(w)
	if err != nil {
		return nil, fmt.Errorf("encoding %s observation: %w", o.Kind(), err)
	}
	before, after, _ := bytes.Cut(data, []byte(`"content":"`)) // which a text before it would have with backslashes
	all := make([]byte, 0, len(data)+len(content)+len(content)/16)
	all = append(all, data[:len(before)+len(`"content":"`)]...)
	return append(appendEscaped(all, content), after...), nil
}

func wireOf(o Observation) (wire, error) {
	if o == nil {
		return wire{}, errors.New("encoding observation: it is nil")
	}
	w := o.wire()
	w.Kind = o.Kind()
	return w, nil
}

// DecodeObservation reads the answer of a server, ours or the reference's.
// Keys that it does not know are ignored, so that a newer server can be
// understood; absent ones have the defaults of the protocol. Half of a
// surrogate pair in a text becomes U+FFFD.
func DecodeObservation(data []byte) (Observation, error) {
	e, err := scanObservation(data)
	if err != nil {
		return nil, fmt.Errorf("decoding observation: %w", err)
	}
	o, err := e.observation()
	if err != nil {
		return nil, fmt.Errorf("decoding observation: %w", err)
	}
	return o, nil
}

// scanObservation finds the members of an observation, and those of the given
// names beside them. Their number is not limited.
func scanObservation(data []byte, names ...string) (*envelope, error) {
	scan, err := newScanner(data, unlimited)
	if err != nil {
		return nil, err
	}
	names = append(names, "observation", "content", "diff", "outcome", "code")
	e := &envelope{members: members{}}
	if err := scan.object("an object", func(name string) error { return e.read(scan, name, "extras", names...) }); err != nil {
		return nil, err
	}
	return e, scan.end()
}

// observed is what every observation has beside its extras.
type observed struct {
	Kind    string  `json:"observation"`
	Content string  `json:"content"`
	Outcome Outcome `json:"outcome"`
	Code    string  `json:"code"`
}

var observedShape = openShapeOf(observed{}, "observation")

// observation makes an observation of an envelope.
func (e *envelope) observation() (Observation, error) {
	v, d := decode(observedShape, "member", e.members, false)
	if extras := e.members["extras"]; isSet(extras) {
		d.refuse("extras", "an object")
	}
	seen := v.(observed)
	var diff string
	if raw := e.members["diff"]; seen.Kind == "write" && isSet(raw) { // elsewhere it is not a word of the protocol
		var err error
		if diff, err = text(raw, false); err != nil {
			d.refuse("diff", "a string")
		}
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	s := observationShapes[seen.Kind]
	if s == nil {
		return nil, fmt.Errorf("observation %s is unknown", Excerpt(seen.Kind))
	}
	v, d = decode(s, fmt.Sprintf("observation %q: extra", seen.Kind), e.inner, false)
	if err := d.check(); err != nil {
		return nil, err
	}
	o := reflect.New(s.absent.Type()).Elem()
	o.Set(reflect.ValueOf(v))
	o.FieldByName("Content").SetString(seen.Content)
	switch o := o.Interface().(type) {
	case RunObservation:
		o.Outcome = seen.Outcome
		return o, nil
	case IPythonObservation:
		o.Outcome, o.Failure = seen.Outcome, seen.Code
		return o, nil
	case ReadObservation:
		o.Code = seen.Code
		return o, nil
	case WriteObservation:
		o.Diff = diff
		return o, nil
	case EditObservation:
		o.Code = seen.Code
		return o, nil
	case ErrorObservation:
		o.Code = seen.Code
		if seen.Outcome != Refused { // which is the zero value
			o.Outcome = seen.Outcome
		}
		return o, nil
	case filler:
		return o.filled(), nil
	default:
		return o.(Observation), nil
	}
}
