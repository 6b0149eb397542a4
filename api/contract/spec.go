// Package contract holds servers to the contract of package api. Only tests
// import it.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/actiond/actiond/api"
)

// docURL names the document for the schema compiler; nothing is fetched.
const docURL = "https://actiond.invalid/openapi.json"

// Spec is the OpenAPI document, compiled to validate requests and answers. It may be
// used concurrently.
type Spec struct {
	operations map[Route]operation
	schemas    map[string]*jsonschema.Schema
	examples   []Example
}

// Route is one operation of the document.
type Route struct {
	// Method is in capitals.
	Method string
	// Path is a template such as "/v1/sessions/{name}".
	Path string
}

// Example is one example of the document, as JSON.
type Example struct {
	Route Route
	// Status is the status of the answer, 0 for a request.
	Status int
	// Name is the example's, "" where the media type has just one.
	Name string
	Body []byte
}

// operation describes a route.
type operation struct {
	open    bool
	request media
	// answers maps a status to the media types it may have.
	answers map[string]media
}

// media maps a media type to its schema, nil where any content will do.
type media map[string]*jsonschema.Schema

// NewSpec reads api.OpenAPI and compiles every schema in it. A document that
// is not valid, a reference to nothing included, ends the test.
func NewSpec(tb testing.TB) *Spec {
	tb.Helper()
	s, err := newSpec(api.OpenAPI)
	if err != nil {
		tb.Fatalf("openapi.yaml: %v", err)
	}
	return s
}

// NewGatewaySpec is NewSpec for api.GatewayOpenAPI.
func NewGatewaySpec(tb testing.TB) *Spec {
	tb.Helper()
	s, err := newSpec(api.GatewayOpenAPI)
	if err != nil {
		tb.Fatalf("gateway.yaml: %v", err)
	}
	return s
}

func newSpec(document []byte) (*Spec, error) {
	var fromYAML any
	if err := yaml.Unmarshal(document, &fromYAML); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(fromYAML)
	if err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, err
	}
	r := reader{
		root:     root,
		compiler: jsonschema.NewCompiler(),
		spec:     &Spec{operations: map[Route]operation{}, schemas: map[string]*jsonschema.Schema{}},
	}
	r.compiler.DefaultDraft(jsonschema.Draft2020)
	r.compiler.AssertFormat()
	if err := r.compiler.AddResource(docURL, root); err != nil {
		return nil, err
	}
	r.read()
	return r.spec, r.err
}

// Routes returns every operation, sorted by path and method.
func (s *Spec) Routes() []Route {
	return slices.SortedFunc(maps.Keys(s.operations), func(a, b Route) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
}

// Open reports whether a route requires no key.
func (s *Spec) Open(r Route) bool { return s.operations[r].open }

// Examples returns every example of the document.
func (s *Spec) Examples() []Example { return s.examples }

// CheckResponse validates the route, the status, the content type and the body of an
// answer. path is the template.
func (s *Spec) CheckResponse(method, path string, status int, contentType string, body []byte) error {
	where := fmt.Sprintf("%s %s: %d", method, path, status)
	op, ok := s.operations[Route{method, path}]
	if !ok {
		return fmt.Errorf("%s: no such operation", where)
	}
	answer, ok := op.answers[strconv.Itoa(status)]
	if !ok {
		return fmt.Errorf("%s: not among %v; body %.200q", where, slices.Sorted(maps.Keys(op.answers)), body)
	}
	if len(answer) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("%s: has a body: %.200q", where, body)
		}
		return nil
	}
	if err := answer.check(contentType, body); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// CheckRequest validates a request.
func (s *Spec) CheckRequest(method, path, contentType string, body []byte) error {
	op, ok := s.operations[Route{method, path}]
	if !ok {
		return fmt.Errorf("%s %s: no such operation", method, path)
	}
	if err := op.request.check(contentType, body); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Check validates JSON by a schema of the document's components.
func (s *Spec) Check(schema string, body []byte) error {
	sch, ok := s.schemas[schema]
	if !ok {
		return fmt.Errorf("no schema %q", schema)
	}
	return validate(sch, body)
}

func (m media) check(contentType string, body []byte) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type %q: %w", contentType, err)
	}
	schema, ok := m[mediaType]
	if !ok {
		return fmt.Errorf("content type %q: not among %v", contentType, slices.Sorted(maps.Keys(m)))
	}
	switch {
	case schema == nil:
		return nil
	case mediaType == "application/json":
		return validate(schema, body)
	case mediaType == "application/x-ndjson":
		return validateLines(schema, "", body)
	case mediaType == "text/event-stream":
		return validateLines(schema, "data: ", body)
	}
	return nil
}

