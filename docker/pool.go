package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Pool keeps sandboxes warm: created, ready, and nobody's. What is in it stands
// in the labels of the containers, so that every process of this controller
// may claim from it; Run, in one of them, fills it.
type Pool struct {
	host *Host
	name string
	spec Spec
	size int
	kick chan struct{} // somebody took one
}

// Pool prepares a pool of size sandboxes of one specification, whose Key, Secret,
// Name, Owner and Env do not count: those are the claimers'.
func (h *Host) Pool(name string, spec Spec, size int) (*Pool, error) {
	if !namePattern.MatchString(name) || size < 0 {
		return nil, refuse("a pool %q of %d", name, size)
	}
	spec.Key, spec.Secret, spec.Name, spec.Owner, spec.Env = "", "", "", "", nil
	if err := h.complete(&spec); err != nil {
		return nil, err
	}
	return &Pool{host: h, name: name, spec: spec, size: size, kick: make(chan struct{}, 1)}, nil
}

// Claim gives a sandbox of the specification: a warm one if there is one that
// nobody else gets, otherwise a new one. Like Create it gives the same sandbox
// for the same key. spec must ask for what the pool has; anything else is
// created. warm tells which it was.
func (p *Pool) Claim(ctx context.Context, spec Spec) (s *Sandbox, warm bool, err error) {
	h := p.host
	if err := h.complete(&spec); err != nil {
		return nil, false, err
	}
	b := birth{key: orElse(spec.Key, "\x00"+randomHex(16))}
	b.id = idOf(b.key)
	bare := spec
	bare.Env = nil
	if bare.hash() != p.spec.hash() {
		s, err = h.create(ctx, &spec, b)
		return s, false, err
	}
	unlock, err := h.state.lock(ctx, b.id)
	if err != nil {
		return nil, false, err
	}
	s, err = h.existing(ctx, &spec, b.id)
	if s == nil && err == nil {
		s, err = p.take(ctx, &spec, b.id)
		warm = s != nil
	}
	unlock()
	if s == nil && err == nil {
		s, err = h.create(ctx, &spec, b)
	}
	p.refill()
	return s, warm, err
}

// refill tells Run that one is missing.
func (p *Pool) refill() {
	select {
	case p.kick <- struct{}{}:
	default: // it knows already
	}
}

