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
	if !tools.Known(dialect) {
		return unknownDialect(dialect)
	}
	capabilities := s.cfg.Executor.Capabilities()
	list := tools.Definitions(dialect, func(action string) bool { return capabilities[action].Available })
	body, err := tools.EncodeDefinitions(list, query.Get("format"))
	if err != nil {
		return api.BadRequest(err.Error())
	}
	httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	return nil
}

func unknownDialect(name string) error {
	_, problem := tools.Parse(name, "", "")
	return api.BadRequest(problem.Text)
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

// toolCall returns what is to be run for a call.
func (s *Server) toolCall(sent api.ToolCall) *call {
	req, answer := s.understand(sent)
	c := &call{req: req, form: formTool}
	if req.Action == nil {
		c.req.Session = sent.Session
		c.kind = answer.Observation.Kind()
	} else {
		c.kind = req.Action.Kind()
	}
	c.answer = answer
	c.run = s.runCall(c)
	return c
}

// runCall returns what runs the call of a tool.
func (s *Server) runCall(c *call) func(ctx context.Context, w api.Watch) (result, error) {
	return func(ctx context.Context, w api.Watch) (r result, err error) {
		answer := c.answer
		if c.req.Action == nil {
			answer.Observation = s.tasks.Answer(c.req.Session, answer.Observation)
		}
		if answer, err = s.runTool(ctx, c.req, answer, w); err != nil {
			return r, err
		}
		r.outcome, _ = api.OutcomeOf(answer.Observation)
		r.body, err = api.EncodeToolAnswer(answer)
		return r, err
	}
}

// runTool runs the action of a tool call, unless the answer has its observation already.
func (s *Server) runTool(ctx context.Context, req api.Request, answer api.ToolAnswer, w api.Watch) (api.ToolAnswer, error) {
	if req.Action != nil {
		var err error
		if answer.Observation, err = s.cfg.Executor.Watch(ctx, req, w); err != nil {
			return answer, err
		}
	}
	answer.IsError, answer.ErrorCode = api.ToolFailure(answer.Observation)
	return answer, nil
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
	req, answer := s.understand(call)
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
	if !tools.Known(call.Dialect) {
		return call, nil, unknownDialect(call.Dialect)
	}
	return call, body, nil
}

// understand makes a request of a call; its action is nil where the answer has
// the observation already.
func (s *Server) understand(call api.ToolCall) (api.Request, api.ToolAnswer) {
	answer := api.ToolAnswer{ID: call.ID}
	parsed, problem := tools.Parse(call.Dialect, call.Name, call.Arguments)
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
