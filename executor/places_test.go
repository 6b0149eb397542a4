package executor_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// Where nothing ends, whoever waits is told so, and who comes later gets in once
// something has ended.
func TestNoPlaceForFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places := make(executor.Places, 2)
		answers := make(chan struct{})
		for range cap(places) {
			go func() {
				_, _ = executor.OnFiles(t.Context(), places, func() (int, error) { <-answers; return 0, nil })
			}()
		}
		synctest.Wait()
		one := func() (int, error) { return 1, nil }
		_, err := executor.OnFiles(t.Context(), places, one)
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusTooManyRequests {
			t.Errorf("got %v", err)
		}
		close(answers)
		if n, err := executor.OnFiles(t.Context(), places, one); n != 1 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

// A panic of file work is its caller's, and leaves no place taken.
func TestFilePanic(t *testing.T) {
	t.Parallel()
	places := make(executor.Places, 1)
	for range 2 {
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("got %v", got)
				}
			}()
			_, _ = executor.OnFiles(t.Context(), places, func() (int, error) { panic("broken") })
		}()
	}
}
