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

// wantAction shows the form that is easy to get wrong: the action is an object in the body.
const wantAction = `must be an object such as {"action": "run", "args": {"command": "ls"}}`

// DecodeRequest reads the body of an execute_action call, {"action": {…}}.
// Every error is an *[Error] and nothing was done: 422 where the body is not JSON
// or holds no action object, 400 where that object is wrong. Members of the
// envelope that the sandbox has no use for are ignored, unknown arguments are
// refused. What the reference answers with an error observation becomes an
// [InvalidAction].
func DecodeRequest(body []byte) (Request, error) {
	_, r, err := decodeRequest(body)
	return r, err
}

// DecodeNative is DecodeRequest by the rules of /v1/actions. It also refuses, with status 400, a
// member that is unknown, what would be an [InvalidAction], and an identity that cannot be one,
// such as a number: its sender would trust that the action runs once.
func DecodeNative(body []byte) (Request, error) {
	e, r, err := decodeRequest(body)
	if err != nil {
		return Request{}, err
	}
	invalid, isInvalid := r.Action.(InvalidAction)
	switch {
	case isSet(e.key) && e.key.Kind() != '"':
		err = BadRequest(`"id" beside "action": must be a string, got ` + describe(e.key))
	case e.unknown != "" && !strings.HasPrefix(e.unknown, inAction):
		err = BadRequest(fmt.Sprintf("body: member %s is unknown; allowed are action, id", Excerpt(e.unknown)))
	case e.unknown != "":
		name := strings.TrimPrefix(e.unknown, inAction)
		err = BadRequest(fmt.Sprintf("body.action: member %s is unknown; allowed are args, %s", Excerpt(name), strings.Join(actionMembers, ", ")))
	case isInvalid:
		err = BadRequest("body.action.args: " + invalid.Reason)
	default:
		return r, nil
	}
	return Request{}, err
}

func decodeRequest(body []byte) (*envelope, Request, error) {
	e, err := scanRequest(body)
	if err != nil {
		return nil, Request{}, &Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "Invalid request parameters",
			Errors: err.Error(),
		}
	}
	r, err := e.request()
	if err != nil {
		return nil, Request{}, BadRequest(err.Error())
	}
	return e, r, nil
}

// inAction begins the name of an unknown member of the action.
const inAction = "action."

// scanRequest finds the members of the action object in a body.
func scanRequest(body []byte) (*envelope, error) {
	scan, err := newScanner(body, maxValues)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	var e *envelope
	var other, key jsontext.Value // what came for the action object and beside it
	unknown := ""                 // the first member that nothing knows
	note := func(name string) { unknown = cmp.Or(unknown, name) }
	err = scan.object(`an object {"action": {…}}`, func(name string) (err error) {
		switch name {
		case "action":
		case "id":
			key, err = scan.value()
			return err
		default:
			note(name)
			return scan.skip()
		}
		e = nil
		if scan.dec.PeekKind() != '{' {
			other, err = scan.value()
			return err
		}
		e = &envelope{members: members{}}
		return scan.object("", func(name string) error {
			if name != "args" && !slices.Contains(actionMembers, name) {
				note(inAction + name)
			}
			return e.read(scan, name, "args", readMembersOfAction...)
		})
	})
	if err == nil {
		err = scan.end()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("body: %w", err)
	case e == nil && other == nil:
		return nil, errors.New("body.action: missing, " + wantAction)
	case e == nil:
		return nil, fmt.Errorf("body.action: %s, got %s", wantAction, describe(other))
	}
	e.key, e.unknown = key, unknown
	return e, nil
}

// actionMembers are those of an action beside its arguments.
var actionMembers = []string{"action", "id", "timestamp", "session", "source", "timeout"}

// readMembersOfAction are those that are read: an observation is refused in words of its own.
var readMembersOfAction = slices.Concat(actionMembers, []string{"observation"})

// envelope holds the members of an object that matter, and apart from them those
// of the object inside of it: the arguments of an action, the extras of an
// observation.
type envelope struct {
	members
	inner members        // nil where no object came
	key   jsontext.Value // the identity beside the action

	unknown string // the first member of a request that nothing knows, "" without one
}

