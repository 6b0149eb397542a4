package contract_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/api/contract"
)

func TestCheckResponse(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	const json = "application/json; charset=utf-8"
	tests := []struct {
		name, method, path string
		status             int
		contentType, body  string
		want               string // part of the error, "" for none
	}{
		{"right", "GET", "/alive", 200, json, `{"status":"ok"}`, ""},
		{"right and empty", "DELETE", "/v1/sessions/{name}", 204, "", "", ""},
		{"right and no JSON", "GET", "/download_files", 200, "application/zip", "PK", ""},
		{"right by reference", "POST", "/execute_action", 403, json, `{"detail":"Invalid API Key"}`, ""},
		{"right of many", "POST", "/execute_action", 200, json, `{"message":"x","observation":"error","content":"x","extras":{"error_id":""}}`, ""},
		{"path", "GET", "/dead", 200, json, `{}`, "no such operation"},
		{"method", "POST", "/alive", 200, json, `{}`, "no such operation"},
		{"status", "POST", "/execute_action", 404, json, `{"detail":"x"}`, "not among"},
		{"content type", "GET", "/alive", 200, "text/html", `{"status":"ok"}`, "content type"},
		{"no content type", "GET", "/alive", 200, "", `{"status":"ok"}`, "content type"},
		{"body where none is", "DELETE", "/v1/sessions/{name}", 204, json, `{}`, "has a body"},
		{"value", "GET", "/alive", 200, json, `{"status":"fine"}`, "must be 'ok'"},
		{"no JSON", "GET", "/alive", 200, json, `ok`, "invalid character"},
		{"format", "GET", "/v1/sessions", 200, json, `{"sessions":[{"name":"a","state":"idle","working_dir":"/","pid":1,"shell":"sh","started":"today","commands":0,"output_bytes":0}]}`, "date-time"},
		{"null for a list", "GET", "/v1/sessions", 200, json, `{"sessions":null}`, "want array"},
		{"unknown extra", "POST", "/v1/actions", 200, json, `{"message":"x","observation":"error","content":"x","extras":{"more":1},"outcome":"failed"}`, "'more' not allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := spec.CheckResponse(tt.method, tt.path, tt.status, tt.contentType, []byte(tt.body))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	var open []string
	for _, r := range spec.Routes() {
		if spec.Open(r) {
			open = append(open, r.Method+" "+r.Path)
		}
	}
	want := "GET /, GET /alive, GET /health, GET /healthz, GET /openapi.yaml, GET /readyz, GET /server_info, POST /v1/claim"
	if got := strings.Join(open, ", "); got != want {
		t.Errorf("open routes: got %s, want %s", got, want)
	}
}