// take claims one of the warm sandboxes, or gives nothing if there is none.
func (p *Pool) take(ctx context.Context, spec *Spec, id string) (*Sandbox, error) {
	members, err := p.members(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range members {
		if !p.fits(s, time.Now()) {
			continue
		}
		taken, err := p.takeOne(ctx, s, spec, id)
		switch {
		case err == nil && taken:
			return s, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("claiming a warm sandbox: %w", context.Cause(ctx))
		case errors.Is(err, ErrConflict), errors.Is(err, ErrUnknown):
			return nil, err
		case err != nil:
			p.host.config.Logger.WarnContext(ctx, "a warm sandbox could not be claimed",
				slog.String("sandbox", s.ID), slog.Any("error", err))
		}
	}
	return nil, nil //nolint:nilnil // none is a possible answer
}

// takeOne claims s and gives it the id. The note is written before the server
// is asked, and the name changed after it answered: whoever dies in between
// leaves a sandbox that stands in the pool and is claimed, and Prune removes
// it. One that could not be claimed after all is removed too: who knows whose
// it is.
func (p *Pool) takeOne(ctx context.Context, s *Sandbox, spec *Spec, id string) (taken bool, err error) {
	h := p.host
	unlock, err := h.state.tryLock(s.birth)
	if errors.Is(err, errLocked) {
		return false, nil // somebody else is taking it
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	n, err := h.state.load(s.birth)
	if err != nil || n.Claimed {
		return false, err
	}
	n.Claimed, n.Owner, n.Name, n.Env, n.Spec, n.Idle = true, spec.Owner, orElse(spec.Name, id), spec.Env, spec.hash(), spec.Idle
	n.Key = orElse(n.Key, orElse(spec.Secret, randomHex(32)))
	n.Deadline = forever
	if spec.TTL > 0 {
		n.Deadline = time.Now().Add(spec.TTL)
	}
	h.config.Progress(s.ID, Ready, "the note of the claim")
	if err := h.state.save(s.birth, n); err != nil {
		return false, err
	}
	if err := p.bind(ctx, s, n, id); err != nil {
		return false, errors.Join(err, h.destroy(ctx, s))
	}
	h.config.Progress(id, Ready, "")
	s.ID, s.Pool = id, ""
	return true, s.settle("running")
}

func (p *Pool) bind(ctx context.Context, s *Sandbox, n note, id string) error {
	h := p.host
	h.config.Progress(s.ID, Ready, "claiming it")
	if err := h.config.Agent.Claim(ctx, s.Dial, n.claim(s, time.Now())); err != nil {
		return fmt.Errorf("claiming sandbox %s: %w", s.ID, err)
	}
	h.config.Progress(s.ID, Ready, "its new name")
	err := h.engine.ContainerRename(ctx, s.Container, h.config.Prefix+id)
	if isConflict(err) {
		return fmt.Errorf("%w: container %s%s stands in the way", ErrConflict, h.config.Prefix, id)
	}
	return engineError(ctx, "naming sandbox "+id, err)
}

// members are the sandboxes in the pool.
func (p *Pool) members(ctx context.Context) ([]*Sandbox, error) {
	all, err := p.host.List(ctx)
	if err != nil {
		return nil, err
	}
	var members []*Sandbox
	for _, s := range all {
		if s.Pool == p.name {
			members = append(members, s)
		}
	}
	return members, nil
}

// fits tells whether the sandbox can be claimed.
func (p *Pool) fits(s *Sandbox, now time.Time) bool {
	return s.State == Ready && s.Spec == p.spec.hash() && (s.Deadline.IsZero() || now.Before(s.Deadline.Add(-time.Minute)))
}

// Run keeps the pool full until ctx ends, and waits for the creations it began.
// Members of another specification, dead ones and old ones are removed. The
// pool's sandboxes stay: Drain removes them.
func (p *Pool) Run(ctx context.Context, every time.Duration) {
	for failures := 0; ; {
		if err := p.fill(ctx); err != nil && ctx.Err() == nil {
			failures++
			p.host.config.Logger.ErrorContext(ctx, "cannot fill the pool", slog.String("pool", p.name), slog.Any("error", err))
		} else {
			failures = 0
		}
		// After failures a claim alone does not make it try again at once.
		kick := p.kick
		if failures > 0 {
			kick = nil
		}
		timer := time.NewTimer(every * time.Duration(1<<min(failures, 5)))
		select {
		case <-kick:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// fill removes what does not fit and creates what is missing, side by side.
func (p *Pool) fill(ctx context.Context) error {
	members, err := p.members(ctx)
	if err != nil {
		return err
	}
	var errs []error
	missing := p.size
	for _, s := range members {
		switch {
		case !p.fits(s, time.Now()):
			errs = append(errs, p.drop(ctx, s))
		case missing == 0: // the pool got smaller
			errs = append(errs, p.drop(ctx, s))
		default:
			missing--
		}
	}
	created := make([]error, missing)
	var group sync.WaitGroup
	for i := range missing {
		group.Go(func() { created[i] = p.addOne(ctx) })
	}
	group.Wait()
	return errors.Join(append(errs, created...)...)
}

func (p *Pool) addOne(ctx context.Context) error {
	spec := p.spec
	_, err := p.host.create(ctx, &spec, birth{key: "\x00pool " + randomHex(16), pool: p.name})
	return err
}

// drop removes a member unless somebody is just taking or making it.
func (p *Pool) drop(ctx context.Context, s *Sandbox) error {
	h := p.host
	unlock, err := h.state.tryLock(s.birth)
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	// A claimer who was faster has given it another name, or noted its claim.
	if n, err := h.state.load(s.birth); err == nil && n.Claimed {
		return nil
	}
	return h.destroy(ctx, s)
}

// Drain removes all sandboxes that wait in the pool.
func (p *Pool) Drain(ctx context.Context) error {
	members, err := p.members(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range members {
		errs = append(errs, p.drop(ctx, s))
	}
	return errors.Join(errs...)
}
