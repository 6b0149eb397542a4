package actions_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

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
		free := func(n int64) bool {
			ctx, cancel := context.WithCancel(t.Context())
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
		if free(1 << 20) {
			t.Error("the memory is free before the answer is encoded")
		}
		run.Sending()
		if !free(5<<20) || free(6<<20) {
			t.Error("want a sixth to be held while the answer is sent")
		}
		run.Leave()
		if !free(6 << 20) {
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

// What had an effect is recorded, also where its answer found no memory.
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
