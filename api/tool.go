package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ToolCall is a tool call of a model, as a controller forwards it: the body of
// /v1/tools/call and /v1/tools/translate.
type ToolCall struct {
	// Dialect is the family of tools that the model was given, such as
	// "gemini"; empty means the default one.
	Dialect string `json:"dialect,omitzero"`
	// Name is the tool's.
	Name string `json:"name"`
	// Arguments is the text of a JSON object, as the model wrote it; it may be
	// invalid JSON. Empty means no arguments.
	Arguments string `json:"arguments"`
	// ID is the model's name for the call, echoed in the answer; nil when absent.
	ID *string `json:"tool_call_id,omitzero"`
	// Session, Timeout and Changes mean the same as in a Request.
	Session string   `json:"session,omitzero"`
	Timeout *float64 `json:"timeout,omitzero"`
	Changes string   `json:"changes,omitzero"`
	// Execution makes it a call of OpenHands' execution protocol: arguments that the tool
	// does not have are ignored. It is not sent.
	Execution bool `json:"-"`
}

var toolCallShape = shapeOf(ToolCall{}, "name")

// DecodeToolCall reads the body of a tool call. The arguments may be an object
// or a string that holds one, and are not looked into. Every error is an *[Error]
// with status 422 where the body is not a call, and 400 where a
// member is wrong.
func DecodeToolCall(body []byte) (ToolCall, error) {
	sent, arguments, err := scanToolCall(body)
	if err != nil {
		return ToolCall{}, &Error{
			Status: http.StatusUnprocessableEntity, Detail: "Invalid request parameters", Errors: "body: " + err.Error(),
		}
	}
	session, timeout, changes := sent["session"], sent["timeout"], sent["changes"]
	delete(sent, "session") // its errors are reported as those of a request
	delete(sent, "timeout")
	delete(sent, "changes")
	call, err := decodeAs[ToolCall](toolCallShape, "member", sent, true)
	if err != nil {
		return ToolCall{}, badBody(err)
	}
	call.Arguments = arguments
	if call.Session, err = decodeSession(session); err != nil {
		return ToolCall{}, badBody(err)
	}
	if call.Timeout, err = decodeTimeout(timeout); err != nil {
		return ToolCall{}, badBody(err)
	}
	if call.Changes, err = decodeChanges(changes); err != nil {
		return ToolCall{}, badBody(err)
	}
	return call, nil
}

// scanToolCall finds the members of a tool call, and the arguments as they were
// written, or the text in them.
func scanToolCall(body []byte) (sent members, arguments string, err error) {
	scan, err := newScanner(body, maxValues)
	if err != nil {
		return nil, "", err
	}
	sent = members{}
	err = scan.object(`an object {"name": …, "arguments": …}`, func(name string) (err error) {
		if name == "arguments" {
			arguments, err = scan.arguments()
			return err
		}
		if known := toolCallShape.names(); !slices.Contains(known, name) { // a misspelt timeout must not become none
			return fmt.Errorf("member %s is unknown; allowed are %s", Excerpt(name), strings.Join(known, ", "))
		}
		return sent.read(scan, name)
	})
	if err == nil {
		err = scan.end()
	}
	return sent, arguments, err
}

// arguments reads the next value and returns it as it was written, but the text
// of a string, and nothing for null.
func (s *scanner) arguments() (string, error) {
	raw, err := s.uncounted()
	switch {
	case err != nil || raw.Kind() == 'n':
		return "", err
	case raw.Kind() != '"':
		return string(raw), nil
	}
	said, half := unquote(raw)
	if half {
		return "", fmt.Errorf("the arguments are %s", describe(raw))
	}
	return said, nil
}

// EncodeToolCall returns the body of a tool call. It refuses a session and a timeout that
// the server would refuse.
func EncodeToolCall(c ToolCall) ([]byte, error) {
	if _, err := checkLimits(c.Session, c.Timeout); err != nil {
		return nil, fmt.Errorf("encoding the call of %s: %w", Excerpt(c.Name), err)
	}
	return encodeStrictly(c, "the call of "+Excerpt(c.Name))
}

// ToolAnswer is the result of a tool call.
type ToolAnswer struct {
	// Observation is for the model to read; in a translation it is nil where
	// there is an action to run instead.
	Observation Observation `json:"-"`
	// Text is the observation for a model, see [Text]. Encoding sets it.
	Text string `json:"text,omitzero"`
	// SHA256 is the hash of the bytes of the file that was read or changed, or ""
	// without such a file; when encoded, "" means the one in the observation.
	SHA256 string `json:"sha256,omitzero"`
	// IsError and ErrorCode are those of [ToolFailure].
	IsError   bool   `json:"is_error"`
	ErrorCode string `json:"error_code,omitzero"`
	// ID is the call's; nil when it had none.
	ID *string `json:"tool_call_id,omitzero"`
	// Repaired lists the repairs of arguments that were invalid JSON; nil if they were
	// valid.
	Repaired []string `json:"repaired,omitzero"`
}

var toolAnswerShape = openShapeOf(ToolAnswer{})

// EncodeToolAnswer returns the JSON of an observation with text and is_error beside it, and
// sha256, error_code, tool_call_id and repaired if they are set.
func EncodeToolAnswer(a ToolAnswer) ([]byte, error) {
	w, err := wireOf(a.Observation)
	if err != nil {
		return nil, err
	}
	a.SHA256 = cmp.Or(a.SHA256, hashOf(a.Observation))
	text, _ := Text(a.Observation)
	return Encode(struct {
		wire
		Text string `json:"text"` // also where it is empty
		ToolAnswer
	}{w, text, a})
}

// DecodeToolAnswer reads the answer of a tool call. Members that it does not
// know are ignored.
func DecodeToolAnswer(data []byte) (ToolAnswer, error) {
	sent, extras, err := scanObservation(data, "text", "sha256", "is_error", "error_code", "tool_call_id", "repaired")
	var o Observation
	if err == nil {
		o, err = observationOf(sent, extras)
	}
	var a ToolAnswer
	if err == nil {
		a, err = decodeAs[ToolAnswer](toolAnswerShape, "member", sent, false)
	}
	if err != nil {
		return ToolAnswer{}, fmt.Errorf("decoding the answer of a tool: %w", err)
	}
	a.Observation = o
	if _, ok := sent["text"]; !ok { // by a server that is older than the member
		a.Text, _ = Text(o)
	}
	return a, nil
}

// hashOf returns the hash of the file that was read or changed, or "".
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

// EncodeTranslation returns the JSON of a translation: {"action": …} with the repairs
// beside it, which is a body for execute_action. If the call runs nothing, and the
// request's action is nil, it is a null action and the observation that answers the call.
func EncodeTranslation(r Request, a ToolAnswer) ([]byte, error) {
	a.SHA256 = ""
	if r.Action != nil {
		w, err := r.wire()
		if err != nil {
			return nil, err
		}
		return encodeStrictly(struct {
			wireRequest
			ToolAnswer
		}{w, a}, r.Action.Kind()+" action")
	}
	w, err := wireOf(a.Observation)
	if err != nil {
		return nil, err
	}
	return Encode(struct {
		wireRequest
		Observation wire `json:"observation"`
		ToolAnswer
	}{Observation: w, ToolAnswer: a})
}
