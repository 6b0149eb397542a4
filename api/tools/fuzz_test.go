package tools_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/testhelp"
)

// FuzzParse tries any call: it is understood or refused, and what is understood
// is an action that the wire carries unchanged.
func FuzzParse(f *testing.F) {
	data := testhelp.ReadFile(f, "testdata/malformed.json")
	var corpus []malformed
	if err := json.Unmarshal(data, &corpus); err != nil {
		f.Fatal(err)
	}
	for _, c := range corpus {
		f.Add(c.Dialect, c.Tool, c.Arguments)
	}
	for _, dialect := range tools.Dialects() {
		for _, d := range tools.Definitions(dialect, everything) {
			_, example, _ := strings.Cut(d.Description, "\nExample: ")
			f.Add(dialect, d.Name, example)
		}
	}
	f.Fuzz(func(t *testing.T, dialect, name, arguments string) {
		call, problem := tools.Parse(dialect, name, arguments)
		if problem != nil {
			if problem.Code == "" || problem.Text == "" || !reflect.DeepEqual(call, tools.Call{}) {
				t.Fatalf("got %+v beside %+v", call, problem)
			}
			return
		}
		if (call.Action == nil) == (call.Answer == nil && call.Workspace == nil && (call.Background == nil || call.Action != nil)) {
			t.Fatalf("got %+v, want either an action or an answer, or a call about the workspace", call)
		}
		if call.Action == nil {
			return
		}
		req := api.Request{Action: call.Action, Timeout: call.Timeout}
		body, err := api.EncodeRequest(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := api.DecodeRequest(body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if again, err := api.EncodeRequest(back); err != nil || string(again) != string(body) {
			t.Fatalf("%s came back as %s, %v", body, again, err)
		}
	})
}

// FuzzArguments compares with encoding/json: what is JSON stays what it is and
// is not repaired.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, "{\"a\":\"x\ny\",}", "```json\n{}\n```", `{"a":[1,],}`, `"{\"a\":1}"`, `{"a":"\u00e9\\\""}`, `{"a":"b\`, "{\"a\":\"\\\n\"}", `{"a":",}"}`, `{"\ud800":1}`, `{}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		members, repaired, err := tools.ParseArguments(text)
		if err != nil && (members != nil || repaired != nil) {
			t.Fatalf("got %v and %v beside %v", members, repaired, err)
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var want map[string]any
		if !json.Valid([]byte(text)) || d.Decode(&want) != nil || want == nil || strings.Contains(text, `\u`) || strings.ToValidUTF8(text, "") != text {
			return
		}
		if err != nil && strings.Count(text, ",")+strings.Count(text, "[")+strings.Count(text, "{") > 900 {
			return // too deep, or too much
		}
		if err != nil || repaired != nil || !reflect.DeepEqual(members, want) {
			t.Fatalf("%q: got %v, %v, %v, want %v", text, members, repaired, err, want)
		}
	})
}
