package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	id := func(s string) *string { return &s }
	const called = `{"role":"assistant","content":null,"reasoning":"hm","tool_calls":[` +
		`{"id":"a","type":"function","function":{"name":"execute_bash","arguments":"{\"command\": \"ls\"}"}},` +
		`{"id":"b","type":"function","function":{"name":"think","arguments":{"thought":"so"}}},` +
		`{"type":"function","function":{"name":"finish"}}]}`
	for _, test := range []struct {
		name, body, content string
		calls               []api.ToolCall
		message             string
	}{
		{"words", `{"choices":[{"message":{"role":"assistant","content":"Done."}}]}`, "Done.", nil, `{"role":"assistant","content":"Done."}`},
		{
			"words in parts", `{"choices":[{"message":{"content":[{"type":"text","text":"Do"},{"type":"text","text":"ne."}]}}]}`, "Done.", nil,
			`{"content":[{"type":"text","text":"Do"},{"type":"text","text":"ne."}]}`,
		},
		{"calls", `{"choices":[{"message":` + called + `}]}`, "", []api.ToolCall{
			{Name: "execute_bash", Arguments: `{"command": "ls"}`, ID: id("a")},
			{Name: "think", Arguments: `{"thought":"so"}`, ID: id("b")},
			{Name: "finish"},
		}, called},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := tools.Completion([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if m.Content != test.content || !reflect.DeepEqual(m.Calls, test.calls) {
				t.Errorf("got %q and %+v, want %q and %+v", m.Content, m.Calls, test.content, test.calls)
			}
			// The model gets back what it said, also members unknown here.
			if back, err := json.Marshal(m); err != nil || string(back) != test.message {
				t.Errorf("got %s, %v, want %s", back, err, test.message)
			}
		})
	}
}

// JSON that is no message is quoted: it says why.
func TestCompletionRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                      "the model's API answered nothing",
		`{"error":{"message":"no such model"}}`: `the model's API answered without a message: {"error":{"message":"no such model"}}`,
		`{"choices":[]}`:                        `the model's API answered without a message: {"choices":[]}`,
		`<html>502</html>`:                      "the model's API answered without a message: <html>502</html>",
		`{"choices":[{"message":{"tool_calls":[{"function":{}}]}}]}`:   `the model's API answered without a message: {"choices":[{"message":{"tool_calls":[{"function":{}}]}}]}`,
		`{"choices":[{"message":{"tool_calls":"execute_bash"}}]}`:      `the model's API answered without a message: {"choices":[{"message":{"tool_calls":"execute_bash"}}]}`,
		`{"choices":[{"message":null,"finish_reason":"unknown"}]}`:     `the model's API answered without a message: {"choices":[{"message":null,"finish_reason":"unknown"}]}`,
		`{"choices":[{"text":"a completion of the older interface"}]}`: `the model's API answered without a message: {"choices":[{"text":"a completion of the older interface"}]}`,
	} {
		if m, err := tools.Completion([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s: got %+v, %v, want %s", body, m, err, want)
		}
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	a := "a"
	m := tools.Message{Calls: []api.ToolCall{{Name: "execute_bash", ID: &a}, {Name: "read"}, {Name: "broken"}, {Name: "never"}}}
	lost := errors.New("the connection is lost")
	call := func(_ context.Context, c api.ToolCall) (api.ToolAnswer, error) {
		if c.Timeout == nil || *c.Timeout != 2.5 {
			t.Errorf("the call of %s has the timeout %v", c.Name, c.Timeout)
		}
		switch c.Name {
		case "execute_bash":
			return api.ToolAnswer{Observation: api.RunObservation{Content: "out", Metadata: api.RunMetadata{Prefix: "[", Suffix: "]"}}}, nil
		case "read":
			return api.ToolAnswer{Observation: api.ReadObservation{Content: "data:image/png;base64,AA"}}, nil
		case "broken":
			return api.ToolAnswer{}, lost
		}
		t.Errorf("%s was called", c.Name)
		return api.ToolAnswer{}, nil
	}
	answers, err := m.Answer(t.Context(), 2.5, call)
	if !errors.Is(err, lost) || err.Error() != "calling broken: the connection is lost" {
		t.Errorf("got %v", err)
	}
	// The calls before it are reported.
	got, err := json.Marshal(answers)
	const want = `[{"role":"tool","content":"[out]","tool_call_id":"a"},{"role":"tool","content":"(a picture, which this API has no place for)"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if none, err := (tools.Message{}).Answer(t.Context(), 0, call); len(none) > 0 || err != nil {
		t.Errorf("got %v, %v", none, err)
	}
}

// FuzzCompletion: whatever is read goes back as JSON, and its calls have names.
func FuzzCompletion(f *testing.F) {
	f.Add([]byte(`{"choices":[{"message":{"role":"assistant","content":[{"text":"a"}],"tool_calls":[{"id":"a","function":{"name":"b","arguments":{}}}]}}]}`))
	f.Add([]byte(`{"choices":[{"message":{"content":null}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := tools.Completion(body)
		if err != nil {
			return
		}
		if _, err := json.Marshal(m); err != nil {
			t.Errorf("%v", err)
		}
		for _, c := range m.Calls {
			if c.Name == "" {
				t.Errorf("a call has no name: %+v", m)
			}
		}
	})
}
