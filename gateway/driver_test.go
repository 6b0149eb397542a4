package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/sandbox"
)

// A feature that a driver lacks is refused with a sentence that names it; the rest works.
func TestBareDriver(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) { c.Driver = struct{ sandbox.Driver }{h.host} })
	w := h.ask(t, http.MethodPost, "/v1/sandboxes", "/v1/sandboxes", `{"image": "debian"}`, "Idempotency-Key", "bare")
	if w.Code != http.StatusCreated {
		t.Fatalf("create: %d, %s", w.Code, w.Body)
	}
	id := sandbox.ID("gateway key bare")
	for call, what := range map[string]string{"pause": "pause", "resume": "resume", "stop": "stop", "start": "start"} {
		route := "/v1/sandboxes/{id}/" + call
		w := h.ask(t, http.MethodPost, route, strings.Replace(route, "{id}", id, 1), "")
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the Docker engine cannot "+what+" sandboxes") {
			t.Errorf("%s: %d, %s", call, w.Code, w.Body)
		}
	}
	w = h.ask(t, http.MethodDelete, "/v1/sandboxes/{id}", "/v1/sandboxes/"+id, "")
	if w.Code != http.StatusNoContent {
		t.Errorf("delete: %d, %s", w.Code, w.Body)
	}
}

// faulty is a driver whose platform hangs, or has no room.
type faulty struct {
	sandbox.Driver

	hangs, full atomic.Bool
	lists       atomic.Int32
}

func (f *faulty) List(ctx context.Context) ([]*sandbox.Sandbox, error) {
	if !f.hangs.Load() {
		return f.Driver.List(ctx)
	}
	f.lists.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *faulty) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	if f.full.Load() {
		return nil, fmt.Errorf("namespace agents: %w", sandbox.ErrQuota)
	}
	return f.Driver.Create(ctx, spec)
}

// Requests to a known sandbox wait for an engine that hangs once for all, and go on
// without it.
func TestEngineHangs(t *testing.T) {
	t.Parallel()
	var f *faulty
	h := newFixture(t, func(h *fixture, c *gateway.Config) { f = &faulty{Driver: h.host}; c.Driver = f })
	h.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	s := h.make(t, `{"image":"debian"}`)
	f.hangs.Store(true)
	h.Changed(s.ID)
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			if w := h.through(t, s.ID, "GET", "/x"); w.Code != http.StatusOK || w.Body.String() != "hello" {
				t.Errorf("got %d %s, want an answer of the sandbox", w.Code, w.Body)
			}
		})
	}
	requests.Wait()
	if w := h.through(t, s.ID, "GET", "/x"); w.Code != http.StatusOK || f.lists.Load() != 1 {
		t.Errorf("got %d; the engine was asked %d times", w.Code, f.lists.Load())
	}
}

// A platform without room is one of too many requests.
func TestQuota(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) {
		f := &faulty{Driver: h.host}
		f.full.Store(true)
		c.Driver = f
	})
	want(t, h.ask(t, http.MethodPost, "/v1/sandboxes", "/v1/sandboxes", `{"image": "debian"}`), http.StatusTooManyRequests, "namespace agents: the quota is used up")
}

// lateKeys is a driver whose platform reads the key of one sandbox slowly.
type lateKeys struct {
	sandbox.Driver

	name        string
	asked, read chan struct{}
}

func (l *lateKeys) List(ctx context.Context) ([]*sandbox.Sandbox, error) {
	all, err := l.Driver.List(ctx)
	for _, s := range all {
		if s.Name == l.name {
			s.Access = lateKey{s.Access, l}
		}
	}
	return all, err
}

type lateKey struct {
	sandbox.Access

	of *lateKeys
}

func (k lateKey) Key() (string, error) {
	close(k.of.asked)
	<-k.of.read
	return k.Access.Key()
}

// While the key of one sandbox is read, requests to others go on.
func TestKeyIsLate(t *testing.T) {
	t.Parallel()
	d := &lateKeys{name: "late", asked: make(chan struct{}), read: make(chan struct{})}
	h := newFixture(t, func(h *fixture, c *gateway.Config) { d.Driver = h.host; c.Driver = d })
	for _, name := range []string{"late", "other"} {
		if _, err := h.host.Create(t.Context(), sandbox.Spec{Image: "debian", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	var requests sync.WaitGroup
	requests.Go(func() {
		if w := h.through(t, "late", "GET", "/x", api.KeyHeader, "wrong"); w.Code != http.StatusForbidden {
			t.Errorf("late: got %d %s", w.Code, w.Body)
		}
	})
	<-d.asked
	if w := h.through(t, "other", "GET", "/x"); w.Code != http.StatusOK {
		t.Errorf("other: got %d %s", w.Code, w.Body)
	}
	close(d.read)
	requests.Wait()
}

// strict is a driver with labels that clients may not set.
type strict struct{ sandbox.Driver }

func (strict) CheckLabels(labels map[string]string) error {
	if _, ok := labels["obeyed"]; ok {
		return sandbox.Invalid("label obeyed: reserved")
	}
	return nil
}

// Clients may not set the labels that are the operator's, which reach all sandboxes.
func TestOperatorsLabels(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) {
		c.Driver, c.Defaults.Labels = strict{h.host}, map[string]string{"obeyed": "yes"}
	})
	for body, want := range map[string]int{`{"image": "debian", "labels": {"obeyed": "no"}}`: 422, `{"image": "debian", "labels": {"mine": "x"}}`: 201} {
		w := h.ask(t, http.MethodPost, "/v1/sandboxes", "/v1/sandboxes", body)
		if w.Code != want || want == 201 && !strings.Contains(w.Body.String(), `"obeyed":"yes"`) {
			t.Errorf("%s: %d, %s", body, w.Code, w.Body)
		}
	}
}
