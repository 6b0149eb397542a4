package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxToolText bounds the text about changes for a model, in bytes.
	maxToolText = 30_000
	// toolEntries is how many entries of the log it gets.
	toolEntries = 10
)

// workspaceKind is the name of a call about the workspace in the journal.
func workspaceKind(w *tools.Workspace) string {
	if w.Undo {
		return tools.NeedsUndo
	}
	return tools.NeedsChanges
}

// workspaceTool carries out a call about the workspace. Errors are for the model to read.
func (s *Server) workspaceTool(ctx context.Context, w tools.Workspace) (api.Observation, error) {
	var text string
	paths, err := s.toolPaths(w.Paths)
	switch {
	case err != nil:
	case w.Undo:
		text, err = s.undoForModel(ctx, w, paths)
	default:
		if err = s.actions.Known(ctx); err == nil {
			text, err = s.changesForModel(w, paths)
		}
	}
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return api.ErrorObservation{Content: api.NewRefusal(refusal, "").Detail}, nil
	}
	if err != nil {
		return nil, err
	}
	return api.SuccessObservation{Content: shorten.Text(text, maxToolText)}, nil
}

// toolPaths returns paths relative to the workspace, nil for all of it.
func (s *Server) toolPaths(sent []string) ([]string, error) {
	list := make([]api.FilePath, len(sent))
	for i, path := range sent {
		list[i] = api.FilePath(path)
	}
	return s.relativePaths("paths", list)
}

// undoForModel takes changes back and says which.
func (s *Server) undoForModel(ctx context.Context, w tools.Workspace, paths []string) (string, error) {
	r, err := s.actions.Restore(ctx, api.RestoreRequest{Before: w.Action, Last: w.Action == 0}, paths)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if r.None() {
		b.WriteString("Nothing had to be restored.\n")
	} else {
		b.WriteString("Restored. This changed:\n")
		listChanges(&b, &r.Changes)
	}
	for _, p := range r.Refused {
		fmt.Fprintf(&b, "not restored: %s: %s\n", nameOf(p.Path, p.PathBase64), p.Why)
	}
	if more := r.RefusedCount - len(r.Refused); more > 0 {
		fmt.Fprintf(&b, "not restored: %d more\n", more)
	}
	for _, p := range r.Lost {
		fmt.Fprintf(&b, "the content before is lost: %s\n", nameOf(string(p), nil))
	}
	if len(r.Living) > 0 {
		fmt.Fprintf(&b, "%d processes that were started before go on, and may have replaced files open.\n", len(r.Living))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// changesForModel describes the changes since a state, or since before the last change that was asked for.
func (s *Server) changesForModel(w tools.Workspace, paths []string) (string, error) {
	now := s.actions.State()
	entries, _ := s.actions.ChangeLog(0, toolEntries)
	var since uint64
	var err error
	if w.Since != "" {
		if since, err = s.actions.Resolve(w.Since); err != nil {
			return "", inMember("since", err)
		}
	} else if since, err = s.actions.BeforeLast(); err != nil || since == 0 {
		return "Nothing that changed is known yet.", nil //nolint:nilerr // there was no such change
	}
	c, err := s.changesBelow(since, now, paths)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Since %s:\n", api.StateName(since))
	if listChanges(&b, c); len(c.Paths) == 0 && len(c.Ignored) == 0 {
		b.WriteString("nothing changed\n")
	}
	b.WriteString("The last changes, the newest first:\n")
	for _, e := range entries {
		name := e.Kind
		if e.N != nil {
			name = fmt.Sprintf("action %d (%s)", *e.N, e.Kind)
		}
		n := e.Counts
		fmt.Fprintf(&b, "%s: %d created, %d modified, %d deleted, %d renamed\n", name, n.Created, n.Modified+n.Meta,
			n.Deleted, n.Renamed)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// changesBelow returns changes with their lines, of some paths unless these are nil.
func (s *Server) changesBelow(since, now uint64, paths []string) (*api.Changes, error) {
	if paths == nil {
		paths = []string{""}
	}
	var all *api.Changes
	for _, path := range paths {
		c, err := s.actions.ChangesBetween(since, now, path)
		if err != nil {
			return nil, err
		}
		s.actions.AddLines(c, since, now)
		if all == nil {
			all = c
			continue
		}
		all.Paths, all.Truncated = append(all.Paths, c.Paths...), all.Truncated || c.Truncated
	}
	return all, nil
}

// listChanges writes a line for each change, and its lines.
func listChanges(b *strings.Builder, c *api.Changes) {
	for _, change := range c.Paths {
		b.WriteString(change.Op + " ")
		if change.From != "" || change.FromBase64 != nil {
			b.WriteString(nameOf(change.From, change.FromBase64) + " -> ")
		}
		b.WriteString(nameOf(change.Path, change.PathBase64))
		if change.Lines != nil {
			fmt.Fprintf(b, " (+%d -%d)", change.Lines[0], change.Lines[1])
		}
		if change.Content != "" {
			b.WriteString(" (content: " + change.Content + ")")
		}
		b.WriteString("\n" + change.Diff)
		if change.Diff != "" && !strings.HasSuffix(change.Diff, "\n") {
			b.WriteString("\n")
		}
	}
	ignored := 0
	for _, n := range c.Ignored {
		ignored += n
	}
	if ignored > 0 {
		fmt.Fprintf(b, "and %d ignored files\n", ignored)
	}
	if c.Truncated {
		b.WriteString("This is not all.\n")
	}
	if !c.Exact {
		fmt.Fprintf(b, "Some changes may be missing (%s).\n", c.Why)
	}
}

// nameOf is a path for people: in quotes if it has other characters than printable ones.
func nameOf(path string, binary []byte) string {
	if binary != nil {
		return fmt.Sprintf("%q", binary)
	}
	if quoted := fmt.Sprintf("%q", path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}
