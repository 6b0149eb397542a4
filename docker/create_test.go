package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	spec := sandbox.Spec{Image: "debian", Key: "k", Name: "one", Owner: "me", Env: map[string]string{"A": "secret value"}}
	s := create(t, h, spec)
	key, err := s.Key()
	if err != nil || len(key) != 64 {
		t.Errorf("Key: %d digits, %v, want 64", len(key), err)
	}
	f.Lock()
	everything := fmt.Sprintf("%+v %+v", f.Containers[s.Instance].Config, f.Containers[s.Instance].Host)
	f.Unlock()
	if strings.Contains(everything, key) || strings.Contains(everything, "secret value") {
		t.Error("the container's configuration holds the key or the owner's variables")
	}
	again, err := h.Create(t.Context(), spec)
	if err != nil || again.Instance != s.Instance || again.Name != "one" || again.State != sandbox.Ready {
		t.Errorf("the same key again: got %+v, %v", again, err)
	}
	spec.CPUs = 1
	if _, err := h.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("another specification: got %v, want ErrConflict", err)
	}
	if err := errors.Join(h.Delete(t.Context(), s), h.Delete(t.Context(), s)); err != nil {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := h.Get(t.Context(), s.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Get after Delete: got %v, want ErrNotFound", err)
	}
}

// A caller who chose the secret knows it and the id before the sandbox is there;
// a sandbox that is there keeps its own.
func TestSecret(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, dockertest.New(t))
	first, second := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for _, secret := range []string{first, second} {
		s := create(t, h, sandbox.Spec{Image: "i", Key: "k", Secret: secret})
		if key, err := s.Key(); err != nil || key != first || s.ID != sandbox.ID("k") {
			t.Errorf("got %s, %q, %v, want %s, %q", s.ID, key, err, sandbox.ID("k"), first)
		}
	}
}

// The engine may be about to finish what a creator who died asked for.
func TestNameOfTheUnborn(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	if err := h.Prepare(t.Context(), sandbox.Spec{Image: "i"}); err != nil {
		t.Fatal(err)
	}
	f.Lock()
	f.Unborn = 2
	f.Unlock()
	if s, err := h.Create(t.Context(), sandbox.Spec{Image: "i", Key: "k"}); err != nil || s.State != sandbox.Ready {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestFaults lets each call of a creation go wrong in each way. Afterwards one
// reconciliation leaves exactly one sandbox or none, and the key works.
func TestFaults(t *testing.T) {
	t.Parallel()
	count := dockertest.New(t)
	create(t, fakeHost(t, count), sandbox.Spec{Image: "debian", Key: "k"})
	steps := slices.Clone(count.Calls)
	for _, broken := range []dockertest.Fault{dockertest.Refused, dockertest.Lost, dockertest.Deaf, dockertest.Down} {
		for at, call := range steps {
			t.Run(fmt.Sprintf("%d %s %d", at+1, call, broken), func(t *testing.T) {
				t.Parallel()
				f := dockertest.New(t)
				f.FailAt, f.Fault = at+1, broken
				state := t.TempDir()
				h := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
				s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Key: "k"})
				if (s == nil) == (err == nil) {
					t.Fatalf("got %v and %v", s, err)
				}
				if broken == dockertest.Down && err != nil && !errors.Is(err, sandbox.ErrUnknown) {
					t.Errorf("an engine that is down: got %v, want ErrUnknown", err)
				}
				f.SetDown(false)
				age(f)
				if _, err := h.Prune(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				checkSettled(t, f, h, state, s != nil)
				if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Key: "k"}); err != nil {
					t.Errorf("the key cannot be used again: %v", err)
				}
			})
		}
	}
}

// age makes what fills volumes look left behind.
func age(f *dockertest.Engine) {
	f.Lock()
	defer f.Unlock()
	for _, c := range f.Containers {
		c.Created = c.Created.Add(-time.Hour)
	}
}

