package api

import (
	"fmt"
	"net/http"
)

// MCPAction calls a tool of an MCP server. OpenHands' controllers carry it out
// themselves, over /mcp/sse; others may leave it to the sandbox.
type MCPAction struct {
	Common
	// Name is the tool.
	Name string
	// Arguments are free-form. Decoded numbers are json.Number.
	Arguments map[string]any
}

// Kind returns "call_tool_mcp".
func (MCPAction) Kind() string { return "call_tool_mcp" }
func (MCPAction) action()      {}

func decodeMCP(f *fields) Action {
	return MCPAction{Common: decodeCommon(f), Name: f.needText("name"), Arguments: f.object("arguments")}
}

func (a MCPAction) encodeArgs(w *writer) {
	w.text("name", a.Name)
	w.object("arguments", a.Arguments)
	a.encodeCommon(w)
}

// MCPObservation is the result of a tool call.
type MCPObservation struct {
	// Content is the result as JSON text: meta, content, structuredContent, isError.
	Content string
	// Name and Arguments repeat the call. Decoded numbers are json.Number.
	Name      string
	Arguments map[string]any
}

// Kind returns "mcp".
func (MCPObservation) Kind() string { return "mcp" }
func (MCPObservation) observation() {}

func (o MCPObservation) encode(w *writer) {
	w.head(o.Content, o.Kind(), o.Content)
	w.text("name", o.Name)
	w.object("arguments", o.Arguments)
	w.close()
	w.close()
}

func decodeMCPObservation(content string, f *fields) Observation {
	return MCPObservation{Content: content, Name: f.text("name", ""), Arguments: f.object("arguments")}
}

// MCPResult is what a tool of an MCP server answered.
type MCPResult struct {
	// Meta, Content and Structured are JSON: an object or null, a list of
	// contents, any value or null.
	Meta, Content, Structured []byte
	IsError                   bool
}

// Text returns the result as the content of an MCPObservation, with the members
// and the spaces that OpenHands' client gives it.
func (r MCPResult) Text() string {
	return fmt.Sprintf(`{"meta": %s, "content": %s, "structuredContent": %s, "isError": %t}`, r.Meta, r.Content, r.Structured, r.IsError)
}

// CheckMCPMessage refuses what is no JSON-RPC message, with an *Error of status
// 400: an object of version 2.0 with a method, or with an id and a result or an
// error.
func CheckMCPMessage(body []byte) error {
	if err := checkMessage(body); err != nil {
		return &Error{Status: http.StatusBadRequest, Detail: "Could not parse message: " + err.Error()}
	}
	return nil
}

func checkMessage(body []byte) error {
	p, err := newParser(body)
	if err != nil {
		return err
	}
	p.budget = maxArgs
	if p.peek() != '{' {
		return p.noObject(`an object {"jsonrpc": "2.0", …}`)
	}
	f := &fields{of: "member", values: map[string]any{}}
	err = p.object(func(name string) (err error) {
		switch name {
		case "jsonrpc", "method", "id":
			f.values[name], err = p.value()
			return err
		case "result", "error", "params":
			f.values[name] = nil // that it came is all there is to know
		}
		return p.skip()
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return err
	}
	return f.checkMessage()
}

func (f *fields) checkMessage() error {
	version, method := f.needText("jsonrpc"), f.textOrNil("method")
	id, _ := f.take("id")
	_, result := f.take("result")
	_, failed := f.take("error")
	if _, ok := id.(string); id != nil && !ok {
		if _, ok := integral(id); !ok {
			f.complain("id", id, "a string or an integer")
		}
	}
	switch err := f.check(); {
	case err != nil:
		return err
	case version != "2.0":
		return fmt.Errorf(`"jsonrpc" must be "2.0", got %s`, excerpt(version))
	case method == nil && (id == nil || result == failed):
		return fmt.Errorf(`there must be a "method", or an "id" and either a "result" or an "error"`)
	}
	return nil
}
