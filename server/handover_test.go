package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/journal"
	"github.com/actiond/actiond/server"
)

// stopped is an upgrader all of whose actions can go on, and whose last step is a function that
// fails.
type stopped struct{ handOver func(h server.Handover) }

func (stopped) Receive(context.Context, io.Reader) error { return nil }

func (stopped) Received() bool { return true }

func (stopped) Movable() map[string]bool { return map[string]bool{"k": true} }

func (stopped) Unmovable() []string { return nil }

func (u stopped) HandOver(_ context.Context, h server.Handover) error {
	u.handOver(h)
	return errors.New("not executed")
}

// The new program cancels what was cancelled before the state was written. From then on the client
// is told that nothing was done.
func TestCancelInUpgrade(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	cancel := request{method: http.MethodDelete, path: "/v1/actions/k?wait=0", key: "s3cret"}
	upgrade := request{method: http.MethodPost, path: "/v1/upgrade", body: "x", key: "s3cret"}
	var s *server.Server
	var told []int
	var cancelled []bool
	s = newServer(t, withKey, withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) {
		close(begun)
		<-end
		return api.ErrorObservation{Content: "done"}, nil
	}}), func(cfg *server.Config) {
		cfg.Upgrader = stopped{func(h server.Handover) {
			on, others, requests, err := h.Actions(map[string]bool{"k": true})
			if err != nil || len(on) != 1 || len(others)+len(requests) > 0 {
				t.Fatalf("got %v, %v, %v, %v", on, others, requests, err)
			}
			cancelled = append(cancelled, on[0].Cancelled)
			told = append(told, cancel.send(s).Code)
		}}
	})
	run := withID(post("/v1/actions", runTrue), "k")
	run.key, run.header["Prefer"] = "s3cret", "respond-async"
	if w := run.send(s); w.Code != http.StatusAccepted {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	<-begun
	for range 2 {
		if w := upgrade.send(s); w.Code != http.StatusInternalServerError {
			t.Errorf("the upgrade: got %d %s", w.Code, w.Body)
		}
		told = append(told, cancel.send(s).Code)
	}
	if want := []int{429, 202, 429, 202}; !slices.Equal(told, want) {
		t.Errorf("the cancellations: got %d, want %d", told, want)
	}
	if want := []bool{false, true}; !slices.Equal(cancelled, want) {
		t.Errorf("the new program cancels: got %t, want %t", cancelled, want)
	}
}

// starting is an executor whose shells never start.
type starting struct{ *fake }

func (starting) Watch(ctx context.Context, _ api.Request, _ api.Watch) (api.Observation, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// Shells that take long to start do not keep a new program from serving, however many actions wait
// for them.
func TestInheritedOfSlowShells(t *testing.T) {
	t.Parallel()
	served(t, nil, func(t bubble) {
		time.Sleep(10 * time.Second) // of the bubble
		if c := t.dial(); c != nil {
			_ = c.Close()
		} else {
			t.Error("it does not serve")
		}
	}, func(cfg *server.Config) {
		var frozen server.Frozen
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"} {
			in := journal.Intent{ID: id, Kind: "run", Session: id, Form: "action"}
			frozen.Actions = append(frozen.Actions, server.FrozenAction{
				Frozen: journal.Frozen{Intent: in, N: uint64(len(frozen.Actions) + 1), State: journal.Reserved}, Request: []byte(runTrue),
			})
		}
		j, err := journal.Open(journal.Config{Living: frozen.Living()})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Executor, cfg.Journal, cfg.Inherited = starting{&fake{}}, j, &frozen
	})
}
