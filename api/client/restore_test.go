package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
)

func TestRestoreMethods(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	template := strings.NewReplacer("/a%2Fb", "/{name}")
	const restoredJSON = `{"before":"s4","after":"s5","exact":true,"counts":{"created":1,"modified":0,"deleted":0,"renamed":0,"meta":0},` +
		`"paths":[{"op":"created","path":"a"}],"truncated":false,"dry_run":false,` +
		`"refused":[{"path_base64":"/w==","why":"it is a device"}],"refused_count":1,"lost":["b",{"base64":"/w=="}]}`
	restored := api.Restored{
		Changes: api.Changes{
			Before: "s4", After: "s5", Exact: true, Counts: api.ChangeCounts{Created: 1}, Paths: []api.ChangedPath{{Op: "created", Path: "a"}},
		},
		Refused: []api.RefusedPath{{PathBase64: []byte{0xff}, Why: "it is a device"}}, RefusedCount: 1, Lost: []api.FilePath{"b", "\xff"},
	}
	checkpoint := api.Checkpoint{Name: "a/b", State: "s3", Missing: 1, MissingPaths: []api.FilePath{"c"}}
	const checkpointJSON = `{"name":"a/b","state":"s3","time":"0001-01-01T00:00:00Z","missing":1,"missing_paths":["c"]}`
	tests := []struct {
		name, request, answer string
		call                  func(ctx context.Context, c *client.Client) (any, error)
		want                  any
	}{
		{
			"restore", `POST /v1/restore {"to":"s4","paths":["a",{"base64":"/w=="}],"dry_run":true}`, restoredJSON,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Restore(ctx, api.RestoreRequest{To: "s4", Paths: []api.FilePath{"a", "\xff"}, DryRun: true})
			}, restored,
		},
		{
			"undo", `POST /v1/restore {"last":true}`, restoredJSON,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Restore(ctx, api.RestoreRequest{Last: true})
			}, restored,
		},
		{
			"checkpoint", `POST /v1/checkpoints {"name":"a/b","verify":true}`, checkpointJSON,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Checkpoint(ctx, api.CheckpointRequest{Name: "a/b", Verify: true})
			}, checkpoint,
		},
		{
			"checkpoints", `GET /v1/checkpoints `, `{"checkpoints":[` + checkpointJSON + `]}`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.Checkpoints(ctx) },
			[]api.Checkpoint{checkpoint},
		},
		{
			"remove", `DELETE /v1/checkpoints/a%2Fb `, ``,
			func(ctx context.Context, c *client.Client) (any, error) { return nil, c.RemoveCheckpoint(ctx, "a/b") }, nil,
		},
		{
			"changes", `GET /v1/changes?diff=1&path=a&since=3&until=s5 `, `{"exact":true,"counts":{"created":0,"modified":0,"deleted":0,"renamed":0,"meta":0},"paths":[],"truncated":false}`,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Changes(ctx, client.ChangesQuery{Since: "3", Until: "s5", Path: "a", Diff: true})
			},
			api.Changes{Exact: true, Paths: []api.ChangedPath{}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				sent, err := io.ReadAll(r.Body)
				if got := r.Method + " " + r.RequestURI + " " + string(sent); got != tt.request || err != nil {
					t.Errorf("got %s, %v, want %s", got, err, tt.request)
				}
				path, status := template.Replace(r.URL.EscapedPath()), http.StatusOK
				switch {
				case r.Method == http.MethodDelete:
					status = http.StatusNoContent
				case r.Method == http.MethodPost && path == "/v1/checkpoints":
					status = http.StatusCreated
				}
				if len(sent) > 0 {
					if err := spec.CheckRequest(r.Method, path, r.Header.Get("Content-Type"), sent); err != nil {
						t.Error(err)
					}
				}
				if err := spec.CheckResponse(r.Method, path, status, "application/json", []byte(tt.answer)); err != nil {
					t.Error(err)
				}
				w.WriteHeader(status)
				write(t, w, tt.answer)
			})
			if got, err := tt.call(t.Context(), c); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

// A watch goes on where its connection broke.
func TestWatchChanges(t *testing.T) {
	t.Parallel()
	change := func(before, after string) string {
		return `{"before":"` + before + `","after":"` + after + `","exact":true,"counts":{"created":1,"modified":0,"deleted":0,"renamed":0,"meta":0},"paths":[{"op":"created","path":"a"}],"truncated":false}` + "\n"
	}
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/changes" { // whether the server is there
			write(t, w, `{"actions":[]}`)
			return
		}
		asked = append(asked, r.URL.RawQuery)
		switch len(asked) {
		case 1:
			write(t, w, `{"event":"changes","before":"s3","after":"s3","exact":true,"counts":{},"paths":[]}`+"\n"+change("s3", "s4")+`{"event":"heartbeat"}`+"\n"+change("s4", "s6"))
		case 2:
			write(t, w, change("s6", "s7"))
		default:
			write(t, w, `{"event":"error","status":410,"detail":"gone"}`+"\n")
		}
	})
	var got []string
	err := c.WatchChanges(t.Context(), client.ChangesQuery{Since: "3", Until: "5", Path: "a"}, func(ch api.Changes) error {
		got = append(got, ch.Before+ch.After+ch.Paths[0].Path)
		return nil
	})
	if failed, ok := errors.AsType[*client.StatusError](err); !ok || failed.Status != http.StatusGone {
		t.Errorf("got %v", err)
	}
	if want := []string{"s3s4a", "s4s6a", "s6s7a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []string{"path=a&since=3&watch=1", "path=a&since=s6&watch=1", "path=a&since=s7&watch=1"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	stop := errors.New("stop")
	if err := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(t, w, change("s1", "s2")) }).
		WatchChanges(t.Context(), client.ChangesQuery{}, func(api.Changes) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