// checkSettled checks that there is one sandbox, or none, and nothing else.
func checkSettled(t *testing.T, f *dockertest.Engine, h *docker.Host, state string, want bool) {
	t.Helper()
	all, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if want {
		n = 1
	}
	dirs, err := os.ReadDir(filepath.Join(state, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	f.Lock()
	defer f.Unlock()
	if len(all) != n || len(f.Containers) != n || len(dirs) != n {
		t.Errorf("left: %d sandboxes, %d containers, %d directories; want %d of each", len(all), len(f.Containers), len(dirs), n)
	}
}

// TestFaultyClaims does the same with each call of a claim.
func TestFaultyClaims(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T, f *dockertest.Engine, state string) (*docker.Host, *sandbox.Pool) {
		t.Helper()
		h := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
		pool := newPool(t, h, sandbox.Spec{Image: "debian"}, 1)
		fillOnce(t, h, pool, 1)
		return h, pool
	}
	count := dockertest.New(t)
	_, pool := prepare(t, count, t.TempDir())
	before := len(count.Calls)
	if _, warm, err := pool.Claim(t.Context(), sandbox.Spec{Image: "debian", Key: "k"}); err != nil || !warm {
		t.Fatalf("Claim: warm %v, %v", warm, err)
	}
	steps := slices.Clone(count.Calls[before:])
	for _, broken := range []dockertest.Fault{dockertest.Refused, dockertest.Lost, dockertest.Deaf, dockertest.Down} {
		for at, call := range steps {
			t.Run(fmt.Sprintf("%d %s %d", at+1, call, broken), func(t *testing.T) {
				t.Parallel()
				f := dockertest.New(t)
				state := t.TempDir()
				h, pool := prepare(t, f, state)
				f.Lock()
				f.FailAt, f.Fault = len(f.Calls)+at+1, broken
				f.Unlock()
				s, _, err := pool.Claim(t.Context(), sandbox.Spec{Image: "debian", Key: "k"})
				if (s == nil) == (err == nil) {
					t.Fatalf("got %v and %v", s, err)
				}
				f.SetDown(false)
				if _, err := h.Prune(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				all, err := h.List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				mine, waiting := 0, 0
				for _, one := range all {
					if one.Pool == "" {
						mine++
					} else {
						waiting++
					}
				}
				if mine > 1 || waiting > 1 || (mine == 1) != (s != nil) {
					t.Errorf("left: %d claimed, %d in the pool; the claim gave %v", mine, waiting, s)
				}
				again, warm, err := pool.Claim(t.Context(), sandbox.Spec{Image: "debian", Key: "k"})
				if s == nil && warm != (waiting == 1) {
					t.Errorf("%d wait in the pool, and a claim gets a warm one: %v", waiting, warm)
				}
				if err != nil || s != nil && again.Instance != s.Instance {
					t.Errorf("the key again: got %v, %v, want %v", again, err, s)
				}
			})
		}
	}
}

// fillOnce lets the pool fill itself until size are ready.
func fillOnce(t *testing.T, h *docker.Host, pool *sandbox.Pool, size int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { pool.Run(ctx, time.Hour) })
	testhelp.Eventually(t, func() bool {
		all, err := h.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, s := range all {
			if s.Pool != "" && s.State == sandbox.Ready {
				ready++
			}
		}
		return ready == size
	}, "the pool is full")
	cancel()
	running.Wait()
}

// TestPoolRace has 20 claimers and 5 warm sandboxes.
func TestPoolRace(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	pool := newPool(t, h, sandbox.Spec{Image: "debian"}, 5)
	fillOnce(t, h, pool, 5)
	var mu sync.Mutex
	got := map[string]bool{}
	warmOnes := 0
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			s, warm, err := pool.Claim(t.Context(), sandbox.Spec{Image: "debian", Name: fmt.Sprint("n", i), Env: map[string]string{"X": "y"}})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			got[s.Instance] = true
			if warm {
				warmOnes++
			}
		})
	}
	group.Wait()
	if len(got) != 20 || warmOnes != 5 {
		t.Errorf("got %d sandboxes, %d of them warm, want 20 and 5", len(got), warmOnes)
	}
}

