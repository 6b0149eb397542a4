package api

// Action is what an agent wants done: one of the types of this package whose
// name ends in Action, and nothing else.
//
//sumtype:decl
type Action interface {
	// Kind returns the name of the action on the wire, such as "run".
	Kind() string
	action()
	encodeArgs(w *writer)
}

// Request is one action together with what its envelope says about it.
type Request struct {
	Action Action
	// ID is the caller's event number; it is informational. 0 when absent.
	ID int64
	// Session names the shell or kernel the action runs in. Empty means the
	// default one. A session is made on first use. At most 64 characters of
	// A-Z, a-z, 0-9, dot, dash and underscore, and neither "." nor "..".
	Session string
	// Timeout is the hard limit in seconds, nil or 0 for none. It bounds the wait
	// for an answer and never kills the command. It is finite, may be negative
	// (no waiting at all), and may be more than a time.Duration holds.
	Timeout *float64
}

// Common holds the arguments that every action accepts and that the sandbox
// carries without acting on them.
type Common struct {
	// Thought is what the model said before it acted.
	Thought string
	// SecurityRisk is -1 (unknown), 0 (low), 1 (medium) or 2 (high).
	SecurityRisk int
}

// decodeCommon takes what every action accepts. A security risk outside its
// range is dropped rather than refused, as recorded streams contain them.
func decodeCommon(f *fields) Common {
	c := Common{Thought: f.text("thought", ""), SecurityRisk: -1}
	v, _ := f.take("security_risk")
	if n, ok := integral(v); ok && n >= -1 && n <= 2 {
		c.SecurityRisk = n
	}
	return c
}

func (c Common) encodeCommon(w *writer) {
	w.text("thought", c.Thought)
	w.integer("security_risk", c.SecurityRisk)
}

// InvalidAction is an action that cannot be carried out because an argument has
// a wrong type, and that is answered with an observation all the same, as the
// reference does: a run whose command is no string or whose timeout is no
// number, and what the editor is asked with parameters that models get wrong,
// such as an object for a text. A refusal would end the conversation that the
// model could go on with. It comes from DecodeRequest and cannot be encoded. A
// hidden run never becomes one: it is refused, because the stock client breaks
// on an error observation that answers a hidden run.
type InvalidAction struct {
	// Of is the action without what is wrong: a RunAction, ReadAction or EditAction.
	Of Action
	// Reason says which argument is wrong, what came and what is allowed.
	Reason string
}

// Kind returns the name of the action that it would have been.
func (a InvalidAction) Kind() string       { return a.Of.Kind() }
func (InvalidAction) action()              {}
func (InvalidAction) encodeArgs(w *writer) { w.fail("an invalid action has no arguments to send") }
