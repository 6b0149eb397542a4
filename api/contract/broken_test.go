package contract

import (
	"strings"
	"testing"
)

// A document that is wrong must not pass for one that says little.
func TestNewSpecRefuses(t *testing.T) {
	t.Parallel()
	const head = "openapi: 3.1.0\ncomponents:\n  schemas:\n    A: {type: string}\n"
	path := func(schema string) string {
		return head + "paths:\n  /a:\n    get:\n      responses:\n        \"200\":\n          content:\n            application/json:\n              schema: " + schema + "\n"
	}
	tests := []struct{ name, document, want string }{
		{"right", path(`{$ref: "#/components/schemas/A"}`), ""},
		{"no YAML", "{", "yaml"},
		{"other version", "openapi: 3.0.0", "want 3.1"},
		{"reference to nothing", path(`{$ref: "#/components/schemas/B"}`), "leads nowhere"},
		{"reference to nothing within", path(`{type: array, items: {$ref: "#/components/schemas/B"}}`), "B"},
		{"no schema", path(`{type: strin}`), "type"},
		{"no status", strings.Replace(path(`{type: string}`), `"200"`, "ok", 1), "no status"},
		{"response to nothing", head + "paths:\n  /a:\n    get:\n      responses:\n        \"200\": {$ref: \"#/components/responses/X\"}\n", "leads nowhere"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := newSpec([]byte(tt.document))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
