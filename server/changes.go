package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// Workspace follows the changes of the directory that actions work on. Its methods may be called concurrently.
type Workspace interface {
	actions.Workspace
	// Dir is its absolute path, and Info says how it is followed.
	Dir() string
	Info() api.ChangesInfo
	// Stats counts the watched directories, those that were listed, and the steps that looked at something with their
	// time.
	Stats() (watches int, listed, steps uint64, stepping time.Duration)
}

// askedInHeader reads how much of an action's changes a request asks for that has no member for it.
func askedInHeader(r *http.Request) (string, error) {
	sent := r.Header.Get(api.ChangesHeader)
	if err := api.CheckChanges(sent); err != nil {
		return "", api.BadRequest(fmt.Sprintf("header %s: %v", api.ChangesHeader, err))
	}
	return sent, nil
}

// changesOf returns the changes by an action that has ended.
func changesOf(run *actions.Run) *api.Changes {
	if c := run.Changes(); c != nil {
		return c
	}
	info := run.Info()
	c := &api.Changes{Action: info.N, Paths: []api.ChangedPath{}}
	if info.Effect == journal.EffectNone {
		c.By, c.Exact = []uint64{info.N}, true
		return c
	}
	c.During, c.Why = []uint64{info.N}, "offline"
	return c
}

// withChanges returns the parts of an answer, with the action's changes if the call asks for them; in a header where it
// asked in one.
func (s *Server) withChanges(h http.Header, c *call, run *actions.Run, body []byte) (parts [][]byte, err error) {
	parts = [][]byte{body}
	switch {
	case c.Request.Changes == "":
		if early := run.Changes(); early != nil && early.Why == api.WhyEarly {
			h.Set(api.ChangesHeader, early.Header()) // nothing else would say that it cannot be taken back
		}
	case c.inHeader:
		h.Set(api.ChangesHeader, changesOf(run).Header())
	default:
		parts, err = api.AddChanges(body, changesOf(run))
	}
	return parts, err
}

// changes answers with the changes between two states, or streams them as they happen.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	diff, err := oneIn(query, "diff")
	if err != nil {
		return err
	}
	watch, err := oneIn(query, "watch")
	if err != nil {
		return err
	}
	var path string
	if query.Get("path") != "" {
		if path, err = s.workspacePath("query.path", query.Get("path")); err != nil {
			return err
		}
	}
	if watch {
		return s.watchChanges(w, r, path, diff)
	}
	if err := s.actions.Known(r.Context()); err != nil {
		return err
	}
	to := s.actions.State() // so that it is not older than a state that is named
	from, err := s.stateIn("since", cmp.Or(query.Get("since"), api.StateName(api.FirstState)))
	if err != nil {
		return err
	}
	if until := query.Get("until"); until != "" {
		if to, err = s.stateIn("until", until); err != nil {
			return err
		}
	}
	c, err := s.actions.ChangesBetween(from, to, path)
	if err != nil {
		return err
	}
	if diff {
		s.actions.AddLines(c, from, to)
	}
	return writeJSON(w, http.StatusOK, c)
}

// oneIn reads a parameter that is 0 or 1.
func oneIn(query url.Values, name string) (bool, error) {
	text := query.Get(name)
	if text != "" && text != "0" && text != "1" {
		return false, invalid("query.%s: must be 0 or 1, got %s", name, api.Describe(text))
	}
	return text == "1", nil
}

// maxWatchers bounds the requests that watch changes.
const maxWatchers = 16

// watchChanges streams changes until the client leaves. The state in the number of an event, or in its after, is where
// it can go on.
func (s *Server) watchChanges(w http.ResponseWriter, r *http.Request, path string, diff bool) error {
	query := r.URL.Query()
	if query.Get("until") != "" {
		return invalid("query.until: not allowed beside watch")
	}
	if err := s.actions.Known(r.Context()); err != nil {
		return err
	}
	var since uint64
	var err error
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if _, err := strconv.ParseUint(last, 10, 63); err != nil {
			return invalid("header.Last-Event-ID: must be a number, got %s", api.Describe(last))
		}
		since, err = s.stateIn("since", "s"+last)
	} else if query.Get("since") != "" {
		since, err = s.stateIn("since", query.Get("since"))
	}
	if err != nil {
		return err
	}
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return refuse(http.StatusTooManyRequests, "%d requests already watch what changes", maxWatchers)
	}
	ctx, giveUp := context.WithCancelCause(r.Context())
	defer giveUp(nil)
	defer s.onHangUp(giveUp)()
	out := &events{w: w, form: cmp.Or(streamForm(r), linesType), giveUp: giveUp}
	var begun bool
	err = s.actions.WatchChanges(ctx, actions.Watching{
		Since: since, Path: path, Lines: diff,
		Send: func(c *api.Changes) error {
			if !begun { // an error before has a status
				begun = true
				out.begin()
			}
			line, err := api.Encode(api.ChangesEvent{Event: api.EventChanges, Changes: *c})
			if err != nil {
				return err
			}
			n, _ := api.StateNumber(c.After)
			return out.write(api.EventChanges, n, line)
		},
		Idle: func() error { return out.send(api.Heartbeat{}) }, Silence: s.heartbeat,
	})
	switch {
	case !begun:
		return err
	case ctx.Err() == nil:
		refusal, id := s.verdict(r, err)
		_ = out.send(api.Failed{Status: refusal.Status, Detail: api.NewRefusal(refusal, id).Detail, ID: id})
	}
	return nil
}

// stateIn returns the number of a state that a parameter names.
func (s *Server) stateIn(parameter, text string) (uint64, error) {
	n, err := s.actions.Resolve(api.StateRef(text))
	return n, inMember("query."+parameter, err)
}

// inMember says in which member of a body or a query the error is.
func inMember(name string, err error) error {
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Errors != "" {
		return api.Invalid(name + ": " + refusal.Errors)
	}
	return err
}

// workspacePath returns a path relative to the workspace, which is "." itself.
func (s *Server) workspacePath(member, path string) (string, error) {
	sent := path
	if filepath.IsAbs(path) && s.cfg.Workspace != nil {
		rel, err := filepath.Rel(s.cfg.Workspace.Dir(), path)
		if err != nil {
			return "", invalid("%s: %v", member, err)
		}
		path = rel
	}
	clean := filepath.Clean(path)
	switch {
	case path == "", strings.ContainsRune(path, 0):
		return "", invalid("%s: must be a path, got %s", member, api.Describe(sent))
	case clean == "..", strings.HasPrefix(clean, "../"), filepath.IsAbs(clean):
		return "", invalid("%s: must be in the workspace, got %s", member, api.Describe(sent))
	}
	return clean, nil
}

// changeLog answers with a page of the log of changes.
func (s *Server) changeLog(w http.ResponseWriter, r *http.Request) error {
	before, limit, err := pageOf(r)
	if err != nil {
		return err
	}
	if s.actions.Known(r.Context()) == nil {
		s.actions.State() // what changed since, or while no server ran, is an entry
	}
	entries, next := s.actions.ChangeLog(before, limit)
	return writeJSON(w, http.StatusOK, api.ChangeLog{Entries: entries, Next: next})
}

// changesInfo says how changes are followed.
func (s *Server) changesInfo() api.ChangesInfo {
	if s.cfg.Workspace == nil {
		return api.ChangesInfo{Mode: api.ChangesOff, Baseline: api.Baseline{State: api.BaselineOff}}
	}
	return s.cfg.Workspace.Info()
}
