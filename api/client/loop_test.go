package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// workspace is a server whose workspace has one text, which a state keeps. The action n ended with the state s{n} and the text n.
type workspace struct {
	t     *testing.T
	exec  func(text string) string // the extras of a test of the text
	gone  []string                 // states that are no longer kept
	lost  bool                     // a restore loses a content of the present
	busy  bool                     // an action runs
	stuck string                   // the path that the restore of a checkpoint refuses
	sent  []string
	// restoring is called in a restore, before anything is done.
	restoring func()
	// keeping is called when a checkpoint was made, before the answer.
	keeping func()

	mu     sync.Mutex
	states map[string]string // the texts
	points []api.Checkpoint
	log    []api.ChangeEntry
	n      uint64
	ids    map[string]uint64
}

func newWorkspace(t *testing.T, actions int) *workspace {
	t.Helper()
	w := &workspace{t: t, states: map[string]string{"s1": "1"}, n: 1, ids: map[string]uint64{}, exec: func(string) string { return `"exit_code":0` }}
	for range actions - 1 {
		w.change(api.CauseAction, fmt.Sprint(w.n+1))
	}
	return w
}

// now is the present state.
func (w *workspace) now() string { return fmt.Sprint("s", w.n) }

// change makes another state.
func (w *workspace) change(cause, text string) {
	e := api.ChangeEntry{Kind: "exec", Cause: cause, Before: w.now()}
	w.n++
	if e.After = w.now(); cause == api.CauseAction {
		n := w.n
		e.N = &n
	}
	w.states[e.After] = text
	w.log = append([]api.ChangeEntry{e}, w.log...)
}

func (w *workspace) resolve(ref string) string {
	for _, p := range w.points {
		if p.Name == ref {
			return p.State
		}
	}
	return ref
}

func (w *workspace) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var body struct {
		Name, To string
		Expires  float64 `json:"expires_seconds"`
		DryRun   bool    `json:"dry_run"`
	}
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&body) // one of an action has none of these
	}
	var answer any
	status := http.StatusOK
	w.sent = append(w.sent, r.Method+" "+r.URL.Path)
	switch path := r.Method + " " + r.URL.Path; {
	case path == "GET /v1/checkpoints":
		answer = api.Checkpoints{Checkpoints: w.points}
	case path == "POST /v1/checkpoints":
		point := api.Checkpoint{Name: body.Name, State: w.now(), Time: time.Now(), Expires: time.Now().Add(time.Duration(body.Expires * 1e9))}
		w.points = append(w.points, point)
		if w.keeping != nil {
			w.keeping()
		}
		answer = point
	case strings.HasPrefix(path, "DELETE /v1/checkpoints/"):
		before := len(w.points)
		w.points = slices.DeleteFunc(w.points, func(p api.Checkpoint) bool { return "/v1/checkpoints/"+p.Name == r.URL.Path })
		if len(w.points) == before {
			status = http.StatusNotFound
		}
	case path == "GET /v1/changes":
		answer = api.Changes{Before: w.resolve(r.FormValue("since")), After: w.resolve(r.FormValue("until")), Paths: []api.ChangedPath{{Op: "modified", Path: "text"}}}
	case path == "GET /v1/changes/log":
		answer = api.ChangeLog{Entries: w.log}
	case path == "POST /v1/restore" && slices.Contains(w.gone, body.To):
		status = http.StatusGone
	case path == "POST /v1/restore" && w.busy && !body.DryRun:
		status = http.StatusConflict
	case path == "POST /v1/restore":
		if w.restoring != nil && !body.DryRun {
			w.restoring()
		}
		restored := api.Restored{DryRun: body.DryRun}
		if restored.Before = w.now(); w.lost {
			restored.Lost = []api.FilePath{"text", "large"}
		}
		if text := w.states[w.resolve(body.To)]; !body.DryRun && text != w.states[w.now()] {
			w.change(api.CauseRestore, text)
		}
		if restored.After = w.now(); w.stuck != "" && !strings.HasPrefix(body.To, "s") {
			restored.Refused, restored.RefusedCount = []api.RefusedPath{{Path: w.stuck, Why: "it is a device"}}, 1
		}
		answer = restored
	case path == "POST /v1/actions":
		text := w.states[w.now()]
		extras := w.exec(text)
		w.change(api.CauseAction, text+" tested")
		w.ids[r.Header.Get(api.IdentityHeader)] = w.n
		write(w.t, out, `{"event":"output","seq":1,"stream":"stdout","offset":0,"text":"of `+text+`"}`+"\n"+`{"event":"observation","seq":2,"observation":{"observation":"exec","content":"","extras":{`+extras+`}}}`+"\n")
		return
	case strings.HasPrefix(path, "GET /v1/actions/"):
		answer = api.RecordedAction{N: w.ids[strings.TrimPrefix(r.URL.Path, "/v1/actions/")]}
	default:
		status = http.StatusTeapot
	}
	data, err := json.Marshal(answer)
	if err != nil {
		w.t.Error(err)
	}
	out.WriteHeader(status)
	write(w.t, out, string(data))
}

