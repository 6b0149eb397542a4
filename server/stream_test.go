package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// openStream sends an action to a server and returns its answer as it comes.
func openStream(t *testing.T, url, form string) (lines *bufio.Reader, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/actions", strings.NewReader(runTrue))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", form)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != form {
		t.Errorf("got status %d and type %q, want 200 and %q", resp.StatusCode, got, form)
	}
	return bufio.NewReader(resp.Body), cancel
}

// line reads a line, which must come.
func line(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	got, err := r.ReadString('\n')
	for got == ": ping\n" && err == nil { // a slow machine gets some
		_, _ = r.ReadString('\n') // the end of the event
		got, err = r.ReadString('\n')
	}
	if err != nil || got != want+"\n" {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// Each event is there before the next thing happens.
func TestStreamIsFlushed(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	h := httptest.NewServer(newServer(t, withExecutor(&fake{stream: func(_ context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		output(api.Output{Data: []byte("one")})
		<-step
		output(api.Output{Offset: 3, Data: []byte("two")})
		<-step
		return nil, api.BadRequest("no more")
	}})))
	t.Cleanup(h.Close)
	lines, _ := openStream(t, h.URL, linesType)
	line(t, lines, `{"event":"output","seq":1,"offset":0,"text":"one"}`)
	step <- struct{}{}
	line(t, lines, `{"event":"output","seq":2,"offset":3,"text":"two"}`)
	step <- struct{}{}
	line(t, lines, `{"event":"error","seq":3,"status":400,"detail":"no more"}`)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v after the end", rest, err)
	}
}

func TestStreamBeats(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	s := newServer(t, withExecutor(&fake{stream: func(context.Context, api.Request, func(api.Output)) (api.Observation, error) {
		<-end
		return api.NullObservation{}, nil
	}}))
	s.SetHeartbeat(time.Millisecond)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	lines, _ := openStream(t, h.URL, eventStreamType)
	for range 3 {
		line(t, lines, "event: heartbeat") // without a number
		line(t, lines, `data: {"event":"heartbeat"}`)
		line(t, lines, "")
	}
	close(end)
	for {
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended without an observation: %v", err)
		}
		if got == "id: 1\n" {
			return
		}
	}
}

// The reason for which an action waits is said in heartbeats and in its record while it runs, and not
// afterwards.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const said = `"waiting":{"for":"input","on":"terminal","pid":7,"command":"cat","silent":1.5,"text":"It waits."}`
	end := make(chan struct{})
	s := newServer(t, withExecutor(&fake{
		looks: func() *api.Waiting {
			return &api.Waiting{For: api.WaitsForInput, On: "terminal", PID: 7, Command: "cat", Silent: 1.5, Text: "It waits."}
		},
		do: func(context.Context, api.Request) (api.Observation, error) {
			<-end
			return api.NullObservation{}, nil
		},
	}))
	s.SetHeartbeat(time.Millisecond)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	lines, _ := openStream(t, h.URL, linesType)
	for { // before it begins nothing is known
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if got == `{"event":"heartbeat",`+said+"}\n" {
			break
		}
	}
	list := get("/v1/actions").send(s).Body.String()
	var page struct{ Actions []struct{ ID string } }
	if err := json.Unmarshal([]byte(list), &page); err != nil || len(page.Actions) != 1 || strings.Contains(list, "waiting") {
		t.Fatalf("the list is %s, %v", list, err)
	}
	record := get("/v1/actions/" + page.Actions[0].ID)
	if got := record.send(s).Body.String(); !strings.Contains(got, said) {
		t.Errorf("the record of an action that runs is %s", got)
	}
	close(end)
	record.path += "?wait=60"
	if got := record.send(s).Body.String(); !strings.Contains(got, `"state":"done"`) || strings.Contains(got, "waiting") {
		t.Errorf("the record of an action that ended is %s", got)
	}
}

// A client that leaves ends nothing, and may come back.
func TestStreamReaderLeaves(t *testing.T) {
	t.Parallel()
	end, ended := make(chan struct{}), make(chan struct{})
	s := newServer(t, withExecutor(&fake{stream: func(ctx context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		defer close(ended)
		output(api.Output{Data: []byte("one")})
		<-end
		output(api.Output{Data: []byte("two")})
		return api.NullObservation{}, ctx.Err()
	}}))
	h := httptest.NewServer(s)
	lines, leave := openStream(t, h.URL, linesType)
	line(t, lines, `{"event":"output","seq":1,"offset":0,"text":"one"}`)
	leave()
	h.Close() // waits for the handler
	close(end)
	<-ended
	var list struct{ Actions []struct{ ID string } }
	must(t, json.Unmarshal(get("/v1/actions").send(s).Body.Bytes(), &list))
	w := get("/v1/actions/" + list.Actions[0].ID + "/events?after=1").send(s)
	want := `{"event":"output","seq":2,"offset":3,"text":"two"}` + "\n" +
		`{"event":"observation","seq":3,"observation":{"message":"No observation","observation":"null","content":"","extras":{},"outcome":"succeeded"}}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wantMetric(t, s, `actiond_actions_total{action="run",outcome="happened"} 1`)
}

// The connection of a client that stops reading is closed; the action goes on.
func TestStreamNobodyReads(t *testing.T) {
	t.Parallel()
	f := &fake{stream: func(ctx context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		for range 2 << 10 {
			output(api.Output{Data: make([]byte, 1<<10)})
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	for _, form := range []string{eventStreamType, linesType} {
		served(t, f, func(t bubble) {
			c := t.dial()
			defer c.Close()
			c.say("POST /v1/actions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s", form, len(runTrue), runTrue)
			time.Sleep(2 * httpserver.StallTime)
			if b, err := io.ReadAll(c); err != nil || len(b) > 1<<20 {
				t.Errorf("%s: got %d bytes and %v, want a connection that was closed", form, len(b), err)
			}
			if got := get("/v1/actions?state=running").send(t.server).Body.String(); !strings.Contains(got, `"output_bytes":2097152`) {
				t.Errorf("%s: got %s", form, got)
			}
		})
	}
}

func TestStreamForms(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"":                                jsonType,
		"*/*":                             jsonType,
		jsonType:                          jsonType,
		"text/*":                          jsonType,
		eventStreamType:                   eventStreamType,
		"Text/Event-Stream; q=0.5":        eventStreamType,
		"text/event-stream;q=0":           jsonType,
		"application/json, " + linesType:  linesType,
		linesType + "," + eventStreamType: linesType,
		";":                               jsonType,
	} {
		w := streamed(accept, runTrue).send(newServer(t))
		if got := w.Header().Get("Content-Type"); got != want {
			t.Errorf("Accept %q: got %q, want %q", accept, got, want)
		}
	}
}

// Nothing is missing for a reader that comes back in the middle of two streams.
func TestStreamsReadAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t, withExecutor(&fake{stream: func(_ context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		for range 2 {
			output(api.Output{Stream: api.StreamStderr, Data: []byte("err")})
			output(api.Output{Stream: api.StreamStdout, Data: []byte("out")})
		}
		return api.NullObservation{}, nil
	}}))
	id := post("/v1/actions", runTrue).send(s).Header().Get("X-Action-Id")
	all := strings.SplitAfter(get("/v1/actions/"+id+"/events").send(s).Body.String(), "\n")
	for after := range 5 {
		if got, want := get("/v1/actions/"+id+"/events?after="+itoa(after)).send(s).Body.String(), strings.Join(all[after:], ""); got != want {
			t.Errorf("after %d: got  %s\nwant %s", after, got, want)
		}
	}
}
