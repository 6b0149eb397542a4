package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/memtree"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// fakeWorkspace is in the state 3, and keeps no other. The embedded answer is what changed since.
type fakeWorkspace struct {
	actions.Workspace // nil: what nothing calls
	info              api.ChangesInfo
	answer            api.Changes
}

func (w *fakeWorkspace) After(uint64)                  {}
func (w *fakeWorkspace) Earlier() uint64               { return 0 }
func (w *fakeWorkspace) Unfinished() bool              { return false }
func (w *fakeWorkspace) Await(context.Context) bool    { return true }
func (w *fakeWorkspace) Capture(context.Context) error { return nil }
func (w *fakeWorkspace) Step() (uint64, bool)          { return 3, true }
func (w *fakeWorkspace) Rest()                         {}
func (w *fakeWorkspace) Living() bool                  { return false }
func (w *fakeWorkspace) Left(time.Time, bool) bool     { return false }
func (w *fakeWorkspace) Diff(c *api.Changes, _, _ uint64) {
	c.Truncated = true
}
func (w *fakeWorkspace) Dir() string           { return "/w" }
func (w *fakeWorkspace) Info() api.ChangesInfo { return w.info }

func (w *fakeWorkspace) Known(n uint64) (kept, given bool) { return n == 3, n > 0 && n <= 3 }

func (w *fakeWorkspace) Compare(from, to uint64, path string) *api.Changes {
	c := w.answer
	c.Before, c.After = api.StateName(from), api.StateName(to)
	c.Paths = []api.ChangedPath{api.NewChangedPath("created", path, "")}
	return &c
}

func (w *fakeWorkspace) Stats() (watches int, listed, steps uint64, stepping time.Duration) {
	return 4, 5, 6, 7 * time.Second
}

func withWorkspace(cfg *server.Config) {
	cfg.Workspace = &fakeWorkspace{info: api.ChangesInfo{Mode: api.ChangesFacts, Baseline: api.Baseline{State: api.BaselineDone}}, answer: api.Changes{Exact: true}}
}

func TestChangesPath(t *testing.T) {
	t.Parallel()
	s := newServer(t, withWorkspace)
	for query, want := range map[string]string{
		"":                 `"path":""`,
		"&path=a/b":        `"path":"a/b"`,
		"&path=./a//b/../": `"path":"a"`,
		"&path=/w/a":       `"path":"a"`,
		"&path=/w":         `"path":"."`,
		"&path=/other":     `must be in the workspace`,
		"&path=../a":       `must be in the workspace`,
		"&path=a%FF":       `"path_base64":"Yf8="`,
	} {
		body := get("/v1/changes?since=s3" + query).send(s).Body.String()
		if want == `"path":""` {
			want = `"paths":[{"op":"created"}]`
		}
		if !strings.Contains(body, want) {
			t.Errorf("%s: got %s, want %s in it", query, body, want)
		}
	}
}

func TestWorkspaceMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t, withWorkspace, func(cfg *server.Config) {
		cfg.Workspace.(*fakeWorkspace).answer = api.Changes{Why: "fuse"}
	})
	post("/v1/actions", `{"changes":"facts",`+runTrue[1:]).send(s)
	body := get("/metrics").send(s).Body.String()
	for _, want := range []string{
		"\nactiond_changes_watches 4\n", "\nactiond_changes_directories_listed_total 5\n",
		"\nactiond_changes_step_seconds_sum 7\n", "\nactiond_changes_step_seconds_count 6\n",
		"\nactiond_changes_inexact_total{why=\"fuse\"} 1\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in the metrics", want)
		}
	}
}

// A watch goes on where another one was broken off, and has at most so many readers.
func TestWatchChanges(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	s := undoing(t, tree)
	s.SetHeartbeat(time.Millisecond)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	command("a=1").send(s)
	watch := func(query, accept, last string) (lines *bufio.Scanner, closes func()) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/v1/changes?watch=1"+query, nil)
		must(t, err)
		r.Header.Set("Accept", accept)
		r.Header.Set("Last-Event-ID", last)
		w, err := h.Client().Do(r) //nolint:bodyclose // by closes
		must(t, err)
		if w.StatusCode != http.StatusOK || w.Header.Get("Content-Type") != accept {
			t.Fatalf("got %d %s", w.StatusCode, w.Header.Get("Content-Type"))
		}
		return bufio.NewScanner(w.Body), func() { stop(); _ = w.Body.Close() }
	}
	want := func(lines *bufio.Scanner, text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Errorf("the stream ended without %s: %v", text, lines.Err())
	}
	lines, closes := watch("&since=s1", linesType, "")
	want(lines, `{"event":"changes","before":"s1","after":"s2","by":[1],"exact":true,`)
	want(lines, `{"event":"heartbeat"}`)
	command("a=2").send(s)
	want(lines, `{"event":"changes","before":"s2","after":"s3","by":[2],"exact":true,`)
	closes()
	lines, closes = watch("&diff=1&path=a", eventStreamType, "2")
	want(lines, "id: 3")
	want(lines, "event: changes")
	want(lines, `data: {"event":"changes","before":"s2","after":"s3"`)
	closes()
	for query, want := range map[string]string{
		"&until=s2": "422 query.until", "&since=.": "422 query.since", "&since=s9": "404 There is no state", "&path=../a": "422 query.path", "&diff=2": "422 query.diff", "&wach=1": "400 wach",
	} {
		w := get("/v1/changes?watch=1" + query).send(s)
		if !strings.Contains(fmt.Sprint(w.Code, " ", w.Body), want[4:]) || fmt.Sprint(w.Code) != want[:3] {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
	wantAnswer(t, s, get("/v1/changes?watch=2"), 422, "query.watch")
	wantAnswer(t, s, get("/v1/changes?since=s2&until=s3&diff=1"), 200, `"diff":"-1\n+2\n","lines":[1,1]`)
	wrong := get("/v1/changes?watch=1")
	wrong.header = map[string]string{"Last-Event-ID": "x"}
	wantAnswer(t, s, wrong, 422, "Last-Event-ID")
	for range server.MaxWatchers {
		lines, closes := watch("", linesType, "")
		want(lines, `"before":"s3","after":"s3"`)
		defer closes()
	}
	wantAnswer(t, s, get("/v1/changes?watch=1"), 429, "16 requests already watch")
	wantAnswer(t, newServer(t), get("/v1/changes?watch=1"), 409, "is not known")
}
