package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
)

// serve answers with one handler and returns a client of it.
func serve(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newClient(t, client.Config{BaseURL: server.URL + "/", Key: "secret"})
}

func newClient(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
}

// Every method asks for what the document describes, and reads what the
// document allows as an answer.
func TestMethods(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	session := api.Session{Name: "build", State: "busy", WorkingDir: "/w", PID: 7, Shell: "/bin/sh", Commands: 2, OutputBytes: 3, Kernel: &api.Kernel{State: "idle", Python: "/p", PID: 8}}
	const sessionJSON = `{"name":"build","state":"busy","working_dir":"/w","pid":7,"shell":"/bin/sh","started":"0001-01-01T00:00:00Z","commands":2,"output_bytes":3,` +
		`"kernel":{"state":"idle","since":"0001-01-01T00:00:00Z","python":"/p","pid":8}}`
	tests := []struct {
		name, method, path string // path is the template
		uri                string // what is asked for
		body               string // what is sent, where it is JSON
		status             int
		answer             string
		call               func(ctx context.Context, c *client.Client) (any, error)
		want               any
	}{
		{
			"alive", "GET", "/alive", "/alive", "", 200, `{"status":"ok"}`,
			func(ctx context.Context, c *client.Client) (any, error) { return nil, c.Alive(ctx) }, nil,
		},
		{
			"ready", "GET", "/readyz", "/readyz", "", 200, `{"status":"ready"}`,
			func(ctx context.Context, c *client.Client) (any, error) { return nil, c.Ready(ctx) }, nil,
		},
		{
			"info", "GET", "/server_info", "/server_info", "", 200,
			`{"uptime":1.5,"idle_time":0,"resources":{"cpu_percent":0,"memory":{"rss":1,"vms":2,"percent":0},"disk":{"total":3,"used":1,"free":2,"percent":33.3},"io":{"read_bytes":0,"write_bytes":0}},"version":"v1","working_dir":"/w","user":"agent","capabilities":{"browse":{"available":false,"detail":"none"}}}`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.ServerInfo(ctx) },
			api.ServerInfo{
				Uptime: 1.5, Resources: api.Resources{Memory: api.Memory{RSS: 1, VMS: 2}, Disk: api.Disk{Total: 3, Used: 1, Free: 2, Percent: 33.3}},
				Version: "v1", WorkingDir: "/w", User: "agent", Capabilities: map[string]api.Capability{"browse": {Detail: "none"}},
			},
		},
		{
			"do", "POST", "/execute_action", "/execute_action",
			`{"action":{"action":"run","args":{"command":"ls","is_input":false,"blocking":false,"is_static":false,"cwd":null,"hidden":false,"thought":"","security_risk":0},"session":"build","timeout":2.5}}`,
			200, `{"message":"x","observation":"error","content":"x","extras":{"error_id":""}}`,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Do(ctx, api.Request{Action: api.RunAction{Command: "ls"}, Session: "build", Timeout: new(2.5)})
			},
			api.ErrorObservation{Content: "x"},
		},
		{
			"tools", "GET", "/v1/tools", "/v1/tools?", "", 200, `{"tools":[{"name":"bash"}]}`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.Tools(ctx, "", "") },
			json.RawMessage(`[{"name":"bash"}]`),
		},
		{
			"tools of a dialect", "GET", "/v1/tools", "/v1/tools?dialect=gemini&format=mcp", "", 200, `{"tools":[]}`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.Tools(ctx, "gemini", "mcp") },
			json.RawMessage(`[]`),
		},
		{
			"call a tool", "POST", "/v1/tools/call", "/v1/tools/call",
			`{"dialect":"gemini","name":"read_file","arguments":"{\"path\": \"ü\"}","tool_call_id":"c1","session":"build","timeout":2.5}`,
			200, `{"message":"x","observation":"error","content":"x","extras":{},"outcome":"failed","code":"file_not_found","text":"x","is_error":true,"error_code":"file_not_found","tool_call_id":"c1","repaired":["a"]}`,
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.CallTool(ctx, api.ToolCall{Dialect: "gemini", Name: "read_file", Arguments: `{"path": "ü"}`, ID: new("c1"), Session: "build", Timeout: new(2.5)})
			},
			api.ToolAnswer{Observation: api.ErrorObservation{Content: "x", Code: "file_not_found"}, Text: "x", IsError: true, ErrorCode: "file_not_found", ID: new("c1"), Repaired: []string{"a"}},
		},
		{
			"sessions", "GET", "/v1/sessions", "/v1/sessions", "", 200, `{"sessions":[` + sessionJSON + `]}`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.Sessions(ctx) },
			[]api.Session{session},
		},
		{
			"session", "GET", "/v1/sessions/{name}", "/v1/sessions/build", "", 200, sessionJSON,
			func(ctx context.Context, c *client.Client) (any, error) { return c.Session(ctx, "build") }, session,
		},
		{
			"close the default session", "DELETE", "/v1/sessions/{name}", "/v1/sessions/default", "", 204, "",
			func(ctx context.Context, c *client.Client) (any, error) { return nil, c.CloseSession(ctx, "") }, nil,
		},
		{
			"close a session of an odd name", "DELETE", "/v1/sessions/{name}", "/v1/sessions/a%2F..%3Fb", "", 204, "",
			func(ctx context.Context, c *client.Client) (any, error) { return nil, c.CloseSession(ctx, "a/..?b") }, nil,
		},
		{
			"list files", "POST", "/list_files", "/list_files", `{"path":"src"}`, 200, `["a/","b"]`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.ListFiles(ctx, "src") },
			[]string{"a/", "b"},
		},
		{
			"list the working directory", "POST", "/list_files", "/list_files", `{}`, 200, `[]`,
			func(ctx context.Context, c *client.Client) (any, error) { return c.ListFiles(ctx, "") },
			[]string{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				sent, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if r.Method != tt.method || r.RequestURI != tt.uri || string(sent) != tt.body {
					t.Errorf("got %s %s %s, want %s %s %s", r.Method, r.RequestURI, sent, tt.method, tt.uri, tt.body)
				}
				if tt.body != "" {
					if err := spec.CheckRequest(tt.method, tt.path, r.Header.Get("Content-Type"), sent); err != nil {
						t.Error(err)
					}
				}
				if key := r.Header.Get("X-Session-API-Key"); key != "secret" {
					t.Errorf("key: got %q", key)
				}
				if err := spec.CheckResponse(tt.method, tt.path, tt.status, "application/json", []byte(tt.answer)); err != nil {
					t.Error(err)
				}
				w.WriteHeader(tt.status)
				write(t, w, tt.answer)
			})
			got, err := tt.call(t.Context(), c)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/upload_file" || r.URL.RawQuery != "destination=%2Fa+b&recursive=true" {
			t.Errorf("got %s", r.RequestURI)
		}
		file, header, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		content, err := io.ReadAll(file)
		if header.Filename != `x"y.zip` || string(content) != "PK…" || err != nil {
			t.Errorf("got %q %q, %v", header.Filename, content, err)
		}
		write(t, w, `{"filename":"x","destination":"/a b","recursive":true}`)
	})
	got, err := c.Upload(t.Context(), "/a b", `x"y.zip`, strings.NewReader("PK…"), true)
	want := api.UploadResult{Filename: "x", Destination: "/a b", Recursive: true}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/v1/unpack?path=%2Fa+b" || r.Header.Get("Content-Type") != "application/x-tar" {
			t.Errorf("got %s, %v", r.RequestURI, r.Header)
		}
		if content, err := io.ReadAll(r.Body); string(content) != "archive" || err != nil {
			t.Errorf("got %q, %v", content, err)
		}
		write(t, w, `{"entries":3}`)
	})
	if n, err := c.Unpack(t.Context(), "/a b", strings.NewReader("archive")); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestListDirectory(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/v1/list?after=YQ&limit=2&path=%2Fa+b&recursive=true" {
			t.Errorf("got %s", r.RequestURI)
		}
		write(t, w, `{"entries":[{"name":"\uFFFD","name_base64":"/w==","type":"file","size":3,"mode":"0644","modified":"2026-01-02T03:04:05Z"}],"next":"Yg"}`)
	})
	page, err := c.ListDirectory(t.Context(), "/a b", client.ListOptions{Recursive: true, Limit: 2, After: "YQ"})
	if err != nil || page.Next != "Yg" || len(page.Entries) != 1 || string(page.Entries[0].NameBase64) != "\xff" {
		t.Errorf("got %+v, %v", page, err)
	}
}

