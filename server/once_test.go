package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// counted is an executor that counts what it ran.
func counted() (*fake, *atomic.Int32) {
	ran := new(atomic.Int32)
	return &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
		ran.Add(1)
		if run, ok := req.Action.(api.RunAction); ok && run.Command == "refuse" {
			return nil, api.BadRequest("no")
		}
		return api.ErrorObservation{Content: time.Now().String()}, nil
	}}, ran
}

func withID(q request, id string) request {
	q.header = map[string]string{"Idempotency-Key": id}
	return q
}

const (
	runOther = `{"action":{"action":"run","args":{"command":"other"}}}`
	event    = `{"action":{"action":"run","args":{"command":"true"},"id":7,"timestamp":"2025-01-01T00:00:00.000000"}}`
)

// The same id with the same body runs once, and is answered with the same bytes.
func TestOnce(t *testing.T) {
	t.Parallel()
	call := `{"name":"execute_bash","arguments":{"command":"ls"}}`
	for _, tt := range []struct {
		name          string
		first, second request
		runs          int32
		status        int
		id            string
	}{
		{"header", withID(post("/v1/actions", runTrue), "k/1"), withID(post("/v1/actions", runTrue), `"k/1"`), 1, 200, "k/1"},
		{"member", post("/v1/actions", `{"id":"m","action":{"action":"run","args":{"command":"x"}}}`), post("/v1/actions", `{"id":"m","action":{"action":"run","args":{"command":"x"}}}`), 1, 200, "m"},
		{"tool", withID(post("/v1/tools/call", call), "t"), withID(post("/v1/tools/call", call), "t"), 1, 200, "t"},
		{"legacy header", withID(post("/execute_action", runTrue), "l"), withID(post("/execute_action", runTrue), "l"), 1, 200, "l"},
		{"event", post("/execute_action", event), post("/execute_action", event), 1, 200, ""},
		{"another event", post("/execute_action", event), post("/execute_action", strings.Replace(event, "7", "8", 1)), 2, 200, ""},
		{"an event with another command", post("/execute_action", event), post("/execute_action", strings.Replace(event, "true", "date", 1)), 2, 200, ""},
		{"no id", post("/execute_action", runTrue), post("/execute_action", runTrue), 2, 200, ""},
		{"no id here", post("/v1/actions", runTrue), post("/v1/actions", runTrue), 2, 200, ""},
		{"an event number alone", post("/v1/actions", event), post("/v1/actions", event), 2, 200, ""},
		{"another body", withID(post("/v1/actions", runTrue), "b"), withID(post("/v1/actions", runOther), "b"), 1, 422, "b"},
		{"another body in the old protocol", withID(post("/execute_action", runTrue), "b"), withID(post("/execute_action", runOther), "b"), 1, 422, "b"},
		{"over both protocols", withID(post("/execute_action", runTrue), "b"), withID(post("/v1/actions", runTrue), "b"), 1, 200, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, ran := counted()
			s := newServer(t, withExecutor(f))
			first, second := tt.first.send(s), tt.second.send(s)
			if first.Code != 200 || second.Code != tt.status || ran.Load() != tt.runs {
				t.Fatalf("got %d %s and %d %s, ran %d times", first.Code, first.Body, second.Code, second.Body, ran.Load())
			}
			id := first.Header().Get("X-Action-Id")
			if id == "" || tt.id != "" && id != tt.id || first.Header().Get("Idempotent-Replayed") != "" {
				t.Errorf("got header %v", first.Header())
			}
			if w := get(first.Header().Get("Location")).send(s); w.Code != 200 || field(t, w.Body.Bytes(), "id") != id {
				t.Errorf("at %s: got %d %s", first.Header().Get("Location"), w.Code, w.Body)
			}
			if tt.runs > 1 || tt.status != 200 {
				return
			}
			if first.Header().Get("X-Action-Lasting") != "" {
				t.Error("it is said not to last")
			}
			want := first.Body.String()
			if tt.name == "over both protocols" {
				want = strings.Replace(want, `{"error_id":""}`, "{}", 1)
			}
			if second.Body.String() != want || second.Header().Get("Idempotent-Replayed") != "true" || second.Header().Get("X-Action-Id") != id {
				t.Errorf("got %s and %s, header %v", first.Body, second.Body, second.Header())
			}
		})
	}
}

