package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/actiond/actiond/api"
)

// Message is a message of OpenAI's chat completions API, which many servers of
// models speak. One that came from there goes back as it came, also what is not
// here.
type Message struct {
	// Role is who speaks: "system", "user", "assistant" or "tool".
	Role    string
	Content string
	// Calls are the tool calls of a model, in its order. They name no dialect,
	// session or timeout.
	Calls []api.ToolCall
	// CallID names the call that a message of a tool answers; nil: it has no name.
	CallID *string

	came json.RawMessage // nil: it is from here
}

// MarshalJSON returns the message as the API takes it. Calls are left out of one
// that did not come from there.
func (m Message) MarshalJSON() ([]byte, error) {
	if m.came != nil {
		return m.came, nil
	}
	return json.Marshal(struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		CallID  *string `json:"tool_call_id,omitempty"`
	}{m.Role, m.Content, m.CallID})
}

// Completion reads the message in an answer of /chat/completions. The error
// quotes what is there in its place.
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
	const most = 1000
	return Message{}, fmt.Errorf("the model's API answered without a message: %s", body[:min(len(body), most)])
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

// words are the content of a message: a text, or a list of parts.
func words(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // what is no part has no words
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	return all.String()
}

// written is the text of arguments, which some servers send as the object itself.
func written(arguments json.RawMessage) string {
	var text string
	if arguments == nil || json.Unmarshal(arguments, &text) == nil {
		return text
	}
	return string(arguments)
}

// Answer carries out the calls of a model one after the other, by a function
// such as CallTool of a client, and returns the messages with their
// results for the model; none where it called nothing. seconds bounds the wait for
// each call; 0 sets no bound. An error is one of call, and ends the rest.
func (m Message) Answer(ctx context.Context, seconds float64, call func(context.Context, api.ToolCall) (api.ToolAnswer, error)) ([]Message, error) {
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
		answers = append(answers, Message{Role: "tool", Content: text, CallID: c.ID})
	}
	return answers, nil
}