// An upload whose source fails is not an upload.
func TestUploadSourceFails(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("the server saw a whole body")
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	broken := errors.New("disk on fire")
	source := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { return 0, broken }))
	if _, err := c.Upload(t.Context(), "/", "a", source, false); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestDownload(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/download_files?path=%2Fa%26b" {
			t.Errorf("got %s", r.RequestURI)
		}
		write(t, w, "PK")
	})
	body, err := c.Download(t.Context(), "/a&b")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if string(got) != "PK" || err != nil || body.Close() != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestStatusError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		body   string
		want   client.StatusError
		text   string
	}{
		{"detail", 403, `{"detail":"Invalid API Key"}`, client.StatusError{Status: 403, Detail: "Invalid API Key"}, "403 Forbidden: Invalid API Key"},
		{"errors", 422, `{"detail":"Invalid","errors":"body: x"}`, client.StatusError{Status: 422, Detail: "Invalid: body: x"}, "422 Unprocessable Entity: Invalid: body: x"},
		{"errors of a body", 422, `{"detail":"Invalid","errors":["Invalid"]}`, client.StatusError{Status: 422, Detail: "Invalid"}, "422 Unprocessable Entity: Invalid"},
		{"a file", 403, `{"detail":"f: permission denied","errors":[{"code":"permission_denied","path":"/f","errno":"EACCES"}]}`, client.StatusError{Status: 403, Detail: "f: permission denied", Code: "permission_denied"}, "403 Forbidden: f: permission denied"},
		{"an end", 410, `{"detail":"It ended","errors":[],"code":"ended","reason":"deadline"}`, client.StatusError{Status: 410, Detail: "It ended", Code: "ended", Reason: "deadline"}, "410 Gone: It ended"},
		{"starting", 503, `{"status":"starting","waiting_for":"the shell"}`, client.StatusError{Status: 503, Detail: "starting, waiting for the shell"}, "503 Service Unavailable: starting, waiting for the shell"},
		{"text", 500, "out of order\n", client.StatusError{Status: 500, Detail: "out of order"}, "500 Internal Server Error: out of order"},
		{"nothing", 500, "", client.StatusError{Status: 500}, "500 Internal Server Error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				write(t, w, tt.body)
			})
			_, err := c.Do(t.Context(), api.Request{Action: api.RunAction{}})
			got, ok := errors.AsType[*client.StatusError](err)
			if !ok || *got != tt.want || got.Error() != tt.text {
				t.Errorf("got %v, want %+v", err, tt.want)
			}
			if body, err := c.Download(t.Context(), "/"); body != nil || err == nil {
				t.Errorf("download: got %v, %v", body, err)
			}
		})
	}
}

