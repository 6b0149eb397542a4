package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// The labels of containers say which sandboxes are in a warm pool.

// Warm is [sandbox.Warmer]'s.
func (h *Host) Warm(ctx context.Context, pool string, spec sandbox.Spec) error {
	if err := h.complete(ctx, &spec); err != nil {
		return err
	}
	_, err := h.create(ctx, &spec, creation{key: "\x00pool " + random.Hex(16), pool: pool})
	return err
}

// Claim is [sandbox.Warmer]'s.
func (h *Host) Claim(ctx context.Context, spec sandbox.Spec, from []*sandbox.Sandbox) (*sandbox.Sandbox, bool, error) {
	if err := h.complete(ctx, &spec); err != nil {
		return nil, false, err
	}
	id := sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16)))
	unlockName, err := h.lockName(ctx, spec.Name)
	if err != nil {
		return nil, false, err
	}
	defer unlockName()
	unlock, err := h.state.lock(ctx, id)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	found, err := h.existing(ctx, &spec, id)
	if err != nil {
		return nil, false, err
	}
	if found != nil {
		return found.Sandbox, false, nil
	}
	if err := sandbox.NameIsFree(ctx, h, spec.Name); err != nil {
		return nil, false, err
	}
	for _, s := range from {
		taken, err := h.take(ctx, s, &spec, id)
		switch {
		case err == nil && taken:
			return s, true, nil
		case ctx.Err() != nil:
			return nil, false, fmt.Errorf("claiming a warm sandbox: %w", context.Cause(ctx))
		case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrUnknown), errors.Is(err, sandbox.ErrEgress):
			return nil, false, err // with ErrEgress a new sandbox would fail as well
		case err != nil:
			h.config.Logger.WarnContext(ctx, "a warm sandbox could not be claimed",
				slog.String("sandbox", s.ID), slog.Any("error", err))
		}
	}
	return nil, false, nil
}

// take claims s and gives it the id. The state file is written before the server
// is asked, and the name changed after it answered: a controller that dies in
// between leaves a sandbox that is in the pool and claimed, and Prune removes
// it. One that could not be claimed after all is removed too: its owner is not
// known.
func (h *Host) take(ctx context.Context, box *sandbox.Sandbox, spec *sandbox.Spec, id string) (taken bool, err error) {
	s, err := h.own(box)
	if err != nil {
		return false, err
	}
	unlock, err := h.state.tryLock(s.origin)
	if errors.Is(err, filelock.ErrLocked) {
		return false, nil // another claimer is taking it
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	n, err := h.state.load(s.origin)
	if err != nil || n.Claimed {
		return false, err
	}
	n.Claimed, n.Owner, n.Name, n.Env, n.Spec, n.Idle = true, spec.Owner, cmp.Or(spec.Name, id), spec.Env, spec.Hash(), spec.Idle
	n.Key = cmp.Or(n.Key, cmp.Or(spec.Secret, random.Hex(32)))
	n.Deadline = forever
	if spec.TTL > 0 {
		n.Deadline = time.Now().Add(spec.TTL)
	}
	h.config.Progress(s.ID, sandbox.Ready, "the state file of the claim")
	if err := h.state.save(s.origin, n); err != nil {
		return false, err
	}
	if err := h.bind(ctx, s, n, spec, id); err != nil {
		return false, errors.Join(err, h.destroy(ctx, s))
	}
	h.config.Progress(id, sandbox.Ready, "")
	s.ID, s.Pool = id, ""
	s.settle("running")
	return true, nil
}

func (h *Host) bind(ctx context.Context, s *instance, n stateFile, spec *sandbox.Spec, id string) error {
	if spec.Policy != nil { // before the claim: the claimer's commands may run from then on
		err := h.nextPolicy(s.origin, *spec.Policy, spec.Private)
		if err == nil {
			err = h.applyPolicy(ctx, s.origin)
		}
		if err != nil {
			return err
		}
	}
	h.config.Progress(s.ID, sandbox.Ready, "claiming it")
	if err := h.claimServer(ctx, s, n); err != nil {
		return fmt.Errorf("claiming sandbox %s: %w", s.ID, err)
	}
	h.config.Progress(s.ID, sandbox.Ready, "its new name")
	name := h.containerName(id)
	err := h.engine.ContainerRename(ctx, s.Instance, name)
	if isConflict(err) {
		return fmt.Errorf("%w: container %s has that name", sandbox.ErrConflict, name)
	}
	return engineError(ctx, "naming sandbox "+id, err)
}

// Discard is [sandbox.Warmer]'s.
func (h *Host) Discard(ctx context.Context, box *sandbox.Sandbox) error {
	s, err := h.own(box)
	if err != nil {
		return err
	}
	unlock, err := h.state.tryLock(s.origin)
	if errors.Is(err, filelock.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	// A claimer who was faster has given it another name, or noted its claim.
	if n, err := h.state.load(s.origin); err == nil && n.Claimed {
		return nil
	}
	return h.destroy(ctx, s)
}

// Lead is [sandbox.Warmer]'s. Two processes that filled a pool from different
// specifications would remove each other's members forever.
func (h *Host) Lead(ctx context.Context, what string, wait bool, work func(context.Context)) error {
	lock := h.state.lock
	if !wait {
		lock = func(_ context.Context, name string) (func(), error) { return h.state.tryLock(name) }
	}
	unlock, err := lock(ctx, what)
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("%w: another process leads %s", sandbox.ErrConflict, what)
	}
	if err != nil {
		return err
	}
	defer unlock()
	work(ctx)
	return nil
}
