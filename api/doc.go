// Package api is the contract between a controller and a sandbox: actions go
// in, observations come out. It holds their types, their JSON and the OpenAPI
// descriptions of the server ([OpenAPI]) and of the gateway ([GatewayOpenAPI]).
// It does no I/O; package client sends the bodies that it encodes.
//
// # Actions
//
// A controller posts a [Request] to /execute_action: [EncodeRequest] makes the
// body, {"action": {"action": "run", "args": {…}}}. The types whose names end in
// Action are all there are; their fields are the arguments. The answer is an
// observation, which [DecodeObservation] reads: a type whose name ends in
// Observation, or an [ErrorObservation]. [Content] is the text for the agent.
// Posted to /v1/actions, the same body is answered with a line of JSON for each
// [Event], the last of them [Finished] or [Failed].
//
// # Tool calls
//
// A [ToolCall] carries the name and the arguments that a model wrote to
// /v1/tools/call; the answer is a [ToolAnswer].
//
// # Errors
//
// An [Error] is a refusal: the caller is wrong and nothing was done. Failed work
// is an observation, and [Broken] is a bug of the server.
//
// # JSON
//
// Names are matched by case, and of equal names the last one wins. A text with
// half of a surrogate pair, which JSON can write and UTF-8 cannot, is refused in
// requests and holds U+FFFD in answers. The encoders write only the escapes
// that JSON requires. The arguments of a request hold at most 10,000 values, nested
// at most 1000 deep.
package api
