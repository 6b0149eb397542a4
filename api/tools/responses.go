package tools

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/actiond/actiond/api"
)

// Response reads the items in an answer of OpenAI's Responses API, each as a message that is encoded unchanged: all of
// them, with the answers of [Message.Answer], belong into the next request's input. The error quotes an answer without
// items.
func Response(body []byte) ([]Message, error) {
	if len(body) == 0 {
		return nil, errors.New("the model's API answered nothing")
	}
	var answer struct{ Output []json.RawMessage }
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Output) == 0 {
		return nil, fmt.Errorf("the model's API answered without output: %s", body[:min(len(body), maxQuoted)])
	}
	items := make([]Message, len(answer.Output))
	for i, data := range answer.Output {
		var item struct {
			Type, Role, Name string
			Content          json.RawMessage
			Arguments        json.RawMessage
			CallID           *string `json:"call_id"`
		}
		if err := json.Unmarshal(data, &item); err != nil || item.Type == "function_call" && (item.Name == "" || item.CallID == nil) {
			return nil, fmt.Errorf("the model's API answered with a wrong item: %s", data[:min(len(data), maxQuoted)])
		}
		items[i] = Message{Role: item.Role, came: data, item: true}
		switch item.Type {
		case "message":
			items[i].Content = words(item.Content)
		case "function_call":
			items[i].Calls = []api.ToolCall{{Name: item.Name, Arguments: written(item.Arguments), ID: item.CallID}}
		}
	}
	return items, nil
}