// read keeps the named member if it is the inner object or among the given names,
// or skips it.
func (e *envelope) read(scan *scanner, name, inner string, names ...string) error {
	if name != inner {
		return e.members.read(scan, name, names...)
	}
	e.inner = nil
	if scan.dec.PeekKind() != '{' {
		return e.members.read(scan, name)
	}
	e.inner = members{}
	e.members[name] = nil
	return scan.object("", func(name string) error { return e.inner.read(scan, name) })
}

// request makes a Request of an envelope.
func (e *envelope) request() (Request, error) {
	s, kind, err := e.shape()
	if err != nil {
		return Request{}, err
	}
	v, d := decode(s, fmt.Sprintf("action %q: argument", kind), modernize(e.inner), true)
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
	if r.Session, err = decodeSession(e.members["session"]); err != nil {
		return Request{}, err
	}
	if id := e.members["id"]; isSet(id) {
		n, ok := Integral(string(id))
		if !ok {
			return Request{}, fmt.Errorf(`"id" must be an integer, got %s`, describe(id))
		}
		r.ID = int64(n)
	}
	if stamp, err := text(e.members["timestamp"], false); err == nil { // it may be anything
		r.Timestamp = stamp
	}
	if isSet(e.key) && e.key.Kind() == '"' { // the legacy protocol ignores others
		if r.Key, err = text(e.key, true); err == nil {
			err = CheckKey(r.Key)
		}
		if err != nil {
			return Request{}, fmt.Errorf(`"id" beside "action": %w`, err)
		}
	}
	if source, ok := e.members["source"]; ok {
		if s, err := text(source, true); err != nil || !slices.Contains(sources, s) {
			return Request{}, fmt.Errorf(`"source" must be one of %s, got %s`, strings.Join(sources, ", "), describe(source))
		}
	}
	if r.Timeout, err = decodeTimeout(e.members["timeout"]); err == nil {
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

// shape finds out which action is meant.
func (e *envelope) shape() (s *shape, kind string, err error) {
	raw, sent := e.members["action"]
	if _, ok := e.members["observation"]; ok && !sent {
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
	s = actionShapes[kind]
	if s == nil {
		return nil, "", fmt.Errorf("action %s is unknown; allowed are %s", Excerpt(kind), actionKinds())
	}
	if args, sent := e.members["args"]; sent && e.inner == nil {
		return nil, "", fmt.Errorf(`action %q: "args" must be an object, got %s`, kind, describe(args))
	}
	return s, kind, nil
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

// CheckKey refuses what cannot be the identity of an action.
func CheckKey(key string) error {
	const most = 255
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	if key == "" || len(key) > most || strings.ContainsFunc(key, func(r rune) bool { return !visible(r) }) {
		return fmt.Errorf("an identity must be 1 to %d visible ASCII characters, got %s", most, Describe(key))
	}
	if key == "." || key == ".." { // clients and proxies take it out of a path
		return fmt.Errorf("an identity must not be %q", key)
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
		return fmt.Errorf(`"session" must be 1 to %d characters of A-Z a-z 0-9 . _ - and not "." or "..", got %s`, most, Describe(name))
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
	Key    string      `json:"id,omitzero"`
	Action *wireAction `json:"action"`
}

type wireAction struct {
	ID      int64  `json:"id,omitzero"`
	Stamp   string `json:"timestamp,omitzero"`
	Action  string `json:"action"`
	Args    Action `json:"args"`
	Session string `json:"session,omitzero"`
	Timeout *Float `json:"timeout,omitzero"`
}

// EncodeRequest returns the body of an execute_action call. It refuses what
// the other side would: a text that is not valid UTF-8, an impossible session
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
	return wireRequest{r.Key, &wireAction{ID: r.ID, Stamp: r.Timestamp, Action: kind, Args: args, Session: r.Session, Timeout: timeout}}, nil
}

// checkLimits checks where and for how long an action may run.
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
