package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// cutting is a server that runs an id once, and cuts its first answers.
type cutting struct {
	cuts    int      // answers that are still to be cut
	at      int      // after so many bytes
	refuses []string // answers of these posts behind the cuts: a status and a detail
	answer  string   // of an action

	mu  sync.Mutex
	ids map[string]bool
}

func (c *cutting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.answer
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		after, _ := strconv.Atoi(r.FormValue("after"))
		answer = strings.Join(strings.SplitAfter(answer, "\n")[after:], "")
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `{"actions":[]}`)
		return
	}
	c.ids[r.Header.Get("Idempotency-Key")] = true
	if c.cuts > 0 {
		c.cuts--
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = io.WriteString(w, answer[:c.at])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if len(c.refuses) > 0 {
		status, detail, _ := strings.Cut(c.refuses[0], " ")
		c.refuses = c.refuses[1:]
		code, _ := strconv.Atoi(status)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, detail)
		return
	}
	_, _ = io.WriteString(w, answer)
}

// After a broken connection an action is asked for by the same id.
func TestAskedForAgain(t *testing.T) {
	t.Parallel()
	const observation = `{"message":"","observation":"error","content":"%s","extras":{"error_id":""}}`
	event := func(seq int, text string) string {
		return fmt.Sprintf(`{"event":"output","seq":%d,"offset":0,"text":"%s"}`+"\n", seq, text)
	}
	stream := event(1, "one ") + event(2, "two") + `{"event":"observation","seq":3,"observation":` + fmt.Sprintf(observation, "done") + "}\n"
	const heartbeat = `{"event":"heartbeat"}` + "\n"
	long := ""
	for i := range 20 {
		long += event(i+1, "x")
	}
	long += `{"event":"observation","seq":21,"observation":` + fmt.Sprintf(observation, "done") + "}\n"
	do := func(c *client.Client, r api.Request) (string, error) {
		o, err := c.Do(t.Context(), r)
		said, _ := o.(api.ErrorObservation)
		return said.Content, err
	}
	follow := func(c *client.Client, r api.Request) (string, error) {
		var b strings.Builder
		_, err := c.Stream(t.Context(), r, func(o api.Output) error { b.Write(o.Data); return nil })
		return b.String(), err
	}
	call := func(c *client.Client, _ api.Request) (string, error) {
		a, err := c.CallTool(t.Context(), api.ToolCall{Name: "x"})
		said, _ := a.Observation.(api.ErrorObservation)
		return said.Content, err
	}
	for _, tt := range []struct {
		name   string
		server *cutting
		act    func(*client.Client, api.Request) (string, error)
		key    string
		want   string
		err    error
	}{
		{"before the answer", &cutting{cuts: 3, answer: fmt.Sprintf(observation, "done")}, do, "", "done", nil},
		{"in the answer", &cutting{cuts: 1, at: 20, answer: fmt.Sprintf(observation, "done")}, do, "mine", "done", nil},
		{"a tool call", &cutting{cuts: 1, at: 20, answer: fmt.Sprintf(observation, "done")}, call, "", "done", nil},
		{"in a stream", &cutting{cuts: 2, at: len(event(1, "one ")) + 10, answer: stream}, follow, "", "one two", nil},
		{"in a stream, again and again", &cutting{cuts: 14, at: len(event(1, "x")), answer: long}, follow, "", strings.Repeat("x", 20), nil},
		{"in a stream that is silent for long", &cutting{cuts: 14, at: len(heartbeat), answer: heartbeat + stream}, follow, "", "one two", nil},
		{"a request that was cut", &cutting{refuses: []string{"400 The body ended too early", "400 400 Bad Request", "499 gone", "502 no server"}, answer: fmt.Sprintf(observation, "done")}, do, "", "done", nil},
		{"refused for load when it was sent again", &cutting{cuts: 1, refuses: []string{"429 many", "503 many"}, answer: fmt.Sprintf(observation, "done")}, do, "", "done", nil},
		{"unknown", &cutting{cuts: 1, answer: fmt.Sprintf(observation, "the result is unknown: it died")}, do, "", "", client.ErrUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.server.ids = map[string]bool{}
			h := httptest.NewServer(tt.server)
			t.Cleanup(h.Close)
			got, err := tt.act(newClient(t, client.Config{BaseURL: h.URL}), api.Request{Action: api.RunAction{Command: "x"}, Key: tt.key})
			if !errors.Is(err, tt.err) || tt.err == nil && got != tt.want {
				t.Errorf("got %q, %v", got, err)
			}
			if len(tt.server.ids) != 1 || tt.server.ids[""] || tt.key != "" && !tt.server.ids[tt.key] {
				t.Errorf("got ids %v", tt.server.ids)
			}
		})
	}
}

