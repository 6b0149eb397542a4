package executor_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// Where no work ends, callers that wait are told so; work begins again once other
// work has ended.
func TestFileWorkStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work := executor.NewFileWork()
		answers := make(chan struct{})
		for range executor.MaxFileWork {
			go func() {
				_, _ = executor.OnFiles(t.Context(), work, func() (int, error) { <-answers; return 0, nil })
			}()
		}
		synctest.Wait()
		one := func() (int, error) { return 1, nil }
		_, err := executor.OnFiles(t.Context(), work, one)
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusTooManyRequests {
			t.Errorf("got %v", err)
		}
		close(answers)
		if n, err := executor.OnFiles(t.Context(), work, one); n != 1 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

// A panic of file work is its caller's, and the work has ended.
func TestFilePanic(t *testing.T) {
	t.Parallel()
	work := executor.NewFileWork()
	for range executor.MaxFileWork + 1 {
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("got %v", got)
				}
			}()
			_, _ = executor.OnFiles(t.Context(), work, func() (int, error) { panic("broken") })
		}()
	}
}