// A refusal leaves the id free.
func TestRefusalLeavesNoRecord(t *testing.T) {
	t.Parallel()
	f, ran := counted()
	s := newServer(t, withExecutor(f))
	for _, body := range []string{`{`, `{"action":{"action":"nope"}}`, strings.Replace(runTrue, "true", "refuse", 1)} {
		if w := withID(post("/v1/actions", body), "k").send(s); w.Code/100 != 4 {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
	}
	if w := withID(post("/v1/actions", runTrue), "k").send(s); w.Code != 200 || ran.Load() != 2 {
		t.Errorf("got %d %s, ran %d times", w.Code, w.Body, ran.Load())
	}
}

func TestBadIdentities(t *testing.T) {
	t.Parallel()
	f, ran := counted()
	s := newServer(t, withExecutor(f))
	for _, id := range []string{"", `""`, "a b", "a\x01", "ü", strings.Repeat("x", 256), strings.Repeat("x", 10<<20)} {
		if w := withID(post("/v1/actions", runTrue), id).send(s); w.Code != 400 || w.Body.Len() > 1000 {
			t.Errorf("%.20q: got %d %.100s", id, w.Code, w.Body)
		}
	}
	both := withID(post("/v1/actions", `{"id":"a","action":{"action":"run","args":{"command":"x"}}}`), "b")
	if w := both.send(s); w.Code != 400 {
		t.Errorf("two ids: got %d %s", w.Code, w.Body)
	}
	if ran.Load() != 0 {
		t.Errorf("ran %d times", ran.Load())
	}
}

// Callers that come while an action runs follow it, and it outlasts them all.
func TestCallersFollow(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	var ran atomic.Int32
	s := newServer(t, withExecutor(&fake{do: func(ctx context.Context, _ api.Request) (api.Observation, error) {
		ran.Add(1)
		close(begun)
		<-end
		return api.ErrorObservation{Content: "done"}, ctx.Err()
	}}))
	ctx, leave := context.WithCancel(t.Context())
	send := func(ctx context.Context) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/actions", strings.NewReader(runTrue))
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- send(ctx) }()
	<-begun
	leave()
	if w := send(ctx); w.Code != 499 {
		t.Errorf("a follower that left: got %d", w.Code)
	}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if w := send(t.Context()); w.Code != 200 || !strings.Contains(w.Body.String(), "done") {
				t.Errorf("a follower: got %d %s", w.Code, w.Body)
			}
		})
	}
	if w := get("/v1/actions/k").send(s); field(t, w.Body.Bytes(), "state") != "running" {
		t.Errorf("got %s", w.Body)
	}
	close(end)
	group.Wait()
	<-first
	if w := get("/v1/actions/k?wait=5").send(s); field(t, w.Body.Bytes(), "state") != "done" || ran.Load() != 1 {
		t.Errorf("got %s, ran %d times", w.Body, ran.Load())
	}
}

func TestPreferAsync(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	s := newServer(t, withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) {
		<-end
		return api.ErrorObservation{Content: "done"}, nil
	}}))
	q := withID(post("/v1/actions", runTrue), "k")
	q.header["Prefer"] = "respond-async, wait=0"
	w := q.send(s)
	if w.Code != 202 || w.Header().Get("Location") != "/v1/actions/k" || w.Header().Get("Preference-Applied") != "respond-async" {
		t.Fatalf("got %d %s, header %v", w.Code, w.Body, w.Header())
	}
	close(end)
	if w := get("/v1/actions/k?wait=60").send(s); !strings.Contains(w.Body.String(), `"content":"done"`) {
		t.Errorf("got %s", w.Body)
	}
	q.header["Prefer"] = "wait=60,respond-async"
	if w := q.send(s); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("afterwards: got %d %s", w.Code, w.Body)
	}
}

