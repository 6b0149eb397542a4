package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

const execEnd = `{"event":"observation","observation":{"message":"m","observation":"exec","content":"","extras":{"stdout":"","stderr":"","stdout_base64":null,"stderr_base64":null,` +
	`"stdout_total":0,"stderr_total":0,"truncated":false,"pid":7,"exit_code":3,"signal":null,"ended_by":null,"cpu_seconds":0,"max_rss":null},"outcome":"failed"}}` + "\n"

// execServer is a server whose program copies its input to standard output, and whose connection
// breaks once the program has read all.
func execServer(t *testing.T, end string) (c *client.Client, starts *int) {
	t.Helper()
	var mu sync.Mutex
	var input strings.Builder
	starts = new(int)
	whole := make(chan struct{})
	c = serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, id, _ := strings.Cut(r.URL.Path, "/v1/actions/")
		switch id, rest, _ := strings.Cut(id, "/"); {
		case r.Method == http.MethodPost && id == "":
			body, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(body), `"stdin":"stream"`) {
				t.Errorf("got %s", body)
			}
			*starts++
			write(t, w, `{"event":"output","seq":1,"pid":7,"stream":"stdout","offset":0,"text":""}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-whole
			mu.Lock()
			text := input.String()
			mu.Unlock()
			write(t, w, fmt.Sprintf(`{"event":"output","seq":2,"stream":"stdout","offset":0,"text":%q}`+"\n", text))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodGet && id == "": // whether it knows ids
			write(t, w, `{"actions":[]}`)
		case rest == "input":
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Query().Get("offset") != fmt.Sprint(input.Len()) {
				t.Errorf("input at %s, of %d", r.URL.Query().Get("offset"), input.Len())
			}
			input.Write(body)
			ended := r.URL.Query().Get("end") == "true"
			write(t, w, fmt.Sprintf(`{"offset":%d,"ended":%t}`, input.Len(), ended))
			if ended {
				close(whole)
			}
		case rest == "events":
			if r.URL.Query().Get("after") != "2" {
				t.Errorf("events after %s", r.URL.Query().Get("after"))
			}
			write(t, w, end)
		default:
			t.Errorf("got %s %s", r.Method, r.URL)
		}
	})
	return c, starts
}

func TestExec(t *testing.T) {
	t.Parallel()
	const stderr = `{"event":"output","seq":3,"stream":"stderr","offset":0,"base64":"/w=="}` + "\n"
	c, starts := execServer(t, stderr+execEnd)
	var out, errs strings.Builder
	o, err := c.Exec(t.Context(), api.Request{Action: api.ExecAction{Argv: []string{"cat"}}}, client.Streams{
		Stdin: iotest.HalfReader(strings.NewReader("all that comes")), Stdout: &out, Stderr: &errs,
	})
	if err != nil || o.ExitCode == nil || *o.ExitCode != 3 {
		t.Fatalf("got %+v, %v", o, err)
	}
	if out.String() != "all that comes" || errs.String() != "\xff" || *starts != 1 {
		t.Errorf("got %q, %q, %d starts", out.String(), errs.String(), *starts)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestExecFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	program := api.Request{Action: api.ExecAction{Command: "cat"}}
	c, _ := execServer(t, execEnd)
	if _, err := c.Exec(t.Context(), program, client.Streams{Stdin: strings.NewReader("x"), Stdout: failingWriter{broken}}); !errors.Is(err, broken) {
		t.Errorf("output: got %v", err)
	}
	c, _ = execServer(t, `{"event":"output","seq":3,"stream":"stdout","offset":9,"missed":8,"text":"z"}`+"\n"+execEnd)
	if o, err := c.Exec(t.Context(), program, client.Streams{Stdin: strings.NewReader("x")}); !errors.Is(err, client.ErrMissed) || o.ExitCode == nil {
		t.Errorf("lost output: got %+v, %v", o, err)
	}
	if _, err := c.Exec(t.Context(), api.Request{Action: api.RunAction{Command: "x"}}, client.Streams{}); err == nil {
		t.Error("a run is taken for a program")
	}
	hangs := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/actions" {
			write(t, w, `{"event":"output","seq":1,"pid":7,"stream":"stdout","offset":0,"text":""}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		write(t, w, `{"offset":0,"ended":false}`)
	})
	if _, err := hangs.Exec(t.Context(), program, client.Streams{Stdin: iotest.ErrReader(broken)}); !errors.Is(err, broken) {
		t.Errorf("input: got %v", err)
	}
}
