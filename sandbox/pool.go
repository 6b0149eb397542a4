package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

// Pool keeps sandboxes warm: created, ready, and without an owner. The platform
// records which sandboxes are in it, so that every process of a controller may
// claim from it; Run, in one of them, fills it. Its methods may be called
// concurrently.
type Pool struct {
	driver Driver
	warmer Warmer
	name   string
	spec   Spec
	hash   string // of spec
	size   int
	log    *slog.Logger
	kick   chan struct{} // a sandbox was claimed
}

// NewPool prepares a pool of size sandboxes of one specification, without its Key, Secret,
// Name, Owner, Env and network policy: claims set those. A nil logger discards.
func NewPool(ctx context.Context, d Driver, name string, spec Spec, size int, logger *slog.Logger) (*Pool, error) {
	warmer, err := Needs[Warmer](d, "keep sandboxes warm")
	if err != nil {
		return nil, err
	}
	if !IsName(name) || size < 0 {
		return nil, Invalid("a pool %q of %d", name, size)
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	spec.Key, spec.Secret, spec.Name, spec.Owner = "", "", "", ""
	spec.warm()
	hash, err := d.Check(ctx, &spec)
	if err != nil {
		return nil, err
	}
	return &Pool{
		driver: d, warmer: warmer, name: name, spec: spec, hash: hash, size: size,
		log: logger.With(slog.String("pool", name)), kick: make(chan struct{}, 1),
	}, nil
}

// Prepare gets the prerequisites of the pool's creations, such as the image.
func (p *Pool) Prepare(ctx context.Context) error { return p.warmer.Prepare(ctx, p.spec) }

// Claim returns a sandbox of the specification: a warm one if one is left for this
// caller, otherwise a new one. Like Create it returns the same sandbox for the same key.
// A specification that differs from the pool's is created. warm reports whether the
// sandbox was warm.
func (p *Pool) Claim(ctx context.Context, spec Spec) (s *Sandbox, warm bool, err error) {
	bare := spec
	bare.warm()
	hash, err := p.driver.Check(ctx, &bare)
	if err != nil {
		return nil, false, err
	}
	if hash == p.hash {
		if s, warm, err = p.claim(ctx, spec); s != nil || err != nil {
			return s, warm, err
		}
	}
	s, err = p.driver.Create(ctx, spec)
	return s, false, err
}

// claim is Claim for the pool's specification; it returns nil if the pool is empty.
func (p *Pool) claim(ctx context.Context, spec Spec) (s *Sandbox, warm bool, err error) {
	members, err := p.members(ctx)
	if err != nil {
		return nil, false, err
	}
	var fit []*Sandbox
	for _, member := range members {
		if p.fits(member, time.Now()) {
			fit = append(fit, member)
		}
	}
	s, warm, err = p.warmer.Claim(ctx, spec, fit)
	select {
	case p.kick <- struct{}{}:
	default: // Run knows already
	}
	return s, warm, err
}

// members are the sandboxes in the pool.
func (p *Pool) members(ctx context.Context) (members []*Sandbox, err error) {
	all, err := p.driver.List(ctx)
	for _, s := range all {
		if s.Pool == p.name {
			members = append(members, s)
		}
	}
	return members, err
}

// PoolAge is how long a warm sandbox waits for a claim before another one replaces it.
// Drivers set it as the time limit of the servers of the pool, which therefore end even
// if no process fills the pool any longer.
const PoolAge = time.Hour

// fits reports whether the sandbox can be claimed.
func (p *Pool) fits(s *Sandbox, now time.Time) bool {
	return s.State == Ready && s.Spec == p.hash && !s.Outdated && (s.Deadline.IsZero() || now.Before(s.Deadline.Add(-time.Minute)))
}

// Run keeps the pool full until ctx ends, and waits for the creations it began.
// It removes members of another specification or with another server, dead ones and old
// ones. At its end the pool's sandboxes stay: Drain removes them. While another process
// fills a pool of this name, Run waits to take over. After an error, and after it lost the
// lead, it tries again after a pause of every.
func (p *Pool) Run(ctx context.Context, every time.Duration) {
	for wait := false; ; wait = true {
		err := p.warmer.Lead(ctx, "pool-"+p.name, wait, func(ctx context.Context) { p.keepFull(ctx, every) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrConflict) && !wait:
			p.log.InfoContext(ctx, "another process fills the pool: waiting to take over")
			continue
		case err != nil:
			p.log.ErrorContext(ctx, "cannot fill the pool", slog.Any("error", err))
		default:
			p.log.WarnContext(ctx, "lost the lead of the pool: waiting for it")
		}
		if channel.Sleep(ctx, every) != nil {
			return
		}
	}
}

func (p *Pool) keepFull(ctx context.Context, every time.Duration) {
	for failures := 0; ; {
		if err := p.fill(ctx); err != nil && ctx.Err() == nil {
			failures++
			p.log.ErrorContext(ctx, "cannot fill the pool", slog.Any("error", err))
		} else {
			failures = 0
		}
		// After failures a claim alone does not cause another attempt at once.
		kick := p.kick
		if failures > 0 {
			kick = nil
		}
		select {
		case <-kick:
		case <-time.After(every * time.Duration(1<<min(failures, 5))):
		case <-ctx.Done():
			return
		}
	}
}

// fill removes members that do not fit and creates missing ones concurrently.
func (p *Pool) fill(ctx context.Context) error {
	members, err := p.members(ctx)
	if err != nil {
		return err
	}
	var errs []error
	missing := p.size
	for _, s := range members {
		if missing == 0 || !p.fits(s, time.Now()) {
			errs = append(errs, p.warmer.Discard(ctx, s))
		} else {
			missing--
		}
	}
	created := make([]error, missing)
	var group sync.WaitGroup
	for i := range missing {
		group.Go(func() { created[i] = p.warmer.Warm(ctx, p.name, p.spec) })
	}
	group.Wait()
	if made := missing - len(slices.DeleteFunc(slices.Clone(created), func(err error) bool { return err == nil })); made > 0 {
		p.log.InfoContext(ctx, "made warm sandboxes", slog.Int("number", made))
	}
	return errors.Join(append(errs, created...)...)
}

// Drain removes all sandboxes that wait in the pool, unless another process fills
// it or waits to take it over. Run must have ended.
func (p *Pool) Drain(ctx context.Context) error {
	var errs []error
	err := p.warmer.Lead(ctx, "pool-"+p.name, false, func(ctx context.Context) {
		members, err := p.members(ctx)
		errs = append(errs, err)
		for _, s := range members {
			errs = append(errs, p.warmer.Discard(ctx, s))
		}
	})
	if !errors.Is(err, ErrConflict) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