// verdicts ends tests with an exit code for each text, by default 0.
func verdicts(codes map[string]int) func(string) string {
	return func(text string) string { return fmt.Sprintf(`"exit_code":%d`, codes[text]) }
}

func TestBisect(t *testing.T) {
	t.Parallel()
	bad := map[string]int{"6": 1, "7": 1, "8": 2, "9": 1}
	stop := errors.New("stop")
	for name, tt := range map[string]struct {
		set     func(w *workspace)
		event   func(w *workspace, e client.BisectEvent) error
		want    string // the events
		errors  string
		text    string // of the workspace after it, "9" where it is restored
		stays   bool   // the checkpoint
		skipped string
		detail  string
	}{
		"found":     {want: "s5 good, s7 bad, s6 bad, result s6 6"},
		"by signal": {set: func(w *workspace) { w.exec = func(string) string { return `"exit_code":null,"signal":"SIGSEGV"` } }, want: "s5 bad, s3 bad, s2 bad, result s2 2"},
		"not kept":  {set: func(w *workspace) { w.gone = []string{"s5", "s6"} }, want: "s4 good, s7 bad, result s7 7", skipped: "[s5 s6]"},
		"skipped":   {set: func(w *workspace) { w.exec = verdicts(map[string]int{"5": 125, "6": 125, "7": 1, "8": 1}) }, want: "s5 skip, s4 good, s6 skip, s7 bad, result s7 7", skipped: "[s5 s6]"},
		"no command": {
			set: func(w *workspace) { w.exec = func(string) string { return `"exit_code":127` } }, errors: "the bisect has no result: the command cannot be run (exit code 127) in s5",
		},
		"timeout": {
			set:    func(w *workspace) { w.exec = func(string) string { return `"exit_code":null,"ended_by":"kill_after"` } },
			errors: "the bisect has no result: the command took longer than 2.5s in s5",
		},
		"caller": {event: func(_ *workspace, e client.BisectEvent) error { return map[string]error{"tested": stop}[e.Event] }, want: "s5 good", errors: "stop"},
		"busy":   {set: func(w *workspace) { w.busy = true }, errors: "restoring s5: "},
		"loses":  {set: func(w *workspace) { w.lost = true }, errors: "restoring s5 would lose the string \"large\", whose content is not kept"},
		"foreign": {
			event: func(w *workspace, e client.BisectEvent) error {
				if e.State == "s7" && e.Event == client.BisectTested {
					w.change(api.CauseAction, "theirs")
				}
				return nil
			},
			want: "s5 good, s7 bad", errors: "another client changed the workspace: action 14 (exec), after which it was s14\nthe workspace is left as it is; the checkpoint before-bisect-", text: "theirs", stays: true,
		},
		"foreign upload": {
			event: func(w *workspace, e client.BisectEvent) error {
				if e.Event == client.BisectTested {
					w.change(api.CauseUpload, "theirs")
				}
				return nil
			},
			want: "s5 good", errors: "another client changed the workspace: upload, after which", text: "theirs", stays: true,
		},
		"foreign at the end": {
			event: func(w *workspace, e client.BisectEvent) error {
				if e.State == "s6" && e.Event == client.BisectTested {
					w.change(api.CauseRestore, "theirs")
				}
				return nil
			},
			want: "s5 good, s7 bad, s6 bad", errors: "restoring the present: another client changed the workspace", text: "theirs", stays: true,
		},
		"background": {
			event: func(w *workspace, _ client.BisectEvent) error {
				w.change(api.CauseBackground, w.states[w.now()])
				return nil
			},
			want: "s5 good, s7 bad, s6 bad, result s6 6",
		},
		"busy at the end": {
			event: func(w *workspace, e client.BisectEvent) error {
				w.busy = e.State == "s6" && e.Event == client.BisectTested
				return nil
			},
			want: "s5 good, s7 bad, s6 bad", errors: "restoring the present: ", text: "6 tested", stays: true,
		},
		"refused": {
			set:  func(w *workspace) { w.stuck = "dev" },
			want: "s5 good, s7 bad, s6 bad, result s6 6", detail: "1 paths are not what they were, such as the string \"dev\": it is a device; the checkpoint before-bisect-", stays: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, 9)
			w.exec = verdicts(bad)
			if tt.set != nil {
				tt.set(w)
			}
			var events []string
			last, err := serve(t, w.ServeHTTP).Bisect(t.Context(), client.BisectRequest{Good: "s1", Bad: "s9", Command: "make", Timeout: 2500 * time.Millisecond}, func(e client.BisectEvent) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				switch e.Event {
				case client.BisectTested:
					events = append(events, e.State+" "+e.Verdict)
				case client.BisectResult:
					events = append(events, fmt.Sprintf("result %s %d", e.State, e.N))
				}
				if tt.event != nil {
					return tt.event(w, e)
				}
				return nil
			})
			if got := strings.Join(events, ", "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err == nil != (tt.errors == "") || err != nil && !strings.Contains(err.Error(), tt.errors) {
				t.Errorf("got %v, want %q", err, tt.errors)
			}
			if text := w.states[w.now()]; text != map[bool]string{true: "9", false: tt.text}[tt.text == ""] {
				t.Errorf("the workspace is left as %q", text)
			}
			if stays := len(w.points) > 0; stays != tt.stays || err != nil && stays != errors.As(err, new(*client.LeftError)) {
				t.Errorf("the checkpoints are %+v, %v", w.points, err)
			}
			if got := fmt.Sprint(last.Skipped); got != map[bool]string{true: "[]", false: tt.skipped}[tt.skipped == ""] || !strings.HasPrefix(last.Detail, tt.detail) {
				t.Errorf("got %+v", last)
			}
		})
	}
}

