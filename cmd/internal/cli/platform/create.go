package platform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/sandbox"
)

// Make makes a sandbox, or takes it from a pool, and does work on it.
func (p *Platform) Make(
	ctx context.Context, spec sandbox.Spec, pool string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error,
) error {
	line := p.Progress()
	defer line.End()
	var change []func(*Options)
	if p.Local {
		p.WarnLocal()
		if spec.Image != "" {
			_, _ = fmt.Fprintf(p.Stderr, "note: there are no images with --on local: %s is not used\n", output.Clean(spec.Image))
			spec.Image = ""
		}
	} else {
		servers, err := p.WithServers()
		if err != nil {
			return err
		}
		change = append(change, servers, showOn(line, spec.Image))
	}
	return p.In(func(driver sandbox.Driver) error {
		s, err := p.take(ctx, driver, spec, pool)
		line.End()
		if errors.Is(err, sandbox.ErrNoImage) && !p.Kubernetes {
			return fmt.Errorf("%w; 'runtimectl image' makes %s, also where no registry can be reached", err, ImageTag)
		}
		if err != nil {
			return err
		}
		return work(driver, s)
	}, change...)
}

// AddPool gives c a flag for the warm pool to take from.
func (p *Platform) AddPool(c *cobra.Command, pool *string) {
	c.Flags().StringVar(pool, "pool", "", "take one of the warm `POOL`, where one of the same flags waits")
	_ = c.RegisterFlagCompletionFunc("pool", p.CompletePools) // the flag is there
}

// take makes a sandbox, or takes it from the warm pool where one is named.
func (p *Platform) take(
	ctx context.Context, driver sandbox.Driver, spec sandbox.Spec, pool string,
) (*sandbox.Sandbox, error) {
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
		_, _ = fmt.Fprintf(p.Stderr, "note: none of these flags waits in pool %s: this one was made\n", pool)
	}
	return s, nil
}

// OneImage takes the image from the arguments; with --on local there need be none.
func (p *Platform) OneImage(args []string) (image string, rest []string, err error) {
	switch {
	case len(args) > 0:
		return args[0], args[1:], nil
	case p.Local:
		return "", nil, nil
	}
	return "", nil, errors.New("an image is missing")
}

// RemoveLimit is how long the removal of a sandbox may take, also after an
// interrupt: no other process knows that it is to be removed.
const RemoveLimit = 30 * time.Second

// RemoveAfter removes a sandbox whose command ended with err, and returns how
// the whole ends.
func (p *Platform) RemoveAfter(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RemoveLimit)
	defer cancel()
	if failed := driver.Delete(ctx, s); failed != nil {
		p.Complain(fmt.Sprintf("removing the sandbox: %v; 'runtimectl rm %s' does it", failed, s.ID))
		if err == nil {
			return &command.ExitError{Code: command.ExitOwn}
		}
	}
	return err
}

// showOn is a change for Open: the line names the step of a creation, and how far the
// pull of its image is.
func showOn(line *output.Progress, image string) func(*Options) {
	return func(o *Options) {
		o.Progress = func(_ string, state sandbox.State, waiting string) {
			if text := doing(state, waiting); text != "" {
				line.Say("%s", text)
			} else {
				line.End()
			}
		}
		var had bool
		o.Pulling = func(status string, done, total int64) {
			switch {
			case total > 0:
				had = true
				line.Count("pulling %s %s", image, share(done, total))
			case status == "Extracting":
				line.Count("unpacking %s", image)
			case !had:
				line.Count("pulling %s", image)
			}
		}
	}
}

// doing describes a step of a creation for people.
func doing(state sandbox.State, waiting string) string {
	switch state {
	case sandbox.Creating, sandbox.Starting:
		return "starting"
	case sandbox.Pending:
		return "waiting for " + waiting
	}
	return ""
}

// share is how much is done of a total, in bytes, such as "34/52 MB".
func share(done, total int64) string {
	unit, name := int64(1e6), "MB"
	if total < 1e6 {
		unit, name = 1e3, "kB"
	}
	return fmt.Sprintf("%d/%d %s", min(done, total)/unit, (total+unit-1)/unit, name)
}

// ImageTag is the name of the image that `runtimectl image` builds. The Makefile
// uses the same name.
const ImageTag = "actiond:dev"
