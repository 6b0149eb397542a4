package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/runtimectl/internal/output"
	"github.com/actiond/actiond/sandbox"
)

// Agent is what package docker says to the server in a sandbox.
type Agent struct{}

var _ sandbox.Agent = Agent{}

// Ready runs a command in the default shell. A sandbox without an owner is asked
// whether it could: it runs nothing yet.
func (Agent) Ready(ctx context.Context, dial sandbox.DialFunc, key string) error {
	c, err := clientOver(dial, key)
	if err != nil {
		return err
	}
	defer c.Close()
	if key == "" {
		return c.Ready(ctx)
	}
	o, err := c.Do(ctx, api.Request{Action: api.RunAction{Command: "true", Blocking: true, Hidden: true}})
	if err != nil {
		return err
	}
	if run, ok := o.(api.RunObservation); !ok || run.Metadata.ExitCode != 0 {
		return fmt.Errorf("the first command did not succeed: %s", output.Clean(output.Content(o)))
	}
	return nil
}

// Claim makes the sandbox the caller's.
func (Agent) Claim(ctx context.Context, dial sandbox.DialFunc, claim sandbox.Claim) error {
	c, err := clientOver(dial, claim.Ticket)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Claim(ctx, api.Claim{
		Key: claim.Key, Owner: claim.Owner, Env: claim.Env, TTLSeconds: wholeSeconds(claim.TTL), IdleSeconds: wholeSeconds(claim.Idle),
	})
	if refused, ok := errors.AsType[*client.StatusError](err); ok && refused.Status == http.StatusConflict {
		return fmt.Errorf("%w: %w", sandbox.ErrClaimed, refused)
	}
	return err
}

// wholeSeconds rounds up, so that a limit never becomes none.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Renew gives the sandbox a new deadline.
func (Agent) Renew(ctx context.Context, dial sandbox.DialFunc, key string, ttl time.Duration) error {
	c, err := clientOver(dial, key)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Renew(ctx, ttl)
	return err
}

// Status asks what the sandbox does, and how long it will live.
func (Agent) Status(ctx context.Context, dial sandbox.DialFunc, key string) (sandbox.Status, error) {
	c, err := clientOver(dial, key)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer c.Close()
	life, err := c.Status(ctx)
	if err != nil {
		return sandbox.Status{}, err
	}
	s := sandbox.Status{Busy: life.Busy, Claimed: life.Claimed, Since: time.Now()}
	if life.IdleSince != nil {
		s.Since = *life.IdleSince
	}
	if life.Deadline != nil {
		s.Deadline = *life.Deadline
	}
	return s, nil
}

// clientOver is a client whose connections dial opens. Its Close drops them.
func clientOver(dial sandbox.DialFunc, key string) (*client.Client, error) {
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		IdleConnTimeout:    90 * time.Second,

		MaxResponseHeaderBytes: 64 << 10,
	}
	return client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport}})
}
