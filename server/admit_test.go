package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// slowReader is a client that reads the body of its answer when it may.
type slowReader struct {
	*httptest.ResponseRecorder
	may <-chan struct{}
}

func (w slowReader) Write(p []byte) (int, error) {
	<-w.may
	return w.ResponseRecorder.Write(p)
}

// A large answer that is read from the journal waits until those before it leave it its part of
// the memory, whatever asks for it. Small ones do not wait.
func TestLargeAnswersWait(t *testing.T) {
	t.Parallel()
	body := func(id, path string) request {
		return request{
			method: http.MethodPost, path: path, contentType: jsonType, header: map[string]string{"Idempotency-Key": id},
			body: `{"action":{"action":"read","args":{"path":"` + id + `"}}}`,
		}
	}
	for name, q := range map[string]request{
		"record": get("/v1/actions/large"),
		"events": get("/v1/actions/large/events"),
		"replay": body("large", "/v1/actions"),
		"legacy": body("large", "/execute_action"),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := server.New(server.Config{MaxBody: 3 << 20, Executor: &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
				if req.Action.(api.ReadAction).Path == "small" {
					return api.ReadObservation{Content: "x"}, nil
				}
				return api.ReadObservation{Content: strings.Repeat("x", 2<<20)}, nil
			}}})
			for _, id := range []string{"large", "small"} {
				if w := body(id, "/v1/actions").send(s); w.Code != http.StatusOK {
					t.Fatalf("got %d", w.Code)
				}
			}
			may := make(chan struct{})
			first, second := make(chan int, 1), make(chan int, 1)
			go func() {
				w := slowReader{httptest.NewRecorder(), may}
				s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/actions/large", http.NoBody))
				first <- w.Code
			}()
			synctest.Wait()
			go func() { second <- q.send(s).Code }()
			synctest.Wait()
			if len(second) > 0 {
				t.Errorf("%s: it is answered while another large answer is read", name)
			}
			for _, path := range []string{"/v1/actions/small", "/v1/actions/small/events"} {
				if w := get(path).send(s); w.Code != http.StatusOK {
					t.Errorf("%s: got %d", path, w.Code)
				}
			}
			close(may)
			if a, b := <-first, <-second; a != http.StatusOK || b != http.StatusOK {
				t.Errorf("%s: got %d and %d, want 200", name, a, b)
			}
		})
	}
}

// A download of many files waits for the memory of its list, of which it takes no more than it needs: 6,000 * (50 +
// 10/3) bytes.
func TestLargeDownloadsWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	huge(t, dir, 6000, 10)
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Config{MaxBody: 800 << 10, Executor: &fake{}})
		download := get("/download_files?path=" + dir)
		may, first, second := make(chan struct{}), make(chan int, 2), make(chan int, 1)
		slow := func() {
			w := slowReader{httptest.NewRecorder(), may}
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, download.path, http.NoBody))
			first <- w.Code
		}
		go slow()
		synctest.Wait()
		if code := download.send(s).Code; code != http.StatusOK {
			t.Errorf("got %d while there is memory for two", code)
		}
		go slow()
		synctest.Wait()
		go func() { second <- download.send(s).Code }()
		synctest.Wait()
		if len(second) > 0 {
			t.Error("it is answered while two others are sent")
		}
		close(may)
		if a, b, c := <-first, <-first, <-second; a != http.StatusOK || b != http.StatusOK || c != http.StatusOK {
			t.Errorf("got %d, %d and %d, want 200", a, b, c)
		}
	})
}

// The calls of a batch do not wait for the memory that the others have until all are answered.
func TestBatchMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Config{MaxBody: 2 << 20, Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
			return api.ReadObservation{Content: strings.Repeat("x", 4<<20)}, nil
		}}})
		call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_file","arguments":{"file_path":"/f"},"_meta":{"actiond/id":"%d"}}}`
		batch := post("/mcp?dialect=gemini", "["+fmt.Sprintf(call, 1, 1)+","+fmt.Sprintf(call, 2, 2)+"]")
		batch.header = map[string]string{"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-03-26"}
		begun := time.Now()
		for range 2 {
			w := batch.send(s)
			if w.Code != http.StatusOK || w.Body.Len() < 8<<20 || time.Since(begun) > time.Second {
				t.Errorf("got %d, %d bytes after %v: %.200s", w.Code, w.Body.Len(), time.Since(begun), w.Body)
			}
		}
	})
}

// A tool call that is repeated with a large body does not wait for the memory of its own body.
func TestRepeatedCallMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Config{MaxBody: 3 << 20, Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
			return api.ReadObservation{Content: strings.Repeat("x", 2<<20)}, nil
		}}})
		q := post("/mcp?dialect=gemini", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"file_path":"/f"},"_meta":{"actiond/id":"1"}}}`+
			strings.Repeat(" ", 2<<20))
		q.header = map[string]string{"Accept": "application/json, text/event-stream"}
		for range 2 {
			if w := q.send(s); w.Code != http.StatusOK || w.Body.Len() < 2<<20 {
				t.Errorf("got %d, %d bytes: %.200s", w.Code, w.Body.Len(), w.Body)
			}
		}
	})
}

// Where as many requests as may wait for running actions do so, further ones are refused, and a replay, which
// waits for none, is answered on every route.
func TestReplayBesideFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s := server.New(server.Config{Executor: &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
			if req.Action.(api.ReadAction).Path == "slow" {
				<-end
			}
			return api.ReadObservation{Content: "x"}, nil
		}}})
		action := func(id, accept string) request {
			return request{
				method: http.MethodPost, path: "/v1/actions", contentType: jsonType, header: map[string]string{"Idempotency-Key": id, "Accept": accept},
				body: `{"action":{"action":"read","args":{"path":"` + id + `"}}}`,
			}
		}
		tool := post("/mcp?dialect=gemini", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"file_path":"/f"},"_meta":{"actiond/id":"tool"}}}`)
		tool.header = map[string]string{"Accept": "application/json, text/event-stream"}
		replays := []request{action("quick", jsonType), action("quick", "application/x-ndjson"), tool}
		for _, q := range replays {
			q.send(s)
		}
		go action("slow", jsonType).send(s)
		synctest.Wait()
		var followers sync.WaitGroup
		for range server.MaxFollowers {
			followers.Go(func() { get("/v1/actions/slow?wait=60").send(s) })
		}
		synctest.Wait()
		for _, accept := range []string{jsonType, "application/x-ndjson"} {
			if w := action("slow", accept).send(s); w.Code != http.StatusTooManyRequests {
				t.Errorf("%s: got %d for one more that waits, want 429", accept, w.Code)
			}
		}
		for i, q := range replays {
			if w := q.send(s); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "already wait") {
				t.Errorf("replay %d: got %d %s", i, w.Code, w.Body)
			}
		}
		close(end)
		followers.Wait()
	})
}

// A call of a tool that was refused names no id that the server made, which leads nowhere, and names its own.
func TestRefusedCallNamesNoID(t *testing.T) {
	t.Parallel()
	s := server.New(server.Config{Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
		return nil, api.TooMany("no")
	}}})
	for meta, want := range map[string]bool{`{}`: false, `{"actiond/id":"mine"}`: true} {
		q := post("/mcp?dialect=gemini", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"file_path":"/f"},"_meta":`+meta+`}}`)
		q.header = map[string]string{"Accept": "application/json, text/event-stream"}
		w := q.send(s)
		if !strings.Contains(w.Body.String(), `"isError":true`) || strings.Contains(w.Body.String(), api.MCPIdentity) != want {
			t.Errorf("%s: got %s", meta, w.Body)
		}
	}
}