// A host with another server knows the sandboxes that wait with the old one.
func TestOutdated(t *testing.T) {
	t.Parallel()
	f, state := dockertest.New(t), t.TempDir()
	old := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
	next := fakeHost(t, f, func(c *docker.Config) {
		c.StateDir = state
		testhelp.WriteFile(t, c.Servers[runtime.GOARCH], "the next version", 0o700)
	})
	bare := fakeHost(t, f, func(c *docker.Config) { c.StateDir, c.Servers = state, nil })
	if err := old.Warm(t.Context(), "warm", sandbox.Spec{Image: "debian"}); err != nil {
		t.Fatal(err)
	}
	for h, want := range map[*docker.Host]bool{old: false, next: true, bare: false} {
		if all, err := h.List(t.Context()); err != nil || len(all) != 1 || all[0].Outdated != want {
			t.Errorf("%+v, %v, want %v", all, err, want)
		}
	}
}

func TestPoolDrainsWhatIsStale(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	old := newPool(t, h, sandbox.Spec{Image: "debian:1"}, 2)
	fillOnce(t, h, old, 2)
	if _, warm, err := old.Claim(t.Context(), sandbox.Spec{Image: "other"}); err != nil || warm {
		t.Errorf("another specification: warm %v, %v, want a new one", warm, err)
	}
	renewed := newPool(t, h, sandbox.Spec{Image: "debian:2"}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { renewed.Run(ctx, time.Hour) })
	testhelp.Eventually(t, func() bool {
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
		slices.Sort(images)
		return slices.Equal(images, []string{"debian:2", "other"})
	}, "the pool replaces its sandbox")
	cancel()
	running.Wait()
	if err := renewed.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := h.List(t.Context()); err != nil || len(all) != 1 || all[0].Image != "other" {
		t.Errorf("after Drain: got %v, %v, want the claimed one alone", all, err)
	}
}

// The engine refuses a limit of more processors than there are, also the default
// one. It would be met anyway.
func TestProcessorsOfTheHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		there       int
		wanted, got float64
	}{{0, 0, 2}, {1, 0, 1}, {1, 0.5, 0.5}, {4, 0, 2}, {4, 8, 4}} {
		f := dockertest.New(t)
		f.CPUs = test.there
		create(t, fakeHost(t, f), sandbox.Spec{Image: "debian", CPUs: test.wanted})
		for _, c := range f.Containers {
			if got := float64(c.Host.NanoCPUs) / 1e9; c.State == "running" && got != test.got {
				t.Errorf("%d processors, limit %v: got %v, want %v", test.there, test.wanted, got, test.got)
			}
		}
	}
}

