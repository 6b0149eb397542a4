package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// dockerEngine is a client of the engine. Of the client's calls, those that take
// filters read the version of the API before they negotiate it, which races with
// the first calls of others; here they negotiate first.
type dockerEngine struct {
	*client.Client

	mu         sync.Mutex
	negotiated bool
}

// ContainerList is the client's.
func (e *dockerEngine) ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error) {
	if err := e.negotiate(ctx); err != nil {
		return nil, err
	}
	return e.Client.ContainerList(ctx, options)
}

// VolumeList is the client's.
func (e *dockerEngine) VolumeList(ctx context.Context, options volume.ListOptions) (volume.ListResponse, error) {
	if err := e.negotiate(ctx); err != nil {
		return volume.ListResponse{}, err
	}
	return e.Client.VolumeList(ctx, options)
}

// NetworkList is the client's.
func (e *dockerEngine) NetworkList(ctx context.Context, options network.ListOptions) ([]network.Summary, error) {
	if err := e.negotiate(ctx); err != nil {
		return nil, err
	}
	return e.Client.NetworkList(ctx, options)
}

// Events is the client's.
func (e *dockerEngine) Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error) {
	if err := e.negotiate(ctx); err != nil {
		failed := make(chan error, 1)
		failed <- err
		return nil, failed
	}
	return e.Client.Events(ctx, options)
}

func (e *dockerEngine) negotiate(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.negotiated {
		return nil
	}
	// The client swallows the error of a negotiation, so it is asked for here.
	if _, err := e.Ping(ctx); err != nil {
		return err
	}
	e.NegotiateAPIVersion(ctx)
	e.negotiated = ctx.Err() == nil
	return context.Cause(ctx)
}

// ErrUnsafeSocket reports that the file at the path of a sandbox's socket is not the socket of
// its server.
var ErrUnsafeSocket = errors.New("unsafe socket")

// engineError wraps the error of an engine call, so that "cannot be reached"
// is told from an answer. A wait that the caller ended is the caller's.
func engineError(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case unreachable(err):
		return fmt.Errorf("%s: %w", what, &sandbox.UnreachableError{Platform: "the Docker engine at " + engineAddress(), Reason: reason(err), Err: err})
	}
	return fmt.Errorf("%s: %w", what, err)
}

// reason is why an engine cannot be reached, empty where the client does not say more.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case client.IsErrConnectionFailed(err):
		return ""
	}
	return err.Error()
}

func unreachable(err error) bool {
	network, found := errors.AsType[net.Error](err)
	_, ofFile := network.(syscall.Errno) // those of connections are wrapped
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		found && !ofFile || cerrdefs.IsUnavailable(err)
}

// The reasons for which an engine refuses a request.
var isNotFound, isInvalid, isConflict = cerrdefs.IsNotFound, cerrdefs.IsInvalidArgument, cerrdefs.IsConflict

// safely repeats a call that may be repeated without harm (a look, or
// something whose second time changes nothing) as long as the engine cannot be
// reached, at most four times over about a second.
func safely[T any](ctx context.Context, what string, call func() (T, error)) (T, error) {
	wait := 50 * time.Millisecond
	for try := 1; ; try++ {
		value, err := call()
		if err == nil || try == 4 || !unreachable(err) || ctx.Err() != nil {
			return value, engineError(ctx, what, err)
		}
		_ = channel.Sleep(ctx, wait/2+rand.N(wait)) //nolint:gosec // jitter needs no secrecy; the next try is the last one then
		wait *= 2
	}
}

// connect opens the engine that host names (unix:///var/run/docker.sock,
// tcp://…). An empty host means what the docker command would use:
// $DOCKER_HOST, $DOCKER_CONTEXT, the current context, the local socket. It does
// not speak to the engine yet.
func connect(host string) (*dockerEngine, error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host == "" && os.Getenv(client.EnvOverrideHost) == "" {
		fromContext, err := contextHost()
		if err != nil {
			return nil, err
		}
		host = fromContext
	}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	opened, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, fmt.Errorf("opening the Docker engine %s: %w", cmp.Or(host, os.Getenv(client.EnvOverrideHost)), err)
	}
	return &dockerEngine{Client: opened}, nil
}
