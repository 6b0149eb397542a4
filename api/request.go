package api

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// sources are the allowed values of an action's source.
var sources = []string{"agent", "user", "environment"}

// wantAction shows the nesting that callers often get wrong: the action is an object in the body.
const wantAction = `must be an object such as {"action": "run", "args": {"command": "ls"}}`

// DecodeRequest reads the body of an execute_action call, {"action": {…}}.
// Every error is an *[Error] and nothing was done: 422 where the body is not JSON
// or holds no action object, 400 where that object is wrong. Unknown members
// outside of the arguments are ignored, unknown arguments are refused. A mistake that
// the reference answers with an error observation becomes an [InvalidAction].
func DecodeRequest(body []byte) (Request, error) {
	_, r, err := decodeRequest(body)
	return r, err
}

// DecodeNative is DecodeRequest by the rules of /v1/actions. It also refuses, with status 400, an
// unknown member, an [InvalidAction], and an invalid idempotency key such as a number: its sender
// would trust that the action runs once.
func DecodeNative(body []byte) (Request, error) {
	sent, r, err := decodeRequest(body)
	if err != nil {
		return Request{}, err
	}
	invalid, isInvalid := r.Action.(InvalidAction)
	switch {
	case isSet(sent.key) && sent.key.Kind() != '"':
		err = BadRequest(`"id" beside "action": must be a string, got ` + describe(sent.key))
	case sent.unknown != "" && !strings.HasPrefix(sent.unknown, inAction):
		err = BadRequest(fmt.Sprintf("body: member %s is unknown; allowed are action, changes, id", Excerpt(sent.unknown)))
	case sent.unknown != "":
		name := strings.TrimPrefix(sent.unknown, inAction)
		err = BadRequest(fmt.Sprintf("body.action: member %s is unknown; allowed are args, %s", Excerpt(name), strings.Join(actionMembers, ", ")))
	case isInvalid:
		err = BadRequest("body.action.args: " + invalid.Reason)
	default:
		if r.Changes, err = decodeChanges(sent.changes); err == nil {
			return r, nil
		}
		err = BadRequest("body: " + err.Error())
	}
	return Request{}, err
}

func decodeRequest(body []byte) (*sentRequest, Request, error) {
	sent, err := scanRequest(body)
	if err != nil {
		return nil, Request{}, &Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "Invalid request parameters",
			Errors: err.Error(),
		}
	}
	r, err := sent.request()
	if err != nil {
		return nil, Request{}, BadRequest(err.Error())
	}
	return sent, r, nil
}

// inAction begins the name of an unknown member of the action.
const inAction = "action."

// actionMembers are those of an action beside its arguments.
var actionMembers = []string{"action", "id", "timestamp", "session", "source", "timeout"}

// sentRequest is the body of a request, taken apart.
type sentRequest struct {
	key     jsontext.Value // "id" beside "action"
	changes jsontext.Value // likewise
	action  members        // those of actionMembers, "observation" and "args"; nil where no object came
	args    members        // nil where no object came
	unknown string         // the first member of the body or the action that is unknown, or ""
}

// scanRequest takes a body apart.
func scanRequest(body []byte) (*sentRequest, error) {
	scan, err := newScanner(body, maxValues)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	r := &sentRequest{}
	var other jsontext.Value // the value that came instead of an action object
	err = scan.object(`an object {"action": {…}}`, func(name string) (err error) {
		switch name {
		case "action":
			r.args = nil // of an earlier action object
			other, err = scan.members(&r.action, func(name string) error { return r.readMember(scan, name) })
			return err
		case "id":
			r.key, err = scan.value()
			return err
		case "changes":
			r.changes, err = scan.value()
			return err
		}
		r.unknown = cmp.Or(r.unknown, name)
		return scan.skip()
	})
	if err == nil {
		err = scan.end()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("body: %w", err)
	case r.action == nil && other == nil:
		return nil, errors.New("body.action: missing, " + wantAction)
	case r.action == nil:
		return nil, fmt.Errorf("body.action: %s, got %s", wantAction, describe(other))
	}
	return r, nil
}

// readMember reads a member of the action.
func (r *sentRequest) readMember(scan *scanner, name string) (err error) {
	if name == "args" {
		r.action[name], err = scan.members(&r.args, nil)
		return err
	}
	if !slices.Contains(actionMembers, name) {
		r.unknown = cmp.Or(r.unknown, inAction+name)
		if name != "observation" { // which is refused in words of its own
			return scan.skip()
		}
	}
	return r.action.read(scan, name)
}

