package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/bound"
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
	if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
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
	line(t, lines, `{"event":"output","offset":0,"text":"one"}`)
	step <- struct{}{}
	line(t, lines, `{"event":"output","offset":3,"text":"two"}`)
	step <- struct{}{}
	line(t, lines, `{"event":"error","status":400,"detail":"no more"}`)
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
		line(t, lines, "event: heartbeat")
		line(t, lines, `data: {"event":"heartbeat"}`)
		line(t, lines, "")
	}
	close(end)
	for {
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended without an observation: %v", err)
		}
		if got == "event: observation\n" {
			return
		}
	}
}

// A client that leaves ends the wait, and the action is counted as abandoned.
func TestStreamReaderLeaves(t *testing.T) {
	t.Parallel()
	left := make(chan error, 1)
	s := newServer(t, withExecutor(&fake{stream: func(ctx context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		output(api.Output{Data: []byte("one")})
		<-ctx.Done()
		left <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}}))
	h := httptest.NewServer(s)
	lines, leave := openStream(t, h.URL, linesType)
	line(t, lines, `{"event":"output","offset":0,"text":"one"}`)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ended with %v", err)
	}
	h.Close() // waits for the handler
	wantMetric(t, s, `actiond_actions_total{action="run",outcome="abandoned"} 1`)
}

// A client that stops reading while a command prints for ever ends the wait, and
// nothing piles up for it.
func TestStreamNobodyReads(t *testing.T) {
	t.Parallel()
	type end struct {
		cause error
		told  int
		took  time.Duration
	}
	var ended chan end
	f := &fake{stream: func(ctx context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		begun, told := time.Now(), 0
		for ; ctx.Err() == nil; told += 1 << 10 {
			output(api.Output{Offset: int64(told), Data: make([]byte, 1<<10)})
		}
		ended <- end{context.Cause(ctx), told, time.Since(begun)}
		return nil, context.Cause(ctx)
	}}
	for _, form := range []string{eventStreamType, linesType} {
		served(t, f, func(t bubble) {
			ended = make(chan end, 1) // of this bubble
			c := t.dial()
			defer c.Close()
			c.say("POST /v1/actions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s", form, len(runTrue), runTrue)
			if got := <-ended; got.cause == nil || got.told > 1<<20 || got.took > 2*bound.StallTime {
				t.Errorf("%s: got %+v", form, got)
			}
			t.stop() // waits for the handler
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
