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
