//nolint:revive // the comment above each list describes all of its methods
package api

// sentences returns an observation as text for people: its message, and the content below.
func sentences(o Observation) string {
	w := o.wire()
	if w.Content == "" || w.Content == w.Message {
		return w.Message
	}
	return w.Message + "\n" + w.Content
}

// The observations are Stringers for logs and examples; [Content] returns the text for an agent.

func (o RunObservation) String() string          { return sentences(o) }
func (o ExecObservation) String() string         { return sentences(o) }
func (o IPythonObservation) String() string      { return sentences(o) }
func (o ReadObservation) String() string         { return sentences(o) }
func (o WriteObservation) String() string        { return sentences(o) }
func (o FileObservation) String() string         { return sentences(o) }
func (o EditObservation) String() string         { return sentences(o) }
func (o SearchObservation) String() string       { return sentences(o) }
func (o BrowseObservation) String() string       { return sentences(o) }
func (o DownloadObservation) String() string     { return sentences(o) }
func (o MCPObservation) String() string          { return sentences(o) }
func (o TaskTrackingObservation) String() string { return sentences(o) }
func (o ErrorObservation) String() string        { return sentences(o) }
func (o NullObservation) String() string         { return sentences(o) }
func (o ThinkObservation) String() string        { return sentences(o) }
func (o SuccessObservation) String() string      { return sentences(o) }
func (o UserRejectedObservation) String() string { return sentences(o) }

// An observation is the same in [encoding/json] as in [EncodeObservation].

func (o RunObservation) MarshalJSON() ([]byte, error)          { return EncodeObservation(o) }
func (o ExecObservation) MarshalJSON() ([]byte, error)         { return EncodeObservation(o) }
func (o IPythonObservation) MarshalJSON() ([]byte, error)      { return EncodeObservation(o) }
func (o ReadObservation) MarshalJSON() ([]byte, error)         { return EncodeObservation(o) }
func (o WriteObservation) MarshalJSON() ([]byte, error)        { return EncodeObservation(o) }
func (o FileObservation) MarshalJSON() ([]byte, error)         { return EncodeObservation(o) }
func (o EditObservation) MarshalJSON() ([]byte, error)         { return EncodeObservation(o) }
func (o SearchObservation) MarshalJSON() ([]byte, error)       { return EncodeObservation(o) }
func (o BrowseObservation) MarshalJSON() ([]byte, error)       { return EncodeObservation(o) }
func (o DownloadObservation) MarshalJSON() ([]byte, error)     { return EncodeObservation(o) }
func (o MCPObservation) MarshalJSON() ([]byte, error)          { return EncodeObservation(o) }
func (o TaskTrackingObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }
func (o ErrorObservation) MarshalJSON() ([]byte, error)        { return EncodeObservation(o) }
func (o NullObservation) MarshalJSON() ([]byte, error)         { return EncodeObservation(o) }
func (o ThinkObservation) MarshalJSON() ([]byte, error)        { return EncodeObservation(o) }
func (o SuccessObservation) MarshalJSON() ([]byte, error)      { return EncodeObservation(o) }
func (o UserRejectedObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// Kind returns the name on the wire.

func (RunAction) Kind() string               { return "run" }
func (ExecAction) Kind() string              { return "exec" }
func (IPythonAction) Kind() string           { return "run_ipython" }
func (ReadAction) Kind() string              { return "read" }
func (WriteAction) Kind() string             { return "write" }
func (EditAction) Kind() string              { return "edit" }
func (GlobAction) Kind() string              { return "glob" }
func (GrepAction) Kind() string              { return "grep" }
func (ListAction) Kind() string              { return "list_directory" }
func (BrowseAction) Kind() string            { return "browse" }
func (BrowseInteractiveAction) Kind() string { return "browse_interactive" }
func (MCPAction) Kind() string               { return "call_tool_mcp" }

func (RunObservation) Kind() string          { return "run" }
func (ExecObservation) Kind() string         { return "exec" }
func (IPythonObservation) Kind() string      { return "run_ipython" }
func (ReadObservation) Kind() string         { return "read" }
func (WriteObservation) Kind() string        { return "write" }
func (FileObservation) Kind() string         { return "file" }
func (EditObservation) Kind() string         { return "edit" }
func (SearchObservation) Kind() string       { return "search" }
func (BrowseObservation) Kind() string       { return "browse" }
func (DownloadObservation) Kind() string     { return "download" }
func (MCPObservation) Kind() string          { return "mcp" }
func (TaskTrackingObservation) Kind() string { return "task_tracking" }
func (ErrorObservation) Kind() string        { return "error" }
func (NullObservation) Kind() string         { return "null" }
func (ThinkObservation) Kind() string        { return "think" }
func (SuccessObservation) Kind() string      { return "success" }
func (UserRejectedObservation) Kind() string { return "user_rejected" }

func (Output) Kind() string    { return "output" }
func (Heartbeat) Kind() string { return "heartbeat" }
func (Finished) Kind() string  { return "observation" }
func (Failed) Kind() string    { return "error" }

// wire returns the sentence for people, the content and the extras.

func (o IPythonObservation) wire() wire {
	return plainWire(o, "Code executed in IPython cell.", o.Content)
}
func (o SearchObservation) wire() wire { return plainWire(o, "I searched "+o.Path+".", o.Content) }
func (o DownloadObservation) wire() wire {
	return plainWire(o, "Downloaded the file at location: "+o.FilePath, o.Content)
}
func (o MCPObservation) wire() wire          { return plainWire(o, o.Content, o.Content) }
func (o NullObservation) wire() wire         { return plainWire(o, "No observation", o.Content) }
func (o ThinkObservation) wire() wire        { return plainWire(o, o.Content, o.Content) }
func (o SuccessObservation) wire() wire      { return plainWire(o, o.Content, o.Content) }
func (o UserRejectedObservation) wire() wire { return plainWire(o, o.Content, o.Content) }
func (o TaskTrackingObservation) wire() wire { return plainWire(o.filled(), o.Content, o.Content) }
func (o BrowseObservation) wire() wire       { return plainWire(o.filled(), "Visited "+o.URL, o.Content) }
