package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// Two hosts with one state directory are two processes to each other: their
// locks are files.
func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	const callers = 12
	spec := sandbox.Spec{Image: "debian", Name: "dup"}
	for _, tt := range []struct {
		name string
		make func(h *docker.Host, pool *sandbox.Pool, i int) (*sandbox.Sandbox, error)
	}{
		{"without a key", func(h *docker.Host, _ *sandbox.Pool, _ int) (*sandbox.Sandbox, error) {
			return h.Create(t.Context(), spec)
		}},
		{"with keys of their own", func(h *docker.Host, _ *sandbox.Pool, i int) (*sandbox.Sandbox, error) {
			spec := spec
			spec.Key = fmt.Sprint("k", i)
			return h.Create(t.Context(), spec)
		}},
		{"from a warm pool", func(_ *docker.Host, pool *sandbox.Pool, _ int) (*sandbox.Sandbox, error) {
			s, _, err := pool.Claim(t.Context(), spec)
			return s, err
		}},
		{"from a pool and new", func(h *docker.Host, pool *sandbox.Pool, i int) (*sandbox.Sandbox, error) {
			if i%4 < 2 {
				return h.Create(t.Context(), spec)
			}
			s, _, err := pool.Claim(t.Context(), spec)
			return s, err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := dockertest.New(t)
			state := t.TempDir()
			shared := func(c *docker.Config) { c.StateDir = state }
			hosts := []*docker.Host{fakeHost(t, f, shared), fakeHost(t, f, shared)}
			var pools []*sandbox.Pool
			for _, h := range hosts {
				pool := newPool(t, h, sandbox.Spec{Image: "debian"}, 3)
				pools = append(pools, pool)
			}
			fillOnce(t, hosts[0], pools[0], 3)
			errs := make([]error, callers)
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() { _, errs[i] = tt.make(hosts[i%2], pools[i%2], i) })
			}
			group.Wait()
			made := 0
			for _, err := range errs {
				switch {
				case err == nil:
					made++
				case !errors.Is(err, sandbox.ErrConflict):
					t.Errorf("got %v, want ErrConflict", err)
				}
			}
			all, err := hosts[0].List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			named := 0
			for _, s := range all {
				if s.Name == "dup" {
					named++
				}
			}
			if made != 1 || named != 1 {
				t.Errorf("%d of %d callers got a sandbox, and %d have the name; want one", made, callers, named)
			}
		})
	}
}

// Gateways with state directories of their own may get the same key, such as the session
// "default" of two tenants: each has its own sandbox.
func TestControllersShareNoKey(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	spec := sandbox.Spec{Image: "debian", Key: "openhands session default"}
	var hosts []*docker.Host
	var made []*sandbox.Sandbox
	for range 2 {
		h := fakeHost(t, f)
		s := create(t, h, spec)
		hosts, made = append(hosts, h), append(made, s)
	}
	if made[0].Instance == made[1].Instance {
		t.Fatal("two controllers have one container")
	}
	f.Lock()
	delete(f.Containers, made[0].Instance) // by hand
	f.Unlock()
	if removed, err := hosts[0].Prune(t.Context(), false); err != nil || len(removed) != 1 {
		t.Errorf("Prune: got %v, %v, want the directory of the container that is gone", removed, err)
	}
	if again, err := hosts[1].Create(t.Context(), spec); err != nil || again.Instance != made[1].Instance {
		t.Errorf("the same key again: got %v, %v, want %s", again, err, made[1].Instance)
	}
	if all, err := hosts[0].List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("the other controller lists %v, %v, want none", all, err)
	}
}

