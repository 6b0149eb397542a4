package tools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

// The items of a response go back unchanged, the reasoning too, and each call has its answer.
func TestResponse(t *testing.T) {
	t.Parallel()
	const reasoning = `{"type":"reasoning","id":"rs_1","summary":[]}`
	const called = `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"bash","arguments":"{\"command\":\"ls\"}","status":"completed"}`
	const said = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]}`
	items, err := tools.Response([]byte(`{"id":"resp_1","output":[` + reasoning + `,` + said + `,` + called + `]}`))
	if err != nil || len(items) != 3 || items[1].Content != "I look." {
		t.Fatalf("got %+v, %v", items, err)
	}
	var input []tools.Message
	for _, item := range items {
		answers, err := item.Answer(t.Context(), 0, func(_ context.Context, c api.ToolCall) (api.ToolAnswer, error) {
			if c.Name != "bash" || c.Arguments != `{"command":"ls"}` {
				t.Errorf("got %+v", c)
			}
			return api.ToolAnswer{Observation: api.RunObservation{Content: "a.txt"}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		input = append(append(input, item), answers...)
	}
	got, err := json.Marshal(input)
	want := `[` + reasoning + `,` + said + `,` + called + `,{"type":"function_call_output","call_id":"call_1","output":"a.txt"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestResponseWithoutItems(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                      "answered nothing",
		`{"error":{"message":"no such model"}}`: `without output: {"error":{"message":"no such model"}}`,
		`{"output":[{"type":"function_call","name":"bash"}]}`:           `wrong item: {"type":"function_call","name":"bash"}`,
		`{"output":[{"type":"function_call","call_id":"a","name":""}]}`: "wrong item",
		`{"output":[1]}`: "wrong item: 1",
	} {
		if items, err := tools.Response([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want %s", body, items, err, want)
		}
	}
}
