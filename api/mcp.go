package api

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// MCPAction calls a tool of an MCP server. OpenHands' controllers call it themselves, over
// /mcp/sse; others may send it to the sandbox.
type MCPAction struct {
	// Name is the tool.
	Name string `json:"name"`
	// Arguments are free-form and travel as {} when nil. Decoded numbers are
	// json.Number.
	Arguments map[string]any `json:"arguments"`
	Common
}

// MCPObservation is the result of a tool call.
type MCPObservation struct {
	// Content is the result as JSON text: meta, content, structuredContent, isError.
	Content string `json:"-"`
	// Name and Arguments repeat the call. Decoded numbers are json.Number.
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}

// MCPResult is the answer of a tool of an MCP server.
type MCPResult struct {
	// Meta, Content and Structured are JSON: an object or null, a list of
	// contents, any value or null.
	Meta, Content, Structured []byte
	IsError                   bool
}

// mcpFailed ends the content of an MCPObservation whose tool failed.
const mcpFailed = `, "isError": true}`

// Text returns the result as the content of an MCPObservation, with the members
// and the spaces that OpenHands' client gives it.
func (r MCPResult) Text() string {
	return fmt.Sprintf(`{"meta": %s, "content": %s, "structuredContent": %s, "isError": %t}`, r.Meta, r.Content,
		r.Structured, r.IsError)
}

// CheckMCPMessage refuses, with an *Error of status 400, anything but a JSON-RPC message:
// an object of version 2.0 with a method, or with an id and a result or an error.
func CheckMCPMessage(body []byte) error {
	if err := checkMessage(body); err != nil {
		return BadRequest("Could not parse message: " + err.Error())
	}
	return nil
}

func checkMessage(body []byte) error {
	scan, err := newScanner(body, maxValues)
	if err != nil {
		return err
	}
	sent := members{}
	err = scan.object(`an object {"jsonrpc": "2.0", …}`, func(name string) error {
		switch name {
		case "jsonrpc", "method", "id", "error":
			return sent.read(scan, name)
		case "result": // only its presence matters
			sent[name] = nil
		}
		return scan.skip()
	})
	if err == nil {
		err = scan.end()
	}
	if err != nil {
		return err
	}
	v, d := decode(messageShape, "member", sent, true)
	m := v.(message)
	_, result := sent["result"]
	failure, failed := sent["error"]
	id, hasID := sent["id"]
	hasID = hasID && id.Kind() != 'n'
	if _, whole := Integral(string(id)); hasID && !whole && id.Kind() != '"' {
		d.refuse("id", "a string or an integer")
	}
	var told struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if failed && json.Unmarshal(failure, &told) != nil {
		d.refuse("error", `null or an object {"code": integer, "message": string}`)
	}
	switch err := d.check(); {
	case err != nil:
		return err
	case m.Version != "2.0":
		return fmt.Errorf(`"jsonrpc" must be "2.0", got %s`, Excerpt(m.Version))
	case m.Method == nil && (!hasID || result == failed):
		return fmt.Errorf(`there must be a "method", or an "id" and either a "result" or an "error"`)
	}
	return nil
}

// message holds the members of every JSON-RPC message.
type message struct {
	Version string  `json:"jsonrpc"`
	Method  *string `json:"method"`
}

var messageShape = openShapeOf(message{}, "jsonrpc")