// request decodes the members into a Request.
func (s *sentRequest) request() (Request, error) {
	form, kind, err := s.shape()
	if err != nil {
		return Request{}, err
	}
	v, d := decode(form, fmt.Sprintf("action %q: argument", kind), modernize(s.args), true)
	action := v.(Action)
	if a, ok := action.(settler); ok {
		action, err = a.settle(d)
	} else {
		err = d.check()
	}
	if err != nil {
		return Request{}, err
	}
	r := Request{Action: action}
	if r.Session, err = decodeSession(s.action["session"]); err != nil {
		return Request{}, err
	}
	if id := s.action["id"]; isSet(id) {
		n, ok := Integral(string(id))
		if !ok {
			return Request{}, fmt.Errorf(`"id" must be an integer, got %s`, describe(id))
		}
		r.ID = int64(n)
	}
	if stamp, err := text(s.action["timestamp"], false); err == nil { // it may be anything
		r.Timestamp = stamp
	}
	if isSet(s.key) && s.key.Kind() == '"' { // the legacy protocol ignores others
		if r.Key, err = text(s.key, true); err == nil {
			err = CheckKey(r.Key)
		}
		if err != nil {
			return Request{}, fmt.Errorf(`"id" beside "action": %w`, err)
		}
	}
	if source, ok := s.action["source"]; ok {
		if name, err := text(source, true); err != nil || !slices.Contains(sources, name) {
			return Request{}, fmt.Errorf(`"source" must be one of %s, got %s`, strings.Join(sources, ", "), describe(source))
		}
	}
	if r.Timeout, err = decodeTimeout(s.action["timeout"]); err == nil {
		return r, nil
	}
	switch run, ok := action.(RunAction); {
	case ok && !run.Hidden:
		r.Action = InvalidAction{Of: run, Reason: fmt.Sprintf("action %q: %s", kind, err)}
	case !ok && kind == "run": // its command is wrong already
	default:
		return Request{}, fmt.Errorf("action %q: %w", kind, err)
	}
	return r, nil
}

// shape returns the shape and the name of the action.
func (s *sentRequest) shape() (form *shape, kind string, err error) {
	raw, sent := s.action["action"]
	if _, ok := s.action["observation"]; ok && !sent {
		return nil, "", fmt.Errorf("an observation came where an action is wanted; allowed are %s", actionKinds())
	}
	if !sent {
		return nil, "", fmt.Errorf(`the action object has no "action"; allowed are %s`, actionKinds())
	}
	kind, err = text(raw, true)
	if err != nil {
		return nil, "", fmt.Errorf(`"action" must be %w; allowed are %s`, err, actionKinds())
	}
	if slices.Contains(elsewhere, kind) {
		return nil, "", fmt.Errorf("action %q is not for a sandbox to carry out; allowed are %s", kind, actionKinds())
	}
	form = actionShapes[kind]
	if form == nil {
		return nil, "", fmt.Errorf("action %s is unknown; allowed are %s", Excerpt(kind), actionKinds())
	}
	if args, sent := s.action["args"]; sent && s.args == nil {
		return nil, "", fmt.Errorf(`action %q: "args" must be an object, got %s`, kind, describe(args))
	}
	return form, kind, nil
}

// actionKinds lists the names of the actions for messages.
func actionKinds() string {
	var names []string
	for _, s := range actions {
		names = append(names, s.kind())
	}
	return strings.Join(names, ", ")
}

// The shapes by the names of actions and observations.
var (
	actionShapes      = byKind(actions)
	observationShapes = byKind(observations)
)

func byKind(shapes []*shape) map[string]*shape {
	m := make(map[string]*shape, len(shapes))
	for _, s := range shapes {
		m[s.kind()] = s
	}
	return m
}

// kind returns the name of the action or observation that has the shape.
func (s *shape) kind() string { return s.absent.Interface().(interface{ Kind() string }).Kind() }

// CheckKey refuses an invalid idempotency key of an action.
func CheckKey(key string) error {
	const most = 255
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	if key == "" || len(key) > most || strings.ContainsFunc(key, func(r rune) bool { return !visible(r) }) {
		return fmt.Errorf("an id must be 1 to %d visible ASCII characters, got %s", most, Describe(key))
	}
	if key == "." || key == ".." { // clients and proxies take it out of a path
		return fmt.Errorf("an id must not be %q", key)
	}
	return nil
}

