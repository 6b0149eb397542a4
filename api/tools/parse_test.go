package tools_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

// translate returns the action of a call as JSON, or the complaint.
func translate(t *testing.T, dialect, name, arguments string) string {
	t.Helper()
	call, problem := tools.Parse(dialect, name, arguments)
	if problem != nil {
		return problem.Code + ": " + problem.Text
	}
	body, err := api.EncodeTranslation(api.Request{Action: call.Action, Timeout: call.Timeout}, api.ToolAnswer{Observation: call.Answer, Repaired: call.Repaired})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// same compares JSON, whatever the order of names.
func same(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("got %s, want %s", got, want)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
