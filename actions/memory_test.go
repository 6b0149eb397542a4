package actions_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// An action has its part of the memory until its last caller leaves, and the rest once its
// answer is encoded.
func TestMemoryUntilSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := actions.NewMemory(6 << 20)
		m := managerWith(t, memory, func(_ context.Context, w api.Watch) (api.Observation, error) {
			return api.ReadObservation{Content: "x"}, w.Takes(6 << 20)
		})
		run := start(t, m, call())
		if got := say(t, run); got != "x" {
			t.Fatalf("got %q", got)
		}
		if free(t.Context(), memory, 1<<20) {
			t.Error("the memory is free before the answer is encoded")
		}
		run.Sending()
		if !free(t.Context(), memory, 5<<20) || free(t.Context(), memory, 6<<20) {
			t.Error("want a sixth to be held while the answer is sent")
		}
		run.Leave()
		if !free(t.Context(), memory, 6<<20) {
			t.Error("the memory is not free once the caller has left")
		}
	})
}

// An action that finds no memory is refused before it did anything, and leaves no record.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := actions.NewMemory(6 << 20)
		held, _ := memory.Take(t.Context(), 6<<20)
		m := managerWith(t, memory, func(_ context.Context, w api.Watch) (api.Observation, error) {
			return api.ReadObservation{Content: "x"}, w.Takes(2 << 20)
		})
		run := start(t, m, call())
		_, err := run.Answer(t.Context())
		if refusal, ok := err.(*api.Error); !ok || refusal.Status != http.StatusTooManyRequests { //nolint:errorlint // as it is returned
			t.Fatalf("got %v, want 429", err)
		}
		run.Leave()
		memory.Give(held)
		if again := start(t, m, call()); say(t, again) != "x" {
			t.Errorf("got %q after the memory was free", say(t, again))
		}
	})
}

// Two actions whose requests have the memory that the other one needs do not wait for each other.
func TestMemoryOfTwoRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := actions.NewMemory(6 << 20)
		m := managerWith(t, memory, func(_ context.Context, w api.Watch) (api.Observation, error) {
			return api.WriteObservation{}, w.Takes(6 << 20)
		})
		statuses := make(chan int, 2)
		for _, id := range []string{"a", "b"} {
			c := call()
			c.ID = id
			c.Held, _ = memory.Take(t.Context(), 3<<20)
			run, _, err := m.Start(c)
			if err != nil {
				t.Fatal(err)
			}
			go m.Do(t.Context(), run, func() { memory.Give(c.Held) })
			go func() {
				defer run.Leave()
				_, err := run.Answer(t.Context())
				refusal, refused := err.(*api.Error) //nolint:errorlint // as it is returned
				if refused {
					statuses <- refusal.Status
				} else {
					statuses <- http.StatusOK
				}
			}()
		}
		if sum := <-statuses + <-statuses; sum != http.StatusOK+http.StatusTooManyRequests {
			t.Errorf("got statuses whose sum is %d, want 200 and 429", sum)
		}
	})
}

// An action with an effect is recorded, also where its answer found no memory.
func TestAnswerWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := actions.NewMemory(2 << 20)
		held, _ := memory.Take(t.Context(), 2<<20)
		m := managerWith(t, memory, func(context.Context, api.Watch) (api.Observation, error) {
			return api.IPythonObservation{Content: strings.Repeat("x", 4<<20)}, nil
		})
		run := start(t, m, call())
		if got := say(t, run); len(got) != 4<<20 {
			t.Errorf("got %d bytes", len(got))
		}
		if run.Info().State != journal.Done {
			t.Errorf("got state %v", run.Info().State)
		}
		memory.Give(held)
	})
}

// free reports whether n bytes of a memory are free.
func free(ctx context.Context, memory *actions.Memory, n int64) bool {
	ctx, cancel := context.WithCancel(ctx)
	taken := make(chan int64, 1)
	go func() {
		n, _ := memory.Take(ctx, n)
		taken <- n
	}()
	synctest.Wait()
	cancel()
	got := <-taken
	memory.Give(got)
	return got == n
}

