package api

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// writing are the rules for writing, those of the reference server: compact,
// members in the order of the fields, UTF-8 unescaped, and no escape but those
// that JSON demands. A nil list is null.
var writing = json.JoinOptions(
	json.Deterministic(true),
	json.FormatNilSliceAsNull(true),
	json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, n stdjson.Number) error {
		return enc.WriteValue(jsontext.Value(n))
	})),
)

// Encode returns the JSON of an answer that is a plain type of this package:
// compact, UTF-8 unescaped, without a newline at its end. Invalid UTF-8 becomes
// U+FFFD. Observations and refusals have encoders of their own.
func Encode(answer any) ([]byte, error) {
	return json.Marshal(answer, writing, jsontext.AllowInvalidUTF8(true))
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
	data, err := Encode(w)
	if err != nil {
		return nil, fmt.Errorf("encoding %s observation: %w", o.Kind(), err)
	}
	return data, nil
}

func wireOf(o Observation) (wire, error) {
	if o == nil {
		return wire{}, errors.New("encoding observation: it is nil")
	}
	w := o.wire()
	w.Kind = o.Kind()
	return w, nil
}

// wireRequest is the body of an execute_action call.
type wireRequest struct {
	Key    string      `json:"id,omitzero"`
	Action *wireAction `json:"action"`
}

type wireAction struct {
	ID      int64  `json:"id,omitzero"`
	Stamp   string `json:"timestamp,omitzero"`
	Action  string `json:"action"`
	Args    Action `json:"args"`
	Session string `json:"session,omitzero"`
	Timeout *Float `json:"timeout,omitzero"`
}

// EncodeRequest returns the body of an execute_action call. It refuses what
// the other side would: a text that is not valid UTF-8, an impossible session
// name, a timeout that is not a finite number, an [InvalidAction].
func EncodeRequest(r Request) ([]byte, error) {
	w, err := r.wire()
	if err != nil {
		return nil, err
	}
	return encodeStrictly(w, r.Action.Kind()+" action")
}

func (r Request) wire() (wireRequest, error) {
	if r.Action == nil {
		return wireRequest{}, errors.New("encoding request: the action is nil")
	}
	kind := r.Action.Kind()
	if _, ok := r.Action.(InvalidAction); ok {
		return wireRequest{}, fmt.Errorf("encoding %s action: an invalid action has no arguments to send", kind)
	}
	timeout, err := checkLimits(r.Session, r.Timeout)
	if err != nil {
		return wireRequest{}, fmt.Errorf("encoding %s action: %w", kind, err)
	}
	args := r.Action
	switch a := args.(type) {
	case ReadAction:
		a.ImplSource = cmp.Or(a.ImplSource, implDefault)
		args = a
	case EditAction:
		a.ImplSource = cmp.Or(a.ImplSource, implEditor)
		args = a
	default:
	}
	if r.Key != "" {
		if err := CheckKey(r.Key); err != nil {
			return wireRequest{}, fmt.Errorf("encoding %s action: %w", kind, err)
		}
	}
	return wireRequest{r.Key, &wireAction{ID: r.ID, Stamp: r.Timestamp, Action: kind, Args: args, Session: r.Session, Timeout: timeout}}, nil
}

// checkLimits checks where and for how long an action may run.
func checkLimits(session string, timeout *float64) (*Float, error) {
	if err := checkSession(session); err != nil {
		return nil, err
	}
	if timeout == nil {
		return nil, nil
	}
	if math.IsNaN(*timeout) || math.IsInf(*timeout, 0) {
		return nil, fmt.Errorf("timeout %s is not finite", FormatSeconds(*timeout))
	}
	return new(Float(*timeout)), nil
}

// encodeStrictly refuses texts that are not valid UTF-8.
func encodeStrictly(v any, what string) ([]byte, error) {
	data, err := json.Marshal(v, writing)
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return nil, fmt.Errorf("encoding %s: a text is not valid UTF-8", what)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", what, err)
	}
	return data, nil
}
