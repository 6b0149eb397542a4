package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/sandbox"
)

// make makes a sandbox, or takes it from a pool, and does work on it.
func (p *program) make(ctx context.Context, spec sandbox.Spec, pool string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error) error {
	line := p.progress()
	defer line.end()
	var change []func(*options)
	if p.place.local {
		p.warnLocal()
		if spec.Image != "" {
			_, _ = fmt.Fprintf(p.stderr, "note: there are no images with --local: %s is not used\n", clean(spec.Image))
		}
	} else {
		servers, err := p.withServers()
		if err != nil {
			return err
		}
		change = append(change, servers, line.show)
	}
	return p.in(func(driver sandbox.Driver) error {
		s, err := p.take(ctx, driver, spec, pool)
		line.end()
		if errors.Is(err, sandbox.ErrNoImage) {
			return fmt.Errorf("%w; 'runtimectl image' makes %s, also where no registry can be reached", err, imageTag)
		}
		if err != nil {
			return err
		}
		return work(driver, s)
	}, change...)
}

// addPool gives c a flag for the warm pool to take from.
func (p *program) addPool(c *cobra.Command, pool *string) {
	c.Flags().StringVar(pool, "pool", "", "take one of the warm `POOL`, where one of the same flags waits")
	_ = c.RegisterFlagCompletionFunc("pool", p.completePools) // the flag is there
}

// take makes a sandbox, or takes it from the warm pool where one is named.
func (p *program) take(ctx context.Context, driver sandbox.Driver, spec sandbox.Spec, pool string) (*sandbox.Sandbox, error) {
	if pool == "" {
		return driver.Create(ctx, spec)
	}
	from, err := sandbox.NewPool(ctx, driver, pool, spec, 0, nil)
	if err != nil {
		return nil, err
	}
	s, warm, err := from.Claim(ctx, spec)
	if err != nil {
		return nil, err
	}
	if !warm && spec.Key == "" { // with a key it may have been there
		_, _ = fmt.Fprintf(p.stderr, "note: none of these flags waits in pool %s: this one was made\n", pool)
	}
	return s, nil
}

// oneImage takes the image from the arguments; with --local there need be none.
func (p *program) oneImage(args []string) (image string, rest []string, err error) {
	switch {
	case len(args) > 0:
		return args[0], args[1:], nil
	case p.place.local:
		return "", nil, nil
	}
	return "", nil, errors.New("an image is missing")
}

// removeLimit is how long the removal of a sandbox may take, also after an
// interrupt: no other process knows that it is to be removed.
const removeLimit = 30 * time.Second

// removeAfter removes a sandbox whose command ended with err, and returns how
// the whole ends.
func (p *program) removeAfter(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	if failed := driver.Delete(ctx, s); failed != nil {
		p.complain(fmt.Sprintf("removing the sandbox: %v; 'runtimectl rm %s' does it", failed, s.ID))
		if err == nil {
			return &exitError{code: exitOwn}
		}
	}
	return err
}

// show is a change for open: the line says what a creation waits for, and how
// far a pull is.
func (g *progress) show(o *options) {
	o.progress = func(_ string, _ sandbox.State, waiting string) {
		if waiting != "" {
			g.say("waiting for %s", strings.TrimPrefix(waiting, "waiting for "))
		}
	}
	o.pulling = func(status string, done, total int64) {
		if total == 0 {
			g.count("pulling: %s", strings.ToLower(status))
		} else {
			g.count("pulling: %s of %s", size(done), size(total))
		}
	}
}

// imageTag is what `runtimectl image` calls the image that it builds. The Makefile
// uses the same name.
const imageTag = "actiond:dev"
