package server_test

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// Ids, numbers and offsets that make no sense are refused with a sentence that does not
// repeat them, run nothing, and change no record.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f, ran := counted()
	s := newServer(t, withExecutor(f))
	withID(post("/v1/actions", runTrue), "k").send(s)
	whole := get("/v1/actions/k").send(s).Body.String()
	member := func(id string) request {
		return post("/v1/actions", `{"id":`+id+`,"action":{"action":"run","args":{"command":"x"}}}`)
	}
	last := func(id string) request {
		q := get("/v1/actions/k/events")
		q.header = map[string]string{"Last-Event-ID": id}
		return q
	}
	huge := strings.Repeat("x", 10<<20)
	for _, tt := range []struct {
		name   string
		q      request
		status int
		want   string
	}{
		{"a huge member", member(`"` + huge + `"`), 400, "1 to 255 visible ASCII characters"},
		{"a member one too long", member(`"` + huge[:256] + `"`), 400, "1 to 255 visible ASCII characters"},
		{"an empty member", member(`""`), 400, "visible"},
		{"a zero byte", member(`"a\u0000b"`), 400, "visible"},
		{"a line end", member(`"a\r\nSet-Cookie: x"`), 400, "visible"},
		{"a delete", member(`"a\u007f"`), 400, "visible"},
		{"a direction", member(`"a\u202eb"`), 400, "visible"},
		{"what is no name in a path", member(`".."`), 400, "must not be"},
		{"nor in a header", withID(post("/v1/actions", runTrue), "."), 400, "must not be"},
		{"a number", member(`7`), 400, "must be a string"},
		{"a list", member(`["` + huge + `"]`), 400, "must be a string"},
		{"huge in a path", get("/v1/actions/" + huge), 404, "There is no action"},
		{"control characters in a path", get("/v1/actions/a%00%0d%0ab"), 404, "There is no action"},
		{"no escape", get("/v1/actions/%2e%2e%2f"), 404, "There is no action"},
		{"the session of another action", withID(post("/v1/actions", strings.Replace(runTrue, `"run",`, `"run","session":"other",`, 1)), "k"), 422, "another body"},
		{"the session beside it", withID(post("/v1/actions", strings.Replace(runTrue, `{"action":{`, `{"action":{"session":"other",`, 1)), "k"), 422, "another body"},
		{"after the future", get("/v1/actions/k/events?after=2"), 400, "has 0 events yet"},
		{"after the end of time", get("/v1/actions/k/events?after=9223372036854775807"), 400, "has 0 events yet"},
		{"after more than a number", get("/v1/actions/k/events?after=18446744073709551616"), 422, "query.after"},
		{"after less than nothing", get("/v1/actions/k/events?after=-1"), 422, "query.after"},
		{"a huge number", get("/v1/actions/k/events?after=" + strings.Repeat("9", 1<<20)), 422, "query.after"},
		{"the last event of the future", last("7"), 400, "has 0 events yet"},
		{"no last event", last("k"), 422, "Last-Event-ID"},
		{"a huge last event", last(huge), 422, "Last-Event-ID"},
		{"output beyond the end", get("/v1/actions/k/output?offset=1"), 416, "beyond the 0 bytes of output so far"},
		{"output at the end of numbers", get("/v1/actions/k/output?offset=9223372036854775807&limit=9223372036854775807"), 416, "beyond the 0 bytes of output so far"},
		{"output of no stream", get("/v1/actions/k/output?stream=" + huge), 422, "query.stream"},
		{"an expression of no sense", get("/v1/actions/k/output?grep=" + url.QueryEscape("(")), 422, "query.grep"},
		{"too large an expression", get("/v1/actions/k/output?grep=" + url.QueryEscape("(((a{100}){100}){100})")), 422, "query.grep"},
		{"too much context", get("/v1/actions/k/output?grep=a&context=51"), 422, "query.context"},
		{"too long a wait", get("/v1/actions/k?wait=601"), 422, "query.wait"},
		{"no wait", remove("/v1/actions/k?wait=-1"), 422, "query.wait"},
		{"a list of no state", get("/v1/actions?state=lost"), 422, "query.state"},
		{"too long a list", get("/v1/actions?limit=1001"), 422, "query.limit"},
		{"a wait for what never was", get("/v1/actions/other?wait=600"), 404, "There is no action"},
		{"the end of what never was", remove("/v1/actions/other"), 404, "There is no action"},
	} {
		w := tt.q.send(s)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) || w.Body.Len() > 1000 {
			t.Errorf("%s: got %d %.300s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}
	number := strings.Replace(runTrue, "{", `{"id":7,`, 1)
	if w := post("/execute_action", number).send(s); w.Code != 200 || ran.Load() != 2 {
		t.Errorf("a number on the route of the reference, which takes it: got %d %s", w.Code, w.Body)
	}
	if got := get("/v1/actions/k").send(s).Body.String(); got != whole || ran.Load() != 2 {
		t.Errorf("ran %d times, and the record is %s, was %s", ran.Load(), got, whole)
	}
}

// An action that ended is cancelled as often as one likes, and stays as it is.
func TestCancelAgain(t *testing.T) {
	t.Parallel()
	f, ran := counted()
	s := newServer(t, withExecutor(f))
	q := withID(post("/v1/actions", runTrue), "k")
	before := q.send(s).Body.String()
	record := get("/v1/actions/k").send(s).Body.String()
	for range 2 {
		if w := remove("/v1/actions/k").send(s); w.Code != 200 || w.Body.String() != record {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, record)
		}
	}
	if got := q.send(s).Body.String(); got != before || ran.Load() != 1 {
		t.Errorf("got %s, want %s", got, before)
	}
}

