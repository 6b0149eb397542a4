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
