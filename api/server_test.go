package api_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
)

// The types of the endpoints are what the document says.
func TestServerTypes(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	tests := []struct {
		name, method, path string
		status             int
		value              any
		want               string
	}{
		{"alive", "GET", "/alive", 200, api.Status{Status: "ok"}, `{"status":"ok"}`},
		{"ready", "GET", "/readyz", 200, api.Status{Status: "ready"}, `{"status":"ready"}`},
		{"starting", "GET", "/readyz", 503, api.Status{Status: "starting", WaitingFor: "the shell"}, `{"status":"starting","waiting_for":"the shell"}`},
		{
			"info", "GET", "/server_info", 200,
			api.ServerInfo{
				Uptime: 7.38, IdleTime: 7,
				Resources: api.Resources{
					CPUPercent: 0,
					Memory:     api.Memory{RSS: 70238208, VMS: 227377152, Percent: 0.2778},
					Disk:       api.Disk{Total: 270553174016, Used: 23368282112, Free: 74425012224, Percent: 23.9},
					IO:         api.IO{ReadBytes: 3076096, WriteBytes: 102400},
				},
				Version: "v1", WorkingDir: "/w", User: "agent", Capabilities: map[string]api.Capability{"run": {Available: true, Detail: "/bin/bash"}},
				Changes: api.ChangesInfo{Mode: api.ChangesFacts, Baseline: api.Baseline{State: api.BaselineDone, Files: 2, Bytes: 7}},
			},
			`{"uptime":7.38,"idle_time":7.0,"resources":{"cpu_percent":0.0,"memory":{"rss":70238208,"vms":227377152,"percent":0.2778},` +
				`"disk":{"total":270553174016,"used":23368282112,"free":74425012224,"percent":23.9},"io":{"read_bytes":3076096,"write_bytes":102400}},` +
				`"version":"v1","working_dir":"/w","user":"agent","capabilities":{"run":{"available":true,"detail":"/bin/bash"}},"changes":{"mode":"facts","baseline":{"state":"done","files":2,"bytes":7}}}`,
		},
		{"broken", "GET", "/server_info", 500, api.Broken{Detail: "inside <ü>", ID: "7"}, `{"detail":"inside <ü>","id":"7"}`},
		{"upload", "POST", "/upload_file", 200, api.UploadResult{Filename: "up.txt", Destination: "/workspace/new/d"}, `{"filename":"up.txt","destination":"/workspace/new/d","recursive":false}`},
		{"unpacked", "POST", "/v1/unpack", 200, api.Unpacked{Entries: 3}, `{"entries":3}`},
		{
			"usage", "GET", "/v1/usage", 200,
			api.Usage{Time: time.Unix(5, 0).UTC(), CPUSeconds: 1, Memory: 2, MemoryLimit: 3, Pids: 4, NetIn: 5, NetOut: 6, DiskIn: 7, DiskOut: 8},
			`{"time":"1970-01-01T00:00:05Z","cpu_seconds":1.0,"memory":2,"memory_limit":3,"pids":4,"net_in":5,"net_out":6,"disk_in":7,"disk_out":8}`,
		},
		{
			"network", "GET", "/v1/network", 200,
			api.NetworkState{
				Egress: "ok", Mode: "allowlist", Allow: []string{"a.example"}, Deny: []string{}, MaxBytes: 9, Secrets: []string{"API"}, NamesProblem: "p", Open: 1,
				Denied: []api.NetworkDenial{{Time: time.Unix(5, 0).UTC(), Host: "b.example", Port: 443, Reason: "not in the allow list", Process: "pip"}},
			},
			`{"egress":"ok","mode":"allowlist","allow":["a.example"],"deny":[],"max_bytes":9,"secrets":["API"],"names":false,"names_problem":"p","open":1,` +
				`"denied":[{"time":"1970-01-01T00:00:05Z","host":"b.example","port":443,"reason":"not in the allow list","process":"pip"}]}`,
		},
		{"no token", "GET", "/vscode/connection_token", 200, api.ConnectionToken{}, `{"token":null}`},
		{"mcp", "POST", "/update_mcp_server", 200, api.MCPUpdate{Detail: "MCP server updated successfully"}, `{"detail":"MCP server updated successfully","router_error_log":""}`},
		{"no sessions", "GET", "/v1/sessions", 200, api.SessionList{Sessions: []api.Session{}}, `{"sessions":[]}`},
		{
			"session", "GET", "/v1/sessions/{name}", 200,
			api.Session{Name: "default", State: "idle", WorkingDir: "/", PID: 1, Shell: "/bin/sh", Started: time.Unix(0, 5).UTC(), Commands: 2, OutputBytes: 3},
			`{"name":"default","state":"idle","working_dir":"/","pid":1,"shell":"/bin/sh","started":"1970-01-01T00:00:00.000000005Z","commands":2,"output_bytes":3}`,
		},
		{
			"session with a kernel", "GET", "/v1/sessions/{name}", 200,
			api.Session{Name: "nb", State: "busy", WorkingDir: "/", Started: time.Unix(5, 0).UTC(), Kernel: &api.Kernel{State: "busy", Since: time.Unix(5, 0).UTC(), Python: "/usr/bin/python3", PID: 7}},
			`{"name":"nb","state":"busy","working_dir":"/","pid":0,"shell":"","started":"1970-01-01T00:00:05Z","commands":0,"output_bytes":0,` +
				`"kernel":{"state":"busy","since":"1970-01-01T00:00:05Z","python":"/usr/bin/python3","pid":7}}`,
		},
		{
			"session with a kernel that ended", "GET", "/v1/sessions/{name}", 200,
			api.Session{Name: "nb", State: "idle", WorkingDir: "/", Started: time.Unix(5, 0).UTC(), Kernel: &api.Kernel{State: "ended", Since: time.Unix(5, 0).UTC()}},
			`{"name":"nb","state":"idle","working_dir":"/","pid":0,"shell":"","started":"1970-01-01T00:00:05Z","commands":0,"output_bytes":0,` +
				`"kernel":{"state":"ended","since":"1970-01-01T00:00:05Z"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.Encode(tt.value)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err := spec.CheckResponse(tt.method, tt.path, tt.status, "application/json", got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEncodeError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  api.Error
		want string
	}{
		{"detail", api.Error{Status: 400, Detail: `no <"path">`}, `{"detail":"no <\"path\">"}`},
		{"errors", api.Error{Status: 422, Detail: "Invalid request parameters", Errors: "body: x"}, `{"detail":"Invalid request parameters","errors":"body: x"}`},
		{"token", api.Error{Status: 401, Detail: "Authentication required"}, `{"error":"invalid_token","error_description":"Authentication required"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(api.EncodeError(&tt.err)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDecodeListFiles(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want, err string }{
		{"path", `{"path":"src"}`, "src", ""},
		{"none", `{}`, "", ""},
		{"null", `{"path":null,"more":[]}`, "", ""},
		{"empty", ``, "", "body: not valid JSON: ends"},
		{"list", `[]`, "", "body: must be an object, got a list"},
		{"number", `{"path":1}`, "", `member "path" must be a string, got the number 1`},
		{"more", `{} {}`, "", "where the end should stand"},
		{"not UTF-8", "{\"path\":\"\xff\"}", "", "not valid UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.DecodeListFiles([]byte(tt.body))
			checkRefusal(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDecodeMCPServers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       []api.MCPServer
		err        string
	}{
		{"none", `[]`, []api.MCPServer{}, ""},
		{
			"objects", `[{"name":" fetch ","command":" uvx ","args":["a b","c"],"env":{"K":"v=1,2"},"more":1}]`,
			[]api.MCPServer{{Name: "fetch", Command: "uvx", Args: []string{"a b", "c"}, Env: map[string]string{"K": "v=1,2"}}},
			"",
		},
		{
			"strings", `[{"name":"a","command":"b","args":" -x 'y z' \"q\\\"\\\\\\n\" e\\ f '' ","env":"K=V=1, K2=,"}]`,
			[]api.MCPServer{{Name: "a", Command: "b", Args: []string{"-x", "y z", `q"\\n`, "e f", ""}, Env: map[string]string{"K": "V=1", "K2": ""}}},
			"",
		},
		{"the least", `[{"name":"a","command":"b","args":null,"env":null}]`, []api.MCPServer{{Name: "a", Command: "b", Args: []string{}, Env: map[string]string{}}}, ""},
		{"no list", `{}`, nil, "Request must be a list of MCP tools to sync"},
		{"no JSON", `[`, nil, "body: not valid JSON"},
		{"no object", `["a"]`, nil, `MCP server 0: must be an object, got the string "a"`},
		{"no name", `[{"command":"b"}]`, nil, `MCP server 0: member "name" is missing`},
		{"odd name", `[{"name":"a/b","command":"b"}]`, nil, `name must be letters, digits, - and _, got "a/b"`},
		{"two words", `[{"name":"a","command":"b c"}]`, nil, `command must be one word, with its arguments in args, got "b c"`},
		{"no command", `[{"name":"a","command":" "}]`, nil, `command must be one word`},
		{"open quote", `[{"name":"a","command":"b","args":"'x"}]`, nil, `member "args" must be a list of strings, or words whose quotes are closed`},
		{"open escape", `[{"name":"a","command":"b","args":"x\\"}]`, nil, `words whose quotes are closed`},
		{"args of numbers", `[{"name":"a","command":"b","args":[1]}]`, nil, `member "args" must be a list of strings, got the number 1`},
		{"env without value", `[{"name":"a","command":"b","env":"secret"}]`, nil, `member "env" must be an object, or KEY=VALUE pairs`},
		{"env of an odd name", `[{"name":"a","command":"b","env":"1K=secret"}]`, nil, `KEY=VALUE pairs`},
		{"env of numbers", `[{"name":"a","command":"b","env":{"K":1}}]`, nil, `member "env": the value of K must be a string, got the number 1`},
		{"env as a list", `[{"name":"a","command":"b","env":["K=V"]}]`, nil, `member "env" must be an object of strings, got a list`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := api.DecodeMCPServers([]byte(tt.body))
			checkRefusal(t, err, tt.err)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret came out: %v", err)
			}
		})
	}
}

// checkRefusal wants a 400 with a text, or no error where want is empty.
func checkRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	refusal, ok := errors.AsType[*api.Error](err)
	if !ok || refusal.Status != 400 || !strings.Contains(refusal.Detail, want) {
		t.Errorf("got %v, want a 400 with %q", err, want)
	}
}

// Under /v1/ a refusal has one shape, and its detail is the useful sentence.
func TestNewRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  api.Error
		id   string
		want string
	}{
		{api.Error{Status: 404, Detail: "no such session"}, "", `{"detail":"no such session","errors":[]}`},
		{api.Error{Status: 422, Detail: "Invalid request parameters", Errors: "body: x"}, "", `{"detail":"body: x","errors":["body: x"]}`},
		{
			*api.FileError(api.Fault{Code: "file_not_found", Path: "/f", Errno: "ENOENT"}, "no such file"), "",
			`{"detail":"no such file","errors":[{"code":"file_not_found","path":"/f","errno":"ENOENT"}]}`,
		},
		{*api.FileError(api.Fault{Code: "is_directory", Path: "/"}, "no"), "", `{"detail":"no","errors":[{"code":"is_directory","path":"/"}]}`},
		{api.Error{Status: 500, Detail: "broken"}, "7", `{"detail":"broken","errors":[],"id":"7"}`},
	} {
		if got, err := api.Encode(api.NewRefusal(&tt.err, tt.id)); err != nil || string(got) != tt.want {
			t.Errorf("got %s, %v, want %s", got, err, tt.want)
		}
	}
}