// A restore is ended where the caller leaves in the middle: the server carries it out all the same.
func TestBisectInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, 9)
	ctx, cancel := context.WithCancel(t.Context())
	w.restoring = cancel
	_, err := serve(t, w.ServeHTTP).Bisect(ctx, client.BisectRequest{Good: "s1", Bad: "s9", Command: "make"}, func(client.BisectEvent) error { return nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, context.Canceled) || errors.As(err, new(*client.LeftError)) {
		t.Errorf("got %v", err)
	}
	if text := w.states[w.now()]; text != "9" || len(w.points) > 0 || slices.Contains(w.sent, "POST /v1/actions") {
		t.Errorf("the workspace is left as %q, with the checkpoints %+v, after %v", text, w.points, w.sent)
	}
}

// The checkpoint is removed where the caller leaves while it is made, and expires after the time of all tests.
func TestCheckpointOfLoop(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, 9)
	c := serve(t, w.ServeHTTP)
	w.keeping = func() { panic(http.ErrAbortHandler) }
	var left *client.LeftError
	if _, _, err := c.Attempt(t.Context(), api.Request{Action: api.ExecAction{Command: "x"}}, nil); err == nil || errors.As(err, &left) || len(w.points) > 0 {
		t.Errorf("an attempt: got %v, %+v", err, w.points)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.keeping = cancel
	request := client.BisectRequest{Good: "s1", Bad: "s9", Command: "make"}
	_, err := c.Bisect(ctx, request, func(client.BisectEvent) error { return nil })
	w.mu.Lock()
	if !errors.Is(err, context.Canceled) || errors.As(err, &left) || len(w.points) > 0 {
		t.Errorf("a bisect: got %v, %+v", err, w.points)
	}
	w.keeping = nil
	w.mu.Unlock()
	const day = 24 * time.Hour
	for timeout, want := range map[time.Duration]time.Duration{time.Hour: day + 8*time.Hour, 366 * day: 366 * day} {
		request.Timeout = timeout
		var expires time.Duration
		_, _ = c.Bisect(t.Context(), request, func(client.BisectEvent) error {
			expires = w.points[0].Expires.Sub(w.points[0].Time)
			return errors.New("stop")
		})
		if expires.Round(time.Minute) != want {
			t.Errorf("with %v for a test: got %v, want %v", timeout, expires, want)
		}
	}
}

