// Package agent sends requests to the servers in sandboxes, on behalf of drivers: it is
// the [sandbox.Agent] that a program passes to its driver.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// Agent sends HTTP requests to servers. It may be used concurrently.
type Agent struct{}

var _ sandbox.Agent = Agent{}

// Ready runs a command in the default shell. A sandbox without an owner runs nothing yet,
// so Ready waits for its shell only.
func (Agent) Ready(ctx context.Context, dial sandbox.DialFunc, key string) error {
	c, err := Client(dial, key)
	if err != nil {
		return err
	}
	defer c.Close()
	if key == "" {
		return awaitReady(ctx, c)
	}
	o, err := c.Do(ctx, api.Request{Action: api.ReadyCheck})
	if err != nil {
		return err
	}
	run, ok := o.(api.RunObservation)
	switch {
	case !ok:
		return fmt.Errorf("the answer to the first command is a %T", o)
	case run.Metadata.ExitCode != 0: // quoted: the text is the sandbox's
		return fmt.Errorf("the first command ended with status %d: %.200q", run.Metadata.ExitCode, run.Content)
	}
	return nil
}

// awaitReady asks until the start of the sandbox's shell is over, at first often, then
// every 50 ms.
func awaitReady(ctx context.Context, c *client.Client) error {
	var starting error
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := c.Ready(ctx)
		refused, ok := errors.AsType[*client.StatusError](err)
		switch {
		case ok && refused.Status == http.StatusServiceUnavailable:
			starting = err
		case starting != nil && ctx.Err() != nil:
			return fmt.Errorf("%w (%w)", context.Cause(ctx), starting)
		default:
			return err
		}
		_ = channel.Sleep(ctx, wait) // the next question fails where ctx has ended
	}
}

// Claim binds the sandbox to its owner.
func (Agent) Claim(ctx context.Context, dial sandbox.DialFunc, claim sandbox.Claim) error {
	c, err := Client(dial, claim.Ticket)
	if err != nil {
		return err
	}
	defer c.Close()
	var network *api.ClaimNetwork
	if claim.Egress != "" {
		network = &api.ClaimNetwork{Egress: claim.Egress, Token: claim.Token, Names: claim.Names, Env: claim.Placeholders, CA: claim.CA}
	}
	err = c.Claim(ctx, api.Claim{
		Network: network,
		Key:     claim.Key, Owner: claim.Owner, Env: claim.Env, TTLSeconds: sandbox.WholeSeconds(claim.TTL), IdleLimitSeconds: sandbox.WholeSeconds(claim.Idle),
	})
	if refused, ok := errors.AsType[*client.StatusError](err); ok && refused.Status == http.StatusConflict {
		return fmt.Errorf("%w: %w", sandbox.ErrClaimed, refused)
	}
	return err
}

// Renew sets a new deadline.
func (Agent) Renew(ctx context.Context, dial sandbox.DialFunc, key, ticket string, ttl time.Duration) error {
	c, err := Client(dial, key)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.RenewByTicket(ctx, ticket, ttl)
	return err
}

// Status returns whether the sandbox is busy, and its deadline.
func (Agent) Status(ctx context.Context, dial sandbox.DialFunc, key string) (sandbox.Status, error) {
	c, err := Client(dial, key)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer c.Close()
	life, err := c.Status(ctx)
	if err != nil {
		return sandbox.Status{}, err
	}
	s := sandbox.Status{
		Busy: life.Busy, Claimed: life.Claimed, Since: time.Now(), UserID: life.UserID, TrustProblem: life.TrustProblem, NamesProblem: life.NamesProblem, DirProblem: life.DirProblem,
	}
	if life.IdleSince != nil {
		s.Since = *life.IdleSince
	}
	if life.Deadline != nil {
		s.Deadline = *life.Deadline
	}
	return s, nil
}

// Usage measures the sandbox.
func (Agent) Usage(ctx context.Context, dial sandbox.DialFunc, key string) (sandbox.Stats, error) {
	c, err := Client(dial, key)
	if err != nil {
		return sandbox.Stats{}, err
	}
	defer c.Close()
	u, err := c.Usage(ctx)
	return sandbox.Stats{
		Time: u.Time, CPU: float64(u.CPUSeconds), Memory: u.Memory, MemoryLimit: u.MemoryLimit, Pids: u.Pids,
		NetIn: u.NetIn, NetOut: u.NetOut, DiskIn: u.DiskIn, DiskOut: u.DiskOut,
	}, err
}

// Pack reads files of the sandbox as an archive.
func (Agent) Pack(ctx context.Context, dial sandbox.DialFunc, key, path string) (io.ReadCloser, error) {
	c, err := Client(dial, key)
	if err != nil {
		return nil, err
	}
	archive, err := c.Pack(ctx, path)
	if err != nil {
		c.Close()
		return nil, fileError(err)
	}
	return packed{archive, c}, nil
}

// packed is an archive that closes the connection it comes by.
type packed struct {
	io.ReadCloser
	client *client.Client
}

// Close ends the reading.
func (p packed) Close() error {
	err := p.ReadCloser.Close()
	p.client.Close()
	return err
}

// answerTime bounds the wait for the answer after an archive was sent.
const answerTime = time.Minute

// Unpack puts the files of an archive into the sandbox.
func (Agent) Unpack(ctx context.Context, dial sandbox.DialFunc, key, dir string, archive io.Reader) error {
	c, err := newClient(dial, key, answerTime)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Unpack(ctx, dir, io.NopCloser(archive))
	return fileError(err)
}

// fileError turns refusals about files into errors of drivers.
func fileError(err error) error {
	refused, ok := errors.AsType[*client.StatusError](err)
	switch {
	case !ok:
		return err
	case refused.Status == http.StatusNotFound:
		return fmt.Errorf("%w: its server answered: %w", fs.ErrNotExist, refused)
	case refused.Status == http.StatusConflict:
		return fmt.Errorf("%w: its server answered: %w", sandbox.ErrConflict, refused)
	}
	return fmt.Errorf("its server answered: %w", refused)
}

// Client returns a client whose connections dial opens. Its Close drops them.
func Client(dial sandbox.DialFunc, key string) (*client.Client, error) {
	return newClient(dial, key, 0)
}

// freshConn is a connection whose end before any answer is an error that wraps [io.EOF], whenever it
// comes. net/http takes a bare io.EOF between the dial and the request for the end of an idle
// connection, and its error for that wraps nothing. A port forwarding of Kubernetes ends like this
// while nothing listens in the Pod.
type freshConn struct {
	net.Conn

	answered bool // only Read uses it, which net/http does not call concurrently
}

func (c *freshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered = true
	}
	if err == io.EOF && !c.answered { //nolint:errorlint // a reader returns it bare
		err = fmt.Errorf("the connection ended before an answer: %w", err)
	}
	return n, err
}

// newClient waits at most answer for the beginning of an answer; 0 sets no bound.
func newClient(dial sandbox.DialFunc, key string, answer time.Duration) (*client.Client, error) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial.Open(ctx)
			if err != nil {
				return nil, err
			}
			return &freshConn{Conn: conn}, nil
		},
		DisableCompression: true,
		IdleConnTimeout:    90 * time.Second,

		ResponseHeaderTimeout:  answer,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport}})
}
