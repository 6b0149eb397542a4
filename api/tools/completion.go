package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/actiond/actiond/api"
)

// Message is a message of OpenAI's chat completions API, which many model servers
// implement, or an item of its Responses API. A message that was read from there is encoded unchanged, with the members
// that this type does not have.
type Message struct {
	// Role is the author: "system", "user", "assistant" or "tool".
	Role    string
	Content string
	// Calls are the tool calls of a model, in its order. They name no dialect,
	// session or timeout.
	Calls []api.ToolCall
	// CallID is the id of the call that a message of a tool answers; nil without an id.
	CallID *string

	came json.RawMessage // the message as it was read; nil for a new one
	item bool            // of the Responses API
}

// maxQuoted bounds what an error quotes.
const maxQuoted = 1000

// MarshalJSON returns the message for the API. A new message is encoded without Calls.
func (m Message) MarshalJSON() ([]byte, error) {
	if m.came != nil {
		return m.came, nil
	}
	if m.item {
		return json.Marshal(struct {
			Type   string  `json:"type"`
			CallID *string `json:"call_id"`
			Output string  `json:"output"`
		}{"function_call_output", m.CallID, m.Content})
	}
	return json.Marshal(struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		CallID  *string `json:"tool_call_id,omitempty"`
	}{m.Role, m.Content, m.CallID})
}

// Completion reads the message in an answer of /chat/completions. The error quotes an
// answer without a message.
func Completion(body []byte) (Message, error) {
	if len(body) == 0 {
		return Message{}, errors.New("the model's API answered nothing")
	}
	var answer struct {
		Choices []struct{ Message json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err == nil && len(answer.Choices) > 0 {
		if m, ok := readMessage(answer.Choices[0].Message); ok {
			return m, nil
		}
	}
	return Message{}, fmt.Errorf("the model's API answered without a message: %s", body[:min(len(body), maxQuoted)])
}

func readMessage(data json.RawMessage) (m Message, ok bool) {
	var said *struct {
		Role    string
		Content json.RawMessage
		Calls   []struct {
			ID       *string
			Function struct {
				Name      string
				Arguments json.RawMessage
			}
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(data, &said); err != nil || said == nil {
		return m, false
	}
	m = Message{Role: said.Role, Content: words(said.Content), came: data}
	for _, c := range said.Calls {
		if c.Function.Name == "" {
			return m, false
		}
		m.Calls = append(m.Calls, api.ToolCall{Name: c.Function.Name, Arguments: written(c.Function.Arguments), ID: c.ID})
	}
	return m, true
}

// words returns the text of a message, whose content is a string or a list of parts.
func words(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // anything else has no text
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	return all.String()
}

// written returns the text of arguments, which some servers send as an object.
func written(arguments json.RawMessage) string {
	var text string
	if arguments == nil || json.Unmarshal(arguments, &text) == nil {
		return text
	}
	return string(arguments)
}

// Answer runs the calls of a model one after the other, by a function such as CallTool of
// a client, and returns a message with the result of each, none without calls. seconds
// bounds the wait for each call; 0 sets no bound. An error of call ends it.
func (m Message) Answer(
	ctx context.Context, seconds float64, call func(context.Context, api.ToolCall) (api.ToolAnswer, error),
) ([]Message, error) {
	var answers []Message
	for _, c := range m.Calls {
		if seconds > 0 {
			c.Timeout = &seconds
		}
		answer, err := call(ctx, c)
		if err != nil {
			return answers, fmt.Errorf("calling %s: %w", c.Name, err)
		}
		text, pictures := api.Text(answer.Observation)
		if text == "" && len(pictures) > 0 {
			text = "(a picture, which this API has no place for)"
		}
		answers = append(answers, Message{Role: "tool", Content: text, CallID: c.ID, item: m.item})
	}
	return answers, nil
}
