package api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// observations lists all observations of the protocol. A line gives the values of absent
// extras and the names of the required ones.
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

// wire is an observation as it travels.
type wire struct {
	Message string  `json:"message"`
	Kind    string  `json:"observation"`
	Content string  `json:"content"`
	Extras  any     `json:"extras"`
	Success *bool   `json:"success,omitzero"` // of the legacy protocol
	Diff    string  `json:"diff,omitzero"`    // of a write
	Outcome Outcome `json:"outcome,omitzero"`
	Code    string  `json:"code,omitzero"`

	Network *Network `json:"network,omitzero"`
}

// plainWire returns an observation whose extras are its fields.
func plainWire(o Observation, message, content string) wire {
	return wire{Message: message, Content: content, Extras: extrasOf(o)}
}

// extrasOf returns an observation as a type without methods, which is encoded by its tags alone.
func extrasOf(o Observation) any {
	v := reflect.New(reflect.TypeOf(o))
	v.Elem().Set(reflect.ValueOf(o))
	return reflect.NewAt(observationShapes[o.Kind()].plain(), v.UnsafePointer()).Interface() // Convert compares all fields
}

// filler is an observation whose nil lists are encoded as empty ones, which filled sets.
type filler interface {
	filled() Observation
}

// Content returns the text of an observation for the agent, without the notes around a
// command's output; "" for nil.
func Content(o Observation) string {
	switch o := o.(type) {
	case nil:
		return ""
	case RunObservation: // whose wire form takes memory for its extras
		return o.Content
	default:
		return o.wire().Content
	}
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// EncodeObservation returns the JSON of an observation as the routes under /v1/ send it,
// without a newline at its end: message, observation, content, extras in this order, then
// outcome, code and network. Invalid UTF-8 becomes U+FFFD. It fails only if a free-form object holds
// a value that JSON does not have.
func EncodeObservation(o Observation) ([]byte, error) {
	w, err := wireOf(o)
	if err != nil {
		return nil, err
	}
	return w.encode(o)
}

func (w wire) encode(o Observation) ([]byte, error) {
	content := w.Content
	w.Content = "" // most of many observations, so that it is put in below
	data, err := Encode(w)
	if err != nil {
		return nil, fmt.Errorf("encoding %s observation: %w", o.Kind(), err)
	}
	before, after, _ := bytes.Cut(data, []byte(`"content":"`)) // which a text before it would have with backslashes
	length := len(content) + len(content)/16
	if length >= LargeSize { // growing a large one takes more than twice its memory
		length = escapedLen(content)
	}
	all := make([]byte, 0, len(data)+length)
	all = append(all, data[:len(before)+len(`"content":"`)]...)
	return append(appendEscaped(all, content), after...), nil
}

// AnswerSize returns the size of the answer with an observation, as large ones are counted that
// wait for memory: half of the bytes of its JSON, as far as they may be many.
func AnswerSize(o Observation) int64 {
	n := escapedLen(Content(o))
	switch o := o.(type) {
	case IPythonObservation:
		for _, image := range o.ImageURLs {
			n += len(image)
		}
	case BrowseObservation:
		n += len(o.Screenshot) + len(o.SetOfMarks)
	case EditObservation:
		n += len(o.Diff)
		if o.NewContent != nil {
			n += len(*o.NewContent)
		}
		if o.OldContent != nil {
			n += len(*o.OldContent)
		}
	default:
	}
	return int64(n / 2)
}

func wireOf(o Observation) (wire, error) {
	if o == nil {
		return wire{}, errors.New("encoding observation: it is nil")
	}
	return o.wire().of(o), nil
}

// of returns w with the members that all observations have.
func (w wire) of(o Observation) wire {
	w.Kind = o.Kind()
	w.Outcome, w.Code = OutcomeOf(o)
	w.Network = NetworkOf(o)
	return w
}

// DecodeObservation reads the answer of a server, ours or the reference's.
// Keys that it does not know are ignored, so that a newer server can be
// understood; absent ones have the defaults of the protocol. Half of a
// surrogate pair in a text becomes U+FFFD.
func DecodeObservation(data []byte) (Observation, error) {
	var o Observation
	sent, extras, err := scanObservation(data)
	if err == nil {
		o, err = observationOf(sent, extras)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding observation: %w", err)
	}
	return o, nil
}

// scanObservation finds the members of an observation, those of the given names beside them, and its
// extras, which are nil where no object came. Their number is not limited.
func scanObservation(data []byte, names ...string) (sent, extras members, err error) {
	scan, err := newScanner(data, unlimited)
	if err != nil {
		return nil, nil, err
	}
	names = append(names, "observation", "content", "diff", "outcome", "code", "network")
	sent = members{}
	err = scan.object("an object", func(name string) (err error) {
		if name == "extras" {
			sent[name], err = scan.members(&extras, nil)
			return err
		}
		if !slices.Contains(names, name) {
			return scan.skip()
		}
		return sent.read(scan, name)
	})
	if err != nil {
		return nil, nil, err
	}
	return sent, extras, scan.end()
}

// observed holds the members of every observation beside its extras.
type observed struct {
	Kind    string  `json:"observation"`
	Content string  `json:"content"`
	Outcome Outcome `json:"outcome"`
	Code    string  `json:"code"`

	Network *Network `json:"network"`
}

var observedShape = openShapeOf(observed{}, "observation")

// observationOf makes an observation of its members and extras.
func observationOf(sent, extras members) (Observation, error) {
	v, d := decode(observedShape, "member", sent, false)
	if other := sent["extras"]; isSet(other) {
		d.refuse("extras", "an object")
	}
	seen := v.(observed)
	if seen.Network != nil {
		network := seen.Network
		delete(sent, "network")
		o, err := observationOf(sent, extras)
		if err != nil {
			return nil, err
		}
		return WithNetwork(o, network), nil
	}
	var diff string
	if raw := sent["diff"]; seen.Kind == "write" && isSet(raw) { // elsewhere it is not a word of the protocol
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
	v, d = decode(s, fmt.Sprintf("observation %q: extra", seen.Kind), extras, false)
	if err := d.check(); err != nil {
		return nil, err
	}
	o := reflect.New(s.absent.Type()).Elem()
	o.Set(reflect.ValueOf(v))
	o.FieldByName("Content").SetString(seen.Content)
	switch o := o.Interface().(type) {
	case RunObservation:
		o.Outcome, o.Code = o.outcome()
		if seen.Outcome != "" && seen.Outcome != legacyFinished && (seen.Outcome != o.Outcome || seen.Code != "") {
			o.Outcome, o.Code = seen.Outcome, seen.Code
		}
		return o, nil
	case IPythonObservation:
		if o.Outcome, o.Failure = seen.Outcome, seen.Code; seen.Outcome == legacyFinished {
			o.Outcome = ""
		}
		o.Outcome, o.Failure = OutcomeOf(o)
		return o, nil
	case ReadObservation:
		o.Code, o.ImplSource = seen.Code, cmp.Or(o.ImplSource, implDefault)
		return o, nil
	case WriteObservation:
		o.Diff = diff
		return o, nil
	case EditObservation:
		o.Code, o.ImplSource = seen.Code, cmp.Or(o.ImplSource, implEditor)
		return o, nil
	case ErrorObservation:
		o.Code = seen.Code
		if seen.Outcome != OutcomeFailed { // which is the zero value
			o.Outcome = seen.Outcome
		}
		return o, nil
	case filler:
		return o.filled(), nil
	default:
		return o.(Observation), nil
	}
}
