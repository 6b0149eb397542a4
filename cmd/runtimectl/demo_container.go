package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/actiond/actiond/docker"
)

// demoImages are where the demo is played, the best first: ours have Python.
var demoImages = []string{"actiond:dev", "actiond-base:bookworm", demoPulled}

// demoPulled is pulled where none of them is on the host.
const demoPulled = "debian:bookworm-slim"

const (
	// demoTTL ends a demo's sandbox, should the demo be killed.
	demoTTL = 30 * time.Minute
	// pullLimit is how long a pull may take before the demo does without.
	pullLimit = 5 * time.Minute
)

// setUpContainer makes a sandbox. Where there can be none, it gives no stage and
// says why, and what to do.
func (p *program) setUpContainer(ctx context.Context, opts demoOptions) (st *stage, why string, err error) {
	servers, err := p.withServers()
	if err != nil {
		return nil, "", err
	}
	line := p.progress()
	defer line.end()
	host, err := p.openHost(servers, line.show)
	if err != nil {
		return nil, fmt.Sprintf("%v; 'runtimectl doctor' says more", err), nil
	}
	image, err := p.demoImage(ctx, host, opts.image)
	if err == nil {
		st, err = p.containerStage(ctx, host, image, opts)
	}
	switch {
	case err == nil:
		return st, "", nil
	case ctx.Err() == nil && errors.Is(err, docker.ErrUnknown):
		why, err = "no Docker engine answers; 'runtimectl doctor' says more", nil
	case ctx.Err() == nil && errors.Is(err, docker.ErrNoImage) && opts.image == "":
		why, err = "there is no image of "+strings.Join(demoImages, ", ")+", and none can be pulled; 'runtimectl image' makes one", nil
	}
	return nil, why, errors.Join(err, host.Close())
}

// demoImage is the image to play in. It is on the host then.
func (p *program) demoImage(ctx context.Context, host *docker.Host, given string) (string, error) {
	if given != "" {
		return given, host.Prepare(ctx, docker.Spec{Image: given})
	}
	for _, name := range demoImages {
		err := host.Prepare(ctx, docker.Spec{Image: name, Pull: docker.PullNever})
		if !errors.Is(err, docker.ErrNoImage) {
			return name, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pullLimit, fmt.Errorf("nothing after %v", pullLimit))
	defer cancel()
	return demoPulled, host.Prepare(ctx, docker.Spec{Image: demoPulled})
}

// containerStage makes the sandbox and a directory in it. What was made is
// removed by strike, or here where it cannot be used.
func (p *program) containerStage(ctx context.Context, host *docker.Host, image string, opts demoOptions) (*stage, error) {
	made, err := host.Create(ctx, docker.Spec{Image: image, TTL: demoTTL, Labels: map[string]string{"runtimectl": "demo"}})
	if err != nil {
		return nil, err
	}
	s := ofEngine(made)
	remove := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		return host.Delete(ctx, made)
	}
	c, err := s.client()
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	asIs := func(err error) error { return err }
	play := player{client: c, explain: asIs}
	dir, err := play.freshDir(ctx)
	if err != nil {
		c.Close()
		return nil, errors.Join(err, remove(ctx))
	}
	return &stage{
		client: c, dir: dir, explain: asIs,
		about: fmt.Sprintf("Playing in sandbox %s, a container of %s made for this.", s.ID, image),
		again: "runtimectl run " + word(image) + " -- uname -a\n" +
			"id=$(runtimectl create " + word(image) + ")\nruntimectl sh $id",
		strike: func(ctx context.Context) error {
			c.Close()
			if opts.keep {
				p.noteKept("sandbox " + s.ID + ", for " + demoTTL.String() + " at most,")
				return host.Close()
			}
			return errors.Join(remove(ctx), host.Close())
		},
	}, nil
}