func TestCreateFails(t *testing.T) {
	t.Parallel()
	t.Run("the server ends", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		f.Dies = true
		_, err := fakeHost(t, f).Create(t.Context(), sandbox.Spec{Image: "debian"})
		start, ok := errors.AsType[*sandbox.StartError](err)
		if !ok || start.Logs != "server: last words" || !strings.Contains(start.Hint, "no shell") || !strings.Contains(start.Err.Error(), "status 1") {
			t.Errorf("got %#v", err)
		}
	})
	t.Run("it is never ready", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		h := fakeHost(t, f, func(c *docker.Config) {
			c.ReadyTimeout, c.Agent = 2*time.Second, stuckAgent{}
		})
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"})
		if err == nil || !strings.Contains(err.Error(), "waiting for the first command in its shell: nothing after 2s") {
			t.Errorf("got %v, want what was waited for", err)
		}
		if len(f.Containers) != 0 {
			t.Errorf("%d containers are left", len(f.Containers))
		}
	})
	t.Run("no image", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		f.Images, f.Pulls = map[string]bool{}, true
		h := fakeHost(t, f)
		if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Pull: sandbox.PullNever}); !errors.Is(err, sandbox.ErrNoImage) {
			t.Errorf("not to be pulled: got %v, want ErrNoImage", err)
		}
		if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"}); err != nil {
			t.Errorf("pulled: %v", err)
		}
	})
	t.Run("no network", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		f.Networks = map[string]bool{"build": true}
		h := fakeHost(t, f)
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Network: "nonet"})
		if !errors.Is(err, sandbox.ErrNoNetwork) || !strings.Contains(err.Error(), "'docker network create nonet'") {
			t.Errorf("got %v, want ErrNoNetwork", err)
		}
		if slices.Contains(f.Calls, "create") || slices.Contains(f.Calls, "pull") {
			t.Errorf("it began: %v", f.Calls)
		}
		if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Network: "build"}); err != nil {
			t.Errorf("there: %v", err)
		}
	})
	t.Run("the engine refuses", func(t *testing.T) {
		t.Parallel()
		for _, test := range []struct {
			call string
			err  error
			is   error // nil: not an error of package sandbox
			says string
		}{
			{"image", fmt.Errorf("invalid reference format: %w", cerrdefs.ErrInvalidArgument), sandbox.ErrInvalid, "invalid specification: looking for image debian: Error response from daemon: invalid reference format"},
			{"create", fmt.Errorf("range of CPUs is from 0.01 to 2.00: %w", cerrdefs.ErrInvalidArgument), sandbox.ErrInvalid, "invalid specification: making container actiond-"},
			{"pull", errors.New("no route to host"), sandbox.ErrNoImage, "no such image: debian cannot be pulled: Error response from daemon: no route to host"},
			{"start", fmt.Errorf("network build not found: %w", cerrdefs.ErrNotFound), nil, ": starting the container: Error response from daemon: network build not found"},
		} {
			f := dockertest.New(t)
			f.Refusals = map[string]error{test.call: test.err}
			_, err := fakeHost(t, f).Create(t.Context(), sandbox.Spec{Image: "debian", Network: "build", Pull: sandbox.PullAlways})
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Count(err.Error(), "starting") > 1 || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s: got %v, want %q", test.call, err, test.says)
			}
			if len(f.Containers) != 0 {
				t.Errorf("%s: %d containers are left", test.call, len(f.Containers))
			}
		}
	})
	t.Run("the caller gives up", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		h := fakeHost(t, f, func(c *docker.Config) {
			c.Agent = stuckAgent{}
			c.Progress = func(_ string, _ sandbox.State, waiting string) {
				if strings.Contains(waiting, "first command") {
					cancel()
				}
			}
		})
		if _, err := h.Create(ctx, sandbox.Spec{Image: "debian"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled", err)
		}
		if len(f.Containers) != 0 {
			t.Errorf("%d containers are left", len(f.Containers))
		}
	})
	t.Run("the name is squatted", func(t *testing.T) {
		t.Parallel()
		f := dockertest.New(t)
		h := fakeHost(t, f)
		s := create(t, h, sandbox.Spec{Image: "debian", Key: "k"})
		name := f.Containers[s.Instance].Name
		if err := h.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		made := f.Add(name)
		if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Key: "k"}); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		if _, err := h.Prune(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		f.Lock()
		defer f.Unlock()
		if f.Containers[made.ID] == nil || made.State != container.StateCreated {
			t.Error("the foreign container was touched")
		}
	})
}

// stuckAgent is of a server whose shell does not come.
type stuckAgent struct {
	sandbox.Agent // what is not faked
}

func (stuckAgent) Claim(context.Context, sandbox.DialFunc, sandbox.Claim) error { return nil }

func (stuckAgent) Ready(ctx context.Context, _ sandbox.DialFunc, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuckAgent) Renew(context.Context, sandbox.DialFunc, string, string, time.Duration) error {
	return nil
}

func (stuckAgent) Status(context.Context, sandbox.DialFunc, string) (sandbox.Status, error) {
	return sandbox.Status{}, nil
}

