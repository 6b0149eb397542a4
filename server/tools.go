package server

import (
	"context"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/httpserver"
)

// listTools answers with the definitions of the tools that this sandbox has.
func (s *Server) listTools(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	dialect := query.Get("dialect")
	if err := tools.CheckDialect(dialect); err != nil {
		return api.BadRequest(err.Error())
	}
	body, err := tools.EncodeDefinitions(tools.Definitions(dialect, s.has()), query.Get("format"))
	if err != nil {
		return api.BadRequest(err.Error())
	}
	httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	return nil
}

// has returns a function that reports whether the sandbox meets the needs of a tool.
func (s *Server) has() func(need string) bool {
	capabilities, mode := s.cfg.Executor.Capabilities(), s.changesInfo().Mode
	return func(need string) bool {
		switch need {
		case tools.NeedsChanges:
			return mode != api.ChangesOff
		case tools.NeedsUndo:
			return mode == api.ChangesUndo
		case tools.NeedsBackground:
			return true
		}
		return capabilities[need].Available
	}
}

// callTool answers a tool call with its result. A mistake of the model is a result
// too: the model is to read it.
func (s *Server) callTool(w http.ResponseWriter, r *http.Request) error {
	c, leave, err := s.enterWhole(r, func(begun time.Time) (*call, error) {
		sent, body, err := s.readToolCall(r, begun)
		if err != nil {
			return nil, err
		}
		c := s.toolCall(sent)
		return c, c.identify(r, body)
	})
	if err != nil {
		return err
	}
	return s.perform(w, r, c, leave)
}

// toolCall returns the call of the action of a tool.
func (s *Server) toolCall(sent api.ToolCall) *call {
	req, answer, parsed := s.understand(sent)
	workspace, background := parsed.Workspace, parsed.Background
	if limit := req.Timeout; background != nil && limit != nil && *limit > 0 && *limit < background.Delay.Seconds() {
		background.Delay = time.Duration(*limit * float64(time.Second))
	}
	var c *call
	switch {
	case req.Action != nil && background != nil:
		req.Timeout = nil // the program goes on, and so does its action
		c = newCall(req, req.Action.Kind(), formTool)
		c.soon = &background.Delay
	case req.Action != nil:
		c = newCall(req, req.Action.Kind(), formTool)
	case background != nil:
		req.Session, req.Changes = sent.Session, sent.Changes
		c = newCall(req, tools.NeedsBackground, formTool)
		c.Do = func(ctx context.Context, w api.Watch) (api.Observation, error) {
			return s.backgroundTool(ctx, sent.Session, *background, w.Cancelled)
		}
	case workspace != nil:
		req.Session, req.Changes = sent.Session, sent.Changes
		c = newCall(req, workspaceKind(workspace), formTool)
		c.Do = func(ctx context.Context, _ api.Watch) (api.Observation, error) {
			return s.workspaceTool(ctx, *workspace)
		}
	default:
		req.Session, req.Changes = sent.Session, sent.Changes
		c = newCall(req, answer.Observation.Kind(), formTool)
		c.Do = func(context.Context, api.Watch) (api.Observation, error) {
			return s.tasks.Answer(sent.Session, answer.Observation), nil
		}
	}
	c.Encode = func(o api.Observation) ([]byte, error) {
		answer.Observation = o
		return encodeToolAnswer(answer)
	}
	return c
}

// encodeToolAnswer encodes the answer of a tool, which fails as its observation does.
func encodeToolAnswer(answer api.ToolAnswer) ([]byte, error) {
	answer.IsError, answer.ErrorCode = api.ToolFailure(answer.Observation)
	return api.EncodeToolAnswer(answer)
}

// translateTool answers with the action that a tool call means, and runs
// nothing.
func (s *Server) translateTool(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	large, release := s.large(r)
	defer release()
	r.Body = large
	call, _, err := s.readToolCall(r, time.Now())
	if err != nil {
		return err
	}
	req, answer, parsed := s.understand(call)
	if parsed.Workspace != nil || parsed.Background != nil {
		text := "This tool has no action: call it by /v1/tools/call"
		if req.Action != nil { // whose answer would come at the end of the program
			req.Action, text = nil, "A program in the background has no action that is answered at its start: call the tool by /v1/tools/call"
		}
		answer.Observation = api.ErrorObservation{Content: text}
	}
	if req.Action == nil {
		answer.Observation = s.tasks.Answer(call.Session, answer.Observation)
		answer.IsError, answer.ErrorCode = api.ToolFailure(answer.Observation)
	}
	body, err := api.EncodeTranslation(req, answer)
	if err != nil {
		return err
	}
	httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	return nil
}

// readToolCall reads the call in a request, and its body.
func (s *Server) readToolCall(r *http.Request, begun time.Time) (call api.ToolCall, body []byte, err error) {
	if body, err = readJSON(r, s.cfg.MaxBody); err != nil {
		return call, nil, err
	}
	if call, err = api.DecodeToolCall(body); err != nil {
		return call, nil, err
	}
	s.last.Store(int64(begun.Sub(s.started)))
	if err := tools.CheckDialect(call.Dialect); err != nil {
		return call, nil, api.BadRequest(err.Error())
	}
	return call, body, nil
}

// understand makes a request of a call; its action is nil where the answer has
// the observation already, or the call is about the workspace or what runs in the background.
func (s *Server) understand(call api.ToolCall) (api.Request, api.ToolAnswer, tools.Call) {
	answer := api.ToolAnswer{ID: call.ID}
	parse := tools.Parse
	if call.Execution {
		parse = tools.ParseKnown
	}
	parsed, problem := parse(call.Dialect, call.Name, call.Arguments)
	if problem != nil {
		answer.Observation = problem.Observation()
		return api.Request{}, answer, parsed
	}
	answer.Observation, answer.Repaired = parsed.Answer, parsed.Repaired
	if call.Execution {
		parsed.Action = forExecution(parsed.Action)
	}
	return api.Request{Action: parsed.Action, Session: call.Session, Changes: call.Changes, Timeout: shorter(call.Timeout, parsed.Timeout)}, answer, parsed
}

// shorter returns the smaller of two limits, where nil and 0 mean no limit: a
// model may ask for less time than the controller gives, and not for more.
func shorter(a, b *float64) *float64 {
	if a == nil || *a == 0 || b != nil && *b != 0 && *b < *a {
		return b
	}
	return a
}