// isSet reports whether a member came and is not null.
func isSet(raw jsontext.Value) bool { return raw != nil && raw.Kind() != 'n' }

// decodeSession reads the name of a session; "default" is the unnamed one.
func decodeSession(raw jsontext.Value) (string, error) {
	if !isSet(raw) {
		return "", nil
	}
	name, err := text(raw, true)
	if err != nil {
		return "", fmt.Errorf(`"session" must be %w`, err)
	}
	if name == "default" {
		return "", nil
	}
	return name, checkSession(name)
}

const sessionAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// checkSession refuses names that cannot be part of a path or of a log line.
func checkSession(name string) error {
	const most = 64
	if strings.Trim(name, sessionAlphabet) != "" || len(name) > most || name == "." || name == ".." {
		return fmt.Errorf(`"session" must be 1 to %d characters of A-Z a-z 0-9 . _ - and not "." or "..", got %s`, most,
			Describe(name))
	}
	return nil
}

// decodeTimeout reads seconds, nil when absent.
func decodeTimeout(raw jsontext.Value) (*float64, error) {
	if !isSet(raw) {
		return nil, nil
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || raw.Kind() != '0' || math.IsInf(seconds, 0) {
		return nil, fmt.Errorf(`"timeout" must be a finite number of seconds, got %s`, describe(raw))
	}
	return &seconds, nil
}

// wireRequest is the body of an execute_action call.
type wireRequest struct {
	Key     string      `json:"id,omitzero"`
	Action  *wireAction `json:"action"`
	Changes string      `json:"changes,omitzero"`
}

type wireAction struct {
	ID      int64  `json:"id,omitzero"`
	Stamp   string `json:"timestamp,omitzero"`
	Action  string `json:"action"`
	Args    Action `json:"args"`
	Session string `json:"session,omitzero"`
	Timeout *Float `json:"timeout,omitzero"`
}

// EncodeRequest returns the body of an execute_action call. It refuses the same
// requests as the server: a text that is not valid UTF-8, an impossible session
// name, a timeout that is not a finite number, an [InvalidAction].
func EncodeRequest(r Request) ([]byte, error) {
	w, err := r.wire()
	if err != nil {
		return nil, err
	}
	return encodeStrictly(w, r.Action.Kind()+" action")
}

func (r Request) wire() (wireRequest, error) {
	if r.Action == nil {
		return wireRequest{}, errors.New("encoding request: the action is nil")
	}
	kind := r.Action.Kind()
	if _, ok := r.Action.(InvalidAction); ok {
		return wireRequest{}, fmt.Errorf("encoding %s action: an invalid action has no arguments to send", kind)
	}
	timeout, err := checkLimits(r.Session, r.Timeout)
	if err != nil {
		return wireRequest{}, fmt.Errorf("encoding %s action: %w", kind, err)
	}
	args := r.Action
	switch a := args.(type) {
	case ReadAction:
		a.ImplSource = cmp.Or(a.ImplSource, implDefault)
		args = a
	case EditAction:
		a.ImplSource = cmp.Or(a.ImplSource, implEditor)
		args = a
	default:
	}
	if r.Key != "" {
		if err := CheckKey(r.Key); err != nil {
			return wireRequest{}, fmt.Errorf("encoding %s action: %w", kind, err)
		}
	}
	if err := CheckChanges(r.Changes); err != nil {
		return wireRequest{}, fmt.Errorf(`encoding %s action: "changes" %w`, kind, err)
	}
	return wireRequest{r.Key, &wireAction{ID: r.ID, Stamp: r.Timestamp, Action: kind, Args: args, Session: r.Session, Timeout: timeout}, r.Changes}, nil
}

// checkLimits checks the session and the timeout of an action.
func checkLimits(session string, timeout *float64) (*Float, error) {
	if err := checkSession(session); err != nil {
		return nil, err
	}
	if timeout == nil {
		return nil, nil
	}
	if math.IsNaN(*timeout) || math.IsInf(*timeout, 0) {
		return nil, fmt.Errorf("timeout %s is not finite", FormatSeconds(*timeout))
	}
	return new(Float(*timeout)), nil
}