// The records of a server that died are shown as they are.
func TestAfterADeath(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: filepath.Join(t.TempDir(), "j"), MaxActions: 4}
	f, ran := counted()
	open := func() (*journal.Journal, *server.Server) {
		j, err := journal.Open(cfg)
		must(t, err)
		return j, newServer(t, withExecutor(f), func(c *server.Config) { c.Journal = j })
	}
	j, s := open()
	withID(post("/v1/actions", runTrue), "forgotten").send(s)
	done := withID(post("/v1/actions", runTrue), "done").send(s)
	for _, id := range []string{"running", "hidden", "queued"} {
		body := runTrue
		if id == "hidden" {
			body = `{"action":{"action":"run","args":{"command":"true","hidden":true}}}`
		}
		reserved(t, j, id, body)
	}
	must(t, j.Close())
	before := ran.Load()
	j, s = open()
	t.Cleanup(func() { _ = j.Close() })
	hidden := `{"action":{"action":"run","args":{"command":"true","hidden":true}}}`
	for _, tt := range []struct {
		name, path, id, body string
		status               int
		want                 string
	}{
		{"done", "/v1/actions", "done", runTrue, 200, done.Body.String()},
		{"unknown", "/v1/actions", "running", runTrue, 200, `"outcome":"unknown"`},
		{"unknown with output", "/execute_action", "running", runTrue, 200, `What it printed:\nhello\n`},
		{"unknown and hidden", "/execute_action", "hidden", hidden, 400, "unknown"},
		{"did not run", "/v1/actions", "queued", runTrue, 200, "did not run"},
		{"forgotten", "/v1/actions", "forgotten", runTrue, 410, "expired"},
		{"forgotten and hidden", "/execute_action", "forgotten", hidden, 400, "expired"},
		{"forgotten in the old protocol", "/execute_action", "forgotten", runTrue, 200, `"observation":"error"`},
	} {
		w := withID(post(tt.path, tt.body), tt.id).send(s)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
		if tt.name != "done" && strings.Contains(w.Body.String(), `"outcome":"failed"`) {
			t.Errorf("%s: %s says that it changed nothing", tt.name, w.Body)
		}
	}
	events := get("/v1/actions/running/events").send(s).Body.String()
	if want := `{"event":"output","seq":1,"offset":0,"text":"hello\r\n"}` + "\n" + `{"event":"observation","seq":2,"observation":{"message":"the result is unknown:`; !strings.HasPrefix(events, want) || strings.Count(events, "\n") != 2 {
		t.Errorf("got %s", events)
	}
	if ran.Load() != before {
		t.Errorf("ran %d times more", ran.Load()-before)
	}
}

// reserved leaves an action in the journal as a server does that dies while it runs.
func reserved(t *testing.T, j *journal.Journal, id, body string) {
	t.Helper()
	begun := make(chan struct{})
	s := newServer(t, func(c *server.Config) { c.Journal = j }, func(c *server.Config) {
		c.Executor = &dies{fake: &fake{}, queued: id == "queued", begun: begun}
	})
	go withID(post("/v1/actions", body), id).send(s)
	<-begun
}

// dies is an executor whose process dies during an action.
type dies struct {
	*fake

	queued bool
	begun  chan struct{}
}

func (d *dies) Watch(_ context.Context, _ api.Request, w api.Watch) (api.Observation, error) {
	w.Queue()
	if !d.queued {
		if err := w.Begins(); err != nil {
			return nil, err
		}
		w.Output(api.Output{Data: []byte("hello\r\n")})
	}
	close(d.begun)
	select {}
}

