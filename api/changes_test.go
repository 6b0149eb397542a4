package api_test

import (
	"reflect"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestChangesOnTheWire(t *testing.T) {
	t.Parallel()
	c := &api.Changes{
		Action: 17, Before: "s16", After: "s17", By: []uint64{17}, Why: "unsure", Unsure: []api.FilePath{"a", "\xff"},
		Counts: api.ChangeCounts{Created: 1, Modified: 2, Meta: 3, Renamed: 4}, Ignored: map[string]int{"node_modules": 4211, ".git": 2},
		Paths: []api.ChangedPath{api.NewChangedPath("renamed", "b\xff", "a"), api.NewChangedPath("created", "c", "")},
	}
	data, err := api.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"action":17,"before":"s16","after":"s17","by":[17],"exact":false,"why":"unsure","unsure":["a",{"base64":"/w=="}],` +
		`"counts":{"created":1,"modified":2,"deleted":0,"renamed":4,"meta":3},"ignored":{".git":2,"node_modules":4211},` +
		`"paths":[{"op":"renamed","from":"a","path_base64":"Yv8="},{"op":"created","path":"c"}],"truncated":false}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	back, err := api.DecodeChanges(data)
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("got %+v, %v", back, err)
	}
	if path, from := back.Paths[0].Names(); path != "b\xff" || from != "a" {
		t.Errorf("got %q from %q", path, from)
	}
	if got, want := c.Header(), "n=17; +1 ~5 -0 >4 !4213; inexact:unsure"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&api.Changes{Exact: true}).Header(), "+0 ~0 -0 >0; exact"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	body, err := api.EncodeObservation(api.NullObservation{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := api.ChangesIn(body); c != nil || err != nil {
		t.Errorf("got %+v, %v of an answer without changes", c, err)
	}
	parts, err := api.AddChanges(body, c)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(parts[0], parts[1]...)
	if in, err := api.ChangesIn(whole); err != nil || !reflect.DeepEqual(in, c) {
		t.Errorf("got %+v, %v", in, err)
	}
	if o, err := api.DecodeObservation(whole); err != nil || o.Kind() != "null" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestStateNames(t *testing.T) {
	t.Parallel()
	if n, ok := api.StateNumber(api.StateName(16)); n != 16 || !ok {
		t.Errorf("got %d, %t", n, ok)
	}
	for _, name := range []string{"", "s", "16", "s0", "s-1", "s+1", "s1x", "s99999999999999999999"} {
		if n, ok := api.StateNumber(name); ok {
			t.Errorf("%q: got %d", name, n)
		}
	}
}

// The member changes is read beside an action and a tool call, and ignored by the legacy protocol.
func TestChangesAskedFor(t *testing.T) {
	t.Parallel()
	for word, valid := range map[string]bool{`"facts"`: true, `"diff"`: true, `null`: true, `""`: false, `"Facts"`: false, `true`: false, `["facts"]`: false} {
		body := []byte(`{"action": {"action": "run", "args": {"command": "ls"}}, "changes": ` + word + `}`)
		r, err := api.DecodeNative(body)
		if valid != (err == nil) || valid && word != "null" && `"`+r.Changes+`"` != word {
			t.Errorf("%s: got %q, %v", word, r.Changes, err)
		}
		if r, err := api.DecodeRequest(body); err != nil || r.Changes != "" {
			t.Errorf("legacy, %s: got %q, %v", word, r.Changes, err)
		}
		call, err := api.DecodeToolCall([]byte(`{"name": "bash", "changes": ` + word + `}`))
		if valid != (err == nil) || valid && word != "null" && `"`+call.Changes+`"` != word {
			t.Errorf("tool call, %s: got %q, %v", word, call.Changes, err)
		}
	}
	r := api.Request{Action: api.RunAction{Command: "ls"}, Changes: api.ChangesFacts}
	body, err := api.EncodeRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := api.DecodeNative(body); err != nil || back.Changes != api.ChangesFacts {
		t.Errorf("got %+v, %v", back, err)
	}
}