// Input, signals and sizes go to the program of an action.
func TestProgram(t *testing.T) {
	t.Parallel()
	var said []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		said = append(said, r.Method+" "+r.URL.String()+" "+string(body))
		_, _ = io.WriteString(w, `{"offset":7,"ended":true}`)
	}))
	defer s.Close()
	c, err := client.New(client.Config{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if next, ended, err := c.WriteInput(t.Context(), "k", 4, []byte("one"), true); next != 7 || !ended || err != nil {
		t.Errorf("got %d, %t, %v", next, ended, err)
	}
	for _, err := range []error{c.Signal(t.Context(), "k", "SIGINT"), c.Resize(t.Context(), "k", api.TTY{Rows: 3, Cols: 4})} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"POST /v1/actions/k/input?end=true&offset=4 one", `POST /v1/actions/k/signal {"signal":"SIGINT"}`, `POST /v1/actions/k/resize {"rows":3,"cols":4}`,
	}
	if !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
}

// Input reaches a program once and in order, whatever the connection loses.
func TestFeed(t *testing.T) {
	t.Parallel()
	input := strings.Repeat("0123456789", 100_000)
	for name, closes := range map[string]bool{"to its end": false, "to a program that reads no more": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var got []byte
			ended, calls := false, 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
				if calls++; err != nil || offset > len(got) || offset+len(body) < len(got) {
					t.Errorf("got %d bytes at %d behind %d, %v", len(body), offset, len(got), err)
					return
				}
				if closes && calls > 3 {
					w.WriteHeader(http.StatusConflict)
					return
				}
				fresh := body[len(got)-offset:]
				if calls%4 == 1 { // the half of it alone is taken
					got = append(got, fresh[:len(fresh)/2]...)
					w.WriteHeader(http.StatusAccepted)
					_, _ = fmt.Fprintf(w, `{"offset":%d,"ended":false}`, len(got))
					return
				}
				got = append(got, fresh...)
				if calls%4 == 2 {
					panic(http.ErrAbortHandler)
				}
				ended = r.URL.Query().Get("end") == "true"
				_, _ = fmt.Fprintf(w, `{"offset":%d,"ended":%t}`, len(got), ended)
			}))
			defer s.Close()
			c, err := client.New(client.Config{BaseURL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Feed(t.Context(), "k", strings.NewReader(input)); err != nil || !closes && (string(got) != input || !ended) {
				t.Errorf("got %d bytes, ended %t, %v", len(got), ended, err)
			}
		})
	}
}

