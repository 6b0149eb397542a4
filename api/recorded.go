package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Headers of actions.
const (
	// IdentityHeader brings the identity of an action, bare or in quotes.
	IdentityHeader = "Idempotency-Key"
	// MCPIdentity brings it in the _meta of an MCP tool call, and answers with it in that of
	// the result.
	MCPIdentity = "actiond/id"
	// ActionHeader answers with it, and ReplayedHeader is "true" on an answer that was
	// recorded before.
	ActionHeader   = "X-Action-Id"
	ReplayedHeader = "Idempotent-Replayed"
	// LastingHeader is "false" on the answer of an action that could not be recorded: it
	// is forgotten when the server ends, and the same identity would run again.
	LastingHeader = "X-Action-Lasting"
	// OutputOffsetHeader is the offset of the first byte of an output, and
	// OutputTotalHeader how many bytes were printed so far.
	OutputOffsetHeader = "X-Output-Offset"
	OutputTotalHeader  = "X-Output-Total"
)

// The states of an action.
const (
	StateReserved  = "reserved"  // it waits for its turn
	StateRunning   = "running"   // it began
	StateDone      = "done"      // it ended, and there is an observation
	StateCancelled = "cancelled" // it was cancelled before it began
	StateRefused   = "refused"   // it did not run: the server ended before its turn
	StateUnknown   = "unknown"   // it began, and the server did not see its end
)

// RecordedAction is what a sandbox knows of an action.
type RecordedAction struct {
	// ID is the identity, and N counts the actions of the sandbox.
	ID string `json:"id"`
	N  uint64 `json:"n"`
	// State is one of the states of an action.
	State string `json:"state"`
	// Outcome is how it went, as far as it went.
	Outcome Outcome `json:"outcome"`
	// Code is that of the observation, in no list.
	Code string `json:"code,omitzero"`
	// Session is the name of its session, and Kind of the action.
	Session string `json:"session"`
	Kind    string `json:"kind"`
	// Text is the command, the code or the path, shortened.
	Text  string     `json:"text"`
	Begin time.Time  `json:"begin"`
	End   *time.Time `json:"end"`
	// OutputBytes counts what it printed, also what is no longer kept.
	OutputBytes int64 `json:"output_bytes"`
	// Lasting says that all of it was recorded so that it survives the server.
	Lasting bool `json:"lasting"`
	// Waiting is what a command or a program does that runs, but in no list.
	Waiting *Waiting `json:"waiting,omitzero"`
	// Observation is there once the action ended, but in no list.
	Observation jsontext.Value `json:"observation,omitzero"`
}

// RecordedActions is a page of actions, the newest first.
type RecordedActions struct {
	Actions []RecordedAction `json:"actions"`
	// Next is the "before" of the next page; 0 at the end.
	Next uint64 `json:"next,omitzero"`
}