// An action that waits for memory frees its place in the line when it is cancelled, or when its caller leaves
// and it does not go on without one. It did nothing.
func TestLeaveMemoryLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		detached bool
		leave    func(m *actions.Manager, run *actions.Run, hangUp func())
		want     string
	}{
		"cancelled":       {true, func(m *actions.Manager, run *actions.Run, _ func()) { m.Cancel(run) }, "was cancelled before it began, and did not run"},
		"left":            {false, func(_ *actions.Manager, _ *actions.Run, hangUp func()) { hangUp() }, "nothing was done"},
		"server shutdown": {true, func(m *actions.Manager, _ *actions.Run, _ func()) { m.Stop() }, "nothing was done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := actions.NewMemory(6 << 20)
				held, _ := memory.Take(t.Context(), 4<<20)
				m := managerWith(t, memory, func(_ context.Context, w api.Watch) (api.Observation, error) {
					if err := w.Begins(); err != nil {
						return nil, err
					}
					return api.ReadObservation{Content: "x"}, w.Takes(6 << 20)
				})
				c := call()
				c.Detached = tt.detached
				run, _, err := m.Start(c)
				if err != nil {
					t.Fatal(err)
				}
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				begun := time.Now()
				go m.Do(ctx, run, func() {})
				synctest.Wait()
				if free(t.Context(), memory, 2<<20) {
					t.Error("an action that came later goes before the one that waits")
				}
				tt.leave(m, run, hangUp)
				if got := say(t, run); !strings.Contains(got, tt.want) || time.Since(begun) > 0 {
					t.Errorf("got %q after %v, want %q at once", got, time.Since(begun), tt.want)
				}
				if !free(t.Context(), memory, 2<<20) {
					t.Error("it waits for memory still")
				}
				memory.Give(held)
			})
		})
	}
}

// A reader that follows an action under way holds its answer as a caller of Start does.
func TestMemoryOfFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, end := actions.NewMemory(6<<20), make(chan struct{})
		m := managerWith(t, memory, func(_ context.Context, w api.Watch) (api.Observation, error) {
			err := w.Takes(6 << 20)
			<-end
			return api.ReadObservation{Content: "x"}, err
		})
		run := start(t, m, call())
		follower, leave, err := m.Join("a")
		if err != nil || follower != run {
			t.Fatalf("got %v, %v", follower, err)
		}
		run.Leave()
		close(end)
		if got := say(t, follower); got != "x" {
			t.Errorf("got %q", got)
		}
		if free(t.Context(), memory, 1<<20) {
			t.Error("the memory of an answer is free while a follower has it")
		}
		leave()
		if !free(t.Context(), memory, 6<<20) {
			t.Error("the memory is not free once the follower has left")
		}
		ended, leave, err := m.Join("a")
		if err != nil || ended.UnderWay() || ended == run {
			t.Fatalf("got %v, %v", ended, err)
		}
		leave()
		if missing, _, err := m.Join("b"); missing != nil || err != nil {
			t.Errorf("got %v, %v", missing, err)
		}
	})
}

// Work that goes on after its action was answered keeps the memory until its end.
func TestMemoryOfWorkThatGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, loaded := actions.NewMemory(6<<20), make(chan func(), 1)
		m := managerWith(t, memory, func(ctx context.Context, w api.Watch) (api.Observation, error) {
			if err := w.Takes(6 << 20); err != nil {
				return nil, err
			}
			loaded <- w.Holds()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		c := call()
		c.Detached = false
		run, _, err := m.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		var released atomic.Bool
		go m.Do(ctx, run, func() { released.Store(true) })
		release := <-loaded
		hangUp()
		if got := say(t, run); !strings.Contains(got, "canceled") {
			t.Errorf("got %q", got)
		}
		run.Leave()
		synctest.Wait()
		if released.Load() || free(t.Context(), memory, 1<<20) {
			t.Error("the memory is free while the file is loaded")
		}
		release()
		if !released.Load() || !free(t.Context(), memory, 6<<20) {
			t.Error("the memory is not free once the file is loaded")
		}
	})
}