// A bisect whose states are no states, or beside one that did not end, changes nothing.
func TestBisectRefused(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, 9)
	c := serve(t, w.ServeHTTP)
	for _, ends := range [][2]api.StateRef{{"s9", "s1"}, {"s3", "s3"}, {"s3", "x\x1b"}} {
		if _, err := c.Bisect(t.Context(), client.BisectRequest{Good: ends[0], Bad: ends[1], Command: "x"}, nil); err == nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%v: got %v", ends, err)
		}
	}
	w.points = []api.Checkpoint{{Name: "before-bisect-x", State: "s2", Expires: time.Now().Add(time.Hour)}}
	var left *client.LeftError
	if _, err := c.Bisect(t.Context(), client.BisectRequest{Good: "s1", Bad: "s9", Command: "x"}, nil); !errors.As(err, &left) || left.Checkpoint != "before-bisect-x" {
		t.Errorf("got %v", err)
	}
	if slices.ContainsFunc(w.sent, func(line string) bool { return strings.HasPrefix(line, "POST") }) {
		t.Errorf("sent %v", w.sent)
	}
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, 2)
	c := serve(t, w.ServeHTTP)
	try := func(id string) error {
		_, _, err := c.Attempt(t.Context(), api.Request{Key: id, Action: api.ExecAction{Command: "x"}}, func(api.Output) error { return nil })
		return err
	}
	open := func(want ...string) {
		t.Helper()
		list, err := c.Attempts(t.Context())
		var got []string
		for _, a := range list {
			got = append(got, a.Attempt)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	if err := try("a"); err != nil {
		t.Fatal(err)
	}
	if err := try("a"); err != nil { // it is sent again
		t.Error(err)
	}
	var left *client.LeftError
	if err := try("b"); !errors.As(err, &left) || left.Checkpoint != "attempt/a" || !strings.Contains(err.Error(), "the attempt a is open") {
		t.Errorf("another one: got %v", err)
	}
	open("a")
	w.ids["a"] = w.n // the second time it was not carried out again
	w.log = w.log[:1:1]
	if _, err := c.DiscardAttempt(t.Context(), "a", false); err != nil || w.states[w.now()] != "2" {
		t.Errorf("got %q, %v", w.states[w.now()], err)
	}
	open()
	if err := try("c"); err != nil {
		t.Fatal(err)
	}
	w.change(api.CauseAction, "theirs")
	if _, err := c.DiscardAttempt(t.Context(), "c", false); !errors.Is(err, client.ErrForeign) || w.states[w.now()] != "theirs" {
		t.Errorf("got %q, %v", w.states[w.now()], err)
	}
	if _, err := c.DiscardAttempt(t.Context(), "c", true); err != nil || w.states[w.now()] != "2" {
		t.Errorf("by force: got %q, %v", w.states[w.now()], err)
	}
	stop := errors.New("stop")
	_, _, err := c.Attempt(t.Context(), api.Request{Key: "left", Action: api.ExecAction{Command: "x"}}, func(api.Output) error { return stop })
	if !errors.Is(err, stop) || !errors.As(err, &left) || left.Checkpoint != "attempt/left" {
		t.Errorf("got %v", err)
	}
	if _, err := c.DiscardAttempt(t.Context(), "left", true); err != nil {
		t.Error(err)
	}
	if err := try("raced"); err != nil {
		t.Fatal(err)
	}
	w.log = w.log[:1:1]
	w.restoring = func() { w.change(api.CauseAction, "theirs") }
	restored, err := c.DiscardAttempt(t.Context(), "raced", false)
	if !errors.Is(err, client.ErrForeign) || w.states[restored.Before] != "theirs" || !strings.Contains(err.Error(), "the state before the restore is "+restored.Before) {
		t.Errorf("got %+v, %v", restored, err)
	}
	open("raced")
	w.restoring = nil
	if _, err := c.DiscardAttempt(t.Context(), "raced", true); err != nil {
		t.Error(err)
	}
	if err := try("d"); err != nil {
		t.Fatal(err)
	}
	if kept, err := c.KeepAttempt(t.Context(), "d"); err != nil || len(kept.Paths) != 1 || w.states[w.now()] != "2 tested" {
		t.Errorf("kept %+v, %v, %q", kept, err, w.states[w.now()])
	}
	for range 2 {
		_, kept := c.KeepAttempt(t.Context(), "d")
		_, discarded := c.DiscardAttempt(t.Context(), "d", true)
		for _, err := range []error{kept, discarded} {
			if failed, ok := errors.AsType[*client.StatusError](err); !ok || failed.Status != http.StatusNotFound {
				t.Errorf("not open: got %v", err)
			}
		}
	}
	w.points = []api.Checkpoint{{Name: "attempt/old", State: "s1", Expires: time.Now().Add(-time.Nanosecond)}}
	if err := try("e"); err != nil {
		t.Error(err)
	}
	open("old", "e")
	w.points = []api.Checkpoint{{Name: "before-bisect-x", State: "s1", Expires: time.Now().Add(time.Hour)}}
	if err := try("f"); !errors.As(err, &left) || left.Checkpoint != "before-bisect-x" {
		t.Errorf("during a bisect: got %v", err)
	}
}

// The log is read as far as it has entries after the begin: those of actions that ended together may be in another order,
// and some have no state.
func TestForeignInLog(t *testing.T) {
	t.Parallel()
	theirs := uint64(7)
	foreign := api.ChangeEntry{N: &theirs, Kind: "exec", Cause: api.CauseAction, After: "s7"}
	earlier, unknown := api.ChangeEntry{Kind: "exec", Cause: api.CauseAction, After: "s2"}, api.ChangeEntry{Kind: "exec", Cause: api.CauseAction}
	for name, tt := range map[string]struct {
		pages [][]api.ChangeEntry // the newest first
		want  string
		read  int // pages
	}{
		"other order":    {[][]api.ChangeEntry{{earlier, foreign}}, "action 7", 1},
		"unknown":        {[][]api.ChangeEntry{{unknown, foreign}}, "action 7", 1},
		"unknown at end": {[][]api.ChangeEntry{{unknown}, {foreign}}, "action 7", 2},
		"earlier":        {[][]api.ChangeEntry{{unknown, earlier}, {foreign}}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, 5)
			w.points = []api.Checkpoint{{Name: "attempt/a", State: "s5"}}
			read := 0
			_, err := serve(t, func(out http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/changes/log" {
					w.ServeHTTP(out, r)
					return
				}
				before, _ := strconv.Atoi(cmp.Or(r.FormValue("before"), "100"))
				page := api.ChangeLog{Entries: tt.pages[100-before]}
				if read = max(read, 101-before); read < len(tt.pages) {
					page.Next = uint64(before - 1)
				}
				data, _ := json.Marshal(page)
				write(t, out, string(data))
			}).DiscardAttempt(t.Context(), "a", false)
			if foreign := errors.Is(err, client.ErrForeign); foreign != (tt.want != "") || foreign && !strings.Contains(err.Error(), tt.want) || !foreign && err != nil {
				t.Errorf("got %v", err)
			}
			if read != tt.read {
				t.Errorf("%d pages were read, want %d", read, tt.read)
			}
		})
	}
}
