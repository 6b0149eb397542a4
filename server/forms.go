package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/random"
)

// form is what an answer looks like.
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

func encode(o api.Observation, want form) ([]byte, error) {
	if want.legacy() {
		return api.EncodeLegacy(o)
	}
	return api.EncodeObservation(o)
}

// inForm returns an encoded answer in another form: the journal keeps that of the first request.
// An outcome of "" is by the answer.
func inForm(body []byte, from, want form, outcome api.Outcome) ([]byte, error) {
	if from.legacy() == want.legacy() {
		return body, nil
	}
	o, err := api.DecodeObservation(body)
	if err != nil {
		return nil, err
	}
	if from.legacy() && outcome != "" {
		o = api.WithOutcome(o, outcome)
	}
	return encode(o, want)
}

// composed is the answer of an action without a result.
func composed(want form, state, text string) ([]byte, error) {
	o := api.ErrorObservation{Content: text, Outcome: api.OutcomeUnknown}
	if state == api.StateRefused || state == api.StateCancelled {
		if o.Outcome = api.OutcomeNotStarted; !want.legacy() {
			o.Code = state
		}
	}
	if want == formTool {
		answer := api.ToolAnswer{Observation: o}
		answer.IsError, answer.ErrorCode = api.ToolFailure(o)
		return api.EncodeToolAnswer(answer)
	}
	return encode(o, want)
}

// identify fills in the identity of a call and its digest.
func (c *call) identify(r *http.Request, body []byte) error {
	hash := sha256.New()
	if c.form == formTool { // the same body means something else there
		_, _ = hash.Write([]byte("tool "))
	}
	_, _ = hash.Write(body)
	hash.Sum(c.digest[:0])
	id, err := keyOf(r)
	inBody := c.req.Key != "" && (c.form == formAction || c.form == formTool)
	switch {
	case err != nil:
		return err
	case id != "" && inBody && id != c.req.Key:
		return api.BadRequest(fmt.Sprintf("The header %s and the body name different identities: send one", api.IdentityHeader))
	case id != "":
		c.id, c.given = id, true
	case inBody:
		c.id, c.given = c.req.Key, true
	case (c.form == formLegacy || c.form == formHidden) && c.req.ID != 0 && c.req.Timestamp != "":
		// An event of OpenHands: its client sends it again after a broken connection.
		c.id, c.given = fmt.Sprintf("event-%d-%x", c.req.ID, c.digest[:16]), true
	default:
		c.id = random.UUID7()
	}
	c.stays = c.given || c.form == formAction || c.form == formTool
	return nil
}

// keyOf returns the identity in the header, "" without one. It may be in the
// quotes of a structured field.
func keyOf(r *http.Request) (string, error) {
	sent := r.Header[api.IdentityHeader]
	if len(sent) == 0 {
		return "", nil
	}
	key := sent[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(key[1 : len(key)-1])
	}
	err := api.CheckKey(key)
	if err == nil && len(sent) > 1 {
		err = errors.New("there is more than one")
	}
	if err != nil {
		return "", api.BadRequest(fmt.Sprintf("header %s: %v", api.IdentityHeader, err))
	}
	return key, nil
}

// sayWhere adds to an observation that had to shorten its output where all of that is.
func sayWhere(o api.Observation, id string) api.Observation {
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

// untaken answers a call whose identity is used.
func (s *Server) untaken(w http.ResponseWriter, c *call, err error) error {
	switch {
	case errors.Is(err, journal.ErrOther):
		return invalid("%s: %q was sent before with another body; a new action needs a new identity", api.IdentityHeader, c.id)
	case !errors.Is(err, journal.ErrForgotten):
		return err
	case c.form == formHidden:
		return api.BadRequest(errForgotten(c.id).Detail)
	case c.form != formLegacy:
		return errForgotten(c.id)
	}
	body, err := composed(formLegacy, "", errForgotten(c.id).Detail)
	if err == nil {
		httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	}
	return err
}

func errForgotten(id string) *api.Error {
	return &api.Error{Status: http.StatusGone, Detail: fmt.Sprintf("The action %q came before and is forgotten; it did not run again", id)}
}