// A journal that cannot be written does not keep actions from running.
func TestJournalFails(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(journal.Config{Dir: t.TempDir()})
	must(t, err)
	must(t, j.Close())
	f, ran := counted()
	s := newServer(t, withExecutor(f), func(c *server.Config) { c.Journal = j })
	for _, path := range []string{"/v1/actions", "/execute_action"} {
		if w := withID(post(path, runTrue), path).send(s); w.Code != 200 || w.Header().Get("X-Action-Lasting") != "false" {
			t.Errorf("%s: got %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	if w := withID(post("/v1/actions", runTrue), "k").send(s); w.Code != 200 || ran.Load() != 3 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := get("/v1/actions/k").send(s); !strings.Contains(w.Body.String(), `"lasting":false`) {
		t.Errorf("got %s", w.Body)
	}
	if w := get("/readyz").send(s); w.Code != 200 || !strings.Contains(w.Body.String(), "not recorded") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantMetric(t, s, "actiond_journal_failing 1")
}

// A call that runs nothing is answered once, too: a plan that is sent again does not
// take the place of a later one.
func TestOldPlanIsNotKeptAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	plan := func(title, id string) string {
		return withID(post("/v1/tools/call", `{"name":"task_tracker","arguments":{"command":"plan","task_list":[{"title":"`+title+`"}]}}`), id).send(s).Body.String()
	}
	first := plan("old", "1")
	plan("new", "2")
	if again := plan("old", "1"); again != first {
		t.Errorf("got %s, want %s", again, first)
	}
	if got := post("/v1/tools/call", `{"name":"task_tracker","arguments":{"command":"view"}}`).send(s).Body.String(); !strings.Contains(got, "new") {
		t.Errorf("got %s", got)
	}
}

// stages is an executor of an action that waits for its turn, runs until it is cancelled,
// and is done.
type stages struct {
	*fake

	queued, turn, began chan struct{}
}

func (e stages) Watch(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error) {
	w.Queue()
	close(e.queued)
	select {
	case <-e.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := w.Begins(); err != nil {
		return nil, err
	}
	close(e.began)
	if _, ok := req.Action.(api.WriteAction); ok {
		select {}
	}
	<-w.Cancelled
	return api.ErrorObservation{Content: "it was cancelled"}, nil
}

func remove(path string) request { return request{method: http.MethodDelete, path: path} }

// An action that waits for its turn never runs once it is cancelled, one that runs is
// told, and the answer is the same again.
func TestCancel(t *testing.T) {
	t.Parallel()
	const write = `{"action":{"action":"write","args":{"path":"/x","content":""}}}`
	for _, tt := range []struct {
		name, body string
		runs       bool
		query      string
		status     int
		state      string
		said       string
	}{
		{"queued", runTrue, false, "", 200, "cancelled", "did not run"},
		{"running", runTrue, true, "", 200, "done", "it was cancelled"},
		{"a write", write, true, "?wait=0", 409, "", "finishes by itself"},
		{"no number", runTrue, true, "?wait=x", 422, "", "whole number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := stages{&fake{}, make(chan struct{}), make(chan struct{}), make(chan struct{})}
			s := newServer(t, func(c *server.Config) { c.Executor = e })
			q := withID(post("/v1/actions", tt.body), "k")
			answer := make(chan string, 1)
			go func() { answer <- q.send(s).Body.String() }()
			<-e.queued
			if tt.runs {
				close(e.turn)
				<-e.began
			}
			w := remove("/v1/actions/k" + tt.query).send(s)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.said) {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if tt.state == "" {
				remove("/v1/actions/k?wait=0").send(s)
				return
			}
			if got := field(t, w.Body.Bytes(), "state"); got != tt.state {
				t.Errorf("got state %s", got)
			}
			if got := <-answer; !strings.Contains(got, tt.said) {
				t.Errorf("its caller got %s", got)
			}
			if !tt.runs {
				close(e.turn) // which comes too late
			}
			if again := remove("/v1/actions/k").send(s); again.Code != 200 || again.Body.String() != w.Body.String() {
				t.Errorf("again: got %d %s, want %s", again.Code, again.Body, w.Body)
			}
			if again := q.send(s); !strings.Contains(again.Body.String(), tt.said) || again.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("sent again: got %s", again.Body)
			}
		})
	}
	s := newServer(t)
	for path, want := range map[string]int{"/v1/actions/none": 404, "/v1/actions/" + strings.Repeat("x", 10000): 404, "/v1/actions/%00": 404} {
		if w := remove(path).send(s); w.Code != want || w.Body.Len() > 1000 {
			t.Errorf("%.30s: got %d %.100s", path, w.Code, w.Body)
		}
	}
	get("/v1/actions").send(s)
}