func TestIdle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status sandbox.Status
		idle   time.Duration
		want   bool // it is removed
	}{
		{"no limit", sandbox.Status{Since: time.Unix(0, 0)}, 0, false},
		{"long ago", sandbox.Status{Since: time.Unix(0, 0)}, time.Hour, true},
		{"just now", sandbox.Status{Since: time.Now()}, time.Hour, false},
		{"busy", sandbox.Status{Since: time.Unix(0, 0), Busy: true}, time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := dockertest.New(t)
			h := fakeHost(t, f, func(c *docker.Config) {
				c.Agent = &fakeAgent{keys: map[string]string{}, status: tt.status}
			})
			create(t, h, sandbox.Spec{Image: "debian", Idle: tt.idle})
			removed, err := h.Prune(t.Context(), false)
			if err != nil || (len(removed) == 1) != tt.want {
				t.Errorf("removed %+v, %v, want removal: %v", removed, err, tt.want)
			}
		})
	}
}

// TestReap lets the reaper meet an engine that is down at first.
func TestReap(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	create(t, h, sandbox.Spec{Image: "debian", TTL: time.Nanosecond})
	kept := create(t, h, sandbox.Spec{Image: "debian", TTL: time.Hour})
	f.Lock()
	f.FailAt, f.Fault = 1, dockertest.Down
	before := len(f.Calls)
	f.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var reaping sync.WaitGroup
	reaping.Go(func() { sandbox.Reap(ctx, h, time.Millisecond, slog.New(slog.DiscardHandler)) })
	testhelp.Eventually(t, func() bool { f.Lock(); defer f.Unlock(); return len(f.Calls) > before }, "a call of the engine fails")
	f.SetDown(false)
	testhelp.Eventually(t, func() bool { f.Lock(); defer f.Unlock(); return len(f.Containers) == 1 }, "the sandbox whose time is up is removed")
	cancel()
	reaping.Wait()
	if _, err := h.Get(t.Context(), kept.ID); err != nil {
		t.Errorf("the one whose time is not up: %v", err)
	}
}

// Interrupting a creation while the engine makes the container leaves none: the
// engine finishes what it was asked for after the caller left.
func TestInterruptedWhileCreating(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := dockertest.New(t)
	h := fakeHost(t, f, func(c *docker.Config) { c.CopyServer = true })
	if _, err := h.Engine(t.Context()); err != nil {
		t.Fatal(err)
	}
	var first sync.Once
	f.Hold = func(call string) {
		if call == "create" {
			first.Do(func() { cancel(); time.Sleep(100 * time.Millisecond) }) // longer than undoing takes
		}
	}
	if _, err := h.Create(ctx, sandbox.Spec{Image: "debian"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
	if left := f.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A state directory that came back from a backup has no directories for sockets: the start of a sandbox
// makes its own anew.
func TestStartRestored(t *testing.T) {
	t.Parallel()
	var state string
	f := dockertest.New(t)
	h := fakeHost(t, f, func(c *docker.Config) { state = c.StateDir })
	s := create(t, h, sandbox.Spec{Image: "debian"})
	run := filepath.Join(state, "sandboxes", s.ID, "run")
	if err := errors.Join(h.Stop(t.Context(), s, 0), os.RemoveAll(run)); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context(), s); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(run); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the directory for its socket: %v, %v", info, err)
	}
}

// The server of a sandbox listens on a socket that is gone from the state directory, which came
// back from a backup under it: no wait makes another appear.
func TestStartWithoutSocket(t *testing.T) {
	t.Parallel()
	var state string
	f := dockertest.New(t)
	h := fakeHost(t, f, func(c *docker.Config) { state = c.StateDir })
	spec := sandbox.Spec{Image: "debian", Key: "k"}
	s := create(t, h, spec)
	socket := filepath.Join(state, "sandboxes", s.ID, "run", "sock")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	f.Lock()
	f.Containers[s.Instance].Exit.StartedAt = time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
	f.Unlock()
	want := fmt.Sprintf("socket %s is gone; run 'runtimectl stop %s', then 'runtimectl start %s'", socket, s.ID, s.ID)
	if err := h.Start(t.Context(), s); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), want) {
		t.Errorf("Start: got %v, want %s", err, want)
	}
	if _, err := h.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), want) {
		t.Errorf("Create with its key: got %v, want %s", err, want)
	}
	if err := errors.Join(h.Stop(t.Context(), s, 0), h.Start(t.Context(), s)); err != nil {
		t.Errorf("stopped and started: %v", err)
	}
}

