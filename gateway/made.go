package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/actiond/actiond/sandbox"
)

const (
	// removeTime limits the removal of one sandbox.
	removeTime = 30 * time.Second
	// maxRemovals is how many sandboxes are removed at a time.
	maxRemovals = 8
)

// made are the sandboxes that this gateway created and is to remove. A nil *made takes none.
type made struct {
	mu        sync.Mutex
	closed    bool
	creations sync.WaitGroup
	instances map[string]string // by id
}

// begin counts a creation until done is called. It fails after close.
func (m *made) begin() (done func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errStopping
	}
	m.creations.Add(1)
	return m.creations.Done, nil
}

// put notes a sandbox that was created.
func (m *made) put(s *sandbox.Sandbox) {
	if m != nil {
		m.mu.Lock()
		m.instances[s.ID] = s.Instance
		m.mu.Unlock()
	}
}

// forget notes that a sandbox is gone.
func (m *made) forget(id string) {
	if m != nil {
		m.mu.Lock()
		delete(m.instances, id)
		m.mu.Unlock()
	}
}

// close waits for the creations that have begun, and returns the instances by id.
func (m *made) close() map[string]string {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.creations.Wait()
	return m.instances
}

// removeMade removes the sandboxes that this gateway created and that are still there. Of ctx it
// uses only the values.
func (g *Gateway) removeMade(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	instances := g.made.close()
	failures := make(chan error, len(instances))
	slots := make(chan struct{}, maxRemovals)
	for id, instance := range instances {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			failures <- g.removeInstance(ctx, id, instance)
		}()
	}
	var all []error
	for range instances {
		all = append(all, <-failures)
	}
	return errors.Join(all...)
}

// removeInstance removes a sandbox, unless it is gone or another creator's of the same id.
func (g *Gateway) removeInstance(ctx context.Context, id, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	s, err := g.cfg.Driver.Get(ctx, id)
	if err == nil && s.Instance != instance || errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = g.cfg.Driver.Delete(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("removing sandbox %s, which ends by itself when its time is over: %w", id, err)
	}
	g.log.InfoContext(ctx, "removed a sandbox", slog.String("sandbox", id), slog.String("name", s.Name), slog.String("reason", "the gateway that made it ended"))
	return nil
}