// An action is asked for, and cancelled, by its id, whatever that looks like.
func TestRecorded(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"id":%q,"n":7,"state":%q,"observation":{"content":%q}}`, r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	}))
	defer s.Close()
	c, err := client.New(client.Config{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for method, call := range map[string]func(context.Context, string, time.Duration) (api.RecordedAction, error){"GET": c.Action, "DELETE": c.Cancel} {
		a, err := call(t.Context(), "a/b?c", 1500*time.Millisecond)
		if err != nil || a.ID != method || a.N != 7 || a.State != "/v1/actions/a%2Fb%3Fc" || string(a.Observation) != `{"content":"wait=2"}` {
			t.Errorf("%s: got %+v, %v", method, a, err)
		}
	}
}

// A request that is refused at once is not sent again.
func TestRefusedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"429 many", "503 many", "400 no", "401 no", "422 no", "500 no"} {
		server := &cutting{refuses: []string{refusal, "200 again"}, ids: map[string]bool{}}
		h := httptest.NewServer(server)
		t.Cleanup(h.Close)
		_, err := newClient(t, client.Config{BaseURL: h.URL}).Do(t.Context(), api.Request{Action: api.RunAction{Command: "x"}})
		if failed, ok := errors.AsType[*client.StatusError](err); !ok || !strings.HasPrefix(refusal, strconv.Itoa(failed.Status)) || len(server.refuses) != 1 {
			t.Errorf("%s: got %v", refusal, err)
		}
	}
}

// An action is waited for over broken connections and polls that end before it.
func TestWait(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	polls := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /v1/actions":
			_, _ = io.WriteString(w, `{"actions":[]}`)
		case "GET /v1/actions/build":
			mu.Lock()
			defer mu.Unlock()
			if polls++; polls%2 == 1 {
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, `{"id":"build","state":"%s"}`, []string{"reserved", "running", "done"}[polls/2-1])
		default:
			t.Errorf("got %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(h.Close)
	a, err := newClient(t, client.Config{BaseURL: h.URL}).Wait(t.Context(), "build")
	if err != nil || a.State != api.StateDone || polls != 6 {
		t.Errorf("got %+v, %v after %d polls", a, err, polls)
	}
	var refused *client.StatusError
	h.Config.Handler = http.NotFoundHandler()
	if _, err := newClient(t, client.Config{BaseURL: h.URL}).Wait(t.Context(), "other"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("of another: got %v", err)
	}
}

// All pages of a list are read, and no more than there are.
func TestActionPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		filter client.ActionFilter
		pages  map[string]string // by their query
		want   string
		fails  bool
	}{
		{"none", client.ActionFilter{}, map[string]string{"limit=1000": `{"actions":[]}`}, "[]", false},
		{"filtered", client.ActionFilter{Session: "a b", State: "done"}, map[string]string{"limit=1000&session=a+b&state=done": `{"actions":[{"id":"a"}]}`}, "[a]", false},
		{"several", client.ActionFilter{}, map[string]string{
			"limit=1000": `{"actions":[{"id":"c"}],"next":9}`, "before=9&limit=1000": `{"actions":[{"id":"b"}],"next":5}`, "before=5&limit=1000": `{"actions":[{"id":"a"}]}`,
		}, "[c b a]", false},
		{"limited", client.ActionFilter{Limit: 1}, map[string]string{"limit=1": `{"actions":[{"id":"c"},{"id":"b"}],"next":9}`}, "[c]", false},
		{"a circle", client.ActionFilter{}, map[string]string{
			"limit=1000": `{"actions":[{"id":"b"}],"next":9}`, "before=9&limit=1000": `{"actions":[{"id":"a"}],"next":9}`,
		}, "[]", true},
		{"empty pages", client.ActionFilter{}, map[string]string{"limit=1000": `{"actions":[],"next":9}`}, "[]", true},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			page, ok := tt.pages[r.URL.RawQuery]
			if !ok {
				t.Errorf("%s: got %s", tt.name, r.URL)
			}
			_, _ = io.WriteString(w, page)
		}))
		list, err := newClient(t, client.Config{BaseURL: h.URL}).Actions(t.Context(), tt.filter)
		h.Close()
		ids := []string{}
		for _, a := range list {
			ids = append(ids, a.ID)
		}
		if got := fmt.Sprint(ids); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: got %s, %v", tt.name, got, err)
		}
	}
}

// An output is read in parts, over broken connections; what is not kept is counted.
func TestOutput(t *testing.T) {
	t.Parallel()
	const printed = "0123456789abcdefghij"
	for _, tt := range []struct {
		name    string
		part    client.OutputPart
		gap     [2]int // what is not kept
		cut     int    // the first answer breaks after so many bytes
		want    string
		missed  int64
		queries []string
	}{
		{"all", client.OutputPart{}, [2]int{}, -1, printed, 0, []string{"offset=0"}},
		{"a part", client.OutputPart{Stream: "stderr", Offset: 12}, [2]int{}, -1, printed[12:], 0, []string{"offset=12&stream=stderr"}},
		{"nothing more", client.OutputPart{Offset: 20}, [2]int{}, -1, "", 0, []string{"offset=20"}},
		{"cut", client.OutputPart{}, [2]int{}, 7, printed, 0, []string{"offset=0", "offset=7"}},
		{"cut at once", client.OutputPart{}, [2]int{}, 0, printed, 0, []string{"offset=0", "offset=0"}},
		{"a gap", client.OutputPart{}, [2]int{4, 15}, -1, printed[:4] + printed[15:], 11, []string{"offset=0", "offset=4"}},
		{"a gap behind a cut", client.OutputPart{}, [2]int{4, 15}, 2, printed[:4] + printed[15:], 11, []string{"offset=0", "offset=2", "offset=4"}},
		{"the end is not kept", client.OutputPart{}, [2]int{4, 20}, -1, printed[:4], 16, []string{"offset=0", "offset=4"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var queries []string
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.URL.Path == "/v1/actions" {
					_, _ = io.WriteString(w, `{"actions":[]}`)
					return
				}
				queries = append(queries, r.URL.RawQuery)
				from, _ := strconv.Atoi(r.FormValue("offset"))
				to := len(printed)
				switch {
				case from >= tt.gap[0] && from < tt.gap[1] && tt.gap[1] < to:
					from = tt.gap[1]
				case from >= tt.gap[0] && from < tt.gap[1]:
					to = from
				case from < tt.gap[0]:
					to = tt.gap[0]
				}
				w.Header().Set(api.OutputOffsetHeader, strconv.Itoa(from))
				w.Header().Set(api.OutputTotalHeader, strconv.Itoa(len(printed)))
				if len(queries) == 1 && tt.cut >= 0 {
					_, _ = io.WriteString(w, printed[from:tt.cut])
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, printed[from:to])
			}))
			t.Cleanup(h.Close)
			var got strings.Builder
			missed, err := newClient(t, client.Config{BaseURL: h.URL}).Output(t.Context(), "build", tt.part, &got)
			if err != nil || got.String() != tt.want || missed != tt.missed || !slices.Equal(queries, tt.queries) {
				t.Errorf("got %q, %d missed, %v after %q", got.String(), missed, err, queries)
			}
		})
	}
}

// A server that answers nonsense ends the reading, and no more is written than was printed
// at the beginning.
func TestOutputNonsense(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ offset, total, want string }{
		{"", "3", ""}, {"-1", "3", ""}, {"2", "5", ""}, {"3", "", ""}, {"3", "-2", ""}, {"3", "5", "ab"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.OutputOffsetHeader, tt.offset)
			w.Header().Set(api.OutputTotalHeader, tt.total)
			_, _ = io.WriteString(w, "abcdef")
		}))
		var got strings.Builder
		_, err := newClient(t, client.Config{BaseURL: h.URL}).Output(t.Context(), "build", client.OutputPart{Offset: 3}, &got)
		h.Close()
		if got.String() != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("offset %q, total %q: got %q, %v", tt.offset, tt.total, got.String(), err)
		}
	}
}

// An action is followed behind the last event that came.
func TestFollow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	events := []string{
		`{"event":"output","seq":1,"offset":0,"text":"one "}`,
		`{"event":"output","seq":2,"offset":4,"text":"two"}`,
		`{"event":"observation","seq":3,"observation":{"observation":"null","content":"done","extras":{}}}`,
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		if r.URL.Path == "/v1/actions" {
			_, _ = io.WriteString(w, `{"actions":[]}`)
			return
		}
		asked = append(asked, r.URL.String())
		after, _ := strconv.Atoi(r.FormValue("after"))
		_, _ = io.WriteString(w, events[after]+"\n") // one each time, then the stream ends
	}))
	t.Cleanup(h.Close)
	var got strings.Builder
	o, err := newClient(t, client.Config{BaseURL: h.URL}).Follow(t.Context(), "a/b", func(o api.Output) error {
		got.Write(o.Data)
		return nil
	})
	want := []string{"/v1/actions/a%2Fb/events?after=0", "/v1/actions/a%2Fb/events?after=1", "/v1/actions/a%2Fb/events?after=2"}
	if err != nil || o != (api.NullObservation{Content: "done"}) || got.String() != "one two" || !slices.Equal(asked, want) {
		t.Errorf("got %v, %v, %q after %q", o, err, got.String(), asked)
	}
}
