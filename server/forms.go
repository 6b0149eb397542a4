package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/random"
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

// call is an action as it came in a request.
type call struct {
	actions.Call
	form      form
	clientKey bool                                 // the client named the id
	unused    func()                               // called where the action is not carried out; nil for nothing
	status    func(h http.Header, body []byte) int // of the answer; nil for 200
}

// newCall returns the call of a request in a form.
func newCall(req api.Request, kind string, f form) *call {
	c := &call{form: f, Call: actions.Call{Request: req, Kind: kind, Form: string(f), Operator: f == formAction, Encode: f.encode}}
	if f == formAction {
		c.Encode = func(o api.Observation) ([]byte, error) { return f.encode(addOutputLink(o, c.ID)) }
	}
	return c
}

// identify sets the id of a call and its digest.
func (c *call) identify(r *http.Request, body []byte) error {
	hash := sha256.New()
	if c.form == formTool { // the same body means something else there
		_, _ = hash.Write([]byte("tool "))
	}
	_, _ = hash.Write(body)
	hash.Sum(c.Digest[:0])
	id, err := keyOf(r)
	inBody := c.Request.Key != "" && (c.form == formAction || c.form == formTool)
	switch {
	case err != nil:
		return err
	case id != "" && inBody && id != c.Request.Key:
		return api.BadRequest(fmt.Sprintf("The header %s and the body name different ids: send one", api.IdentityHeader))
	case id != "":
		c.ID, c.clientKey = id, true
	case inBody:
		c.ID, c.clientKey = c.Request.Key, true
	case c.form.legacy() && c.Request.ID != 0 && c.Request.Timestamp != "":
		// An event of OpenHands: its client sends it again after a broken connection.
		c.ID, c.clientKey = fmt.Sprintf("event-%d-%x", c.Request.ID, c.Digest[:16]), true
	default:
		c.ID = random.UUID7()
	}
	c.Detached = c.clientKey || c.form == formAction || c.form == formTool
	return nil
}

// keyOf returns the id in the header, "" without one. It may be in the
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
	switch {
	case errors.Is(err, journal.ErrOther):
		return invalid("%s: the id %q was sent before with another body; a new action needs a new id", api.IdentityHeader, c.ID)
	case !errors.Is(err, journal.ErrForgotten):
		return err
	case c.form == formHidden:
		return api.BadRequest(errForgotten(c.ID).Detail)
	case c.form != formLegacy:
		return errForgotten(c.ID)
	}
	body, err := c.form.encode(api.ErrorObservation{Content: errForgotten(c.ID).Detail, Outcome: api.OutcomeUnknown})
	if err == nil {
		httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, body)
	}
	return err
}

func errForgotten(id string) *api.Error {
	return &api.Error{Status: http.StatusGone, Detail: fmt.Sprintf("The action %q was already received and its record has expired; it was not run again", id)}
}
