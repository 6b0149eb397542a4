package server

import (
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// executionSilence is how long a command may be silent before it is answered: what OpenHands'
// terminal takes.
const executionSilence = 30 * time.Second

// executeTool carries out a tool of OpenHands' execution protocol, in which a conversation's
// server runs elsewhere and has its tools executed here.
func (s *Server) executeTool(w http.ResponseWriter, r *http.Request) error {
	var sent api.ToolCall
	c, leave, err := s.enterWhole(r, func(begun time.Time) (*call, error) {
		body, err := readJSON(r, s.cfg.MaxBody)
		if err != nil {
			return nil, err
		}
		if sent, err = api.DecodeExecution(body); err != nil {
			return nil, err
		}
		s.last.Store(int64(begun.Sub(s.started)))
		c := s.toolCall(sent)
		return c, c.identify(r, body)
	})
	if err != nil {
		return err
	}
	run, _, end, err := s.start(r.Context(), c, leave)
	if err != nil {
		return err
	}
	defer end()
	body, written, err := s.answerIn(r.Context(), run, formTool)
	if err != nil {
		return err
	}
	defer written()
	o, err := api.DecodeObservation(body)
	if err != nil {
		return err
	}
	answer, err := api.EncodeExecution(sent, o)
	if err != nil {
		return err
	}
	run.Sending()
	s.identified(w, r, run)
	writeParts(w, http.StatusOK, answer)
	return nil
}

// forExecution sets what the protocol has beside the arguments of its tools.
func forExecution(action api.Action) api.Action {
	switch a := action.(type) {
	case api.RunAction:
		a.Silence = executionSilence
		return a
	case api.EditAction:
		a.Whole = true
		return a
	default:
		return action
	}
}
