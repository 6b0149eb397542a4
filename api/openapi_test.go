package api_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
)

func TestOpenAPIRoutes(t *testing.T) {
	t.Parallel()
	want := []contract.Route{
		{Method: "GET", Path: "/"},
		{Method: "GET", Path: "/alive"},
		{Method: "POST", Path: "/api/execution/tools"},
		{Method: "GET", Path: "/download_files"},
		{Method: "POST", Path: "/execute_action"},
		{Method: "GET", Path: "/health"},
		{Method: "GET", Path: "/healthz"},
		{Method: "POST", Path: "/list_files"},
		{Method: "POST", Path: "/mcp"},
		{Method: "POST", Path: "/mcp/messages/"},
		{Method: "GET", Path: "/mcp/sse"},
		{Method: "POST", Path: "/messages/"},
		{Method: "GET", Path: "/metrics"},
		{Method: "GET", Path: "/openapi.yaml"},
		{Method: "GET", Path: "/readyz"},
		{Method: "GET", Path: "/server_info"},
		{Method: "GET", Path: "/sse"},
		{Method: "POST", Path: "/update_mcp_server"},
		{Method: "POST", Path: "/upload_file"},
		{Method: "GET", Path: "/v1/actions"},
		{Method: "POST", Path: "/v1/actions"},
		{Method: "DELETE", Path: "/v1/actions/{id}"},
		{Method: "GET", Path: "/v1/actions/{id}"},
		{Method: "GET", Path: "/v1/actions/{id}/events"},
		{Method: "POST", Path: "/v1/actions/{id}/input"},
		{Method: "GET", Path: "/v1/actions/{id}/output"},
		{Method: "POST", Path: "/v1/actions/{id}/resize"},
		{Method: "POST", Path: "/v1/actions/{id}/signal"},
		{Method: "GET", Path: "/v1/changes"},
		{Method: "GET", Path: "/v1/changes/log"},
		{Method: "GET", Path: "/v1/checkpoints"},
		{Method: "POST", Path: "/v1/checkpoints"},
		{Method: "DELETE", Path: "/v1/checkpoints/{name}"},
		{Method: "POST", Path: "/v1/claim"},
		{Method: "DELETE", Path: "/v1/files"},
		{Method: "GET", Path: "/v1/files"},
		{Method: "HEAD", Path: "/v1/files"},
		{Method: "PUT", Path: "/v1/files"},
		{Method: "POST", Path: "/v1/files/mkdir"},
		{Method: "POST", Path: "/v1/files/move"},
		{Method: "GET", Path: "/v1/list"},
		{Method: "GET", Path: "/v1/network"},
		{Method: "GET", Path: "/v1/pack"},
		{Method: "GET", Path: "/v1/ports"},
		{Method: "GET", Path: "/v1/ports/{port}/tunnel"},
		{Method: "POST", Path: "/v1/renew"},
		{Method: "POST", Path: "/v1/restore"},
		{Method: "GET", Path: "/v1/sessions"},
		{Method: "DELETE", Path: "/v1/sessions/{name}"},
		{Method: "GET", Path: "/v1/sessions/{name}"},
		{Method: "GET", Path: "/v1/sessions/{name}/terminal"},
		{Method: "GET", Path: "/v1/status"},
		{Method: "GET", Path: "/v1/tools"},
		{Method: "POST", Path: "/v1/tools/call"},
		{Method: "POST", Path: "/v1/tools/translate"},
		{Method: "POST", Path: "/v1/unpack"},
		{Method: "GET", Path: "/v1/usage"},
		{Method: "GET", Path: "/vscode/connection_token"},
	}
	if got := contract.NewSpec(t).Routes(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Every example obeys its schema, and every action in one can be decoded.
func TestOpenAPIExamples(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	kinds := map[string]bool{}
	for _, e := range spec.Examples() {
		if e.Status != 0 {
			if err := spec.CheckResponse(e.Route.Method, e.Route.Path, e.Status, "application/json", e.Body); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
			continue
		}
		if err := spec.CheckRequest(e.Route.Method, e.Route.Path, "application/json", e.Body); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		var err error
		switch e.Route.Path {
		case "/execute_action", "/v1/actions":
			var r api.Request
			if r, err = api.DecodeRequest(e.Body); err == nil {
				kinds[r.Action.Kind()] = true
			}
		case "/mcp", "/mcp/messages/", "/messages/":
			err = api.CheckMCPMessage(e.Body)
		case "/list_files":
			_, err = api.DecodeListFiles(e.Body)
		case "/update_mcp_server":
			_, err = api.DecodeMCPServers(e.Body)
		case "/v1/claim":
			_, err = api.DecodeClaim(e.Body)
		case "/v1/restore":
			_, err = api.DecodeRestore(e.Body)
		case "/v1/checkpoints":
			_, err = api.DecodeCheckpoint(e.Body)
		case "/v1/renew":
			_, err = api.DecodeRenewal(e.Body)
		case "/v1/actions/{id}/resize":
			_, err = api.DecodeTTY(e.Body)
		case "/v1/actions/{id}/signal":
			_, err = api.DecodeProgramSignal(e.Body)
		case "/api/execution/tools":
			_, err = api.DecodeExecution(e.Body)
		case "/v1/tools/call", "/v1/tools/translate":
			_, err = api.DecodeToolCall(e.Body)
		default:
			t.Errorf("%s: no handler decodes %s", e.Name, e.Route.Path)
		}
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
	want := []string{"browse", "browse_interactive", "call_tool_mcp", "edit", "exec", "glob", "grep", "list_directory", "read", "run", "run_ipython", "write"}
	if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
		t.Errorf("actions in examples: got %v, want %v", got, want)
	}
}

// A closed door at every place where the stock client breaks on an unknown key.
func TestOpenAPIExtrasAreClosed(t *testing.T) {
	t.Parallel()
	doc := openAPI(t)
	schemas := at(t, doc, "components", "schemas")
	var names []string
	for name := range schemas {
		if !strings.HasSuffix(name, "Observation") || name == "Observation" || name == "LegacyObservation" {
			continue
		}
		names = append(names, name)
		extras := at(t, schemas, name, "properties", "extras")
		if ref, _ := extras["$ref"].(string); ref == "#/components/schemas/NoExtras" {
			continue
		}
		if extras["additionalProperties"] != false {
			t.Errorf("%s: extras are open", name)
		}
	}
	mapping := at(t, schemas, "Observation", "discriminator", "mapping")
	if len(names) != len(mapping) {
		t.Errorf("%d observations, %d in the mapping", len(names), len(mapping))
	}
}

// The discriminators name what the schemas say.
func TestOpenAPIDiscriminators(t *testing.T) {
	t.Parallel()
	schemas := at(t, openAPI(t), "components", "schemas")
	for _, union := range []struct{ name, key string }{{"Action", "action"}, {"Observation", "observation"}} {
		var listed, mapped []string
		for _, v := range at(t, schemas, union.name)["oneOf"].([]any) {
			listed = append(listed, v.(map[string]any)["$ref"].(string))
		}
		for kind, ref := range at(t, schemas, union.name, "discriminator", "mapping") {
			mapped = append(mapped, ref.(string))
			schema := at(t, schemas, strings.TrimPrefix(ref.(string), "#/components/schemas/"))
			if parts, ok := schema["allOf"].([]any); ok {
				schema = parts[1].(map[string]any)
			}
			if got := at(t, schema, "properties", union.key)["const"]; got != kind {
				t.Errorf("%s %q: the schema says %v", union.key, kind, got)
			}
		}
		slices.Sort(listed)
		slices.Sort(mapped)
		if !slices.Equal(listed, mapped) {
			t.Errorf("%s: lists %v, maps %v", union.name, listed, mapped)
		}
	}
}

func TestOpenAPIReferences(t *testing.T) {
	t.Parallel()
	doc := openAPI(t)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				at(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(doc)
}

// Generators of clients know no defaults of values without a type, and no union in which
// several objects may fit at once.
func TestOpenAPIGenerates(t *testing.T) {
	t.Parallel()
	gateway := map[string]any{}
	if err := yaml.Unmarshal(api.GatewayOpenAPI, &gateway); err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]map[string]any{"openapi.yaml": openAPI(t), "gateway.yaml": gateway} {
		var walk func(path string, v any)
		walk = func(path string, v any) {
			switch v := v.(type) {
			case []any:
				for i, e := range v {
					walk(fmt.Sprint(path, "/", i), e)
				}
			case map[string]any:
				if _, ok := v["default"]; ok && v["type"] == nil && !strings.HasSuffix(path, "/properties") && !strings.HasSuffix(path, "/responses") {
					t.Errorf("%s: a default without a type", path)
				}
				objects := 0
				union, _ := v["anyOf"].([]any)
				for _, e := range union {
					schema, _ := e.(map[string]any)
					if ref, ok := schema["$ref"].(string); ok {
						schema = at(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
					}
					if schema["type"] == "object" {
						objects++
					}
				}
				if objects > 1 {
					t.Errorf("%s: anyOf with %d objects", path, objects)
				}
				for k, e := range v {
					walk(path+"/"+k, e)
				}
			}
		}
		walk(name, doc)
	}
}

func openAPI(t *testing.T) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at follows names through objects.
func at(t *testing.T, v map[string]any, names ...string) map[string]any {
	t.Helper()
	for _, name := range names {
		next, ok := v[name].(map[string]any)
		if !ok {
			t.Fatalf("no %q in %v", name, names)
		}
		v = next
	}
	return v
}