// A sandbox that was started and not claimed runs, and is of no use.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	agent := &fakeAgent{keys: map[string]string{}}
	f := dockertest.New(t)
	h := fakeHost(t, f, func(c *docker.Config) { c.Agent = agent })
	spec := sandbox.Spec{Image: "debian", Key: "k"}
	s := create(t, h, spec)
	if err := h.Stop(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	agent.fail(errors.New("no shell today"))
	if err := h.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no shell today") {
		t.Errorf("got %v", err)
	}
	if s, err := h.Get(t.Context(), s.ID); err != nil || s.State != sandbox.Stopped {
		t.Errorf("after a start that failed: got %+v, %v, want it stopped", s, err)
	}
	agent.fail(nil)

	// Now the process that starts it dies before the claim.
	agent.forget()
	if err := f.Run(s.Instance); err != nil {
		t.Fatal(err)
	}
	create(t, h, spec)
	if agent.claimed() != 1 {
		t.Error("the sandbox of the key runs and has no owner")
	}
}

// TestUnreachable: an engine that cannot be reached makes nothing look gone.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := t.TempDir()
	h := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
	s := create(t, h, sandbox.Spec{Image: "debian"})
	f.Lock()
	f.FailAt, f.Fault = 1, dockertest.Down
	f.Unlock()
	_, listErr := h.List(t.Context())
	_, getErr := h.Get(t.Context(), s.ID)
	_, pruneErr := h.Prune(t.Context(), false)
	deleteErr := h.Delete(t.Context(), s)
	for call, err := range map[string]error{"List": listErr, "Get": getErr, "Prune": pruneErr, "Delete": deleteErr} {
		if !errors.Is(err, sandbox.ErrUnknown) || errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrUnknown", call, err)
		}
	}
	if conn, err := s.Dial(t.Context()); err != nil {
		t.Errorf("Dial: %v: actions must keep flowing", err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
	f.SetDown(false)
	checkSettled(t, f, h, state, true)
}

// The volumes of another version, and their marks, stay while a sandbox uses them;
// those of the own version stay always.
func TestPruneServers(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	older := fakeHost(t, f)
	other := filepath.Join(t.TempDir(), "server")
	testhelp.WriteFile(t, other, "another program", 0o700)
	newer := fakeHost(t, f, func(c *docker.Config) { c.Servers = map[string]string{runtime.GOARCH: other} })
	old := create(t, older, sandbox.Spec{Image: "debian"})
	made := create(t, newer, sandbox.Spec{Image: "debian"})
	for _, end := range []func() error{
		func() error { return nil },
		func() error { return newer.Delete(t.Context(), made) },
		func() error { return older.Delete(t.Context(), old) },
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		removed, err := newer.PruneServers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.Lock()
		inUse := false
		for _, c := range f.Containers {
			inUse = inUse || c.ID == old.Instance
		}
		left := len(f.Volumes)
		f.Unlock()
		if inUse && (len(removed) != 0 || left != 4) || !inUse && (len(removed) != 2 || left != 2) {
			t.Errorf("removed %q, and %d volumes are left (in use: %v)", removed, left, inUse)
		}
	}
}

// The engine's clock alone decides whether another process still fills the volume.
func TestFillerOfAnotherClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		f := dockertest.New(t)
		f.Ahead = ahead
		h := fakeHost(t, f)
		prune := func(when string, want int) {
			removed, err := h.Prune(t.Context(), false)
			if err != nil || len(removed) != want {
				t.Errorf("the engine's clock is %v ahead, %s: removed %v, %v; want %d", ahead, when, removed, err, want)
			}
		}
		var filling sync.Once
		f.Hold = func(call string) {
			if call == "copy to" {
				filling.Do(func() {
					prune("while the volume is filled", 0)
					f.SetDown(true)
				})
			}
		}
		if s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"}); !errors.Is(err, sandbox.ErrUnknown) {
			t.Errorf("created %v, %v on an engine that is down", s, err)
		}
		f.SetDown(false)
		age(f)
		prune("when its creator is gone", 1)
	}
}