// Version 0.1 named containers by the id alone.
func TestContainerOfEarlierVersion(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	spec := sandbox.Spec{Image: "debian", Key: "k"}
	made := create(t, h, spec)
	f.Lock()
	f.Containers[made.Instance].Name = "actiond-" + made.ID
	f.Unlock()
	if again, err := h.Create(t.Context(), spec); err != nil || again.Instance != made.Instance {
		t.Errorf("the same key: got %v, %v, want %s", again, err, made.Instance)
	}
	if s, err := h.Get(t.Context(), made.ID); err != nil || s.Instance != made.Instance {
		t.Errorf("Get: %v, %v, want %s", s, err, made.Instance)
	}
	other := fakeHost(t, f)
	if s, err := other.Create(t.Context(), spec); err != nil || s.Instance == made.Instance {
		t.Errorf("of another controller: got %v, %v", s, err)
	}
}

// The name belongs to a sandbox from the moment its creation begins until it is
// removed, and a key finds its own sandbox whatever the name.
func TestNameIsFreeAgain(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	agent := &fakeAgent{keys: map[string]string{}}
	h := fakeHost(t, f, func(c *docker.Config) { c.Agent = agent })
	spec := sandbox.Spec{Image: "debian", Name: "box", Key: "k"}
	agent.fail(errors.New("it does not start"))
	if _, err := h.Create(t.Context(), spec); err == nil {
		t.Fatal("a sandbox that does not start was made")
	}
	agent.fail(nil)
	agent.forget()
	s, err := h.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("after a failed creation: %v", err)
	}
	if again, err := h.Create(t.Context(), spec); err != nil || again.ID != s.ID {
		t.Errorf("the same key again: got %v, %v", again, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Name: s.ID}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("another sandbox's id as a name: got %v, want ErrConflict", err)
	}
	if err := h.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Name: "box"}); err != nil {
		t.Errorf("after it was removed: %v", err)
	}
}

// Two processes that fill a pool of one name from different specifications do
// not remove each other's members: the second takes over when the first ends.
func TestOneProcessFillsAPool(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := t.TempDir()
	var log testhelp.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	shared := func(c *docker.Config) {
		c.StateDir = state
		c.Logger = logger
	}
	images := func(h *docker.Host) []string {
		all, err := h.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var images []string
		for _, s := range all {
			if s.State == sandbox.Ready {
				images = append(images, s.Image)
			}
		}
		return images
	}
	var hosts []*docker.Host
	var pools []*sandbox.Pool
	for i := range 2 {
		hosts = append(hosts, fakeHost(t, f, shared))
		pool, err := sandbox.NewPool(t.Context(), hosts[i], "warm", sandbox.Spec{Image: fmt.Sprint("debian:", i)}, 2, logger)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, pool)
	}
	var running sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	running.Go(func() { pools[0].Run(ctx, time.Hour) })
	testhelp.Eventually(t, func() bool { return slices.Equal(images(hosts[0]), []string{"debian:0", "debian:0"}) }, "the first process fills the pool")

	var takingOver sync.WaitGroup
	otherCtx, endOther := context.WithCancel(t.Context())
	takingOver.Go(func() { pools[1].Run(otherCtx, time.Hour) })
	testhelp.Eventually(t, func() bool {
		return strings.Contains(log.String(), "another process fills the pool") || slices.Contains(images(hosts[1]), "debian:1")
	}, "the second process looks at the pool")
	if got := images(hosts[0]); !slices.Equal(got, []string{"debian:0", "debian:0"}) {
		t.Fatalf("with two processes: got %v, want the first one's", got)
	}
	if err := pools[1].Drain(t.Context()); err != nil || len(images(hosts[1])) != 2 {
		t.Fatalf("Drain of the second: %v, left %v, want the first one's", err, images(hosts[1]))
	}
	end()
	running.Wait()
	testhelp.Eventually(t, func() bool { return slices.Equal(images(hosts[1]), []string{"debian:1", "debian:1"}) }, "the second process fills the pool")
	endOther()
	takingOver.Wait()
	if err := pools[1].Drain(t.Context()); err != nil || len(images(hosts[1])) != 0 {
		t.Errorf("Drain: %v, left %v", err, images(hosts[1]))
	}
}
