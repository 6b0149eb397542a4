package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// A model's call arrives at the executor, with the limit of the
// controller where that is the shorter one.
func TestToolCallGoesIn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		limit      float64 // 0 for none
		blocking   bool
	}{
		{"no limit", `{"name":"execute_bash","arguments":{"command":"ls"}}`, 0, false},
		{"the model's", `{"name":"execute_bash","arguments":{"command":"ls","timeout":"7"}}`, 7, true},
		{"the controller's", `{"name":"execute_bash","arguments":{"command":"ls"},"timeout":3}`, 3, false},
		{"the model's is shorter", `{"name":"execute_bash","arguments":{"command":"ls","timeout":2},"timeout":3}`, 2, true},
		{"none by the model's zero", `{"name":"execute_bash","arguments":{"command":"ls","timeout":0}}`, 0, false},
		{"the controller's beside zero", `{"name":"execute_bash","arguments":{"command":"ls","timeout":0},"timeout":3}`, 3, false},
		{"the model's beside zero", `{"name":"execute_bash","arguments":{"command":"ls","timeout":2},"timeout":0}`, 2, true},
		{"the controller's is shorter", `{"name":"execute_bash","arguments":{"command":"ls","timeout":4},"timeout":3}`, 3, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got api.Request
			f := &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
				got = req
				return api.RunObservation{}, nil
			}}
			w := post("/v1/tools/call", tt.body).send(newServer(t, withExecutor(f)))
			if w.Code != 200 || !strings.Contains(w.Body.String(), `"is_error":false`) {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			limit := 0.0
			if got.Timeout != nil {
				limit = *got.Timeout
			}
			run, ok := got.Action.(api.RunAction)
			if !ok || run.Command != "ls" || run.Blocking != tt.blocking || limit != tt.limit {
				t.Errorf("got %+v with a limit of %v, want blocking %v and %v", got.Action, limit, tt.blocking, tt.limit)
			}
		})
	}
}

// A plan can be viewed, in its own session and by name of the call alone.
func TestTaskListIsKept(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	content := func(body string) string {
		w := post("/v1/tools/call", body).send(s)
		if w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		return field(t, w.Body.Bytes(), "content")
	}
	empty := content(`{"name":"task_tracker","arguments":{"command":"view"}}`)
	content(`{"name":"task_tracker","arguments":{"command":"plan","task_list":[{"title":"Fix it"},{"id":"t","title":"Test it","status":"done","notes":"twice"}]}}`)
	want := "1. [todo] Fix it (id task-1)\n2. [done] Test it (id t)\n   twice"
	if got := content(`{"dialect":"openhands-v1","name":"task_tracker","arguments":{"command":"view"}}`); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := content(`{"name":"task_tracker","arguments":{"command":"view"},"session":"other"}`); got != empty {
		t.Errorf("another session: got %q, want %q", got, empty)
	}
}

// Tool calls take the places that actions take.
func TestToolCallsAreBounded(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	f := &fake{do: func(context.Context, api.Request) (api.Observation, error) {
		close(begun)
		<-end
		return api.RunObservation{}, nil
	}}
	s := newServer(t, withExecutor(f), func(cfg *server.Config) { cfg.MaxActions = 1 })
	done := make(chan int)
	go func() {
		done <- post("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"ls"}}`).send(s).Code
	}()
	<-begun
	for _, path := range []string{"/v1/tools/call", "/v1/tools/translate"} {
		w := post(path, `{"name":"think","arguments":{"thought":""}}`).send(s)
		if w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: got %d %s, want 429", path, w.Code, w.Body)
		}
	}
	close(end)
	if code := <-done; code != 200 {
		t.Errorf("got %d, want 200", code)
	}
}

// A sandbox offers the tools that it has the capabilities for.
func TestToolsAreThoseOfTheSandbox(t *testing.T) {
	t.Parallel()
	w := get("/v1/tools?format=mcp").send(newServer(t)) // which can run commands and nothing else
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if got, want := strings.Join(names, " "), "execute_bash think finish task_tracker"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w = get("/v1/tools?dialect=actiond&format=openai-responses").send(newServer(t))
	var flat struct{ Tools []map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &flat); err != nil || len(flat.Tools) != 1 ||
		flat.Tools[0]["type"] != "function" || flat.Tools[0]["name"] != "bash" || flat.Tools[0]["strict"] != false || flat.Tools[0]["parameters"] == nil {
		t.Errorf("for the Responses API: got %s, %v", w.Body, err)
	}
}

// A call about a background job is held no longer than its timeout.
func TestBackgroundDelayIsBounded(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"shorter": `,"timeout":5`, "longer": `,"timeout":500`, "none": ""} {
		synctest.Test(t, func(t *testing.T) {
			s, begun := server.New(server.Config{Executor: &fake{}}), time.Now()
			w := post("/v1/tools/call", `{"dialect":"gemini","name":"read_background_output","arguments":{"pid":1,"delay_ms":60000}`+limit+`}`).send(s)
			want := time.Minute
			if name == "shorter" {
				want = 5 * time.Second
			}
			if got := time.Since(begun); w.Code != 200 || got != want { // by the clock of the bubble
				t.Errorf("%s: got %d after %v, want %v", name, w.Code, got, want)
			}
		})
	}
}
