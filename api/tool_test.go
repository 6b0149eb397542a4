package api_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestDecodeToolCall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       api.ToolCall
		status     int // of the refusal, 0 for none
		refused    string
	}{
		{"text", `{"name":"a","arguments":"{\"x\": 1}"}`, api.ToolCall{Name: "a", Arguments: `{"x": 1}`}, 0, ""},
		{"object", `{"name":"a","arguments": {"x": [1,  "\u00e9"]} }`, api.ToolCall{Name: "a", Arguments: `{"x": [1,  "\u00e9"]}`}, 0, ""},
		{"text that is no JSON", `{"name":"a","arguments":"{'x'"}`, api.ToolCall{Name: "a", Arguments: `{'x'`}, 0, ""},
		{"a list, for the dialect to complain of", `{"name":"a","arguments":[1]}`, api.ToolCall{Name: "a", Arguments: `[1]`}, 0, ""},
		{"null", `{"name":"a","arguments":null,"tool_call_id":null,"session":null,"timeout":null,"dialect":null}`, api.ToolCall{Name: "a"}, 0, ""},
		{
			"all", `{"dialect":"gemini","name":"a","tool_call_id":"","session":"build","timeout":2.5}`,
			api.ToolCall{Dialect: "gemini", Name: "a", ID: new(""), Session: "build", Timeout: new(2.5)},
			0, "",
		},
		{"nothing", ``, api.ToolCall{}, 422, "body: not valid JSON: ends where an object"},
		{"a list", `[]`, api.ToolCall{}, 422, `body: must be an object {"name": …, "arguments": …}, got a list`},
		{"more", `{"name":"a"} x`, api.ToolCall{}, 422, "where the end should stand"},
		{"a stranger", `{"name":"a","timout":1}`, api.ToolCall{}, 422, `member "timout" is unknown; allowed are dialect, name, arguments`},
		{"no UTF-8", "{\"name\":\"\xff\"}", api.ToolCall{}, 422, "not valid UTF-8 at byte 9"},
		{"half of a character in the text", `{"name":"a","arguments":"\ud800"}`, api.ToolCall{}, 422, "half of a surrogate pair"},
		{"no name", `{"arguments":{}}`, api.ToolCall{}, 400, `member "name" is missing`},
		{"a name that is none", `{"name":5}`, api.ToolCall{}, 400, `member "name" must be a string, got the number 5`},
		{"a session that cannot be", `{"name":"a","session":"../x"}`, api.ToolCall{}, 400, `"session" must be`},
		{"no time", `{"name":"a","timeout":1e999}`, api.ToolCall{}, 400, `"timeout" must be`},
	}
	for _, tt := range tests {
		got, err := api.DecodeToolCall([]byte(tt.body))
		if tt.status == 0 {
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
			}
			continue
		}
		refused, ok := errors.AsType[*api.Error](err)
		if !ok || refused.Status != tt.status || !strings.Contains(refused.Detail+" "+refused.Errors, tt.refused) {
			t.Errorf("%s: got %v, want %d with %q", tt.name, err, tt.status, tt.refused)
		}
	}
}

func TestToolAnswerComesBack(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0f", 32)
	for _, want := range []api.ToolAnswer{
		{Observation: api.ThinkObservation{Content: "ü"}, Text: "ü"},
		{Observation: api.ErrorObservation{Content: "x"}, Text: "x", IsError: true, ErrorCode: "no_match", ID: new("c"), Repaired: []string{"a", "b"}},
		{Observation: api.WriteObservation{Path: "/a", Diff: "d"}, SHA256: sum},
		{
			Observation: api.RunObservation{Outcome: api.OutcomeRunning, Content: "Name:", Metadata: api.RunMetadata{
				Prefix: "[before]\n", Suffix: "\n[after]", Waiting: &api.Waiting{Text: "python waits for input"},
			}},
			Text: "[before]\nName:\n[after]\n[python waits for input]",
		},
	} {
		body, err := api.EncodeToolAnswer(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := api.DecodeToolAnswer(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	// White space may surround an answer.
	if got, err := api.DecodeToolAnswer([]byte("\n {\"observation\":\"think\",\"content\":\"x\",\"is_error\":true} ")); err != nil || !got.IsError || got.Text != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
	// The observation knows the hash.
	body, err := api.EncodeToolAnswer(api.ToolAnswer{Observation: api.EditObservation{Path: "/a", SHA256: sum}})
	if got, _ := api.DecodeToolAnswer(body); err != nil || got.SHA256 != sum {
		t.Errorf("got %s, %v", body, err)
	}
	if _, err := api.EncodeToolAnswer(api.ToolAnswer{}); err == nil {
		t.Error("an answer without an observation was encoded")
	}
	if _, err := api.DecodeToolAnswer([]byte(`{"observation":"think","content":"","extras":{},"is_error":"yes"}`)); err == nil {
		t.Error("a wrong answer was decoded")
	}
}

// FuzzDecodeToolCall decodes anything, and sends on what it understood.
func FuzzDecodeToolCall(f *testing.F) {
	for _, s := range []string{
		`{"name":"a","arguments":"{\"x\": 1}"}`, `{"name":"a","arguments":{"x":[1,{}]},"timeout":1,"session":"s","dialect":"d","tool_call_id":"i"}`, `{"name":"a","arguments":[}`, `{"arguments":nul}`, `{"name":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := api.DecodeToolCall(body)
		if err != nil {
			if _, ok := errors.AsType[*api.Error](err); !ok {
				t.Fatalf("%q: got %v, want a refusal", body, err)
			}
			return
		}
		again, err := api.EncodeToolCall(call)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if back, err := api.DecodeToolCall(again); err != nil || !reflect.DeepEqual(back, call) {
			t.Fatalf("%q: got %+v, %v, want %+v", body, back, err, call)
		}
	})
}
