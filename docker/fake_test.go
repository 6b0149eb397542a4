package docker_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// fakeAgent accepts one claim per sandbox and is ready at once.
type fakeAgent struct {
	mu      sync.Mutex
	keys    map[string]string // by what the sandbox's socket is
	status  sandbox.Status
	renewed []time.Duration
	claims  []sandbox.Claim
	err     error
	asked   func() // is called where the status is asked for; nil for nothing

	agent.Agent // what is not faked
}

func (a *fakeAgent) Ready(ctx context.Context, dial sandbox.DialFunc, _ string) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, conn.Close())
}

func (a *fakeAgent) Claim(ctx context.Context, dial sandbox.DialFunc, c sandbox.Claim) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	a.mu.Lock()
	defer a.mu.Unlock()
	at := conn.RemoteAddr().String() // the path that the listener was bound to
	if key, ok := a.keys[at]; ok && key != c.Key {
		return sandbox.ErrClaimed
	}
	a.keys[at] = c.Key
	a.claims = append(a.claims, c)
	return nil
}

// last returns the last claim.
func (a *fakeAgent) last() sandbox.Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claims[len(a.claims)-1]
}

// fail makes Ready fail from now on.
func (a *fakeAgent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// forget is what servers do that are started anew.
func (a *fakeAgent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.keys)
}

func (a *fakeAgent) claimed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.keys)
}

func (a *fakeAgent) Renew(_ context.Context, _ sandbox.DialFunc, _, _ string, ttl time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewed = append(a.renewed, ttl)
	return a.err
}

func (a *fakeAgent) Status(context.Context, sandbox.DialFunc, string) (sandbox.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked != nil {
		a.asked()
	}
	return a.status, nil
}

func (a *fakeAgent) setAsked(asked func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = asked
}

// fakeHost is a host on a fake engine.
func fakeHost(t *testing.T, f *dockertest.Engine, change ...func(*docker.Config)) *docker.Host {
	t.Helper()
	server := filepath.Join(t.TempDir(), "server")
	testhelp.WriteFile(t, server, "a program", 0o700)
	config := docker.Config{
		Engine: f.Address, StateDir: t.TempDir(), Servers: map[string]string{runtime.GOARCH: server},
		Agent: &fakeAgent{keys: map[string]string{}}, ReadyTimeout: 10 * time.Second,
	}
	for _, c := range change {
		c(&config)
	}
	h, err := docker.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	docker.KeepPolicies(h) // the engine without containers says that it is rootless
	t.Cleanup(func() {
		f.SetDown(false)
		all, err := h.List(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		for _, s := range all {
			if err := h.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func create(t *testing.T, h *docker.Host, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	s, err := h.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newPool(t *testing.T, h *docker.Host, spec sandbox.Spec, size int) *sandbox.Pool {
	t.Helper()
	pool, err := sandbox.NewPool(t.Context(), h, "warm", spec, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}
