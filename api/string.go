package api

// sentences is an observation for people: its sentence, and below what the agent reads of it.
func sentences(o Observation) string {
	w := o.wire()
	if w.Content == "" || w.Content == w.Message {
		return w.Message
	}
	return w.Message + "\n" + w.Content
}

// The observations are Stringers for logs and examples; [Content] is what an agent reads.

// String returns the observation as text for people.
func (o RunObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o ExecObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o IPythonObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o ReadObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o WriteObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o FileObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o EditObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o SearchObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o BrowseObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o DownloadObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o MCPObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o TaskTrackingObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o ErrorObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o NullObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o ThinkObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o SuccessObservation) String() string { return sentences(o) }

// String returns the observation as text for people.
func (o UserRejectedObservation) String() string { return sentences(o) }
