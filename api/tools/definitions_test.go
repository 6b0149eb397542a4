package tools_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/testhelp"
)

// The definitions as model APIs get them, to be read by people. UPDATE=1
// rewrites the files.
func TestDefinitionsGolden(t *testing.T) {
	t.Parallel()
	for _, dialect := range tools.Dialects() {
		for _, format := range tools.Formats {
			body, err := tools.EncodeDefinitions(tools.Definitions(dialect, everything), format)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			golden(t, filepath.Join("testdata", "definitions", dialect+"."+format+".json"), got.Bytes())
		}
	}
}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		testhelp.WriteFile(t, path, string(got), 0o644)
		return
	}
	want := testhelp.ReadFile(t, path)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: differs; run make update and read the diff", path)
	}
}

// Every schema is JSON Schema, and the example in the description obeys it and
// can be called.
func TestDefinitionsAreSchemas(t *testing.T) {
	t.Parallel()
	for _, dialect := range tools.Dialects() {
		for _, d := range tools.Definitions(dialect, everything) {
			t.Run(dialect+" "+d.Name, func(t *testing.T) {
				t.Parallel()
				doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.Schema))
				if err != nil {
					t.Fatal(err)
				}
				c := jsonschema.NewCompiler()
				c.DefaultDraft(jsonschema.Draft2020)
				if err := c.AddResource("schema.json", doc); err != nil {
					t.Fatal(err)
				}
				schema, err := c.Compile("schema.json") // by the meta-schema
				if err != nil {
					t.Fatal(err)
				}
				about, example, ok := strings.Cut(d.Description, "\nExample: ")
				if !ok || len(about) < 80 {
					t.Fatalf("the description is short or has no example: %q", d.Description)
				}
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(example))
				if err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(value); err != nil {
					t.Error(err)
				}
				if _, problem := tools.Parse(dialect, d.Name, example); problem != nil {
					t.Error(problem)
				}
				for _, wrong := range []string{`{"no_such_argument":1}`, `[]`} {
					value, err := jsonschema.UnmarshalJSON(strings.NewReader(wrong))
					if err != nil {
						t.Fatal(err)
					}
					if schema.Validate(value) == nil {
						t.Errorf("the schema allows %s", wrong)
					}
				}
				undescribed(t, doc.(map[string]any))
			})
		}
	}
}

// undescribed finds arguments that the model is told nothing of.
func undescribed(t *testing.T, schema map[string]any) {
	t.Helper()
	for name, p := range schema["properties"].(map[string]any) {
		p := p.(map[string]any)
		if text, _ := p["description"].(string); text == "" {
			t.Errorf("%s has no description", name)
		}
		if items, ok := p["items"].(map[string]any); ok && items["properties"] != nil {
			undescribed(t, items)
		}
	}
}

// Gemini's API takes a part of OpenAPI's schemas and refuses the rest.
func TestGeminiSchemas(t *testing.T) {
	t.Parallel()
	known := []string{"type", "description", "properties", "required", "enum", "items", "minimum", "minItems", "maxItems"}
	var walk func(schema map[string]any)
	walk = func(schema map[string]any) {
		for key, v := range schema {
			if !slices.Contains(known, key) {
				t.Errorf("%q in %v", key, schema)
			}
			switch v := v.(type) {
			case string:
				if key == "type" && v != strings.ToUpper(v) {
					t.Errorf("type %q", v)
				}
			case map[string]any:
				if key == "items" {
					walk(v)
					continue
				}
				for _, p := range v {
					walk(p.(map[string]any))
				}
			}
		}
	}
	for _, dialect := range tools.Dialects() {
		body, err := tools.EncodeDefinitions(tools.Definitions(dialect, everything), "gemini")
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Tools []struct {
				FunctionDeclarations []struct{ Parameters map[string]any }
			}
		}
		if err := json.Unmarshal(body, &list); err != nil || len(list.Tools) != 1 {
			t.Fatalf("%s: %v", body, err)
		}
		for _, f := range list.Tools[0].FunctionDeclarations {
			walk(f.Parameters)
		}
	}
}

// A tool that a sandbox cannot run is not offered.
func TestDefinitionsOfWhatThereIs(t *testing.T) {
	t.Parallel()
	names := func(dialect string, can ...string) string {
		var names []string
		for _, d := range tools.Definitions(dialect, func(action string) bool { return slices.Contains(can, action) }) {
			names = append(names, d.Name)
		}
		return strings.Join(names, " ")
	}
	for _, tt := range []struct {
		dialect string
		can     []string
		want    string
	}{
		{"", []string{"run", "edit"}, "execute_bash str_replace_editor edit_file think finish task_tracker"},
		{"openhands", []string{"run", "edit", "run_ipython", "browse_interactive"}, "execute_bash execute_ipython_cell str_replace_editor edit_file browser think finish task_tracker"},
		{"openhands-v1", []string{"run", "edit", "glob"}, "terminal file_editor apply_patch glob think finish task_tracker"},
		{"gemini", []string{"read", "write", "edit", "list_directory", "glob", "grep", "run"}, "read_file write_file replace list_directory glob grep_search run_shell_command"},
		{"strands", nil, ""},
		{"anthropic", []string{"run", "edit"}, "bash str_replace_based_edit_tool"},
		{"strands", []string{"workspace_changes", "workspace_undo"}, "workspace_changes workspace_undo"},
		{"actiond", []string{"run", "read", "edit", "grep", "workspace_changes", "workspace_undo"}, "bash read edit search changes undo"},
		{"nobody's", []string{"run"}, ""},
	} {
		if got := names(tt.dialect, tt.can...); got != tt.want {
			t.Errorf("%s with %v: got %q, want %q", tt.dialect, tt.can, got, tt.want)
		}
	}
}
