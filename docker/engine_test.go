package docker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/docker"
)

// The first calls come at once, and each finds the version of the API that the
// engine speaks: the race detector watches, and so does the engine.
func TestFirstCallsAtOnce(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		switch {
		case r.URL.Path == "/_ping":
		case !strings.HasPrefix(r.URL.Path, "/v1.41/"):
			wrong.Store(r.URL.Path)
		case strings.HasSuffix(r.URL.Path, "/json"):
			_, _ = w.Write([]byte("[]"))
		default:
			_, _ = w.Write([]byte("{}"))
		}
	}))
	defer engine.Close()
	for range 20 {
		h, err := docker.Open(docker.Config{
			Engine: "tcp://" + engine.Listener.Addr().String(), StateDir: t.TempDir(), Agent: &fakeAgent{},
		})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := h.List(ctx); return err },
			func(ctx context.Context) error { _, err := h.List(ctx); return err },
			func(ctx context.Context) error { _, err := h.PruneServers(ctx); return err },
			func(ctx context.Context) error { _, err := h.Engine(ctx); return err },
			func(ctx context.Context) error { _ = h.Events(ctx, nil); return nil }, // it ends with the answer
		} {
			all.Go(func() {
				if err := call(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if path := wrong.Load(); path != nil {
		t.Errorf("the engine was asked for %v", path)
	}
}
