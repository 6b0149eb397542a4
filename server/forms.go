package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// form is the encoding of an answer. The journal keeps its name beside the answer.
type form string

const (
	formLegacy form = "legacy" // of /execute_action
	formHidden form = "hidden" // of /execute_action to a hidden run, which must not be an error observation
	formAction form = "action" // of /v1/actions
	formTool   form = "tool"   // of /v1/tools/call
)

// legacy reports whether a form is of the legacy protocol.
func (f form) legacy() bool { return f == formLegacy || f == formHidden }

// listed is the form of an answer in the record of an action.
func (f form) listed() form {
	if f == formTool {
		return f
	}
	return formAction
}

// encode encodes an observation.
func (f form) encode(o api.Observation) ([]byte, error) {
	switch f {
	case formLegacy, formHidden:
		if failed, ok := o.(api.ErrorObservation); ok && (failed.Code == api.StateCancelled || failed.Code == api.StateRefused) {
			failed.Code = "" // a word that the legacy protocol does not have
			o = failed
		}
		return api.EncodeLegacy(o)
	case formTool:
		return encodeToolAnswer(api.ToolAnswer{Observation: o})
	case formAction:
	}
	return api.EncodeObservation(o)
}

// convert returns an answer in a form.
func (f form) convert(answer actions.Answer) ([]byte, error) {
	from := form(answer.Form)
	switch {
	case answer.Body == nil:
		return f.encode(answer.Observation)
	case from.legacy() == f.legacy():
		return answer.Body, nil
	}
	o, err := api.DecodeObservation(answer.Body)
	if err != nil {
		return nil, err
	}
	if from.legacy() && answer.Outcome != "" {
		o = api.WithOutcome(o, answer.Outcome)
	}
	return f.encode(o)
}

// addOutputLink adds to an observation with shortened output the path of all of it.
func addOutputLink(o api.Observation, id string) api.Observation {
	const note = "\n[This is not all of the output. GET /v1/actions/%s/output reads what is kept of it, by offset, tail or grep.]"
	switch o := o.(type) {
	case api.RunObservation:
		if o.Shortened {
			o.Metadata.Suffix += fmt.Sprintf(note, url.PathEscape(id))
		}
		return o
	case api.ExecObservation:
		if o.Truncated {
			o.Content += fmt.Sprintf(note, url.PathEscape(id))
		}
		return o
	default:
		return o
	}
}

// replyConflict answers a call whose id was used before.
func (s *Server) replyConflict(w http.ResponseWriter, c *call, err error) error {
	if c.form != formLegacy || !errors.Is(err, journal.ErrForgotten) {
		return conflict(c, err)
	}
	body, err := c.form.encode(api.ErrorObservation{Content: errForgotten(c.ID).Detail, Outcome: api.OutcomeUnknown})
	if err == nil {
		httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	}
	return err
}

// conflict returns the refusal of a call whose id cannot be reserved.
func conflict(c *call, err error) error {
	switch {
	case errors.Is(err, journal.ErrOther):
		return invalid("%s: the id %q was sent before with another body; a new action needs a new id",
			api.IdentityHeader, c.ID)
	case !errors.Is(err, journal.ErrForgotten):
		return err
	case c.form == formHidden:
		return api.BadRequest(errForgotten(c.ID).Detail)
	}
	return errForgotten(c.ID)
}

func errForgotten(id string) *api.Error {
	return &api.Error{Status: http.StatusGone, Detail: fmt.Sprintf("The action %q was already received and its record has expired; it was not run again", id)}
}
