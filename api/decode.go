package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
)

// The names of actions, by what becomes of them.
var (
	runnable = []string{
		"run", "run_ipython", "read", "write", "edit", "glob", "grep", "list_directory", "browse", "browse_interactive",
		"call_tool_mcp",
	}
	// elsewhere are carried out by controllers and agents.
	elsewhere = []string{
		"null", "think", "finish", "reject", "delegate", "recall", "change_agent_state", "message", "system",
		"condensation", "condensation_request", "task_tracking", "loop_recovery",
		"start", "pause", "resume", "stop", "push", "send_pr",
	}
	sources = []string{"agent", "user", "environment"}
)

// maxArgs bounds the values in the arguments of one action, lists included.
const maxArgs = 10_000

// DecodeRequest reads the body of an execute_action call, {"action": {…}}.
// Every error is an *Error and nothing was done: 422 where the body is no JSON
// or holds no action object, 400 where that object is wrong. Members of the
// envelope that the sandbox has no use for are ignored, unknown arguments are
// refused. What the reference answers with an error observation becomes an
// InvalidAction.
func DecodeRequest(body []byte) (Request, error) {
	e, err := parseEnvelope(body)
	if err != nil {
		return Request{}, &Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "Invalid request parameters",
			Errors: err.Error(),
		}
	}
	r, err := e.request()
	if err != nil {
		return Request{}, &Error{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return r, nil
}

// envelope holds the members of an action object that matter here.
type envelope map[string]any

// parseEnvelope reads the body down to the arguments.
func parseEnvelope(body []byte) (envelope, error) {
	p, err := newParser(body)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	p.halves = true
	p.budget = maxArgs
	if p.peek() != '{' {
		return nil, fmt.Errorf("body: %w", p.noObject(`an object {"action": {…}}`))
	}
	var e envelope
	missing := errors.New(`body.action: missing, must be an object`)
	err = p.object(func(name string) error {
		if name != "action" {
			return p.skip()
		}
		e = nil
		if p.peek() != '{' {
			v, err := p.value()
			missing = fmt.Errorf("body.action: must be an object, got %s", describe(v))
			return err
		}
		e = envelope{}
		return p.object(func(name string) error { return e.member(p, name) })
	})
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if e == nil {
		return nil, missing
	}
	return e, nil
}

// member keeps one member of the action object, or skips it.
func (e envelope) member(p *parser, name string) (err error) {
	switch name {
	case "action", "args", "id", "session", "source", "timeout":
		e[name], err = p.value()
		return err
	case "observation":
		e[name] = nil // that it came is all there is to know
	}
	return p.skip()
}

// request makes a Request of an envelope.
func (e envelope) request() (Request, error) {
	kind, args, err := e.kindAndArgs()
	if err != nil {
		return Request{}, err
	}
	f := &fields{of: fmt.Sprintf("action %q: argument", kind), values: modern(args)}
	action := decodeArgs(kind, f)
	if err := f.checkAll(); err != nil {
		return Request{}, err
	}
	r := Request{Action: action}
	if r.Session, err = decodeSession(e["session"]); err != nil {
		return Request{}, err
	}
	if v := e["id"]; v != nil {
		id, ok := integral(v)
		if !ok {
			return Request{}, fmt.Errorf(`"id" must be an integer, got %s`, describe(v))
		}
		r.ID = int64(id)
	}
	if v, ok := e["source"]; ok {
		if s, _ := v.(string); !slices.Contains(sources, s) {
			return Request{}, fmt.Errorf(`"source" must be one of %s, got %s`, strings.Join(sources, ", "), describe(v))
		}
	}
	if r.Timeout, err = decodeTimeout(e["timeout"]); err == nil {
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

// kindAndArgs finds out what is to be done and with what.
func (e envelope) kindAndArgs() (kind string, args map[string]any, err error) {
	allowed := strings.Join(runnable, ", ")
	v, sent := e["action"]
	if _, ok := e["observation"]; ok && !sent {
		return "", nil, fmt.Errorf("an observation came where an action is wanted; allowed are %s", allowed)
	}
	kind, ok := v.(string)
	switch {
	case !sent:
		return "", nil, fmt.Errorf(`the action object has no "action"; allowed are %s`, allowed)
	case !ok:
		return "", nil, fmt.Errorf(`"action" must be a string, got %s; allowed are %s`, describe(v), allowed)
	case slices.Contains(elsewhere, kind):
		return "", nil, fmt.Errorf("action %q is not for a sandbox to carry out; allowed are %s", kind, allowed)
	case !slices.Contains(runnable, kind):
		return "", nil, fmt.Errorf("action %s is unknown; allowed are %s", excerpt(kind), allowed)
	}
	v, sent = e["args"]
	if !sent {
		return kind, map[string]any{}, nil
	}
	if args, ok = v.(map[string]any); !ok {
		return "", nil, fmt.Errorf(`action %q: "args" must be an object, got %s`, kind, describe(v))
	}
	return kind, args, nil
}

// decodeArgs is the one switch from names to actions.
func decodeArgs(kind string, f *fields) Action {
	switch kind {
	case "run":
		return decodeRun(f)
	case "run_ipython":
		return decodeIPython(f)
	case "read":
		return decodeRead(f)
	case "write":
		return decodeWrite(f)
	case "edit":
		return decodeEdit(f)
	case "glob":
		return decodeGlob(f)
	case "grep":
		return decodeGrep(f)
	case "list_directory":
		return decodeList(f)
	case "browse":
		return decodeBrowse(f)
	case "call_tool_mcp":
		return decodeMCP(f)
	default: // browse_interactive: kindAndArgs lets nothing else through
		return decodeBrowseInteractive(f)
	}
}

// decodeSession reads a session's name; "default" is the unnamed one.
func decodeSession(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	name, ok := v.(string)
	if !ok {
		return "", fmt.Errorf(`"session" must be a string, got %s`, describe(v))
	}
	if name == "default" {
		return "", nil
	}
	return name, checkSession(name)
}

const sessionAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// checkSession refuses names that could not stand in a path or a log line.
func checkSession(name string) error {
	const most = 64
	if strings.Trim(name, sessionAlphabet) != "" || len(name) > most || name == "." || name == ".." {
		return fmt.Errorf(`"session" must be 1 to %d characters of A-Z a-z 0-9 . _ - and not "." or "..", got %s`, most, describe(name))
	}
	return nil
}

// decodeTimeout reads seconds, nil when absent.
func decodeTimeout(v any) (*float64, error) {
	if v == nil {
		return nil, nil
	}
	if n, ok := v.(json.Number); ok {
		if seconds, err := n.Float64(); err == nil && !math.IsInf(seconds, 0) {
			return &seconds, nil
		}
	}
	return nil, fmt.Errorf(`"timeout" must be a finite number of seconds, got %s`, describe(v))
}