// validateLines validates the text after the prefix in each line that has it.
func validateLines(schema *jsonschema.Schema, prefix string, body []byte) error {
	for line := range bytes.Lines(body) {
		data, found := bytes.CutPrefix(line, []byte(prefix))
		if !found {
			continue
		}
		if err := validate(schema, data); err != nil {
			return err
		}
	}
	return nil
}

func validate(schema *jsonschema.Schema, body []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("body %.200q: %w", body, err)
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("body %.200q: %w", body, err)
	}
	return nil
}

// reader walks the document and keeps its first error.
type reader struct {
	root     any
	compiler *jsonschema.Compiler
	spec     *Spec
	err      error
}

// node is a value of the document and the JSON pointer to it.
type node struct {
	value   map[string]any
	pointer string
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// child follows a name, and a reference in its place.
func (r *reader) child(n node, name string) (node, bool) {
	v, ok := n.value[name]
	if !ok {
		return node{}, false
	}
	c := node{pointer: n.pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)}
	c.value, ok = v.(map[string]any)
	if !ok {
		r.fail("%s: no object", c.pointer)
		return node{}, false
	}
	ref, isRef := c.value["$ref"].(string)
	if !isRef {
		return c, true
	}
	target, ok := strings.CutPrefix(ref, "#/")
	c = node{value: r.root.(map[string]any)}
	for part := range strings.SplitSeq(target, "/") {
		if !ok {
			break
		}
		c, ok = r.child(c, part)
	}
	if !ok {
		r.fail("reference %q leads nowhere", ref)
	}
	return c, ok
}

// children calls f for every child, in order.
func (r *reader) children(n node, name string, f func(name string, c node)) {
	parent, ok := r.child(n, name)
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(parent.value)) {
		if c, ok := r.child(parent, name); ok {
			f(name, c)
		}
	}
}

func (r *reader) read() {
	doc, ok := r.root.(map[string]any)
	if version, _ := doc["openapi"].(string); !ok || !strings.HasPrefix(version, "3.1.") {
		r.fail("openapi %q, want 3.1", doc["openapi"])
		return
	}
	root := node{value: doc}
	components, _ := r.child(root, "components")
	r.children(components, "schemas", func(name string, c node) {
		r.spec.schemas[name] = r.compile(c)
	})
	r.children(root, "paths", func(path string, item node) {
		for _, method := range []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"} {
			if op, ok := r.child(item, method); ok {
				r.operation(Route{Method: strings.ToUpper(method), Path: path}, op)
			}
		}
	})
}

func (r *reader) operation(route Route, n node) {
	op := operation{answers: map[string]media{}}
	security, declared := n.value["security"].([]any)
	op.open = declared && len(security) == 0
	if body, ok := r.child(n, "requestBody"); ok {
		op.request = r.media(body, Example{Route: route})
	}
	r.children(n, "responses", func(status string, answer node) {
		code, err := strconv.Atoi(status)
		if err != nil {
			r.fail("%s: %q is no status", answer.pointer, status)
		}
		op.answers[status] = r.media(answer, Example{Route: route, Status: code})
	})
	r.spec.operations[route] = op
}

// media reads the content of a request or an answer, and its examples.
func (r *reader) media(n node, example Example) media {
	m := media{}
	r.children(n, "content", func(mediaType string, c node) {
		m[mediaType] = nil
		if schema, ok := r.child(c, "schema"); ok {
			m[mediaType] = r.compile(schema)
		}
		if v, ok := c.value["example"]; ok {
			r.example(example, "", v)
		}
		r.children(c, "examples", func(name string, e node) {
			r.example(example, name, e.value["value"])
		})
	})
	return m
}

func (r *reader) example(e Example, name string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		r.fail("%s %s: example %s: %w", e.Route.Method, e.Route.Path, name, err)
	}
	e.Name, e.Body = name, body
	r.spec.examples = append(r.spec.examples, e)
}

func (r *reader) compile(n node) *jsonschema.Schema {
	fragment := (&url.URL{Fragment: n.pointer}).EscapedFragment()
	schema, err := r.compiler.Compile(docURL + "#" + fragment)
	if err != nil {
		r.fail("%s: %w", n.pointer, err)
	}
	return schema
}