// A connection that dies in the middle of an action says nothing about whether
// it ran. Where the server is an older one, which does not run an id once,
// neither the client nor the transport finds that out by trying again, not even on a
// connection that worked before.
func TestAnActionIsSentOnce(t *testing.T) {
	t.Parallel()
	var actions atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/alive":
			return
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		actions.Add(1)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Alive(t.Context()); err != nil { // leaves a connection to be reused
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "x"}}); err == nil {
		t.Error("got no error")
	}
	if got := actions.Load(); got != 1 {
		t.Errorf("the action was sent %d times", got)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s came with key %q", r.RequestURI, r.Header.Get(api.KeyHeader))
	}))
	t.Cleanup(other.Close)
	here := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(here.Close)
	for name, own := range map[string]*http.Client{"its own": nil, "ours": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, client.Config{BaseURL: here.URL, Key: "secret", HTTPClient: own})
			_, err := c.Do(t.Context(), api.Request{Action: api.RunAction{}})
			if got, ok := errors.AsType[*client.StatusError](err); !ok || got.Status != http.StatusTemporaryRedirect {
				t.Errorf("got %v, want a status error", err)
			}
			if own != nil && own.CheckRedirect != nil {
				t.Error("the caller's client was changed")
			}
		})
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write(t, w, `{"version":"`+r.URL.Path+`"}`)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	info, err := newClient(t, client.Config{BaseURL: "unix://" + socket}).ServerInfo(t.Context())
	if err != nil || info.Version != "/server_info" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestMaxResponse(t *testing.T) {
	t.Parallel()
	body := `{"observation":"think","content":"` + strings.Repeat("x", 1000) + `"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(t, w, body) }))
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		name string
		max  int64
		want error
	}{
		{"default", 0, nil},
		{"exact", int64(len(body)), nil},
		{"one less", int64(len(body)) - 1, client.ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, client.Config{BaseURL: server.URL, MaxResponse: tt.max})
			o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{}})
			if !errors.Is(err, tt.want) || (o == nil) != (tt.want != nil) {
				t.Errorf("got %v, %v, want %v", o, err, tt.want)
			}
		})
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		// The server sees the caller go only after it has read the body.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		cancel()
		<-r.Context().Done()
	})
	if _, err := c.Do(ctx, api.Request{Action: api.RunAction{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/execute_action" {
			w.WriteHeader(http.StatusBadRequest)
		}
		write(t, w, `{"detail":"`+strings.Repeat("x", 5000)+`"}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, client.Config{BaseURL: server.URL})
	for range 5 {
		if err := c.Alive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{}}); err == nil {
			t.Fatal("got no error")
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(t, w, `<html>`) })
	calls := map[string]func() error{
		"do":         func() error { _, err := c.Do(t.Context(), api.Request{Action: api.RunAction{}}); return err },
		"info":       func() error { _, err := c.ServerInfo(t.Context()); return err },
		"sessions":   func() error { _, err := c.Sessions(t.Context()); return err },
		"list files": func() error { _, err := c.ListFiles(t.Context(), ""); return err },
		"upload":     func() error { _, err := c.Upload(t.Context(), "/", "a", &bytes.Reader{}, false); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  client.Config
		want string // part of the error
	}{
		{"http", client.Config{BaseURL: "http://127.0.0.1:1"}, ""},
		{"https with a path", client.Config{BaseURL: "https://gate.example/sandboxes/a/"}, ""},
		{"socket", client.Config{BaseURL: "unix:///run/s"}, ""},
		{"nothing", client.Config{}, "must be http://host:port"},
		{"no scheme", client.Config{BaseURL: "localhost:1"}, "must be http://host:port"},
		{"no host", client.Config{BaseURL: "http:///x"}, "must be http://host:port"},
		{"query", client.Config{BaseURL: "http://a?b=c"}, "must be http://host:port"},
		{"relative socket", client.Config{BaseURL: "unix://run/s"}, "must be http://host:port"},
		{"no URL", client.Config{BaseURL: "http://a b"}, "base URL"},
		{"socket and a client", client.Config{BaseURL: "unix:///run/s", HTTPClient: &http.Client{}}, "dials for itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := client.New(tt.cfg)
			if (c == nil) != (tt.want != "") || tt.want != "" && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", c, err, tt.want)
			}
		})
	}
}

// TestMain keeps temporary directories near the root: tests put sockets there,
// and the kernel takes no longer paths than 107 bytes for those.
func TestMain(m *testing.M) {
	if len(os.TempDir()) > 20 {
		os.Setenv("TMPDIR", "/tmp")
	}
	os.Exit(m.Run())
}
