package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
)

var events = []struct {
	name  string
	event api.Event
	json  string
}{
	{"text", api.Output{Offset: 12, Data: []byte("ü\r\n\x00\"")}, `{"event":"output","offset":12,"text":"ü\r\n\u0000\""}`},
	{"missed", api.Output{Offset: 1 << 40, Missed: 5, Data: []byte("x")}, `{"event":"output","offset":1099511627776,"missed":5,"text":"x"}`},
	{"all missed", api.Output{Offset: 5, Missed: 5, Data: []byte{}}, `{"event":"output","offset":5,"missed":5,"text":""}`},
	{"bytes", api.Output{Data: []byte{0xff, 'a'}}, `{"event":"output","offset":0,"base64":"/2E="}`},
	{"NULs", api.Output{Data: []byte("a\x00")}, `{"event":"output","offset":0,"base64":"YQA="}`},
	{"half a character", api.Output{Data: []byte("\xc3")}, `{"event":"output","offset":0,"base64":"ww=="}`},
	{"a character sent", api.Output{Data: []byte("\uFFFD")}, `{"event":"output","offset":0,"text":"` + "\uFFFD" + `"}`},
	{"a program begins", api.Output{PID: 7, Stream: "stdout", Data: []byte{}}, `{"event":"output","pid":7,"stream":"stdout","offset":0,"text":""}`},
	{"a program's complaint", api.Output{Stream: "stderr", Offset: 3, Data: []byte("x")}, `{"event":"output","stream":"stderr","offset":3,"text":"x"}`},
	{"heartbeat", api.Heartbeat{}, `{"event":"heartbeat"}`},
	{
		"observation",
		api.Finished{Observation: api.ErrorObservation{Content: "no"}},
		`{"event":"observation","observation":{"message":"no","observation":"error","content":"no","extras":{},"outcome":"failed"}}`,
	},
	{"refusal", api.Failed{Status: 429, Detail: "later"}, `{"event":"error","status":429,"detail":"later"}`},
	{"failure", api.Failed{Status: 500, Detail: "see the log", ID: "AB"}, `{"event":"error","status":500,"detail":"see the log","id":"AB"}`},
}

func TestEvents(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	for _, tt := range events {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.EncodeEvent(tt.event)
			if err != nil || string(got) != tt.json {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.json)
			}
			if err := spec.Check("Event", got); err != nil {
				t.Error(err)
			}
			back, err := api.DecodeEvent(got)
			if err != nil || !reflect.DeepEqual(back, tt.event) {
				t.Errorf("got  %#v, %v\nwant %#v", back, err, tt.event)
			}
		})
	}
}

func TestDecodeEventErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, want string }{
		{``, "not valid JSON"},
		{`[]`, "an object"},
		{`{}`, `"event" is missing`},
		{`{"event":1}`, `"event" must be a string`},
		{`{"event":"output","text":"x"}`, "no such place"},
		{`{"event":"output","offset":-1,"text":"x"}`, "no such place"},
		{`{"event":"output","offset":1,"missed":2,"text":"x"}`, "no such place"},
		{`{"event":"output","offset":1}`, "one of text and base64"},
		{`{"event":"output","offset":1,"text":"x","base64":"/w=="}`, "one of text and base64"},
		{`{"event":"output","offset":1,"base64":"?"}`, "base64"},
		{`{"event":"output","offset":"1","text":"x"}`, "an integer"},
		{`{"event":"observation"}`, "not valid JSON"},
		{`{"event":"observation","observation":{"observation":"nope"}}`, "unknown"},
		{`{"event":"error","status":"x"}`, "an integer"},
		{"{\"event\":\"\xff\"}", "UTF-8"},
	} {
		e, err := api.DecodeEvent([]byte(tt.body))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, error %v, want one with %q", tt.body, e, err, tt.want)
		}
	}
	for _, unknown := range []string{`{"event":"news","more":[1]}`, `{"event":"news","offset":"x","text":1,"detail":[],"observation":5}`, "\n{\"event\":\"news\"}"} {
		if e, err := api.DecodeEvent([]byte(unknown)); err != nil || e != (api.Heartbeat{}) {
			t.Errorf("%s: got %v, %v", unknown, e, err)
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, tt := range events {
		f.Add([]byte(tt.json))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := api.DecodeEvent(data)
		if err != nil {
			return
		}
		again, err := api.EncodeEvent(e)
		if err != nil {
			t.Skip() // an observation may hold what JSON cannot say
		}
		back, err := api.DecodeEvent(again)
		if err != nil {
			t.Fatalf("%s became %s: %v", data, again, err)
		}
		if o, ok := e.(api.Output); ok && !reflect.DeepEqual(back, o) {
			t.Errorf("%s: got %#v, want %#v", data, back, o)
		}
	})
}

func TestTerminalSize(t *testing.T) {
	t.Parallel()
	want := api.TerminalSize{Rows: 24, Cols: 80}
	body, _ := api.Encode(want)
	if err := contract.NewSpec(t).Check("TerminalSize", body); err != nil {
		t.Error(err)
	}
	if got, err := api.DecodeTerminalSize(body); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"rows":24}`, `{"rows":0,"cols":80}`, `{"rows":1.5,"cols":80}`, `{"rows":24,"cols":80,"x":1}`, `{"rows":24,"cols":80}{}`} {
		if got, err := api.DecodeTerminalSize([]byte(bad)); err == nil {
			t.Errorf("%s: got %v, want it refused", bad, got)
		}
	}
}
