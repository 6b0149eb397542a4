package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// docs/reference/api.md lists the arguments of each action and the members of each
// observation, as the description has them. UPDATE=1 rewrites it.
func TestReferencePage(t *testing.T) {
	t.Parallel()
	const page = "../docs/reference/api.md"
	want := referencePage(t)
	if os.Getenv("UPDATE") != "" {
		testhelp.WriteFile(t, page, want, 0o644)
	}
	got := testhelp.ReadFile(t, page)
	if string(got) != want {
		t.Errorf("%s differs from the description: run make update", page)
	}
}

func referencePage(t *testing.T) string {
	t.Helper()
	r := reference{schemas: at(t, openAPI(t), "components", "schemas")}
	r.printf("# Actions and observations\n\nThe tests generate this page from [openapi.yaml](../../api/openapi.yaml): `make update` rewrites it.\n")
	r.printf("A request is `{\"action\": {\"action\": NAME, \"args\": {…}}}`, posted to `/execute_action` or `/v1/actions`. An argument in **bold** is required; deprecated arguments are left out.\n")
	r.printf("\n## Beside `args`\n")
	envelope := at(t, r.schemas, "ActionEnvelope")
	properties := maps.Clone(at(t, envelope, "properties"))
	delete(properties, "action")
	delete(properties, "args")
	r.table("member", map[string]any{"properties": properties})
	r.printf("\n## Actions\n\nEvery action takes these arguments, too:\n")
	common := map[string]any{
		"security_risk": map[string]any{"$ref": "#/components/schemas/SecurityRisk"},
		"thought":       map[string]any{"$ref": "#/components/schemas/Thought"},
	}
	r.table("argument", map[string]any{"properties": common})
	for _, name := range slices.Sorted(maps.Keys(at(t, r.schemas, "Action", "discriminator", "mapping"))) {
		action := r.resolve(map[string]any{"$ref": at(t, r.schemas, "Action", "discriminator", "mapping")[name]})
		r.printf("\n### %s\n\n%s\n", name, r.text(action))
		args := maps.Clone(at(t, action["allOf"].([]any)[1].(map[string]any), "properties", "args"))
		properties := maps.Clone(at(t, args, "properties"))
		for name := range common {
			delete(properties, name)
		}
		args["properties"] = properties
		r.table("argument", args)
	}
	r.printf("\n## Observations\n\nEvery observation has `message` (one sentence), `observation` (its kind), `content` (text) and `extras`.\n")
	for _, name := range slices.Sorted(maps.Keys(at(t, r.schemas, "Observation", "discriminator", "mapping"))) {
		observation := r.resolve(map[string]any{"$ref": at(t, r.schemas, "Observation", "discriminator", "mapping")[name]})
		r.printf("\n### %s\n", name)
		properties := maps.Clone(at(t, observation, "properties"))
		for _, common := range []string{"message", "observation", "extras"} {
			delete(properties, common)
		}
		if r.text(properties["content"].(map[string]any)) == "" {
			delete(properties, "content")
		}
		if len(properties) > 0 {
			r.table("member", map[string]any{"properties": properties, "required": observation["required"]})
		}
		extras := r.resolve(at(t, observation, "properties", "extras"))
		if extras["properties"] == nil {
			r.printf("\n`extras` is empty.\n")
			continue
		}
		r.table("in `extras`", extras)
	}
	return r.page.String()
}

// reference writes the page.
type reference struct {
	page    strings.Builder
	schemas map[string]any
}

func (r *reference) printf(format string, args ...any) { fmt.Fprintf(&r.page, format, args...) }

// resolve follows a reference; the members beside it win.
func (r *reference) resolve(schema map[string]any) map[string]any {
	ref, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	target := maps.Clone(r.schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any))
	maps.Copy(target, schema)
	delete(target, "$ref")
	return r.resolve(target)
}

func (r *reference) text(schema map[string]any) string {
	description, _ := r.resolve(schema)["description"].(string)
	return strings.Join(strings.Fields(description), " ")
}

func (r *reference) table(head string, object map[string]any) {
	required, _ := object["required"].([]any)
	properties := object["properties"].(map[string]any)
	r.printf("\n| %s | type | default | meaning |\n|---|---|---|---|\n", head)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		schema := r.resolve(properties[name].(map[string]any))
		if schema["deprecated"] == true {
			continue
		}
		shown := "`" + name + "`"
		if slices.Contains(required, any(name)) {
			shown = "**" + shown + "**"
		}
		byDefault := ""
		if value, ok := schema["default"]; ok && value != "" {
			encoded, err := json.Marshal(value)
			if err != nil {
				panic(err) // it was YAML, so it has a form in JSON
			}
			byDefault = fmt.Sprintf("`%s`", encoded)
		}
		r.printf("| %s | %s | %s | %s |\n", shown, r.kind(schema), byDefault, strings.ReplaceAll(r.text(schema), "|", "\\|"))
	}
}

// kind names the JSON type of a schema, such as "string or null".
func (r *reference) kind(schema map[string]any) string {
	schema = r.resolve(schema)
	if value, ok := schema["const"]; ok {
		return fmt.Sprintf("`%v`", value)
	}
	if values, ok := schema["enum"].([]any); ok {
		var words []string
		for _, value := range values {
			switch value {
			case "":
			case nil:
				words = append(words, "null")
			default:
				words = append(words, fmt.Sprintf("`%v`", value))
			}
		}
		return strings.Join(words, ", ")
	}
	if options, ok := schema["anyOf"].([]any); ok {
		var words []string
		for _, option := range options {
			words = append(words, r.kind(option.(map[string]any)))
		}
		return strings.Join(words, " or ")
	}
	switch kind := schema["type"].(type) {
	case string:
		if items, ok := schema["items"].(map[string]any); ok && kind == "array" {
			return "array of " + r.kind(items)
		}
		return kind
	case []any:
		var words []string
		for _, one := range kind {
			schema := maps.Clone(schema)
			schema["type"] = one
			words = append(words, r.kind(schema))
		}
		return strings.Join(words, " or ")
	default:
		return "any"
	}
}
