package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
)

// ToolCall is what a model asked for, as a controller hands it over: the body
// of /v1/tools/call and /v1/tools/translate.
type ToolCall struct {
	// Dialect is the family of tools that the model was given, such as
	// "gemini"; empty means the default one.
	Dialect string
	// Name is the tool's.
	Name string
	// Arguments is the text of a JSON object, as the model wrote it; it may be
	// no JSON at all. Empty means that there were none.
	Arguments string
	// ID is the model's name for the call, echoed in the answer; nil when absent.
	ID *string
	// Session and Timeout are those of a Request.
	Session string
	Timeout *float64
}

var toolCallMembers = []string{"dialect", "name", "arguments", "tool_call_id", "session", "timeout"}

// DecodeToolCall reads the body of a tool call. The arguments may be an object
// or a string that holds one, and are not looked into. Every error is an *Error
// with status 422 where the body has not the form of a call, and 400 where a
// member is wrong.
func DecodeToolCall(body []byte) (ToolCall, error) {
	f := &fields{of: "member", values: map[string]any{}}
	arguments, err := parseToolCall(body, f.values)
	if err != nil {
		return ToolCall{}, &Error{
			Status: http.StatusUnprocessableEntity, Detail: "Invalid request parameters", Errors: "body: " + err.Error(),
		}
	}
	call := ToolCall{
		Dialect:   f.text("dialect", ""),
		Name:      f.needText("name"),
		Arguments: arguments,
	}
	f.take("arguments") // for the list of what is allowed
	call.ID = f.textOrNil("tool_call_id")
	session, _ := f.take("session")
	timeout, _ := f.take("timeout")
	if err := f.check(); err != nil {
		return ToolCall{}, badBody(err)
	}
	if call.Session, err = decodeSession(session); err != nil {
		return ToolCall{}, badBody(err)
	}
	if call.Timeout, err = decodeTimeout(timeout); err != nil {
		return ToolCall{}, badBody(err)
	}
	return call, nil
}

// EncodeToolCall returns the body of a tool call. It refuses what the other side
// would.
func EncodeToolCall(c ToolCall) ([]byte, error) {
	var w writer
	w.grow(len(c.Arguments) + len(c.Arguments)/16 + 256)
	w.open("")
	w.textIfAny("dialect", c.Dialect)
	w.text("name", c.Name)
	w.text("arguments", c.Arguments)
	if c.ID != nil {
		w.text("tool_call_id", *c.ID)
	}
	w.limits(Request{Session: c.Session, Timeout: c.Timeout})
	w.close()
	if w.replaced {
		w.fail("%w", errInvalidText)
	}
	if w.err != nil {
		return nil, fmt.Errorf("encoding the call of %s: %w", excerpt(c.Name), w.err)
	}
	return w.buf, nil
}

