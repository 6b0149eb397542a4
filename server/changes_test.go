package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// fakeWorkspace is in the state 3, and keeps no other. The embedded answer is what changed since.
type fakeWorkspace struct {
	actions.Workspace // nil: what nothing calls
	info              api.ChangesInfo
	answer            api.Changes
}

func (w *fakeWorkspace) After(uint64)              {}
func (w *fakeWorkspace) Earlier() uint64           { return 0 }
func (w *fakeWorkspace) Unfinished() bool          { return false }
func (w *fakeWorkspace) Await(context.Context)     {}
func (w *fakeWorkspace) Step() (uint64, bool)      { return 3, true }
func (w *fakeWorkspace) Living() bool              { return false }
func (w *fakeWorkspace) Left(time.Time, bool) bool { return false }
func (w *fakeWorkspace) Dir() string               { return "/w" }
func (w *fakeWorkspace) Info() api.ChangesInfo     { return w.info }

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
