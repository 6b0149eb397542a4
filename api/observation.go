package api

// Observation is the result of an action: one of the types of this package
// whose name ends in Observation, and nothing else. The tags of their fields are
// the names of the extras on the wire.
//
//sumtype:decl
type Observation interface {
	// Kind returns the name of the observation on the wire, such as "run".
	Kind() string
	wire() wire
}

// observations are all that the protocol knows. A line gives the values of absent
// extras and the names of those that must come.
var observations = []*shape{
	openShapeOf(RunObservation{Metadata: unknownMetadata}, "command"),
	openShapeOf(ExecObservation{}),
	openShapeOf(IPythonObservation{}, "code"),
	openShapeOf(ReadObservation{ImplSource: implDefault}, "path"),
	openShapeOf(WriteObservation{}, "path"),
	openShapeOf(FileObservation{}),
	openShapeOf(EditObservation{ImplSource: implDraft}),
	openShapeOf(SearchObservation{}),
	openShapeOf(BrowseObservation{ActivePageIndex: -1}, "url", "trigger_by_action"),
	openShapeOf(DownloadObservation{}, "file_path"),
	openShapeOf(MCPObservation{}),
	openShapeOf(TaskTrackingObservation{}),
	openShapeOf(ErrorObservation{}),
	openShapeOf(NullObservation{}),
	openShapeOf(ThinkObservation{}),
	openShapeOf(SuccessObservation{}),
	openShapeOf(UserRejectedObservation{}),
}

// wire is an observation as it travels. The extras hold exactly the keys of the
// protocol, as the stock client breaks on any other.
type wire struct {
	Message string `json:"message"`
	Kind    string `json:"observation"`
	Content string `json:"content"`
	Extras  any    `json:"extras"`
	Success *bool  `json:"success,omitzero"` // of a command, a program and a cell
	Diff    string `json:"diff,omitzero"`    // of a write
	// Beside the extras, where the stock client ignores them.
	Outcome Outcome `json:"outcome,omitzero"`
	Code    string  `json:"code,omitzero"`
}

// Outcome says in a word what became of an action.
type Outcome string

// The outcomes.
const (
	Ended      Outcome = "finished"    // it ran to its end, whether or not that was good
	Running    Outcome = "running"     // it goes on, and the observation is a part of its result
	NotStarted Outcome = "not_started" // it did nothing, and may be sent again
	Refused    Outcome = "failed"      // it changed nothing; the code, if there is one, says why
	NotKnown   Outcome = "unknown"     // it may have begun; travels as no outcome
)

// fileOutcome is that of a file action with a machine word for its failure, or "".
func fileOutcome(code string) Outcome {
	if code != "" {
		return Refused
	}
	return Ended
}

// filler is an observation whose nil lists travel as empty ones.
type filler interface {
	filled() Observation
}

// Content returns what the agent reads of an observation, without the notes
// around a command's output; "" for nil.
func Content(o Observation) string {
	if o == nil {
		return ""
	}
	return o.wire().Content
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
