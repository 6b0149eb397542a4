package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
)

// call is an action as it came in a request.
type call struct {
	actions.Call
	form      form
	clientKey bool                                 // the client named the id
	inHeader  bool                                 // its changes are asked for, and answered, in a header
	unused    func()                               // called where the action is not carried out; nil for nothing
	soon      *time.Duration                       // after which an answer is due while the program goes on; nil for at its end
	status    func(h http.Header, body []byte) int // of the answer; nil for 200
}

// readAction reads the action in a request, with the defaults of /v1/actions or of the
// legacy protocol.
func (s *Server) readAction(r *http.Request, begun time.Time, want form) (*call, error) {
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	decode := api.DecodeRequest
	if want == formAction {
		decode = api.DecodeNative
	}
	req, err := decode(body)
	if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusUnprocessableEntity {
		s.last.Store(int64(begun.Sub(s.started))) // an envelope with an action in it is well-formed
	}
	if err != nil {
		return nil, err
	}
	if want == formAction {
		req = req.Native()
	}
	if a, ok := req.Action.(api.BrowseAction); ok && want == formLegacy {
		a.Reference = true
		req.Action = a
	}
	if a, ok := req.Action.(api.IPythonAction); ok && want == formLegacy {
		a.Reference = true
		req.Action = a
	}
	if run, ok := req.Action.(api.RunAction); ok && want == formLegacy {
		run.Reference = true
		req.Action = run
		if run.Hidden {
			want = formHidden
		}
	}
	inHeader := want.legacy()
	if inHeader {
		if req.Changes, err = askedInHeader(r); err != nil {
			return nil, err
		}
	}
	c := newCall(req, req.Action.Kind(), want)
	c.inHeader = inHeader
	return c, c.identify(r, body)
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
