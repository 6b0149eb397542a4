package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
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
	// Stats counts the watched directories, those that were listed, and the steps that looked at something with their time.
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

// withChanges returns the parts of an answer, with what the action changed if the call asks for that: a header where it
// asked by one. The answer of an attempt has its id, while it is open.
func (s *Server) withChanges(h http.Header, c *call, run *actions.Run, body []byte) (parts [][]byte, err error) {
	parts = [][]byte{body}
	switch {
	case c.Request.Changes == "":
	case c.inHeader:
		h.Set(api.ChangesHeader, changesOf(run).Header())
	default:
		parts, err = api.AddChanges(body, changesOf(run))
	}
	if err == nil && c.Attempt {
		if id := s.actions.AttemptOf(run.ID()); id != "" {
			parts, err = api.AddAttempt(parts, id)
		}
	}
	return parts, err
}

// changes answers with the changes between two states.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if diff := query.Get("diff"); diff != "" && diff != "0" && diff != "1" {
		return invalid("query.diff: must be 0 or 1, got %s", api.Describe(diff))
	}
	var path string
	var err error
	if query.Get("path") != "" {
		if path, err = s.workspacePath("query.path", query.Get("path")); err != nil {
			return err
		}
	}
	if query.Get("since") == "" {
		return invalid("query.since: missing, must be a state such as s16 or the number of an action")
	}
	to := s.actions.State() // so that it is not older than a state that is named
	from, err := s.stateIn("since", query.Get("since"))
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
	if query.Get("diff") == "1" && c.Counts.Created+c.Counts.Modified > 0 {
		c.Truncated = true // the lines are not kept
	}
	return writeJSON(w, http.StatusOK, c)
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
	before, err := number(r, "before", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", defaultPage, maxPage)
	if err != nil {
		return err
	}
	var page api.ChangeLog
	page.Entries, page.Next = s.actions.ChangeLog(before, int(limit)) //nolint:gosec // at most maxPage
	return writeJSON(w, http.StatusOK, page)
}

// changesInfo says how changes are followed.
func (s *Server) changesInfo() api.ChangesInfo {
	if s.cfg.Workspace == nil {
		return api.ChangesInfo{Mode: api.ChangesOff, Baseline: api.Baseline{State: api.BaselineOff}}
	}
	return s.cfg.Workspace.Info()
}
