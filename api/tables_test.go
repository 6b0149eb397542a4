package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The tables of actions and observations say what the document says: the kinds,
// the names of arguments and extras, and the arguments that must come.
func TestTablesMatchOpenAPI(t *testing.T) {
	t.Parallel()
	var doc struct {
		Components struct {
			Schemas map[string]schema
		}
	}
	if err := yaml.Unmarshal(OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	old := []string{"is_confirmed", "keep_prompt", "task_completed", "timestamp", "translated_ipython_code"} // see modernize
	if got, want := slices.Sorted(maps.Keys(actionShapes)), slices.Sorted(maps.Keys(schemas["Action"].Discriminator.Mapping)); !slices.Equal(got, want) {
		t.Errorf("actions: got %v, the document has %v", got, want)
	}
	for kind, s := range actionShapes {
		args := schemas[schemas["Action"].target(kind)].AllOf[1].Properties["args"]
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(args.Properties)), func(name string) bool { return slices.Contains(old, name) })
		got := slices.Clone(s.ignored)
		for _, f := range s.fields() {
			got = append(got, f.name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("arguments of %s: got %v, the document has %v", kind, got, want)
		}
		if !slices.Equal(slices.Sorted(slices.Values(s.required)), slices.Sorted(slices.Values(args.Required))) {
			t.Errorf("required arguments of %s: got %v, the document has %v", kind, s.required, args.Required)
		}
	}
	if got, want := slices.Sorted(maps.Keys(observationShapes)), slices.Sorted(maps.Keys(schemas["Observation"].Discriminator.Mapping)); !slices.Equal(got, want) {
		t.Errorf("observations: got %v, the document has %v", got, want)
	}
	for kind, s := range observationShapes {
		body, err := EncodeObservation(s.absent.Interface().(Observation))
		if err != nil {
			t.Fatal(err)
		}
		var sent struct{ Extras map[string]any }
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		extras := schemas[schemas["Observation"].target(kind)].Properties["extras"]
		got, sometimes := slices.Sorted(maps.Keys(sent.Extras)), 0
		for _, f := range s.fields() {
			if _, ok := sent.Extras[f.name]; !ok { // of a running program alone
				got = append(got, f.name)
				sometimes++
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(maps.Keys(extras.Properties)); !slices.Equal(got, want) {
			t.Errorf("extras of %s: got %v, the document has %v", kind, got, want)
		}
		if sometimes > 0 && len(extras.Required)+sometimes > len(got) {
			t.Errorf("extras of %s: %v are required, and not always there", kind, extras.Required)
		}
	}
}

// schema is the part of a JSON schema that the tables say too.
type schema struct {
	AllOf         []schema `yaml:"allOf"`
	Properties    map[string]schema
	Required      []string
	Discriminator struct{ Mapping map[string]string }
}

// UnmarshalYAML leaves out schemas that are true or false.
func (s *schema) UnmarshalYAML(node *yaml.Node) error {
	type plain schema
	if node.Kind != yaml.MappingNode {
		return nil
	}
	return node.Decode((*plain)(s))
}

// target is the name of the schema of a kind.
func (s schema) target(kind string) string {
	return strings.TrimPrefix(s.Discriminator.Mapping[kind], "#/components/schemas/")
}
