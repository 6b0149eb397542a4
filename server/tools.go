package server

import (
	"context"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/toolcall"
	"github.com/actiond/actiond/server/reply"
)

// listTools answers with the definitions of the tools that this sandbox has.
func (s *Server) listTools(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	dialect := query.Get("dialect")
	if !toolcall.Known(dialect) {
		return unknownDialect(dialect)
	}
	capabilities := s.cfg.Executor.Capabilities()
	list := toolcall.Definitions(dialect, func(action string) bool { return capabilities[action].Available })
	body, err := toolcall.EncodeDefinitions(list, query.Get("format"))
	if err != nil {
		return api.BadRequest(err.Error())
	}
	reply.Body(w, http.StatusOK, reply.JSON, body)
	return nil
}

func unknownDialect(name string) error {
	_, problem := toolcall.Parse(name, "", "")
	return api.BadRequest(problem.Text)
}

// callTool answers a tool call with what came of it. What a model did wrong is
// an answer too: the model is to read it.
func (s *Server) callTool(w http.ResponseWriter, r *http.Request) error {
	begun := time.Now()
	name, answer, err := s.useTool(r, begun)
	s.metrics.action(r, name, err, time.Since(begun))
	if err != nil {
		return err
	}
	reply.Body(w, http.StatusOK, reply.JSON, answer)
	return nil
}

// useTool runs the call in a request and returns the name of its action, or of
// the observation where nothing was run, and the encoded answer.
func (s *Server) useTool(r *http.Request, begun time.Time) (name string, body []byte, err error) {
	leave, err := s.enter()
	if err != nil {
		return unread, nil, err
	}
	defer leave()
	call, err := s.readToolCall(r, begun)
	if err != nil {
		return unread, nil, err
	}
	name, answer, err := s.runTool(r.Context(), call)
	if err != nil {
		return name, nil, err
	}
	body, err = api.EncodeToolAnswer(answer)
	return name, body, err
}

// runTool runs a call and returns the name of its action, or of the observation
// where nothing was run.
func (s *Server) runTool(ctx context.Context, call api.ToolCall) (name string, answer api.ToolAnswer, err error) {
	req, answer := s.understand(call)
	if req.Action != nil {
		name = req.Action.Kind()
		if answer.Observation, err = s.cfg.Executor.Do(ctx, req); err != nil {
			return name, answer, err
		}
	} else {
		answer.Observation = s.tasks.Answer(call.Session, answer.Observation)
		name = answer.Observation.Kind()
	}
	answer.IsError, answer.ErrorCode = toolcall.Outcome(answer.Observation)
	return name, answer, nil
}

// translateTool answers with the action that a tool call stands for, and runs
// nothing.
func (s *Server) translateTool(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	call, err := s.readToolCall(r, time.Now())
	if err != nil {
		return err
	}
	req, answer := s.understand(call)
	if req.Action == nil {
		answer.Observation = s.tasks.Answer(call.Session, answer.Observation)
		answer.IsError, answer.ErrorCode = toolcall.Outcome(answer.Observation)
	}
	body, err := api.EncodeTranslation(req, answer)
	if err != nil {
		return err
	}
	reply.Body(w, http.StatusOK, reply.JSON, body)
	return nil
}

// readToolCall reads the call in a request.
func (s *Server) readToolCall(r *http.Request, begun time.Time) (api.ToolCall, error) {
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return api.ToolCall{}, err
	}
	call, err := api.DecodeToolCall(body)
	if err != nil {
		return api.ToolCall{}, err
	}
	s.last.Store(int64(begun.Sub(s.started)))
	if !toolcall.Known(call.Dialect) {
		return api.ToolCall{}, unknownDialect(call.Dialect)
	}
	return call, nil
}

// understand makes a request of a call; its action is nil where the answer has
// the observation already.
func (s *Server) understand(call api.ToolCall) (api.Request, api.ToolAnswer) {
	answer := api.ToolAnswer{ID: call.ID}
	parsed, problem := toolcall.Parse(call.Dialect, call.Name, call.Arguments)
	if problem != nil {
		answer.Observation = problem.Observation()
		return api.Request{}, answer
	}
	answer.Observation, answer.Repaired = parsed.Answer, parsed.Repaired
	return api.Request{Action: parsed.Action, Session: call.Session, Timeout: shorter(call.Timeout, parsed.Timeout)}, answer
}

// shorter returns the smaller of two limits, of which nil and 0 are none: a
// model may ask for less time than the controller gives, and not for more.
func shorter(a, b *float64) *float64 {
	if a == nil || *a == 0 || b != nil && *b != 0 && *b < *a {
		return b
	}
	return a
}
