package api

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// EncodeObservation returns the JSON of an observation, without a newline at
// its end: message, observation, content, extras in this order, then success
// for run and run_ipython. The extras hold exactly the keys of the protocol,
// as the stock client breaks on any other. Invalid UTF-8 becomes U+FFFD. It
// fails only where a free-form object holds what JSON cannot say.
func EncodeObservation(o Observation) ([]byte, error) {
	if o == nil {
		return nil, errors.New("encoding observation: there is none")
	}
	var w writer
	o.encode(&w)
	if w.err != nil {
		return nil, fmt.Errorf("encoding %s observation: %w", o.Kind(), w.err)
	}
	return w.buf, nil
}

// head begins an observation up to the opened extras.
func (w *writer) head(message, kind, content string) {
	w.grow(len(message) + len(content) + len(content)/16 + 512)
	w.open("")
	w.text("message", message)
	w.text("observation", kind)
	w.text("content", content)
	w.open("extras")
}

// EncodeRequest returns the body of an execute_action call. It refuses what
// the other side would: a text that is not valid UTF-8, an impossible session
// name, a timeout that is no finite number, an InvalidAction.
func EncodeRequest(r Request) ([]byte, error) {
	if r.Action == nil {
		return nil, errors.New("encoding request: there is no action")
	}
	kind := r.Action.Kind()
	w := writer{}
	w.open("")
	w.open("action")
	if r.ID != 0 {
		w.literal("id", strconv.FormatInt(r.ID, 10))
	}
	w.text("action", kind)
	w.open("args")
	r.Action.encodeArgs(&w)
	w.close()
	w.limits(r)
	w.close()
	w.close()
	if w.replaced {
		w.fail("%w", errInvalidText)
	}
	if w.err != nil {
		return nil, fmt.Errorf("encoding %s action: %w", kind, w.err)
	}
	return w.buf, nil
}

// limits writes where and for how long an action may run.
func (w *writer) limits(r Request) {
	if err := checkSession(r.Session); err != nil {
		w.fail("%w", err)
	}
	if r.Session != "" {
		w.text("session", r.Session)
	}
	if r.Timeout == nil {
		return
	}
	if math.IsNaN(*r.Timeout) || math.IsInf(*r.Timeout, 0) {
		w.fail("timeout %s is not finite", FormatSeconds(*r.Timeout))
	}
	w.literal("timeout", FormatSeconds(*r.Timeout))
}
