package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Headers of actions.
const (
	// IdentityHeader is the idempotency key of an action, bare or in quotes.
	IdentityHeader = "Idempotency-Key"
	// MCPIdentity is the same in the _meta of an MCP tool call, and in that of its result.
	MCPIdentity = "actiond/id"
	// ActionHeader is the same in an answer, and ReplayedHeader is "true" in an answer that was
	// recorded before.
	ActionHeader   = "X-Action-Id"
	ReplayedHeader = "Idempotent-Replayed"
	// LastingHeader is "false" in the answer of an action that could not be recorded: after
	// the end of the server an action with the same key would run again.
	LastingHeader = "X-Action-Lasting"
	// OutputOffsetHeader is the offset of the first byte of an output, and
	// OutputTotalHeader the length of the output so far.
	OutputOffsetHeader = "X-Output-Offset"
	OutputTotalHeader  = "X-Output-Total"
)

// The states of an action.
const (
	StateReserved  = "reserved"  // it waits for its turn
	StateRunning   = "running"   // it began
	StateDone      = "done"      // it ended with an observation
	StateCancelled = "cancelled" // it was cancelled before it began
	StateRefused   = "refused"   // it did not run: the server ended before its turn
	StateUnknown   = "unknown"   // it began, and its result is lost
)

// RecordedAction is the record of an action.
type RecordedAction struct {
	// ID is the idempotency key, and N counts the actions of the sandbox.
	ID string `json:"id"`
	N  uint64 `json:"n"`
	// State is one of the states of an action.
	State string `json:"state"`
	// Outcome is the outcome so far.
	Outcome Outcome `json:"outcome"`
	// Code is that of the observation; lists leave it out.
	Code string `json:"code,omitzero"`
	// Session is the name of its session, and Kind of the action.
	Session string `json:"session"`
	Kind    string `json:"kind"`
	// Text is the command, the code or the path, shortened.
	Text  string     `json:"text"`
	Begin time.Time  `json:"begin"`
	End   *time.Time `json:"end"`
	// OutputBytes is the length of its output, including bytes that are no longer retained.
	OutputBytes int64 `json:"output_bytes"`
	// Denied is true if the network policy denied connections of the action.
	Denied bool `json:"denied,omitzero"`
	// Lasting is true if the record is complete and survives the server.
	Lasting bool `json:"lasting"`
	// Waiting describes a running command or program; lists leave it out.
	Waiting *Waiting `json:"waiting,omitzero"`
	// Effect is EffectNone if nothing changed in the workspace, EffectChanges if something did, and "" where that is not
	// known.
	Effect string `json:"effect,omitzero"`
	// Changes are the changes by the action, as far as they are kept; lists leave them out.
	Changes *Changes `json:"changes,omitzero"`
	// Observation is set once the action has ended; lists leave it out.
	Observation jsontext.Value `json:"observation,omitzero"`
}

// RecordedActions is a page of actions, the newest first.
type RecordedActions struct {
	Actions []RecordedAction `json:"actions"`
	// Next is the "before" of the next page; 0 at the end.
	Next uint64 `json:"next,omitzero"`
}
