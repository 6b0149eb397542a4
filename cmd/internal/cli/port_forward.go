package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// aliveTime is how often a forward looks whether its sandbox is still there.
const aliveTime = 3 * time.Second

func (p *program) portForward() *cobra.Command {
	c := &cobra.Command{
		Use:   "port-forward [flags] SANDBOX [LOCAL:]PORT...",
		Short: "Make ports of a sandbox ports of this machine",
		Long: `Port-forward listens on 127.0.0.1 and connects each client to the port of the
sandbox, until Ctrl-C, or the end of the sandbox. LOCAL is the port here, by
default the same number; 0, or nothing before the colon, takes any free one.

Other users of this machine can connect to it too. The program in the sandbox must
listen on 127.0.0.1, ::1, 0.0.0.0 or ::, which 'runtimectl ports' shows.`,
		Example: `  runtimectl port-forward build 8080
  runtimectl port-forward build 9000:8080 :5432`,
		Args:              command.ArgRange(2, command.Many),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var pairs []portPair
		for _, text := range args[1:] {
			pair, err := parsePair(text)
			if err != nil {
				return command.Usage(cmd, err)
			}
			pairs = append(pairs, pair)
		}
		return p.On(cmd.Context(), args[0], func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			return p.forward(cmd.Context(), driver, s, pairs)
		})
	}
	return c
}

// portPair is a port of this machine, 0 for any, and one of the sandbox.
type portPair struct{ local, remote uint16 }

func parsePair(text string) (pair portPair, err error) {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	if pair.remote, err = api.ParsePort(remote); err == nil && local != "" && local != "0" {
		pair.local, err = api.ParsePort(local)
	}
	if err != nil {
		return pair, fmt.Errorf("%q is not [LOCAL:]PORT: ports are numbers from 1 to 65535", text)
	}
	return pair, nil
}

// errForwardEnds is the cause that ends the waits of a forward.
var errForwardEnds = errors.New("the forward ends")

// forward listens until ctx ends, which is no error, or the sandbox does.
func (p *program) forward(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox, pairs []portPair) error {
	c, err := platform.Client(s)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Status(ctx); err != nil { // before a port is said to be forwarded
		return err
	}
	interrupted := ctx
	ctx, end := context.WithCancelCause(ctx)
	f := &forwarder{client: c, say: p.noteOnce(), end: end}
	defer f.all.Wait()
	defer end(errForwardEnds)
	var config net.ListenConfig
	for _, pair := range pairs {
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(pair.local))))
		if err != nil {
			return fmt.Errorf("port %d of this machine: %w; choose another one with LOCAL:%d", pair.local, err, pair.remote)
		}
		f.all.Go(func() { f.accept(ctx, l, pair.remote) })
		if _, err := fmt.Fprintf(p.Stdout, "Forwarding %s to port %d of %s\n", l.Addr(), pair.remote, output.Clean(s.Name)); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	err = f.watch(ctx, driver, s)
	if err == nil && interrupted.Err() == nil {
		err = context.Cause(ctx) // of accept
	}
	return err
}

// noteOnce returns a function that says a note, unless it was the last one that was
// said. It may be called concurrently.
func (p *program) noteOnce() func(string) {
	var mu sync.Mutex
	last := ""
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if text != last {
			last = text
			_, _ = fmt.Fprintf(p.Stderr, "note: %s\n", output.Clean(text))
		}
	}
}

// forwarder connects clients of this machine. It owns the goroutines in all, which end
// with the context of its methods.
type forwarder struct {
	client *client.Client
	say    func(string)
	end    context.CancelCauseFunc
	all    sync.WaitGroup
}

// watch returns when ctx ends, or the reason when the sandbox did.
func (f *forwarder) watch(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
	tick := time.NewTicker(aliveTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := f.client.Status(ctx); err == nil || ctx.Err() != nil {
			continue
		}
		now, err := driver.Get(ctx, s.ID)
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			return fmt.Errorf("the forward ends: sandbox %s was removed: %w", s.Name, sandbox.ErrNotFound)
		case err == nil && !platform.Serves(now):
			return fmt.Errorf("the forward ends: %w", platform.NotRunning(now))
		}
	}
}

// accept takes the clients of one port until ctx ends.
func (f *forwarder) accept(ctx context.Context, l net.Listener, port uint16) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				f.end(fmt.Errorf("the forward ends: %w", err))
			}
			return
		}
		f.all.Go(func() { f.serve(ctx, conn.(*net.TCPConn), port) }) //nolint:forcetypeassert // of a TCP listener
	}
}

// serve connects one client with the port until both have ended, or one broke.
func (f *forwarder) serve(ctx context.Context, near *net.TCPConn, port uint16) {
	defer func() { _ = near.Close() }()
	far, err := f.client.DialPort(ctx, port)
	if err != nil {
		if ctx.Err() == nil {
			f.say(fmt.Sprintf("a client of port %d was not connected: %v", port, err))
		}
		return
	}
	defer func() { _ = far.Close() }()
	defer context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})()
	var both sync.WaitGroup
	direction := func(to halfCloser, from io.Reader) func() {
		return func() {
			if carry(to, from) != nil { // the other one ends with its connections
				_ = near.Close()
				_ = far.Close()
			}
		}
	}
	both.Go(direction(far, near))
	both.Go(direction(near, far))
	both.Wait()
}

// halfCloser is a connection whose sending direction can be ended alone.
type halfCloser interface {
	io.Writer
	CloseWrite() error
}

// carry copies one direction, and ends it at the other side.
func carry(to halfCloser, from io.Reader) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.CloseWrite()
}