// Of ten thousand followers of one action, as many as are admitted get all of its output, and the
// others a refusal; the action is not held up, and other actions are started.
func TestTenThousandFollowers(t *testing.T) { //nolint:paralleltest // it measures the heap
	const followers, printed = 10_000, 100
	begun, goOn, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	j, err := journal.Open(journal.Config{})
	must(t, err)
	// All of them may be on their way to the action at a time.
	s := newServer(t, func(c *server.Config) { c.Journal, c.MaxActions = j, followers+2 }, withExecutor(&fake{stream: func(_ context.Context, req api.Request, output func(api.Output)) (api.Observation, error) {
		if run, ok := req.Action.(api.RunAction); ok && run.Command == "other" {
			return api.ErrorObservation{Content: "other"}, nil
		}
		close(begun)
		<-goOn
		for range printed {
			output(api.Output{Data: []byte("0123456789\n")})
		}
		<-end
		return api.ErrorObservation{Content: "done"}, nil
	}}))
	first := make(chan string, 1)
	go func() { first <- withID(post("/v1/actions", runTrue), "k").send(s).Body.String() }()
	<-begun
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	var served, refused atomic.Int32
	every := make(chan struct{})
	for i := range followers {
		all.Go(func() {
			q := []request{get("/v1/actions/k/events"), get("/v1/actions/k?wait=600"), withID(post("/v1/actions", runTrue), "k")}[i%3]
			w := q.send(s)
			text := w.Body.String()
			switch {
			case w.Code == http.StatusTooManyRequests && strings.Contains(text, "already wait for running actions"):
				if refused.Add(1) == followers-server.MaxFollowers {
					close(every)
				}
			case w.Code == 200 && strings.Contains(text, "done") && (i%3 > 0 || strings.Count(text, "0123456789") == printed):
				served.Add(1)
			default:
				t.Errorf("got %d %.200s", w.Code, text)
			}
		})
	}
	<-every
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 64<<20 {
		t.Errorf("they take %d bytes", more)
	}
	if w := post("/v1/actions", runOther).send(s); w.Code != 200 {
		t.Errorf("another action: got %d %s", w.Code, w.Body)
	}
	if w := get("/v1/actions/k").send(s); w.Code != 200 || !strings.Contains(w.Body.String(), `"running"`) {
		t.Errorf("a look at it: got %d %s", w.Code, w.Body)
	}
	async := withID(post("/v1/actions", runTrue), "k")
	async.header["Prefer"] = "respond-async"
	if w := async.send(s); w.Code != 202 {
		t.Errorf("a repeated request that does not wait: got %d %s", w.Code, w.Body)
	}
	close(goOn)
	close(end)
	all.Wait()
	if served.Load() != server.MaxFollowers || !strings.Contains(<-first, "done") {
		t.Errorf("%d were served", served.Load())
	}
	if w := get("/v1/actions/k/events").send(s); w.Code != 200 || strings.Count(w.Body.String(), "0123456789") != printed {
		t.Errorf("afterwards: got %d %.200s", w.Code, w.Body)
	}
}