// An action that left its command running cannot end it, and says how that is done.
func TestCancelAnswered(t *testing.T) {
	t.Parallel()
	pid, code := 4711, 0
	for name, tt := range map[string]struct {
		path, body string
		answer     api.Observation
		status     int
		said       string
	}{
		"a run that goes on":       {"/v1/actions", runTrue, api.RunObservation{Outcome: api.OutcomeRunning}, 409, `send a run of C-c with is_input to the session \"default\"`},
		"a run that ended":         {"/v1/actions", runTrue, api.RunObservation{Outcome: api.OutcomeSucceeded}, 200, `"done"`},
		"a run that was refused":   {"/v1/actions", runTrue, api.RunObservation{Outcome: api.OutcomeNotStarted}, 200, `"done"`},
		"a tool call that goes on": {"/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"true"}}`, api.RunObservation{Outcome: api.OutcomeRunning}, 409, "C-c"},
		"a program that goes on":   {"/v1/actions", execTrue, api.ExecObservation{PID: &pid}, 409, "4711"},
		"a program that ended":     {"/v1/actions", execTrue, api.ExecObservation{PID: &pid, ExitCode: &code}, 200, `"done"`},
		"a program without start":  {"/v1/actions", execTrue, api.ExecObservation{ExitCode: &code}, 200, `"done"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(c *server.Config) {
				c.Executor = &fake{do: func(context.Context, api.Request) (api.Observation, error) { return tt.answer, nil }}
			})
			if w := withID(post(tt.path, tt.body), "k").send(s); w.Code != 200 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if w := remove("/v1/actions/k").send(s); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.said) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

const execTrue = `{"action":{"action":"exec","args":{"argv":["true"]}}}`

// queues is an executor in which no turn comes.
type queues struct{ *fake }

func (queues) Watch(ctx context.Context, _ api.Request, _ api.Watch) (api.Observation, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// An action whose client left before its turn did not run, and is not unknown.
func TestClientLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *server.Config) { c.Executor = queues{&fake{}} })
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/execute_action", strings.NewReader(runTrue))
	r.Header.Set("Content-Type", jsonType)
	s.ServeHTTP(httptest.NewRecorder(), r)
	if got := get("/v1/actions").send(s).Body.String(); !strings.Contains(got, `"state":"refused"`) {
		t.Errorf("got %s", got)
	}
}

// A command of the legacy protocol that was recorded before outcomes were has that of its exit code.
func TestOutcomeOfOldRecord(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(cfg *server.Config) {
		var err error
		cfg.Journal, err = journal.Open(journal.Config{Dir: t.TempDir()})
		must(t, err)
		a, _, err := cfg.Journal.Reserve(journal.Intent{ID: "old", Kind: "run", Form: "legacy"})
		must(t, err)
		must(t, a.Begin())
		body, err := api.EncodeLegacy(api.RunObservation{Content: "one", Command: "echo one"})
		must(t, err)
		a.End(journal.Done, body)
	})
	w := get("/v1/actions/old").send(s)
	if got := field(t, w.Body.Bytes(), "outcome"); got != string(api.OutcomeSucceeded) {
		t.Errorf("got %q in %s", got, w.Body)
	}
}

// A request that waits for the record of an action gets the record, also of one that broke meanwhile: the
// request that carried it out got the error.
func TestWaitForBroken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end   func() error
		state string
	}{
		"broke":   {func() error { return errors.New("disk on fire") }, `"state":"unknown"`},
		"panic":   {func() error { panic("boom") }, `"state":"unknown"`},
		"refused": {func() error { return api.BadRequest("no such session") }, `"state":"refused"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) {
					time.Sleep(2 * time.Second)
					return nil, tt.end()
				}}))
				started(t, s, "/v1/actions", "k", runTrue)
				if w := get("/v1/actions/k?wait=5").send(s); w.Code != 200 || !strings.Contains(w.Body.String(), tt.state) {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// The legacy protocol has the code of an action that could not begin, and not the words of cancelled ones.
func TestLegacyCode(t *testing.T) {
	t.Parallel()
	s := newServer(t, withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) {
		return api.ErrorObservation{Content: "no kernel", Code: "unsupported", Outcome: api.OutcomeNotStarted}, nil
	}}))
	for _, w := range []*httptest.ResponseRecorder{withID(post("/execute_action", runTrue), "k").send(s), get("/v1/actions/k").send(s)} {
		if !strings.Contains(w.Body.String(), `"code":"unsupported"`) {
			t.Errorf("got %s", w.Body)
		}
	}
}
