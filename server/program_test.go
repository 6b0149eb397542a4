package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/server"
)

// programs returns a server that runs programs.
func programs(t *testing.T) *server.Server {
	t.Helper()
	e, err := executor.New(t.Context(), executor.Config{WorkingDir: t.TempDir(), Plugins: []string{}})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return newServer(t, func(c *server.Config) { c.Executor = e })
}

// begin starts a program with an id, and returns once it said "begun".
func begin(t *testing.T, s http.Handler, id, args string) {
	t.Helper()
	q := withID(post("/v1/actions", `{"action":{"action":"exec","args":`+args+`}}`), id)
	q.header["Prefer"] = "respond-async"
	if w := q.send(s); w.Code != 202 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	t.Cleanup(func() { remove("/v1/actions/" + id).send(s) })
	for !strings.Contains(get("/v1/actions/"+id+"/output").send(s).Body.String(), "begun") {
		if t.Context().Err() != nil {
			t.Fatal("it does not begin")
		}
	}
}

func TestProgramInput(t *testing.T) {
	t.Parallel()
	s, spec := programs(t), contract.NewSpec(t)
	begin(t, s, "cat", `{"command":"echo begun; exec cat","stdin":"stream"}`)
	begin(t, s, "none", `{"command":"echo begun; exec sleep 1000"}`)
	begin(t, s, "deaf", `{"command":"echo begun; exec sleep 1000","stdin":"stream"}`)
	begin(t, s, "tty", `{"command":"trap 'stty size; exit 3' WINCH; echo begun; while :; do sleep .01; done","stdin":"stream","tty":{"rows":5,"cols":6}}`)
	withID(post("/v1/actions", runTrue), "run").send(s)
	large := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"the first", "cat/input?offset=0", "one\n", 200, `{"offset":4,"ended":false}`},
		{"sent again", "cat/input?offset=0", "one\n", 200, `{"offset":4,"ended":false}`},
		{"half of it sent again", "cat/input?offset=2", "e\ntwo\n", 200, `{"offset":8,"ended":false}`},
		{"nothing", "cat/input?offset=8", "", 200, `{"offset":8,"ended":false}`},
		{"a gap", "cat/input?offset=9", "x", 409, "goes on at 8"},
		{"no offset", "cat/input", "x", 422, "query.offset"},
		{"an offset of no sense", "cat/input?offset=-1", "x", 422, "query.offset"},
		{"no end", "cat/input?offset=8&end=1", "x", 422, "query.end"},
		{"the end", "cat/input?offset=8&end=true", "three\n", 200, `{"offset":14,"ended":true}`},
		{"no stream", "none/input?offset=0", "x", 409, "not started with a stream"},
		{"no program", "run/input?offset=0", "x", 409, "is a run"},
		{"no action", "other/input?offset=0", "x", 404, ""},
		{"not read", "deaf/input?offset=0&wait=0", large, 202, `"ended":false`},
		{"a signal", "none/signal", `{"signal":"TERM"}`, 204, ""},
		{"no signal", "deaf/signal", `{"signal":"SIGNAL"}`, 400, "SIGNAL"},
		{"an empty signal", "deaf/signal", `{}`, 400, "SIGINT"},
		{"a size", "tty/resize", `{"rows":33,"cols":44}`, 204, ""},
		{"too large a size", "tty/resize", `{"rows":33,"cols":4400}`, 400, "from 1 to 1000"},
		{"no terminal", "deaf/resize", `{"rows":33,"cols":44}`, 409, "no terminal"},
	} {
		w := post("/v1/actions/"+tt.path, tt.body).send(s)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
		_, last, _ := strings.Cut(tt.path, "/")
		last, _, _ = strings.Cut(last, "?")
		if err := spec.CheckResponse("POST", "/v1/actions/{id}/"+last, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for path, want := range map[string]string{
		"cat": `"stdout":"begun\none\ntwo\nthree\n"`, "none": `"signal":"SIGTERM"`, "tty": `33 44\r\n`,
	} {
		if got := get("/v1/actions/" + path + "?wait=600").send(s).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	// Input that was taken is acknowledged again after the end.
	for _, again := range []struct{ query, body, want string }{
		{"0", "one\n", `{"offset":14,"ended":false}`},
		{"8&end=true", "three\n", `{"offset":14,"ended":true}`},
		{"14&end=true", "", `{"offset":14,"ended":true}`},
	} {
		if w := post("/v1/actions/cat/input?offset="+again.query, again.body).send(s); w.Code != 200 || strings.TrimSpace(w.Body.String()) != again.want {
			t.Errorf("sent again at %s: got %d %s", again.query, w.Code, w.Body)
		}
	}
	for _, path := range []string{"cat/input?offset=14", "cat/input?offset=8", "none/input?offset=0", "cat/input?offset=0&end=true", "cat/signal", "tty/resize"} {
		body := `{"signal":"INT"}`
		if strings.HasPrefix(path, "tty") {
			body = `{}`
		}
		if w := post("/v1/actions/"+path, body).send(s); w.Code != 409 || !strings.Contains(w.Body.String(), "has ended (done)") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// A request whose body was cut does not end the input, and the newest request goes on.
func TestProgramInputIsCut(t *testing.T) {
	t.Parallel()
	s := programs(t)
	begin(t, s, "cat", `{"command":"echo begun; exec cat","stdin":"stream"}`)
	cut := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/actions/cat/input?offset=0&end=true", io.MultiReader(strings.NewReader("one"), cutBody{}))
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, cut); w.Code != 400 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	body, more := io.Pipe()
	waits := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/actions/cat/input?offset=0", body)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, waits); w.Code != 409 || !strings.Contains(w.Body.String(), "Another request") || w.Header().Get("Retry-After") != "1" {
			t.Errorf("the one before: got %d %s", w.Code, w.Body)
		}
	})
	if _, err := io.WriteString(more, "one two"); err != nil { // it is being read
		t.Fatal(err)
	}
	if w := post("/v1/actions/cat/input?offset=0&end=true", "one two three").send(s); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	_ = more.Close()
	waiting.Wait()
	if got := get("/v1/actions/cat?wait=600").send(s).Body.String(); !strings.Contains(got, `"stdout":"begun\none two three"`) {
		t.Errorf("got %s", got)
	}
}

// cutBody is the rest of a body that does not come.
type cutBody struct{}

func (cutBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A cancelled program says so.
func TestCancelProgram(t *testing.T) {
	t.Parallel()
	s := programs(t)
	begin(t, s, "sleep", `{"command":"echo begun; exec sleep 1000"}`)
	for range 2 {
		if w := remove("/v1/actions/sleep").send(s); w.Code != 200 || !strings.Contains(w.Body.String(), `"signal":"SIGINT","ended_by":"cancel"`) {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/actions", strings.NewReader(`{"action":{"action":"run","args":{"command":"echo begun; sleep 1000","blocking":true}}}`))
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Idempotency-Key", "run")
	r.Header.Set("Prefer", "respond-async")
	s.ServeHTTP(httptest.NewRecorder(), r)
	for !strings.Contains(get("/v1/actions/run/output").send(s).Body.String(), "begun") {
		if t.Context().Err() != nil {
			t.Fatal("it does not begin")
		}
	}
	if w := remove("/v1/actions/run").send(s); !strings.Contains(w.Body.String(), "It was cancelled by a request, with Ctrl-C.") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