// parseToolCall reads the members into values, and returns the arguments as
// they were written, or the text in them.
func parseToolCall(body []byte, values map[string]any) (arguments string, err error) {
	p, err := newParser(body)
	if err != nil {
		return "", err
	}
	p.halves = true
	p.budget = maxArgs
	if p.peek() != '{' {
		return "", p.noObject(`an object {"name": …, "arguments": …}`)
	}
	err = p.object(func(name string) (err error) {
		switch name {
		case "arguments":
			arguments, err = p.raw()
		case "dialect", "name", "tool_call_id", "session", "timeout":
			values[name], err = p.value()
		default: // a misspelt timeout must not become none
			err = fmt.Errorf("member %s is unknown; allowed are %s", excerpt(name), strings.Join(toolCallMembers, ", "))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return arguments, p.end()
}

// raw reads the next value and returns it as it was written, but the text of a
// string, and nothing for null.
func (p *parser) raw() (string, error) {
	switch p.peek() {
	case '"':
		s, half, err := p.text()
		if half {
			return "", fmt.Errorf("the arguments are %s", describe(halfPair(s)))
		}
		return s, err
	case 'n':
		return "", p.word("null")
	}
	start := p.pos
	err := p.skip()
	return string(p.data[start:p.pos]), err
}

// ToolAnswer is what came of a tool call.
type ToolAnswer struct {
	// Observation is for the model to read; in a translation it is nil where
	// there is an action to run instead.
	Observation Observation
	// IsError says that the call failed; ErrorCode is a machine word for how, ""
	// where there is none.
	IsError   bool
	ErrorCode string
	// SHA256 is the hash of the bytes of the file that was read or changed, ""
	// where there is none; when encoded, "" means the one in the observation.
	SHA256 string
	// ID is the call's; nil when it had none.
	ID *string
	// Repaired says what of the arguments was no JSON and what was made of it;
	// nil when they were in order.
	Repaired []string
}

// EncodeToolAnswer returns the JSON of an observation with sha256, is_error,
// error_code, tool_call_id and repaired beside it, as far as there are any.
func EncodeToolAnswer(a ToolAnswer) ([]byte, error) {
	body, err := EncodeObservation(a.Observation)
	if err != nil {
		return nil, err
	}
	w := writer{buf: body[:len(body)-1]}
	w.textIfAny("sha256", cmp.Or(a.SHA256, hashOf(a.Observation)))
	a.encodeOutcome(&w)
	return w.buf, nil
}

// DecodeToolAnswer reads the answer of a tool call. Members that it does not
// know are ignored.
func DecodeToolAnswer(data []byte) (ToolAnswer, error) {
	o, err := DecodeObservation(data)
	if err != nil {
		return ToolAnswer{}, err
	}
	f := &fields{of: "member", values: map[string]any{}}
	if err := parseMembers(data, f.values); err != nil {
		return ToolAnswer{}, fmt.Errorf("decoding the answer of a tool: %w", err)
	}
	a := ToolAnswer{
		Observation: o, IsError: f.flag("is_error", false), ErrorCode: f.text("error_code", ""), SHA256: f.text("sha256", ""),
		ID: f.textOrNil("tool_call_id"), Repaired: f.texts("repaired"),
	}
	if err := f.check(); err != nil {
		return ToolAnswer{}, fmt.Errorf("decoding the answer of a tool: %w", err)
	}
	return a, nil
}

// parseMembers reads what stands beside an observation into values.
func parseMembers(data []byte, values map[string]any) error {
	p, err := newParser(data)
	if err != nil {
		return err
	}
	return p.object(func(name string) (err error) {
		switch name {
		case "is_error", "error_code", "sha256", "tool_call_id", "repaired":
			values[name], err = p.value()
			return err
		}
		return p.skip()
	})
}

// hashOf returns the hash of the file that was read or changed, "" where there
// is none.
func hashOf(o Observation) string {
	switch o := o.(type) {
	case ReadObservation:
		return o.SHA256
	case WriteObservation:
		return o.SHA256
	case EditObservation:
		return o.SHA256
	default:
		return ""
	}
}

// EncodeTranslation returns the JSON of a translation: {"action": …} with what
// was repaired beside it, which is a body for execute_action; or where nothing
// is to be run, a null action and the observation that answers the call. The
// request's action is nil then.
func EncodeTranslation(r Request, a ToolAnswer) ([]byte, error) {
	var w writer
	if r.Action != nil {
		body, err := EncodeRequest(r)
		if err != nil {
			return nil, err
		}
		w.buf = body[:len(body)-1]
	} else {
		observation, err := EncodeObservation(a.Observation)
		if err != nil {
			return nil, err
		}
		w.open("")
		w.null("action")
		w.literal("observation", string(observation))
	}
	a.encodeOutcome(&w)
	return w.buf, nil
}

// encodeOutcome writes what stands beside an observation, and closes the
// object.
func (a ToolAnswer) encodeOutcome(w *writer) {
	w.flag("is_error", a.IsError)
	if a.ErrorCode != "" {
		w.text("error_code", a.ErrorCode)
	}
	if a.ID != nil {
		w.text("tool_call_id", *a.ID)
	}
	if a.Repaired != nil {
		w.texts("repaired", a.Repaired)
	}
	w.close()
}
