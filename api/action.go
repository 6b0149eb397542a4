package api

// Action is a request of an agent: one of the types of this package whose name
// ends in Action, and nothing else. The tags of their fields are the names
// of the arguments on the wire, in the order of the fields.
//
//sumtype:decl
type Action interface {
	// Kind returns the name of the action on the wire, such as "run".
	Kind() string
	action()
}

// actions lists the actions that a sandbox runs, in the order of messages. A line
// gives the values of absent arguments and the names of the required ones.
var actions = []*shape{
	shapeOf(RunAction{Common: unknownRisk}, "command").ignoring("confirmation_state"),
	shapeOf(ExecAction{Common: unknownRisk}),
	shapeOf(IPythonAction{Common: unknownRisk, IncludeExtra: true}, "code").ignoring("confirmation_state"),
	shapeOf(ReadAction{Common: unknownRisk, End: -1, ImplSource: implDefault}, "path"),
	shapeOf(WriteAction{Common: unknownRisk, End: -1}, "path", "content"),
	shapeOf(EditAction{Common: unknownRisk, Start: 1, End: -1, ImplSource: implEditor}, "path"),
	shapeOf(GlobAction{Common: unknownRisk}, "pattern"),
	shapeOf(GrepAction{Common: unknownRisk}, "pattern"),
	shapeOf(ListAction{Common: unknownRisk}),
	shapeOf(BrowseAction{Common: unknownRisk}, "url"),
	shapeOf(BrowseInteractiveAction{Common: unknownRisk}, "browser_actions"),
	shapeOf(MCPAction{Common: unknownRisk}, "name"),
}

// elsewhere are the names of actions that controllers and agents run themselves.
var elsewhere = []string{
	"null", "think", "finish", "reject", "delegate", "recall", "change_agent_state", "message", "system",
	"condensation", "condensation_request", "task_tracking", "loop_recovery",
	"start", "pause", "resume", "stop", "push", "send_pr",
}

// settler is an action with checks beyond the types of its fields. d lists the
// arguments of a wrong type.
type settler interface {
	settle(d *decoding) (Action, error)
}

// Request is one action with its envelope.
type Request struct {
	Action Action
	// ID is the caller's event number; it is informational. 0 when absent.
	ID int64
	// Timestamp is the time of the caller's event, in the caller's format; "" when absent.
	Timestamp string
	// Key is the idempotency key of the action, by which a retry is recognised: 1 to 255
	// visible ASCII characters, or "" for none.
	Key string
	// Session names the shell or kernel in which the action runs. Empty means the
	// default one. A session starts on first use. At most 64 characters of
	// A-Z, a-z, 0-9, dot, dash and underscore, and neither "." nor "..".
	Session string
	// Timeout is the hard limit in seconds, nil or 0 for none. It bounds the wait
	// for an answer and never kills the command. It is finite, may be negative
	// (no waiting at all), and may be more than a time.Duration holds.
	Timeout *float64
	// Changes asks for the changes that the action makes in the workspace: "facts", "diff", or
	// "" for nothing.
	Changes string
}

// Native returns the request with the defaults of /v1/actions, which are not
// bound to those of the legacy protocol: a write is exact, the refusal of a large
// file names another way to edit it, and the diff of an edit is a patch.
func (r Request) Native() Request {
	switch a := r.Action.(type) {
	case WriteAction:
		if a.Exact == nil {
			a.Exact = new(true)
		}
		r.Action = a
	case EditAction:
		a.Native = a.Dialect == ""
		r.Action = a
	default:
	}
	return r
}

// Common holds the arguments that every action accepts and that the sandbox
// carries without acting on them.
type Common struct {
	// Thought is the model's text before the action.
	Thought string `json:"thought"`
	// SecurityRisk is [RiskUnknown] when absent on the wire.
	SecurityRisk Risk `json:"security_risk"`
}

func (Common) action() {}

// Risk is the harm that an action could do.
type Risk int

// The security risks.
const (
	RiskUnknown Risk = iota - 1
	RiskLow
	RiskMedium
	RiskHigh
)

var unknownRisk = Common{SecurityRisk: RiskUnknown}

// UnmarshalJSON drops a value that is not a risk rather than refusing it:
// recorded streams contain them.
func (r *Risk) UnmarshalJSON(data []byte) error {
	n, ok := Integral(string(data))
	if *r = Risk(n); !ok || *r < RiskUnknown || *r > RiskHigh {
		*r = RiskUnknown
	}
	return nil
}

// InvalidAction is an action with an argument of a wrong type that is answered
// with an observation, as the reference does, and not refused: a run whose command
// is not a string or whose timeout is not a number, and parameters of the editor
// that models often get wrong, such as an object for a string. A refusal would end
// the conversation, which the model could continue. [DecodeRequest] returns it, and
// it cannot be encoded. A hidden run never becomes one: it is refused, because the
// stock client fails on an error observation that answers a hidden run.
type InvalidAction struct {
	// Of is the action without the wrong argument: a RunAction, ReadAction or EditAction.
	Of Action
	// Reason names the wrong argument, its value and the allowed values.
	Reason string
}

// Kind returns the name of the intended action.
func (a InvalidAction) Kind() string { return a.Of.Kind() }
func (InvalidAction) action()        {}
