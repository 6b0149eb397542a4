package api

// MCPAction calls a tool of an MCP server. The protocol knows it by name and
// lets the controller carry it out, so DecodeRequest refuses it.
type MCPAction struct {
	Common
	// Name is the tool.
	Name string
	// Arguments are free-form.
	Arguments map[string]any
}

// Kind returns "call_tool_mcp".
func (MCPAction) Kind() string { return "call_tool_mcp" }
func (MCPAction) action()      {}

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
