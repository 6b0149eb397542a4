package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// Large bodies wait until those before them have left enough of the memory, and small ones
// do not.
func TestLargeBodiesWait(t *testing.T) {
	t.Parallel()
	large := runTrue + strings.Repeat(" ", 2<<20)
	for _, path := range []string{"/execute_action", "/v1/actions"} {
		for _, announced := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				started, release := make(chan struct{}, 1), make(chan struct{})
				s := server.New(server.Config{MaxBody: 3 << 20, Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
					started <- struct{}{}
					<-release
					return api.ErrorObservation{}, nil
				}}})
				send := func(body string) int {
					r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
					r.Header.Set("Content-Type", jsonType)
					if !announced {
						r.ContentLength = -1
					}
					w := httptest.NewRecorder()
					s.ServeHTTP(w, r)
					return w.Code
				}
				first, small, third := make(chan int), make(chan int), make(chan int)
				go func() { first <- send(large) }()
				<-started
				if code := send(large); code != http.StatusTooManyRequests {
					t.Errorf("%s, announced %v: got %d while a large one is worked on, want 429", path, announced, code)
				}
				go func() { small <- send(runTrue) }()
				<-started
				go func() { third <- send(large) }()
				synctest.Wait()
				close(release)
				<-started
				for _, code := range []int{<-first, <-small, <-third} {
					if code != http.StatusOK {
						t.Errorf("%s, announced %v: got %d, want 200", path, announced, code)
					}
				}
			})
		}
	}
}

// A body whose size was not announced holds no more of the memory than it has bytes, once it was read.
func TestUnannouncedBodyHoldsItsSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		s := server.New(server.Config{MaxBody: 5 << 20, Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
			started <- struct{}{}
			<-release
			return api.ErrorObservation{}, nil
		}}})
		codes := make(chan int, 2)
		for _, announced := range []bool{false, true} {
			go func() {
				r := httptest.NewRequest(http.MethodPost, "/v1/actions", strings.NewReader(runTrue+strings.Repeat(" ", 2<<20)))
				r.Header.Set("Content-Type", jsonType)
				if !announced {
					r.ContentLength = -1
				}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				codes <- w.Code
			}()
			select {
			case <-started:
			case code := <-codes:
				t.Errorf("got %d while there is memory for both", code)
			}
		}
		close(release)
		synctest.Wait()
	})
}
