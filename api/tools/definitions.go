package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// Definition describes a tool for a model.
type Definition struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments.
	Schema json.RawMessage
	// Action is the kind of the tool's actions, NeedsChanges or NeedsUndo, or "" if it does not use the sandbox.
	Action string

	params []param
}

// Definitions returns the tools of a dialect that a sandbox supports: those that need an
// action, such as "run_ipython", NeedsChanges or NeedsUndo, for which can returns true, and those that need none. An
// unknown dialect has no tools.
func Definitions(dialect string, can func(action string) bool) []Definition {
	list := []Definition{}
	for _, t := range dialects()[cmp.Or(dialect, Default)] {
		if t.needs != "" && !can(t.needs) {
			continue
		}
		list = append(list, Definition{
			Name: t.name, Description: t.about + "\nExample: " + t.example,
			Schema: marshal(schema(t.params, false)), Action: t.needs, params: t.params,
		})
	}
	return list
}

// Formats are the formats of EncodeDefinitions, the default one first.
var Formats = []string{"openai", "openai-responses", "anthropic", "gemini", "mcp"}

// EncodeDefinitions returns the JSON {"tools": [...]} in the format of a model API; an
// empty format is the default one. An unknown format is an error.
func EncodeDefinitions(list []Definition, format string) ([]byte, error) {
	if err := CheckFormat(format); err != nil {
		return nil, err
	}
	tools := make([]any, 0, len(list))
	for _, d := range list {
		named := ordered{{"name", d.Name}, {"description", d.Description}}
		switch format {
		case "", "openai":
			tools = append(tools, ordered{{"type", "function"}, {"function", append(named, member{"parameters", d.Schema})}})
		case "openai-responses": // this API makes schemas strict, with all arguments required, where it is not told
			tools = append(tools, append(append(ordered{{"type", "function"}}, named...), member{"parameters", d.Schema}, member{"strict", false}))
		case "anthropic":
			tools = append(tools, append(named, member{"input_schema", d.Schema}))
		case "gemini":
			tools = append(tools, append(named, member{"parameters", schema(d.params, true)}))
		case "mcp":
			tools = append(tools, append(named, member{"inputSchema", d.Schema}))
		}
	}
	if format == "gemini" {
		tools = []any{ordered{{"functionDeclarations", tools}}}
	}
	return marshal(ordered{{"tools", tools}}), nil
}

// schema describes an object with these members: as JSON Schema, or in the part
// of OpenAPI's schemas that Gemini's API takes, where types are in capitals and
// nothing is said about other members.
func schema(params []param, forGemini bool) ordered {
	properties, required := ordered{}, []string{}
	for i := range params {
		p := &params[i]
		if p.hidden {
			continue
		}
		properties = append(properties, member{p.name, p.schema(forGemini)})
		if p.required {
			required = append(required, p.name)
		}
	}
	s := ordered{{"type", typeName("object", forGemini)}, {"properties", properties}}
	if len(required) > 0 {
		s = append(s, member{"required", required})
	}
	if !forGemini {
		s = append(s, member{"additionalProperties", false})
	}
	return s
}

// schema describes one argument.
func (p *param) schema(forGemini bool) ordered {
	kind, items := "string", any(nil)
	enum := p.enum
	switch p.kind {
	case integer, lineNumber:
		kind = "integer"
	case seconds:
		kind = "number"
	case flag:
		kind = "boolean"
		if p.words {
			kind, enum = "string", []string{"true", "false"}
		}
	case integers:
		kind, items = "array", ordered{{"type", typeName("integer", forGemini)}}
	case texts:
		kind, items = "array", ordered{{"type", typeName("string", forGemini)}}
	case objects:
		kind, items = "array", schema(p.items, forGemini)
	case object:
		kind = "object"
	case text, anything: // the only one that is offered is a word
	}
	s := ordered{{"type", typeName(kind, forGemini)}, {"description", p.about}}
	if enum != nil {
		s = append(s, member{"enum", enum})
	}
	if p.min != nil {
		s = append(s, member{"minimum", *p.min})
	}
	if items != nil {
		s = append(s, member{"items", items})
	}
	if p.length > 0 {
		s = append(s, member{"minItems", p.length}, member{"maxItems", p.length})
	}
	return s
}

func typeName(name string, forGemini bool) string {
	if forGemini {
		return strings.ToUpper(name)
	}
	return name
}

// ordered is a JSON object whose members keep their order, with the name first for human
// readers.
type ordered []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, marshal(m.name)...), ':'), marshal(m.value)...)
	}
	return append(b, '}'), nil
}

// marshal encodes strings, numbers, lists of them and objects, which cannot
// fail, and leaves < and > readable.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("definitions hold what JSON cannot say: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
