package actions

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

const (
	// maxCheckpoints bounds the checkpoints, each of which keeps contents.
	maxCheckpoints = 100
	// captureTime is how long a checkpoint waits for contents, unless it says otherwise.
	captureTime = time.Minute
)

// present returns the present state, and with verify lists everything before. The error is an *api.Error if it is not
// known.
func (m *Manager) present(ctx context.Context, verify bool) (uint64, error) {
	e := m.effects
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	var now uint64
	if verify {
		n, _ := e.workspace.Verify()
		now = e.stepped(n)
	} else {
		now = e.step()
	}
	if now == 0 {
		return 0, errNoPresent()
	}
	return now, nil
}

func errNoPresent() *api.Error {
	return api.Conflict("The present state of the workspace is not known: /server_info says in changes how it is followed")
}

// Checkpoint gives the present state a name, and waits until the contents are kept, for a while or until ctx ends.
func (m *Manager) Checkpoint(ctx context.Context, req api.CheckpointRequest) (api.Checkpoint, error) {
	pin, err := m.checkpoint(ctx, req)
	if err != nil {
		return api.Checkpoint{}, err
	}
	wait := captureTime
	if req.Wait != nil {
		wait = seconds(*req.Wait)
	}
	m.capture(ctx, wait)
	return m.describe(pin), nil
}

func (m *Manager) checkpoint(ctx context.Context, req api.CheckpointRequest) (p api.Pin, err error) {
	if err := m.canUndo(ctx); err != nil {
		return p, err
	}
	m.pinning.Lock()
	defer m.pinning.Unlock()
	if _, taken := m.pin(req.Name); taken {
		return p, api.Conflict(fmt.Sprintf("There is a checkpoint %s already: remove it first, with DELETE /v1/checkpoints/%s", req.Name, url.PathEscape(req.Name)))
	}
	state, err := m.present(ctx, req.Verify)
	if err != nil {
		return p, err
	}
	if err := m.makeRoom(); err != nil {
		return p, err
	}
	p = api.Pin{Name: req.Name, State: state, Time: time.Now()}
	if req.Expires > 0 {
		p.Expires = p.Time.Add(seconds(req.Expires))
	}
	return p, m.effects.workspace.Pin(p)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// makeRoom removes the oldest expired checkpoint where there are as many as there may be. The caller holds pinning.
func (m *Manager) makeRoom() error {
	pins := m.named()
	if len(pins) < maxCheckpoints {
		return nil
	}
	for _, p := range pins {
		if !p.Expires.IsZero() && !time.Now().Before(p.Expires) {
			return m.effects.workspace.Unpin(p.Name)
		}
	}
	return api.Conflict(fmt.Sprintf("There are %d checkpoints already: remove one first", maxCheckpoints))
}

// named are the pins that are checkpoints.
func (m *Manager) named() (pins []api.Pin) {
	if w := m.effects.workspace; w != nil {
		for _, p := range w.Pins() {
			if !strings.HasPrefix(p.Name, ".") {
				pins = append(pins, p)
			}
		}
	}
	return pins
}

// describe returns a checkpoint as far as its contents are kept by now.
func (m *Manager) describe(p api.Pin) api.Checkpoint {
	missing, paths, _ := m.effects.workspace.Missing(p.State) // a state that went meanwhile has no numbers
	c := api.Checkpoint{Name: p.Name, State: api.StateName(p.State), Time: p.Time.UTC(), Missing: missing, MissingPaths: paths}
	if !p.Expires.IsZero() {
		c.Expires = p.Expires.UTC()
	}
	return c
}

// Checkpoints returns all of them, the oldest first.
func (m *Manager) Checkpoints() []api.Checkpoint {
	list := []api.Checkpoint{}
	for _, p := range m.named() {
		list = append(list, m.describe(p))
	}
	return list
}

// RemoveCheckpoint removes the checkpoint of a name. The error is an *api.Error if it does not exist.
func (m *Manager) RemoveCheckpoint(name string) error {
	m.pinning.Lock()
	defer m.pinning.Unlock()
	if _, ok := m.pin(name); !ok || api.CheckCheckpointName(name) != nil {
		return api.NotFound("There is no checkpoint " + api.Excerpt(name))
	}
	return m.effects.workspace.Unpin(name)
}
