package server

import (
	"fmt"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/journal"
)

// FrozenAction is an action under way on its way to another program.
type FrozenAction struct {
	journal.Frozen
	Request   []byte // as a client would send it
	CallID    *string
	Repaired  []string // of the call of a tool
	Cancelled bool
}

// call returns the call of an action that was handed over.
func (a *FrozenAction) call() (*call, error) {
	req, err := api.DecodeRequest(a.Request)
	if err != nil {
		return nil, fmt.Errorf("going on with action %q: %w", a.ID, err)
	}
	return &call{
		id: a.ID, given: true, stays: true, resumed: a.State != journal.Reserved, digest: a.Digest, kind: a.Kind, req: req, form: form(a.Form),
		answer: api.ToolAnswer{ID: a.CallID, Repaired: a.Repaired},
	}, nil
}

// Check returns an error where a server cannot go on with a state.
func (f *Frozen) Check() error {
	for _, a := range f.Actions {
		if _, err := a.call(); err != nil {
			return err
		}
	}
	return nil
}

// Living returns what the journal needs of the actions that go on.
func (f *Frozen) Living() (list []journal.Frozen) {
	for _, a := range f.Actions {
		list = append(list, a.Frozen)
	}
	return list
}

// resume goes on with an action that was handed over.
func (s *Server) resume(frozen *FrozenAction) error {
	c, err := frozen.call()
	if err != nil {
		return err
	}
	if c.run = s.runAction(c); c.form == formTool {
		c.run = s.runCall(c)
	}
	leave, err := s.enter()
	if err != nil {
		leave = func() {} // the limit is lower than before
	}
	a, _ := s.cfg.Journal.Lookup(c.id) // one that is forgotten is nil too
	if a == nil {
		leave()
		return fmt.Errorf("going on with action %q: the journal does not have it", c.id)
	}
	f := &flight{action: a, call: c, named: true}
	s.flights.mu.Lock()
	s.board(f)
	if frozen.Cancelled {
		close(f.cancelled)
	}
	s.flights.mu.Unlock()
	go s.fly(s.base, f, leave)
	return nil
}
